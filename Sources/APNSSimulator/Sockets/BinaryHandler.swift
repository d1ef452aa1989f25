import NIOCore
import TLS

/// The state machine of one connection to the gateway or the feedback service, without its socket: it is passed bytes
/// and the time, and returns actions and the time of the next one.
protocol BinaryConnection {
    /// Adds the connection, or a client that is refused, to the account.
    init(_ service: SimulatedService, client: GatewayClient, at moment: SimulatedMoment)
    mutating func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment)
    /// Returns the next action, if one is due.
    mutating func next(at moment: SimulatedMoment) -> SocketStep?
    /// When to call ``next(at:)``, in microseconds of uptime; nil if nothing is scheduled.
    var nextTime: Int64? { get }
    /// Prepares the end.
    /// - Returns: false if there is nothing left to send.
    mutating func shutDown(at moment: SimulatedMoment) -> Bool
    /// Records that the socket is being dropped.
    mutating func drop()
}

/// Connects a channel and a timer to a ``BinaryConnection``.
final class BinaryHandler<Connection: BinaryConnection>: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let service: SimulatedService
    private let tls: TLSHandler
    private var connection: Connection?
    private let wakeUp = WakeUp()

    init(_ service: SimulatedService, tls: TLSHandler) {
        self.service = service
        self.tls = tls
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let handshake as TLSHandshakeCompleted:
            connection = Connection(
                service, client: GatewayClient(handshake.peerCertificate, service.configuration), at: .now())
            proceed(context)
        case ConnectionEvent.shutDown:
            if connection?.shutDown(at: .now()) == true {
                proceed(context)
            } else {
                end()
                context.close(promise: nil)
            }
        case ConnectionEvent.drop:
            connection?.drop()
            end()
            SocketEnding.drop(context, tls)
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        unwrapInboundIn(data).withUnsafeReadableBytes { connection?.receive($0, at: .now()) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        proceed(context)
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        proceed(context)
        context.fireChannelWritabilityChanged()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if connection == nil, let error = error as? TLSError, error.isAboutClientCertificate {
            connection = Connection(service, client: .refused, at: .now())
        }
        // A simulator must tolerate clients that break off or fail their handshake.
        context.close(promise: nil)
    }

    private func end() {
        wakeUp.cancel()
        connection = nil
    }

    // A write can change writability and re-enter this function, after the connection's state has changed. While the
    // client does not read, the remaining records of the feedback service stay on their list.
    private func proceed(_ context: ChannelHandlerContext) {
        while context.channel.isWritable, let step = connection?.next(at: .now()) {
            switch step {
            case .send(let bytes): context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
            case .close: SocketEnding.close(context, tls)
            case .reset: SocketEnding.reset(context, tls)
            case .stopReading: stopReading(context)
            }
        }
        wakeUp.set(at: connection?.nextTime, on: context.eventLoop) { self.proceed(context) }
    }

    private func stopReading(_ context: ChannelHandlerContext) {
        do {
            try context.channel.syncOptions?.setOption(.autoRead, value: false)
        } catch {
            context.close(promise: nil)
        }
    }
}
