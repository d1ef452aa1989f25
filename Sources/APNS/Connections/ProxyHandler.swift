import NIOCore
import Sockets
import TLS

/// Opens a tunnel through a proxy, and then replaces itself with TLS in the pipeline.
final class ProxyHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum State { case idle, waiting, connected, failed }

    private let proxy: HTTPProxy
    private let endpoint: APNSEndpoint
    private let timeout: TimeAmount
    private let makeTLS: () -> TLSHandler
    private let onConnected: () -> Void
    private var handshake: ProxyHandshake
    private var state = State.idle
    private var timer: TimeLimit?

    /// - Parameters:
    ///   - timeout: the timeout of the proxy's answer.
    ///   - thenTLS: makes the TLS handler, which uses the tunnel.
    ///   - onConnected: called when TLS has been added.
    init(
        _ proxy: HTTPProxy, to endpoint: APNSEndpoint, timeout: TimeAmount, thenTLS makeTLS: @escaping () -> TLSHandler,
        onConnected: @escaping () -> Void
    ) {
        self.proxy = proxy
        self.endpoint = endpoint
        self.timeout = timeout
        self.makeTLS = makeTLS
        self.onConnected = onConnected
        handshake = ProxyHandshake(to: endpoint, credentials: proxy.credentials)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if context.channel.isActive { start(context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func channelActive(context: ChannelHandlerContext) {
        start(context)
        context.fireChannelActive()
    }

    private func start(_ context: ChannelHandlerContext) {
        guard state == .idle else { return }
        state = .waiting
        timer = TimeLimit(in: timeout, on: context.eventLoop) { [timeout] in
            self.fail(context, "it did not answer CONNECT within \(timeout.formatted)")
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: handshake.request)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard state == .waiting else { return }
        switch handshake.receive(unwrapInboundIn(data)) {
        case .needsMore: break
        case .failed(let why): fail(context, why)
        case .connected(let rest): connected(context, rest)
        }
    }

    private func connected(_ context: ChannelHandlerContext, _ rest: ByteBuffer) {
        state = .connected
        timer?.cancel()
        let pipeline = context.pipeline.syncOperations
        do {
            try pipeline.addHandler(makeTLS(), position: .after(self))
        } catch {
            return fail(context, "\(error)")
        }
        onConnected()
        if rest.readableBytes > 0 {
            context.fireChannelRead(wrapInboundOut(rest))
            context.fireChannelReadComplete()
        }
        pipeline.removeHandler(self, promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(context, "it closed the connection without an answer to CONNECT")
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        fail(context, "\(error)")
    }

    /// Rejects writes until TLS is in place: they would reach the proxy unencrypted.
    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard state == .connected else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        context.write(data, promise: promise)
    }

    private func fail(_ context: ChannelHandlerContext, _ why: String) {
        guard state == .waiting || state == .idle else { return }
        state = .failed
        timer?.cancel()
        context.fireErrorCaught(APNSConnectionError.proxy(proxy, endpoint, why))
        context.close(promise: nil)
    }
}
