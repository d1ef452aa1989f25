import NIOCore
import NIOPosix
import Synchronization
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
    /// The port of the binary gateway; nil if there is none.
    public let gatewayPort: Int?
    /// The port of the feedback service; nil if there is none.
    public let feedbackPort: Int?

    private let service: SimulatedService
    private let group: MultiThreadedEventLoopGroup
    private let listeners: [any Channel]
    private let connections: OpenConnections

    private init(
        _ configuration: SimulatorConfiguration, service: SimulatedService, group: MultiThreadedEventLoopGroup,
        listener: any Channel, gateway: (any Channel)?, feedback: (any Channel)?, connections: OpenConnections
    ) {
        port = listener.localAddress?.port ?? configuration.port
        gatewayPort = gateway.map { $0.localAddress?.port ?? configuration.gatewayPort ?? 0 }
        feedbackPort = feedback.map { $0.localAddress?.port ?? configuration.feedbackPort ?? 0 }
        self.service = service
        self.group = group
        listeners = [listener, gateway, feedback].compactMap { $0 }
        self.connections = connections
    }

    /// Starts to listen.
    /// - Throws: `TLSError` when the certificate or the client authorities are not usable, or the system's error when
    ///   the address is taken.
    public static func start(_ configuration: SimulatorConfiguration) async throws -> APNSSimulatorServer {
        var tls = TLSServerConfiguration(identity: configuration.identity)
        tls.applicationProtocols = ["h2"]
        if let trust = configuration.clientTrust { tls.clientCertificates = .requested(trust) }
        let context = try TLSContext.server(tls)
        let service = SimulatedService(configuration)
        let connections = OpenConnections()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: max(1, configuration.threads))
        let listen = Listen(host: configuration.host, group: group, connections: connections)
        do {
            let listener = try await listen(configuration.port, context) { SimulatorHandler(service, tls: $0) }
            var gateway: (any Channel)?
            var feedback: (any Channel)?
            if configuration.gatewayPort != nil || configuration.feedbackPort != nil {
                let context = try binaryContext(configuration)
                if let port = configuration.gatewayPort {
                    gateway = try await listen(port, context) { GatewayHandler(service, tls: $0) }
                }
                if let port = configuration.feedbackPort {
                    feedback = try await listen(port, context) { FeedbackHandler(service, tls: $0) }
                }
            }
            return APNSSimulatorServer(
                configuration, service: service, group: group, listener: listener, gateway: gateway,
                feedback: feedback, connections: connections)
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
    }

    // The gateway and the feedback service are older than ALPN, and know their clients by certificate only.
    private static func binaryContext(_ configuration: SimulatorConfiguration) throws -> TLSContext {
        var tls = TLSServerConfiguration(identity: configuration.identity)
        tls.clientCertificates = .reported(configuration.clientTrust)
        if configuration.refusesHandshake, let trust = configuration.clientTrust {
            tls.clientCertificates = .required(trust)
        }
        return try TLSContext.server(tls)
    }

    /// What it has seen and said so far.
    ///
    /// Taking it copies nothing at first, but the next request pays for a copy: not for the middle of a measurement.
    public var account: Account { service.account }

    /// Replaces the rules; their counts start anew.
    public func setRules(_ rules: [FaultRule]) { service.setRules(rules) }

    /// Replaces the gateway's rules; their counts start anew.
    public func setGatewayRules(_ rules: [GatewayRule]) { service.setGatewayRules(rules) }

    /// Gives the feedback service more to tell.
    public func addFeedback(_ records: [FeedbackRecord]) { service.addFeedback(records) }

    /// Says GOAWAY to every client, or Shutdown to one of the gateway, finishes what is under way and stops.
    /// - Parameter grace: how long clients may take; after that their connections are closed.
    public func stop(grace: TimeAmount = .seconds(2)) async throws {
        for listener in listeners { try await listener.close() }
        await connections.shutDown(grace: grace)
        try await group.shutdownGracefully()
    }
}

/// How a server's ports are opened.
private struct Listen {
    let host: String
    let group: MultiThreadedEventLoopGroup
    let connections: OpenConnections

    func callAsFunction(
        _ port: Int, _ context: TLSContext, _ handler: @escaping @Sendable (TLSHandler) -> any ChannelHandler
    ) async throws -> any Channel {
        let connections = connections
        return try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            // A read of 64 KiB takes in a whole batch of a busy client.
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

/// The connections of a server, so that it can end them.
private final class OpenConnections: Sendable {
    private let channels = Mutex<[ObjectIdentifier: any Channel]>([:])

    func add(_ channel: any Channel) {
        let key = ObjectIdentifier(channel)
        channels.withLock { $0[key] = channel }
        channel.closeFuture.whenComplete { _ in
            _ = self.channels.withLock { $0.removeValue(forKey: key) }
        }
    }

    func shutDown(grace: TimeAmount) async {
        let open = channels.withLock { Array($0.values) }
        for channel in open {
            channel.pipeline.fireUserInboundEventTriggered(SimulatorShutdown())
            channel.eventLoop.scheduleTask(in: grace) { channel.close(promise: nil) }
        }
        for channel in open {
            // A close that failed has closed all the same.
            try? await channel.closeFuture.get()
        }
    }
}
