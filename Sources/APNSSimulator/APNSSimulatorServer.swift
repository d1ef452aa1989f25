import HTTPPort
import NIOCore
import NIOPosix
import Sockets
import TLS

/// A simulated APNs, for development and tests.
package struct APNSSimulatorServer: LoopBound {
    let service: SimulatedService
    private let group: MultiThreadedEventLoopGroup
    private let listeners: Listeners
    private let connections: OpenConnections
    private let control: HTTPPort?

    /// The port of the HTTP/2 interface.
    package var port: Int { listeners.main.port }
    package var gatewayPort: Int? { listeners.gateway?.port }
    package var feedbackPort: Int? { listeners.feedback?.port }
    package var controlPort: Int? { control?.port }

    /// - Throws: `TLSError` if the certificate or the client authorities cannot be used; `HTTPPortFailure` if the control port's address is
    ///   in use; the system's error if another address is in use.
    package static func start(_ configuration: SimulatorConfiguration) async throws -> APNSSimulatorServer {
        var configuration = configuration
        if configuration.controlPort != nil, configuration.recorder == nil { configuration.recorder = Recorder() }
        let service = SimulatedService(configuration)
        let connections = OpenConnections()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: max(1, configuration.threads))
        do {
            let listeners = try await listeners(
                configuration, service, Listen(host: configuration.host, group: group, connections: connections))
            do {
                var control: HTTPPort?
                if let port = configuration.controlPort {
                    let routes = ControlRoutes(service: service, connections: connections, listeners: listeners)
                    control = try await HTTPPort.listen(
                        "control port", host: configuration.controlHost, port: port, on: group.next(),
                        router: routes.router(names: configuration.controlNames))
                }
                return APNSSimulatorServer(
                    service: service, group: group, listeners: listeners, connections: connections, control: control)
            } catch {
                try await listeners.stop()
                await connections.shutDown(grace: .zero)
                throw error
            }
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
    }

    private static func listeners(
        _ configuration: SimulatorConfiguration, _ service: SimulatedService, _ listen: Listen
    ) async throws -> Listeners {
        var tls = TLSServerConfiguration(identity: configuration.identity)
        tls.applicationProtocols = ["h2"]
        if let trust = configuration.clientTrust { tls.clientCertificates = .requested(trust) }
        var listeners = Listeners(
            main: try await listen(configuration.port, try TLSContext.server(tls)) {
                ConnectionHandler<SimulatedConnection>(service, tls: $0)
            })
        do {
            if let port = configuration.gatewayPort {
                listeners.gateway = try await listen(port, try binaryContext(configuration)) {
                    ConnectionHandler<SimulatedGatewayConnection>(service, tls: $0)
                }
            }
            if let port = configuration.feedbackPort {
                listeners.feedback = try await listen(port, try binaryContext(configuration)) {
                    ConnectionHandler<FeedbackConnection>(service, tls: $0)
                }
            }
        } catch {
            try await listeners.stop()
            throw error
        }
        return listeners
    }

    // The gateway and the feedback service predate ALPN and identify clients by certificate only.
    private static func binaryContext(_ configuration: SimulatorConfiguration) throws -> TLSContext {
        var tls = TLSServerConfiguration(identity: configuration.identity)
        tls.clientCertificates = .reported(configuration.clientTrust)
        if configuration.refusesHandshake, let trust = configuration.clientTrust {
            tls.clientCertificates = .required(trust)
        }
        return try TLSContext.server(tls)
    }

    /// A snapshot of the traffic so far. Reading it makes the next request copy the account, so do not read it during a measurement.
    package var account: Account { service.account }

    package var recorder: Recorder? { service.recorder }

    /// Sets the address of the dashboard that the inbox links to.
    package func setDashboard(_ url: String?) { service.dashboard = url }

    /// Sends a GOAWAY to every HTTP/2 client and an error packet with status 10 to every client of the gateway. Finishes the requests in
    /// flight, and stops.
    /// - Parameter grace: connections that clients have not closed after this time are closed.
    package func stop(grace: TimeAmount = .seconds(2)) async throws {
        service.recorder?.endWaits()
        try await control?.stop()
        try await listeners.stop()
        await connections.shutDown(grace: grace)
        service.recorder?.closeFile()
        try await group.shutdownGracefully()
    }
}

private struct Listen: LoopBound {
    let host: String
    let group: MultiThreadedEventLoopGroup
    let connections: OpenConnections

    func callAsFunction(
        _ port: Int, _ context: TLSContext, _ handler: @escaping @Sendable (TLSHandler) -> any ChannelHandler
    ) async throws -> SwitchableListener {
        try await SwitchableListener(port: port) { port in
            try await ServerBootstrap(group: group)
                .serverChannelOption(.backlog, value: 1024)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
                // 64 KiB hold all that a busy client writes at once.
                .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 * 1024))
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let tls = TLSHandler(server: context)
                        try channel.pipeline.syncOperations.addHandlers([tls, handler(tls)])
                        connections.add(channel)
                    }
                }
                .bind(host: host, port: port).get()
        }
    }
}
