import HTTPPort
import HTTPTypes
import Hummingbird
import Logging
import NIOPosix
import ServiceLifecycle

/// The admin port: plain HTTP/1.1, for metrics and probes.
///
/// It has its own thread, so that it answers whatever the state of the other event loops. Start it as the first
/// service, so that it runs until all others have stopped.
public struct AdminServer: Service, CustomStringConvertible {
    /// The sources of its answers. Called for each request, from any thread.
    public struct Sources: Sendable {
        public var metrics: @Sendable () async -> MetricsPage
        /// The probe is good while the process is alive.
        public var health: @Sendable () async -> Probe
        /// The probe is good while the process can do its work.
        public var readiness: @Sendable () async -> Probe

        public init(
            metrics: @escaping @Sendable () async -> MetricsPage, health: @escaping @Sendable () async -> Probe,
            readiness: @escaping @Sendable () async -> Probe
        ) {
            self.metrics = metrics
            self.health = health
            self.readiness = readiness
        }
    }

    public var port: Int { server.port }
    private let server: HTTPPort

    /// Its own event loop answers even while all lanes are stuck. It lives as long as the process, because a connection may still use it
    /// after the port was closed.
    private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    /// Starts to listen.
    /// - Parameters:
    ///   - port: 0 to choose a free one.
    ///   - logger: logs a warning when the port is full, at most once per minute.
    /// - Throws: `HTTPPortFailure`.
    public static func start(
        host: String, port: Int, sources: Sources, logger: Logger? = nil
    ) async throws -> AdminServer {
        let server = try await HTTPPort.listen(
            "admin port", host: host, port: port, on: group.next(), router: AdminRoutes(sources: sources).router(),
            logger: logger)
        return AdminServer(server: server)
    }

    public var description: String { "the admin port" }

    /// Answers until the task is cancelled or a graceful shutdown begins.
    public func run() async throws {
        // Cancellation ends the wait like a graceful shutdown.
        try? await gracefulShutdown()
        try await stop()
    }

    /// Answers the requests in flight, then closes the port.
    public func stop() async throws { try await server.stop() }
}

struct AdminRoutes: Sendable {
    typealias Context = BasicRequestContext

    let sources: AdminServer.Sources

    private static let overview = """
        GET /metrics  metrics in Prometheus' text format, or in OpenMetrics if the request accepts it
        GET /healthz  200 while all event loops respond, otherwise 503 and the problems
        GET /readyz   200 while jobs can be claimed and sent, otherwise 503 and the problems

        """

    func router() -> Router<Context> {
        // Adds HEAD, because some load balancers probe with it.
        let router = Router(context: Context.self, options: .autoGenerateHeadEndpoints)
        router.middlewares.add(UnknownPaths())
        router.get("/") { _, _ in Self.text(Self.overview) }
        router.get("/metrics") { [sources] request, _ in
            let accept = request.headers[values: .accept]
            let format = MetricsPage.Format(accept: accept.isEmpty ? nil : accept.joined(separator: ","))
            return Self.text(await sources.metrics().text(format), type: format.contentType, vary: true)
        }
        router.get("/healthz") { [sources] _, _ in Self.answer(await sources.health()) }
        router.get("/readyz") { [sources] _, _ in Self.answer(await sources.readiness()) }
        return router
    }

    private static func answer(_ probe: Probe) -> Response {
        text(probe.text, status: probe.isGood ? .ok : .serviceUnavailable)
    }

    static func text(
        _ text: String, type: String = "text/plain; charset=utf-8", status: HTTPResponse.Status = .ok,
        vary: Bool = false
    ) -> Response {
        var headers: HTTPFields = [.contentType: type, .cacheControl: "no-store"]
        if vary { headers[.vary] = "Accept" }
        return Response(
            status: status, headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(string: text)))
    }
}

/// Answers requests for unknown paths with a hint to the list of paths.
private struct UnknownPaths: RouterMiddleware {
    typealias Context = AdminRoutes.Context

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as HTTPError where error.status == .notFound {
            return AdminRoutes.text(
                "there is no \(request.method) \(request.uri.path); GET / lists the routes\n", status: .notFound)
        }
    }
}

/// The result of a probe of the process: its state, and the problems.
public struct Probe: Sendable, Equatable {
    public struct Problem: Sendable, Equatable {
        public var sentence: String
        /// The duration of the problem in seconds.
        public var seconds: Int
        /// The first thing to do, as a clause; may be empty.
        public var advice: String

        public init(_ sentence: String, seconds: Int, advice: String = "") {
            self.sentence = sentence
            self.seconds = seconds
            self.advice = advice
        }
    }

    /// The answer in a word or two, such as `ready` or `draining`.
    public var word: String
    /// True if the process is healthy: the probe is then answered with 200, otherwise with 503.
    public var isGood: Bool
    public var problems: [Problem]

    public init(_ word: String, isGood: Bool, problems: [Problem] = []) {
        self.word = word
        self.isGood = isGood
        self.problems = problems
    }

    /// The word, followed by a line for each problem and one for its advice.
    public var text: String {
        var text = "\(word)\n"
        for problem in problems {
            text += "- \(problem.sentence) (for \(problem.seconds) s)\n"
            if !problem.advice.isEmpty { text += "  → \(problem.advice)\n" }
        }
        return text
    }
}
