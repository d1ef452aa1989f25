import NIOCore
import NIOPosix

/// A client's connection to a proxy, and the proxy's connection to the server. Only the proxy's event loop uses it.
final class FaultProxyLink {
    private let core: FaultProxyCore
    private let client: any Channel
    private var server: (any Channel)?
    private var isClosed = false
    /// True if bytes were lost. The other side could not understand later bytes.
    private(set) var hasLostBytes = false

    init(client: any Channel, core: FaultProxyCore) throws {
        self.client = client
        self.core = core
        try client.pipeline.syncOperations.addHandler(FaultProxyHandler(self))
    }

    func connected(to server: any Channel) {
        guard !isClosed else { return server.close(promise: nil) }
        do {
            try server.pipeline.syncOperations.addHandler(FaultProxyHandler(self))
        } catch {
            return close(resetting: true)
        }
        self.server = server
        setReading(server, true)
        setReading(client, true)
    }

    func swallow() {
        hasLostBytes = true
        setReading(client, true)
    }

    enum Treatment { case pass(after: TimeAmount), swallow }

    func treatment(of channel: any Channel) -> Treatment {
        switch core.fault {
        case .noAnswers where channel === client: return .pass(after: .zero)
        case .blackHole, .noAnswers:
            hasLostBytes = true
            return .swallow
        case .delay(let time): return .pass(after: time)
        case .refusal, nil: return hasLostBytes ? .swallow : .pass(after: .zero)
        }
    }

    func arrived(_ bytes: ByteBuffer, over channel: any Channel) {
        if channel === client { core.watch?(bytes) }
    }

    func partner(of channel: any Channel) -> (any Channel)? { channel === client ? server : client }

    func setReading(_ channel: any Channel, _ isOn: Bool) {
        channel.setOption(.autoRead, value: isOn).assumeIsolated().whenFailure { _ in self.close(resetting: false) }
    }

    func close(resetting: Bool) {
        guard !isClosed else { return }
        isClosed = true
        for channel in [client, server].compactMap({ $0 }) {
            if resetting, let socket = channel as? any SocketOptionProvider {
                // SO_LINGER with a time of zero ends the connection with RST, even if bytes are unsent.
                socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in channel.close(promise: nil) }
            } else {
                channel.close(promise: nil)
            }
        }
    }
}

/// Passes the bytes of one side to the other, in order, each after its delay.
private final class FaultProxyHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private enum Item { case bytes(ByteBuffer), end }

    private let link: FaultProxyLink
    private var waiting: [(due: NIODeadline, item: Item)] = []
    private var isScheduled = false

    init(_ link: FaultProxyLink) { self.link = link }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        link.arrived(bytes, over: context.channel)
        take(.bytes(bytes), context)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event { take(.end, context) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        take(.end, context)
        context.fireChannelInactive()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if let partner = link.partner(of: context.channel) { link.setReading(partner, context.channel.isWritable) }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { link.close(resetting: true) }

    private func take(_ item: Item, _ context: ChannelHandlerContext) {
        guard case .pass(let delay) = link.treatment(of: context.channel) else { return }
        if waiting.isEmpty, delay == .zero { return pass(item, context.channel) }
        let now = context.eventLoop.now
        // Bytes must not overtake earlier ones if the delay has become shorter.
        waiting.append((max(now + delay, waiting.last?.due ?? now), item))
        passWhatIsDue(context.channel)
    }

    private func passWhatIsDue(_ channel: any Channel) {
        guard !isScheduled else { return }
        while let first = waiting.first, first.due <= channel.eventLoop.now {
            waiting.removeFirst()
            pass(first.item, channel)
        }
        guard let first = waiting.first else { return }
        isScheduled = true
        channel.eventLoop.assumeIsolated().scheduleTask(deadline: first.due) {
            self.isScheduled = false
            self.passWhatIsDue(channel)
        }
    }

    private func pass(_ item: Item, _ channel: any Channel) {
        guard let partner = link.partner(of: channel) else { return }
        // A black hole may have begun while the bytes were waiting.
        guard case .pass = link.treatment(of: channel) else { return }
        switch item {
        case .bytes(let bytes): partner.writeAndFlush(bytes, promise: nil)
        case .end: partner.close(mode: .output, promise: nil)
        }
        if case .end = item, !channel.isActive { link.close(resetting: false) }
    }
}
