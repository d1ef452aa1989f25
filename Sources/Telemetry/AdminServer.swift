import Hummingbird
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The admin port cannot be listened on.
public struct AdminPortFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// Which address, why, and what to do.
    public let description: String
}

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
    public let port: Int
    private let services: ServiceGroup
    private let running: Task<Void, any Error>
    private let group: MultiThreadedEventLoopGroup

    /// How long requests that are under way may take once it is to stop.
    private static let grace = Duration.seconds(2)
    /// Scrapers keep their connection, and ask again within this.
    private static let idleTimeout = TimeAmount.minutes(5)

    /// Begins to listen.
    /// - Parameter port: 0 for a free one.
    /// - Throws: ``AdminPortFailure``.
    public static func start(host: String, port: Int, sources: Sources) async throws -> AdminServer {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        // Whoever asks is told in the answer.
        var logger = Logger(label: "apns-worker.admin") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = .critical
        let (ports, listening) = AsyncThrowingStream.makeStream(of: Int.self)
        let application = Application(
            router: AdminRoutes(sources: sources).router(),
            server: .http1(configuration: .init(idleTimeout: idleTimeout)),
            configuration: ApplicationConfiguration(address: .hostname(host, port: port), serverName: nil),
            onServerRunning: { channel in listening.yield(channel.localAddress?.port ?? port) },
            eventLoopGroupProvider: .shared(group), logger: logger)
        var configuration = ServiceGroupConfiguration(services: [application], logger: logger)
        configuration.maximumGracefulShutdownDuration = grace
        let services = ServiceGroup(configuration: configuration)
        let running = Task {
            do {
                try await services.run()
                listening.finish()
            } catch {
                listening.finish(throwing: error)
                throw error
            }
        }
        do {
            for try await port in ports {
                return AdminServer(port: port, services: services, running: running, group: group)
            }
        } catch {
            try await group.shutdownGracefully()
            // NIO's own words name its functions.
            let why = (error as? IOError).map { String(cString: strerror($0.errnoCode)) } ?? "\(error)"
            throw AdminPortFailure(
                description: "the admin port cannot be \(host):\(port): \(why). Choose another; 0 takes a free one")
        }
        try await group.shutdownGracefully()
        throw AdminPortFailure(description: "the admin port \(host):\(port) ended before it began")
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
        await services.triggerGracefulShutdown()
        try await running.value
        try await group.shutdownGracefully()
    }
}
