import Foundation
import NIOCore
import NIOPosix

/// Listens with the event loops that all tests share.
/// - Parameters:
///   - port: 0 for a free one.
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

/// A TCP socket with a port of 127.0.0.1 that does not listen. Connections to the port are refused, and no other process can use it.
struct BoundPort {
    let descriptor: Int32
    let port: Int

    /// - Parameters:
    ///   - port: 0 for a free one.
    ///   - isShared: true if this process may also listen at the port.
    /// - Returns: `nil` if the port is in use.
    init?(_ port: Int = 0, isShared: Bool = false) {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        var isShared = Int32(isShared ? 1 : 0)
        let (descriptor, size) = (descriptor, socklen_t(MemoryLayout<Int32>.size))
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &isShared, size) == 0
                    && bind(descriptor, pointer, length) == 0 && getsockname(descriptor, pointer, &length) == 0
            }
        }
        self.port = Int(UInt16(bigEndian: address.sin_port))
        guard isBound else {
            close(descriptor)
            return nil
        }
    }
}

extension Channel {
    /// The port of a channel that listens.
    package var port: Int { localAddress?.port ?? 0 }
}
