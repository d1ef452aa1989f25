import Hummingbird
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle

/// The control port cannot be listened on.
public struct ControlPortFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// Which address, why, and what to do.
    public let description: String
}

/// The simulator's control port: HTTP/1.1 in the clear, JSON in and out.
final class ControlServer: Sendable {
    /// How long requests that are under way may take once it is to stop. Long polls end at once.
    private static let grace = Duration.seconds(2)

    let port: Int
    private let services: ServiceGroup
    private let running: Task<Void, any Error>

    private init(port: Int, services: ServiceGroup, running: Task<Void, any Error>) {
        self.port = port
        self.services = services
        self.running = running
    }

    /// - Throws: ``ControlPortFailure``.
    static func start(
        host: String, port: Int, routes: ControlRoutes, group: MultiThreadedEventLoopGroup
    ) async throws -> ControlServer {
        // Standard output belongs to the recording, and whoever asks is told in the answer.
        var logger = Logger(label: "apns-simulator.control") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = .critical
        let (ports, listening) = AsyncThrowingStream.makeStream(of: Int.self)
        let application = Application(
            router: routes.router(),
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
            for try await port in ports { return ControlServer(port: port, services: services, running: running) }
        } catch {
            throw ControlPortFailure(
                description:
                    "the control port cannot be \(host):\(port): \(error). Choose another port for it; 0 takes a "
                    + "free one")
        }
        throw ControlPortFailure(description: "the control port \(host):\(port) ended before it began")
    }

    /// Answers what is under way and closes the port.
    func stop() async throws {
        await services.triggerGracefulShutdown()
        try await running.value
    }
}
