import NIOCore
import NIOPosix

/// Listens on this machine, on the event loops that all tests share.
/// - Parameters:
///   - port: 0 to choose a free one.
///   - setUp: adds the handlers of an accepted connection.
package func listen(
    host: String = "127.0.0.1", port: Int = 0, _ tune: (ServerBootstrap) -> ServerBootstrap = { $0 },
    setUp: @escaping @Sendable (any Channel) throws -> Void
) async throws -> any Channel {
    try await tune(ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton))
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
        .childChannelInitializer { channel in channel.eventLoop.makeCompletedFuture { try setUp(channel) } }
        .bind(host: host, port: port).get()
}

extension Channel {
    /// The port that is listened on.
    package var port: Int { localAddress?.port ?? 0 }
}
