import NIOCore
import Sockets
import TLS

/// Sends one request of any method on its own connection, and reads the whole answer.
final class ControlHandler: ChannelInboundHandler {
    struct Response: Equatable, Sendable {
        var status: Int
        /// `Retry-After` in seconds.
        var retryAfter: Int?
        /// The header fields without `:status`, by name. Of a repeated field, only the last value is kept.
        var headers: [String: String]
        var body: ByteBuffer
    }

    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The maximum size in bytes. The longest list, of 10,000 channels, is smaller.
    static let maximumBodySize = 4 << 20

    private let endpoint: APNSEndpoint
    private let session: HTTP2Session
    private let promise: EventLoopPromise<Response>
    private var goAwayReason: String?
    private var isConnected = false
    private var isOver = false
    private var timer: TimeLimit?

    /// - Parameter promise: receives the answer, or an ``APNSConnectionError`` or ``TLSError``.
    init(_ request: HTTP2Request, to endpoint: APNSEndpoint, promise: EventLoopPromise<Response>) {
        self.endpoint = endpoint
        self.promise = promise
        session = HTTP2Session(for: request, maximumBodySize: Self.maximumBodySize)
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
        unwrapInboundIn(data).withUnsafeReadableBytes { session.receive($0) }
        for case .goAway(_, _, let debugData) in session.events {
            goAwayReason = ResponseBody(debugData)?.reason ?? "GOAWAY"
        }
        session.events.removeAll()
        flush(context)
        if let stream = session.streams.closed.first {
            finish(answer(stream), context)
        } else if session.phase == .ended {
            finish(failure(session.complaint ?? "it broke HTTP/2"), context)
        }
    }

    private func answer(_ stream: ClosedStream) -> Result<Response, any Error> {
        let slot = session.streams.slots.pointer(stream.slot)
        if slot.pointee.isCut { return failure("it sent an answer larger than \(Self.maximumBodySize) bytes") }
        guard stream.code == HTTP2ErrorCode.noError.rawValue, slot.pointee.status > 0, slot.isWhole else {
            let failure = slot.pointee.failure == .malformed ? RequestFailure.malformed : .reset(code: stream.code)
            return self.failure(goAwayReason.map { "it closed the connection (\($0))" } ?? failure.description)
        }
        return .success(
            Response(
                status: Int(slot.pointee.status),
                retryAfter: slot.pointee.retryAfter >= 0 ? Int(slot.pointee.retryAfter) : nil,
                headers: session.streams.headers.fields ?? [:], body: slot.pointee.body ?? ByteBuffer()))
    }

    private func failure(_ description: String) -> Result<Response, any Error> {
        .failure(APNSConnectionError.protocolViolation(endpoint, description))
    }

    /// Ends the connection with a GOAWAY.
    private func finish(_ result: Result<Response, any Error>, _ context: ChannelHandlerContext) {
        session.goAway()
        flush(context)
        end(result)
        context.close(promise: nil)
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
        var output = ByteBuffer()
        session.takeOutput(into: &output)
        if output.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(output), promise: nil) }
    }

    private func end(_ result: Result<Response, any Error>) {
        guard !isOver else { return }
        isOver = true
        timer?.cancel()
        promise.completeWith(result)
    }
}
