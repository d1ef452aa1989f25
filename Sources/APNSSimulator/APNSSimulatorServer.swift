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

    private let service: SimulatedService
    private let group: MultiThreadedEventLoopGroup
    private let listener: any Channel
    private let connections: OpenConnections

    private init(
        port: Int, service: SimulatedService, group: MultiThreadedEventLoopGroup, listener: any Channel,
        connections: OpenConnections
    ) {
        self.port = port
        self.service = service
        self.group = group
        self.listener = listener
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
        do {
            let listener = try await ServerBootstrap(group: group)
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
                .bind(host: configuration.host, port: configuration.port).get()
            return APNSSimulatorServer(
                port: listener.localAddress?.port ?? configuration.port, service: service, group: group,
                listener: listener, connections: connections)
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
    }

    /// What it has seen and said so far.
    ///
    /// Taking it copies nothing at first, but the next request pays for a copy: not for the middle of a measurement.
    public var account: Account { service.account }

    /// Replaces the rules; their counts start anew.
    public func setRules(_ rules: [FaultRule]) { service.setRules(rules) }

    /// Says GOAWAY to every client, finishes what is under way and stops.
    /// - Parameter grace: how long clients may take; after that their connections are closed.
    public func stop(grace: TimeAmount = .seconds(2)) async throws {
        try await listener.close()
        await connections.shutDown(grace: grace)
        try await group.shutdownGracefully()
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
