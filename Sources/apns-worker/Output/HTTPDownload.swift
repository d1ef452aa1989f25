import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import PushWorker
import Sockets
import TLS

/// Downloads a document of any size to a file, with one GET over its own connection.
struct HTTPDownload: Sendable {
    /// The time without any byte after which a download fails.
    private static let silence = TimeAmount.seconds(60)

    let address: HTTPAddress

    /// Writes the document to a file.
    /// - Throws: ``HTTPExchange/Failure``, or an error of TLS.
    func write(to descriptor: Int32) async throws {
        let tls = address.usesTLS ? try Self.context() : nil
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let ended = loop.makePromise(of: Void.self)
        let head = HTTPRequestHead(
            version: .http1_1, method: .GET, uri: address.target,
            headers: [
                "Host": address.authority, "User-Agent": "apns-worker/\(WorkerVersion.current)",
                "Accept-Encoding": "identity", "Connection": "close",
            ])
        let host = address.host
        let connecting = ClientBootstrap(group: loop)
            .connectTimeout(Self.silence)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls { try pipeline.addHandler(TLSHandler(client: tls, host: host)) }
                    try pipeline.addHTTPClientHandlers()
                    try pipeline.addHandler(IdleStateHandler(readTimeout: Self.silence))
                    try pipeline.addHandler(DownloadHandler(head, descriptor, ended, Self.silence))
                }
            }
            .connect(host: host, port: address.port)
        connecting.whenFailure {
            ended.fail(HTTPExchange.Failure.unreachable(ConnectFailure.firstReason($0)))
        }
        ended.futureResult.whenComplete { _ in connecting.whenSuccess { $0.close(promise: nil) } }
        try await ended.futureResult.get()
    }

    private static func context() throws -> TLSContext {
        var configuration = TLSClientConfiguration()
        configuration.applicationProtocols = ["http/1.1"]
        return try TLSContext.client(configuration)
    }
}

/// Writes the body of an answer to a file. The writes block, so that no more is read than the disk accepts.
private final class DownloadHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let head: HTTPRequestHead
    private let descriptor: Int32
    private let ended: EventLoopPromise<Void>
    private let silence: TimeAmount

    init(_ head: HTTPRequestHead, _ descriptor: Int32, _ ended: EventLoopPromise<Void>, _ silence: TimeAmount) {
        (self.head, self.descriptor, self.ended, self.silence) = (head, descriptor, ended, silence)
    }

    func channelActive(context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let answer) where answer.status == .ok || answer.status.code < 200: break
        case .head(let answer):
            let advice = (300..<400).contains(answer.status.code) ? "; redirections are not followed" : ""
            fail(.broken("the status is \(answer.status.code)\(advice)"), context)
        case .body(let bytes):
            var bytes = bytes
            if case .failed(let error) = ByteOutput.write(&bytes, to: descriptor) {
                fail(.broken("it cannot be stored: \(String(cString: strerror(error)))"), context)
            }
        case .end: ended.succeed()
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event is IdleStateHandler.IdleStateEvent else { return context.fireUserInboundEventTriggered(event) }
        fail(.timeout(silence), context)
    }

    // This has no effect after the end; the first of several failures counts.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case let error as TLSError where error.kind != .truncated: fail(.unreachable("\(error)"), context)
        case HTTPParserError.invalidEOFState: fail(.closed, context)
        case is HTTPParserError: fail(.broken("\(error)"), context)
        default: fail(.closed, context)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        ended.fail(HTTPExchange.Failure.closed)
        context.fireChannelInactive()
    }

    private func fail(_ failure: HTTPExchange.Failure, _ context: ChannelHandlerContext) {
        ended.fail(failure)
        context.close(promise: nil)
    }
}
