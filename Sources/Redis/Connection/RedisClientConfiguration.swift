import NIOCore
import TLS

/// The configuration of a client's connections and timeouts.
public struct RedisClientConfiguration: Sendable {
    /// The time limit for connecting, and then again for logging in.
    public var connectTimeout: TimeAmount = .seconds(5)
    /// The time limit for an answer, after which the connection is replaced; `nil` for none, which suits a
    /// client that sends only blocking commands, each with a deadline of its own.
    public var commandTimeout: TimeAmount? = .seconds(5)
    /// The waits between attempts to connect.
    public var backoff = ReconnectBackoff()
    /// The time limit for connecting to a Sentinel or a Cluster node, and again for its answer, in a search for the
    /// server: short, because there are others.
    public var askTimeout: TimeAmount = .seconds(2)
    /// The interval at which a Sentinel is asked for the current master, with a jitter of a fifth. Sentinels
    /// announce a failover themselves; this covers lost announcements.
    public var refreshInterval: TimeAmount = .seconds(30)
    /// The source of announcements of a new master; `nil` for a ``MasterWatch`` of its own. The clients of a
    /// process should share one, because it is a connection to a Sentinel.
    public var masterWatch: (any MasterSource)?
    /// The name in `CLIENT LIST`; characters that it does not accept become `-`.
    public var clientName: String?
    /// TLS for `rediss` URLs; without it, servers are verified by the system's authorities. It does not
    /// affect other URLs.
    public var tls: TLSContext?

    /// The defaults.
    public init() {}
}

/// Reports to clients which server is the master.
public protocol MasterSource: AnyObject, Sendable {
    /// Reports the master to a client from now on: at once, when it changes, and at intervals. From any thread.
    /// - Parameters:
    ///   - listener: the client.
    ///   - onMaster: called on `eventLoop`.
    func add(
        _ listener: ObjectIdentifier, on eventLoop: any EventLoop,
        onMaster: @escaping @Sendable (RedisEndpoint.Location) -> Void)
    /// Reports nothing more to a client. From any thread.
    func remove(_ listener: ObjectIdentifier)
}
