import NIOCore
import NIOPosix
import Sockets
import TLS

/// The settings of a pool's connections, whatever their protocol.
public struct PoolConfiguration: Sendable {
    /// The server.
    public var endpoint: APNSEndpoint
    /// Trust, and the client certificate if that is the credential. For HTTP/2, its ALPN protocols must include `h2`.
    public var tls: TLSContext
    /// The proxy to connect through; it also resolves the endpoint's name.
    public var proxy: HTTPProxy?
    /// Minimum connections, kept open even while nothing is sent.
    public var minimumConnections = 1
    /// Maximum connections. While some are being replaced, there can be up to twice as many.
    public var maximumConnections = 4
    /// The timeout of each step: TCP, the proxy's answer, and TLS.
    public var connectTimeout = TimeAmount.seconds(10)
    /// The idle time after which a connection beyond the minimum is closed.
    public var idleTimeout = TimeAmount.minutes(5)
    /// The age at which a connection is replaced, less up to a tenth, so that a fleet does not reconnect all at once;
    /// `nil` for never.
    public var maximumAge: TimeAmount?
    /// The pauses after failed attempts. They are never skipped: a server that accepts and closes would sometimes be
    /// tried again at once.
    public var reconnect = Backoff(first: .milliseconds(250), longest: .seconds(30), least: 0.1)
    /// Resolves host names, for each connection again; `nil` uses the system's resolver.
    public var resolver: (any Resolver & Sendable)?

    /// Creates a configuration with default values for everything else.
    public init(endpoint: APNSEndpoint, tls: TLSContext) {
        self.endpoint = endpoint
        self.tls = tls
    }

    var dialer: Dialer {
        Dialer(endpoint: endpoint, tls: tls, proxy: proxy, timeout: connectTimeout, resolver: resolver)
    }

    /// Returns the age at which a connection is replaced.
    /// - Parameter jitter: from 0 to 1, evenly distributed.
    public func age(jitter: Double) -> TimeAmount? {
        maximumAge.map { .nanoseconds(Int64(Double($0.nanoseconds) * (1 - jitter / 10))) }
    }
}
