import NIOCore
import Sockets
import TLS

/// The configuration of a client's connections and timeouts.
public struct RedisClientConfiguration: Sendable {
    /// The timeout for connecting, and again for logging in.
    public var connectTimeout: TimeAmount = .seconds(5)
    /// The timeout of an answer. When it expires, the connection is replaced. `nil` for clients that send only blocking commands, each with
    /// its own deadline.
    public var commandTimeout: TimeAmount? = .seconds(5)
    /// The waits between attempts to connect.
    public var backoff = Backoff(first: .milliseconds(50), longest: .seconds(5))
    /// The timeout for connecting to a Sentinel or Cluster node in a search for the server, and again for its answer. It is short because
    /// other nodes can be asked.
    public var askTimeout: TimeAmount = .seconds(2)
    /// The time between questions to a Sentinel for the current master, with a jitter of a fifth. Sentinels announce failovers; the
    /// questions are for lost announcements.
    public var refreshInterval: TimeAmount = .seconds(30)
    /// The time between questions to a Sentinel or Cluster node for the other ones, with a jitter of a fifth.
    public var seedInterval: TimeAmount = .minutes(5)
    /// The name in `CLIENT LIST`; invalid characters become `-`.
    public var clientName: String?
    /// TLS for `rediss` URLs; other URLs ignore it. `nil` verifies servers with the system's authorities.
    public var tls: Renewable<TLSContext>?

    public init() {}
}
