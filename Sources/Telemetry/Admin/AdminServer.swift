import HTTPPort
import Logging
import NIOPosix
import ServiceLifecycle

/// The admin port: HTTP/1.1 in the clear, for those who scrape and probe.
///
/// It has a thread of its own, so that it answers whatever becomes of the event loops that do the work. As a service it
/// stands before all others, so that it is there until they have stopped.
public struct AdminServer: Service, CustomStringConvertible {
    /// What it answers with. Asked anew for each request, from anywhere.
    public struct Sources: Sendable {
        /// All metrics, in Prometheus' text format.
        public var metrics: @Sendable () async -> String
        /// Whether the process is alive.
        public var health: @Sendable () async -> Probe
        /// Whether it can do its work.
        public var readiness: @Sendable () async -> Probe

        /// Takes all of them.
        public init(
            metrics: @escaping @Sendable () async -> String, health: @escaping @Sendable () async -> Probe,
            readiness: @escaping @Sendable () async -> Probe
        ) {
            self.metrics = metrics
            self.health = health
            self.readiness = readiness
        }
    }

    /// The port that it listens on.
    public var port: Int { server.port }
    private let server: HTTPPort
    private let group: MultiThreadedEventLoopGroup

    /// Begins to listen.
    /// - Parameters:
    ///   - port: 0 for a free one.
    ///   - logger: gets a warning when the port is full, at most once per minute.
    /// - Throws: `HTTPPortFailure`.
    public static func start(
        host: String, port: Int, sources: Sources, logger: Logger? = nil
    ) async throws -> AdminServer {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        do {
            let server = try await HTTPPort.listen(
                "admin port", host: host, port: port, on: group.next(), router: AdminRoutes(sources: sources).router(),
                logger: logger)
            return AdminServer(server: server, group: group)
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
    }

    /// What the log calls it.
    public var description: String { "the admin port" }

    /// Answers until the task is cancelled or a graceful shutdown begins.
    public func run() async throws {
        // Cancellation ends the wait as a graceful shutdown does.
        try? await gracefulShutdown()
        try await stop()
    }

    /// Answers what is under way and closes the port.
    public func stop() async throws {
        try await server.stop()
        try await group.shutdownGracefully()
    }
}
