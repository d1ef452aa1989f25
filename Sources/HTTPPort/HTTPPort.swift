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

/// A port that cannot be listened on.
public struct HTTPPortFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// Which port, why, and what to do.
    public let description: String
}

/// A port for people and their tools: HTTP/1.1 in the clear.
package struct HTTPPort: Sendable {
    /// The port that it listens on.
    package let port: Int
    private let services: ServiceGroup
    private let running: Task<Void, any Error>

    /// How long requests that are under way may take once it is to stop.
    private static let grace = Duration.seconds(2)

    /// Begins to listen.
    /// - Parameters:
    ///   - name: what it is called where it cannot be listened on.
    ///   - port: 0 for a free one.
    ///   - idleTimeout: after how long without a request a connection is closed; `nil` for never.
    /// - Throws: ``HTTPPortFailure``.
    package static func listen(
        _ name: String, host: String, port: Int, idleTimeout: TimeAmount? = nil, on group: MultiThreadedEventLoopGroup,
        router: Router<BasicRequestContext>
    ) async throws -> HTTPPort {
        // Whoever asks is told in the answer.
        var logger = Logger(label: "http-port") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = .critical
        let (ports, listening) = AsyncThrowingStream.makeStream(of: Int.self)
        let application = Application(
            router: router, server: .http1(configuration: .init(idleTimeout: idleTimeout)),
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
            for try await port in ports { return HTTPPort(port: port, services: services, running: running) }
        } catch {
            // NIO's own words name its functions.
            let why = (error as? IOError).map { String(cString: strerror($0.errnoCode)) } ?? "\(error)"
            throw HTTPPortFailure(
                description: "the \(name) cannot be \(host):\(port): \(why). Choose another; 0 takes a free one")
        }
        throw HTTPPortFailure(description: "the \(name) \(host):\(port) ended before it began")
    }

    /// Answers what is under way and closes the port.
    package func stop() async throws {
        await services.triggerGracefulShutdown()
        try await running.value
    }
}
