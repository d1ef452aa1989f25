import NIOCore
import TLS

/// How a client connects and how long it waits.
public struct RedisClientConfiguration: Sendable {
    /// How long connecting may take, and then again how long logging in may.
    public var connectTimeout: TimeAmount = .seconds(5)
    /// How long an answer may take before the connection is given up and made anew; `nil` for no limit, which suits a
    /// client of blocking commands only (each of which should have a deadline of its own).
    public var commandTimeout: TimeAmount? = .seconds(5)
    /// The waits between attempts to connect.
    public var backoff = ReconnectBackoff()
    /// How long a Sentinel or a Cluster node may take to connect, and again to answer, when it is asked for the server:
    /// a short time, for there are others to ask.
    public var askTimeout: TimeAmount = .seconds(2)
    /// How often a Sentinel is asked whether the master is still the same one; spread by a fifth either way. Sentinels
    /// announce a failover by themselves; this is for announcements that got lost.
    public var refreshInterval: TimeAmount = .seconds(30)
    /// Where a client learns that another server became the master; `nil` for a ``MasterWatch`` of its own. The clients of a
    /// process should share one, which is a connection to a Sentinel.
    public var masterWatch: (any MasterSource)?
    /// The name in `CLIENT LIST`; characters that it does not accept become `-`.
    public var clientName: String?
    /// How to do TLS with `rediss` URLs; without it, servers are verified by the system's authorities. It has no bearing
    /// on other URLs.
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
