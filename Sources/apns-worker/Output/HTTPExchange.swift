import APNS
import Glibc
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

        /// The pause in seconds that the server requests, as a number or as the time of its end.
        var retryAfter: Int64? {
            headers.first(name: "Retry-After").flatMap { RetryAfter.seconds($0.utf8, now: Moment.now / 1000) }
                .map(Int64.init)
        }
    }

    /// The reason why there is no answer.
    enum Failure: Error, CustomStringConvertible {
        /// Nothing listens at the address, or TLS failed.
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

    let address: HTTPAddress
    /// `nil` for an address without TLS.
    var tls: TLSContext?
    /// The maximum size of the answer's body in bytes; a longer body is an error.
    var maximumBody = 1 << 20

    /// Returns the context of connections with TLS.
    /// - Parameter trust: the trusted certificate authorities; `nil` for the system's.
    static func tls(_ trust: TLSTrust? = nil) throws -> TLSContext {
        var configuration = TLSClientConfiguration()
        if let trust { configuration.trust = trust }
        configuration.applicationProtocols = ["http/1.1"]
        return try TLSContext.client(configuration)
    }

    /// Sends a request and returns the answer.
    /// - Parameters:
    ///   - headers: in addition to the usual ones.
    ///   - limit: the maximum time for the whole exchange, or without any byte if the body is written to a file.
    ///   - file: gets the body of an answer with the status 200, whatever its size; any other status is then an error. With `nil`, the body
    ///     is returned.
    /// - Throws: ``Failure``.
    @discardableResult
    func send(
        _ method: HTTPMethod, headers more: HTTPHeaders = [:], body: ByteBuffer? = nil, within limit: TimeAmount,
        to file: Int32? = nil
    ) async throws -> Answer {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let answered = loop.makePromise(of: Answer.self)
        var headers: HTTPHeaders = ["Host": address.authority, "User-Agent": "apns-worker/\(WorkerVersion.current)"]
        for (name, value) in more { headers.replaceOrAdd(name: name, value: value) }
        headers.replaceOrAdd(name: "Connection", value: "close")
        if let body { headers.replaceOrAdd(name: "Content-Length", value: "\(body.readableBytes)") }
        let head = HTTPRequestHead(version: .http1_1, method: method, uri: address.target, headers: headers)
        let timer = file == nil ? loop.scheduleTask(in: limit) { answered.fail(Failure.timeout(limit)) } : nil
        let connecting = ClientBootstrap(group: loop)
            .connectTimeout(limit)
            .channelInitializer { [self] channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls { try pipeline.addHandler(TLSHandler(client: tls, host: address.host)) }
                    try pipeline.addHTTPClientHandlers()
                    if file != nil { try pipeline.addHandler(IdleStateHandler(readTimeout: limit)) }
                    try pipeline.addHandler(ExchangeHandler(head, body, self, limit, file, answered))
                }
            }
            .connect(host: address.host, port: address.port)
        connecting.whenFailure { answered.fail(Failure.unreachable(ConnectFailure.firstReason($0))) }
        answered.futureResult.whenComplete { _ in
            timer?.cancel()
            connecting.whenSuccess { $0.close(promise: nil) }
        }
        return try await answered.futureResult.get()
    }
}

/// Posts JSON to a server that the operator names, such as a receiver of webhooks or a collector of traces.
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
            try HTTPExchange.tls(authorities.map { .pem(contents[0], name: $0) })
        }
    }

    /// The scheme, host and port.
    var description: String { address.description }

    /// Sends a document and returns the answer.
    /// - Parameter headers: in addition to the usual ones.
    /// - Throws: ``HTTPExchange/Failure``.
    func send(_ document: ByteBuffer, headers more: HTTPHeaders) async throws -> HTTPExchange.Answer {
        var headers: HTTPHeaders = ["Content-Type": "application/json"]
        for (name, value) in more { headers.replaceOrAdd(name: name, value: value) }
        return try await HTTPExchange(address: address, tls: tls?.current)
            .send(.POST, headers: headers, body: document, within: timeout)
    }
}

private final class ExchangeHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let head: HTTPRequestHead
    private let body: ByteBuffer?
    private let exchange: HTTPExchange
    private let limit: TimeAmount
    private let file: Int32?
    private let answered: EventLoopPromise<HTTPExchange.Answer>
    private var answer = HTTPExchange.Answer(status: 0, headers: [:], body: ByteBuffer())

    init(
        _ head: HTTPRequestHead, _ body: ByteBuffer?, _ exchange: HTTPExchange, _ limit: TimeAmount, _ file: Int32?,
        _ answered: EventLoopPromise<HTTPExchange.Answer>
    ) {
        (self.head, self.body, self.exchange) = (head, body, exchange)
        (self.limit, self.file, self.answered) = (limit, file, answered)
    }

    func channelActive(context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        if let body { context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head) where head.status.code < 200: break
        case .head(let head):
            answer.status = Int(head.status.code)
            answer.headers = head.headers
            guard file != nil, head.status != .ok else { return }
            let advice = (300..<400).contains(answer.status) ? "; redirections are not followed" : ""
            fail(.broken("the status is \(answer.status)\(advice)"), context)
        case .body(var bytes):
            if let file {
                // The write blocks, so that no more is read than the disk accepts.
                guard case .failed(let error) = ByteOutput.write(&bytes, to: file) else { return }
                fail(.broken("it cannot be stored: \(String(cString: strerror(error)))"), context)
            } else if answer.body.readableBytes + bytes.readableBytes <= exchange.maximumBody {
                answer.body.writeBuffer(&bytes)
            } else {
                fail(.broken("it has more than \(exchange.maximumBody) bytes"), context)
            }
        case .end: answered.succeed(answer)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event is IdleStateHandler.IdleStateEvent else { return context.fireUserInboundEventTriggered(event) }
        fail(.timeout(limit), context)
    }

    // An error after the answer has no effect. Of several failures, the first counts.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case let error as TLSError where error.kind != .truncated: fail(.unreachable("\(error)"), context)
        case HTTPParserError.invalidEOFState: fail(.closed, context)
        case is HTTPParserError: fail(.broken("\(error)"), context)
        default: fail(.closed, context)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        answered.fail(HTTPExchange.Failure.closed)
        context.fireChannelInactive()
    }

    private func fail(_ failure: HTTPExchange.Failure, _ context: ChannelHandlerContext) {
        answered.fail(failure)
        context.close(promise: nil)
    }
}
