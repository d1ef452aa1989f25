import NIOCore
import NIOHTTP1
import NIOPosix
import Sockets

/// The answer of the admin port.
struct AdminAnswer: Sendable {
    var status: Int
    var body: String
}

/// A worker's admin port on this machine, and one question to it.
struct AdminAddress {
    /// Why there is no answer.
    struct NoAnswer: Error, CustomStringConvertible {
        let description: String
    }

    let host: String
    let port: Int

    /// - Parameter host: where the port listens; all addresses are asked for at the loopback address.
    init(host: String, port: Int) {
        self.host = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host
        self.port = port
    }

    private static let longestAnswer = 1 << 20

    /// Asks once.
    /// - Throws: ``NoAnswer``.
    func get(_ path: String, within limit: TimeAmount) async throws -> AdminAnswer {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let answered = loop.makePromise(of: AdminAnswer.self)
        let timer = loop.scheduleTask(in: limit) { [self] in
            answered.fail(NoAnswer(description: "\(place) does not answer within \(limit.nanoseconds / 1_000_000) ms"))
        }
        let connecting = ClientBootstrap(group: loop)
            .connectTimeout(limit)
            .channelInitializer { [self] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHTTPClientHandlers()
                    try channel.pipeline.syncOperations.addHandler(
                        NIOHTTPClientResponseAggregator(maxContentLength: Self.longestAnswer))
                    try channel.pipeline.syncOperations.addHandler(
                        OneAnswer(path: path, host: host, place: place, answered: answered))
                }
            }
            .connect(host: host, port: port)
        connecting.whenFailure { [self] error in
            answered.fail(
                NoAnswer(
                    description: "nothing answers at \(place): \(ConnectFailure.firstReason(error)). Is the worker "
                        + "running, with this admin port?"))
        }
        answered.futureResult.whenComplete { _ in
            timer.cancel()
            connecting.whenSuccess { $0.close(promise: nil) }
        }
        return try await answered.futureResult.get()
    }

    private var place: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }
}

private final class OneAnswer: ChannelInboundHandler {
    typealias InboundIn = NIOHTTPClientResponseFull
    typealias OutboundOut = HTTPClientRequestPart

    private let path: String
    private let host: String
    private let place: String
    private let answered: EventLoopPromise<AdminAnswer>

    init(path: String, host: String, place: String, answered: EventLoopPromise<AdminAnswer>) {
        self.path = path
        self.host = host
        self.place = place
        self.answered = answered
    }

    func channelActive(context: ChannelHandlerContext) {
        let head = HTTPRequestHead(
            version: .http1_1, method: .GET, uri: path, headers: ["Host": host, "Connection": "close"])
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let response = unwrapInboundIn(data)
        let body = response.body.map { String(buffer: $0) } ?? ""
        answered.succeed(AdminAnswer(status: Int(response.head.status.code), body: body))
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        answered.fail(AdminAddress.NoAnswer(description: "\(place) does not answer as an admin port does: \(error)"))
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        // Of no effect where there was an answer.
        answered.fail(AdminAddress.NoAnswer(description: "\(place) closed the connection without an answer"))
        context.fireChannelInactive()
    }
}
