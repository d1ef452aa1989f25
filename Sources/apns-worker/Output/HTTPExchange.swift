import APNS
import NIOCore
import NIOHTTP1
import NIOPosix
import Operations
import PushWorker
import Sockets
import TLS

/// An HTTP/1.1 request over its own connection, and the answer.
struct HTTPExchange: Sendable {
    /// A complete answer.
    struct Answer: Sendable {
        var status: Int
        var headers: HTTPHeaders
        var body: ByteBuffer

        /// The pause in seconds that the server asks for, as a number or by the time of its end.
        var retryAfter: Int64? {
            headers.first(name: "Retry-After").flatMap { RetryAfter.seconds($0.utf8, now: Moment.now / 1000) }
                .map(Int64.init)
        }
    }

    /// The reason for which there is no answer.
    enum Failure: Error, CustomStringConvertible {
        /// Nothing listens there, or TLS failed.
        case unreachable(String)
        case timeout(TimeAmount)
        /// The connection was closed before the end of the answer.
        case closed
        /// The answer is not HTTP, or is too long.
        case broken(String)

        /// A sentence about the server.
        var description: String {
            switch self {
            case .unreachable(let reason): "it cannot be reached: \(reason)"
            case .timeout(let limit): "it did not answer within \(limit.nanoseconds / 1_000_000) ms"
            case .closed: "it closed the connection without a complete answer"
            case .broken(let reason): "its answer cannot be read: \(reason)"
            }
        }
    }

    let host: String
    let port: Int
    /// `nil` for a connection without TLS.
    var tls: TLSContext?
    /// The maximum size of the answer's body in bytes; a longer body is an error.
    var maximumBody = 1 << 20

    /// Sends a request and returns the answer.
    /// - Parameter limit: the maximum time for the whole exchange.
    /// - Throws: ``Failure``.
    func send(
        _ method: HTTPMethod, _ target: String, headers: HTTPHeaders, body: ByteBuffer? = nil, within limit: TimeAmount
    ) async throws -> Answer {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let answered = loop.makePromise(of: Answer.self)
        var head = HTTPRequestHead(version: .http1_1, method: method, uri: target, headers: headers)
        head.headers.replaceOrAdd(name: "Connection", value: "close")
        if let body { head.headers.replaceOrAdd(name: "Content-Length", value: "\(body.readableBytes)") }
        let request = (head: head, body: body)
        let timer = loop.scheduleTask(in: limit) { answered.fail(Failure.timeout(limit)) }
        let connecting = ClientBootstrap(group: loop)
            .connectTimeout(limit)
            .channelInitializer { [self] channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls { try pipeline.addHandler(TLSHandler(client: tls, host: host)) }
                    try pipeline.addHTTPClientHandlers()
                    try pipeline.addHandler(NIOHTTPClientResponseAggregator(maxContentLength: maximumBody))
                    try pipeline.addHandler(ExchangeHandler(request.head, request.body, answered))
                }
            }
            .connect(host: host, port: port)
        connecting.whenFailure { answered.fail(Failure.unreachable(ConnectFailure.firstReason($0))) }
        answered.futureResult.whenComplete { _ in
            timer.cancel()
            connecting.whenSuccess { $0.close(promise: nil) }
        }
        return try await answered.futureResult.get()
    }
}

/// Posts JSON to a server of a user's, such as a receiver of webhooks or a collector of traces.
struct HTTPPost: Sendable, CustomStringConvertible {
    let address: HTTPAddress
    /// `nil` for an address without TLS.
    let tls: Renewable<TLSContext>?
    /// The maximum time for a request and its answer.
    let timeout: TimeAmount

    /// - Parameter authorities: the file with the trusted certificate authorities; `nil` for the system's.
    /// - Throws: an error of the file.
    init(_ address: HTTPAddress, authorities: String?, timeout: TimeAmount) throws {
        self.address = address
        self.timeout = timeout
        guard address.usesTLS else {
            tls = nil
            return
        }
        tls = try Renewable(authorities.map { [.file($0)] } ?? []) { contents in
            var configuration = TLSClientConfiguration()
            if let authorities { configuration.trust = .pem(contents[0], name: authorities) }
            configuration.applicationProtocols = ["http/1.1"]
            return try TLSContext.client(configuration)
        }
    }

    /// The scheme, host and port.
    var description: String { address.description }

    /// Sends a document and returns the answer.
    /// - Parameter headers: in addition to the usual ones.
    /// - Throws: ``HTTPExchange/Failure``.
    func send(_ document: ByteBuffer, headers more: HTTPHeaders) async throws -> HTTPExchange.Answer {
        var headers: HTTPHeaders = [
            "Host": address.authority, "User-Agent": "apns-worker/\(WorkerVersion.current)",
            "Content-Type": "application/json",
        ]
        for (name, value) in more { headers.replaceOrAdd(name: name, value: value) }
        return try await HTTPExchange(host: address.host, port: address.port, tls: tls?.current)
            .send(.POST, address.target, headers: headers, body: document, within: timeout)
    }
}

private final class ExchangeHandler: ChannelInboundHandler {
    typealias InboundIn = NIOHTTPClientResponseFull
    typealias OutboundOut = HTTPClientRequestPart

    private let head: HTTPRequestHead
    private let body: ByteBuffer?
    private let answered: EventLoopPromise<HTTPExchange.Answer>

    init(_ head: HTTPRequestHead, _ body: ByteBuffer?, _ answered: EventLoopPromise<HTTPExchange.Answer>) {
        self.head = head
        self.body = body
        self.answered = answered
    }

    func channelActive(context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        if let body { context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let response = unwrapInboundIn(data)
        answered.succeed(
            HTTPExchange.Answer(
                status: Int(response.head.status.code), headers: response.head.headers,
                body: response.body ?? ByteBuffer()))
    }

    // This has no effect after an answer; the first of several failures counts.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        let failure: HTTPExchange.Failure =
            switch error {
            case let error as TLSError where error.kind != .truncated: .unreachable("\(error)")
            case HTTPParserError.invalidEOFState: .closed
            case is HTTPParserError, is NIOHTTPObjectAggregatorError: .broken("\(error)")
            default: .closed
            }
        answered.fail(failure)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        answered.fail(HTTPExchange.Failure.closed)
        context.fireChannelInactive()
    }
}
