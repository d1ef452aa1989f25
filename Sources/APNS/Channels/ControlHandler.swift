import NIOCore
import Sockets
import TLS

/// Connects a ``ControlExchange`` to a socket: one connection, one request, one answer.
final class ControlHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let endpoint: APNSEndpoint
    private var exchange: ControlExchange
    private let promise: EventLoopPromise<ControlExchange.Response>
    private var isConnected = false
    private var isOver = false
    private var timer: TimeLimit?

    /// - Parameter promise: receives the answer, or an ``APNSConnectionError`` or ``TLSError``.
    init(
        _ request: HTTP2Request, to endpoint: APNSEndpoint,
        promise: EventLoopPromise<ControlExchange.Response>
    ) {
        self.endpoint = endpoint
        self.promise = promise
        exchange = ControlExchange(request)
    }

    /// Starts the timeout, which covers everything from now until the answer.
    func limit(_ timeout: TimeAmount, _ channel: any Channel) {
        timer = TimeLimit(in: timeout, on: channel.eventLoop) {
            let what = self.isConnected ? "no answer" : "TLS was not set up"
            self.end(.failure(APNSConnectionError.unresponsive(self.endpoint, "\(what) within \(timeout.formatted)")))
            channel.close(promise: nil)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let handshake = event as? TLSHandshakeCompleted {
            if handshake.applicationProtocol == "h2" {
                isConnected = true
                flush(context)
            } else {
                end(.failure(APNSConnectionError.noHTTP2(endpoint, offered: handshake.applicationProtocol)))
                context.close(promise: nil)
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        unwrapInboundIn(data).withUnsafeReadableBytes { exchange.receive($0) }
        flush(context)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        end(.failure(error))
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        closedByPeer()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { closedByPeer() }

    private func closedByPeer() {
        end(
            .failure(
                isConnected
                    ? APNSConnectionError.hungUp(endpoint, .beforeAnswer)
                    : .closedByPeer(endpoint, whileConnecting: true, reason: nil)))
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard isConnected, !isOver else { return }
        write(exchange.output(), context)
        guard let result = exchange.result else { return }
        end(result.mapError { APNSConnectionError.protocolViolation(endpoint, $0.description) })
        exchange.terminate()
        write(exchange.output(), context)
        context.close(promise: nil)
    }

    private func write(_ output: ByteBuffer, _ context: ChannelHandlerContext) {
        if output.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(output), promise: nil) }
    }

    private func end(_ result: Result<ControlExchange.Response, any Error>) {
        guard !isOver else { return }
        isOver = true
        timer?.cancel()
        promise.completeWith(result)
    }
}
