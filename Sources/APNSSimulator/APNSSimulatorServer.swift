import NIOCore
import NIOPosix
import TLS

/// An APNs to develop and test against, on a port of this machine.
///
/// ```swift
/// let server = try await APNSSimulatorServer.start(configuration)
/// // … connect to 127.0.0.1:server.port …
/// try await server.stop()
/// ```
public final class APNSSimulatorServer: Sendable {
    /// The port it listens on.
    public let port: Int
    /// The port it is steered and asked by; nil if it has none.
    public var controlPort: Int? { control?.port }

    private let service: SimulatedService
    private let group: MultiThreadedEventLoopGroup
    private let listener: SwitchableListener
    private let connections: OpenConnections
    private let control: ControlServer?

    private init(
        service: SimulatedService, group: MultiThreadedEventLoopGroup, listener: SwitchableListener,
        connections: OpenConnections, control: ControlServer?
    ) {
        self.port = listener.port
        self.service = service
        self.group = group
        self.listener = listener
        self.connections = connections
        self.control = control
    }

    /// Starts to listen.
    /// - Throws: `TLSError` when the certificate or the client authorities are not usable, the system's error when
    ///   the address is taken, or ``ControlPortFailure`` when that of the control port is.
    public static func start(_ configuration: SimulatorConfiguration) async throws -> APNSSimulatorServer {
        var configuration = configuration
        if configuration.controlPort != nil, configuration.recorder == nil { configuration.recorder = Recorder() }
        let service = SimulatedService(configuration)
        let connections = OpenConnections()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: max(1, configuration.threads))
        do {
            let listener = try await listener(configuration, service, connections, group)
            do {
                let control = try await control(
                    configuration, ControlTarget(service: service, connections: connections, listener: listener), group)
                return APNSSimulatorServer(
                    service: service, group: group, listener: listener, connections: connections, control: control)
            } catch {
                try await listener.stop()
                await connections.shutDown(grace: .zero)
                throw error
            }
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
    }

    private static func listener(
        _ configuration: SimulatorConfiguration, _ service: SimulatedService, _ connections: OpenConnections,
        _ group: MultiThreadedEventLoopGroup
    ) async throws -> SwitchableListener {
        var tls = TLSServerConfiguration(identity: configuration.identity)
        tls.applicationProtocols = ["h2"]
        if let trust = configuration.clientTrust { tls.clientCertificates = .requested(trust) }
        let context = try TLSContext.server(tls)
        return try await SwitchableListener(port: configuration.port) { port in
            try await ServerBootstrap(group: group)
                .serverChannelOption(.backlog, value: 1024)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
                // A read of 64 KiB takes in a whole batch of a busy client.
                .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 * 1024))
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let tls = TLSHandler(server: context)
                        try channel.pipeline.syncOperations.addHandlers([tls, SimulatorHandler(service, tls: tls)])
                        connections.add(channel)
                    }
                }
                .bind(host: configuration.host, port: port).get()
        }
    }

    private static func control(
        _ configuration: SimulatorConfiguration, _ target: ControlTarget, _ group: MultiThreadedEventLoopGroup
    ) async throws -> ControlServer? {
        guard let port = configuration.controlPort else { return nil }
        return try await ControlServer.start(
            host: configuration.controlHost, port: port, routes: ControlRoutes(target), group: group)
    }

    /// What it has seen and said so far.
    ///
    /// Taking it copies nothing at first, but the next request pays for a copy: not for the middle of a measurement.
    public var account: Account { service.account }

    /// What it has received, if that is recorded.
    public var recorder: Recorder? { service.recorder }

    /// The rules in force.
    public var rules: [FaultRule] { service.rules }

    /// Replaces the rules; their counts start anew.
    public func setRules(_ rules: [FaultRule]) { service.setRules(rules) }

    /// Says GOAWAY to every client, finishes what is under way and stops.
    /// - Parameter grace: how long clients may take; after that their connections are closed.
    public func stop(grace: TimeAmount = .seconds(2)) async throws {
        service.recorder?.endWaits()
        try await control?.stop()
        try await listener.stop()
        await connections.shutDown(grace: grace)
        service.recorder?.closeFile()
        try await group.shutdownGracefully()
    }
}
