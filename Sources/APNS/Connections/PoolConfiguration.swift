import NIOCore
import NIOPosix
import TLS

/// What pools of every kind are told of how to connect, and what follows from it.
protocol PoolConfiguration {
    var endpoint: APNSEndpoint { get }
    var tls: TLSContext { get }
    var proxy: HTTPProxy? { get }
    var minimumConnections: Int { get }
    var maximumConnections: Int { get }
    var connectTimeout: TimeAmount { get }
    var idleTimeout: TimeAmount { get }
    var maximumAge: TimeAmount? { get }
    var reconnectPause: TimeAmount { get }
    var longestReconnectPause: TimeAmount { get }
    var resolver: (any Resolver & Sendable)? { get }
}

extension PoolConfiguration {
    var dialer: Dialer {
        Dialer(endpoint: endpoint, tls: tls, proxy: proxy, timeout: connectTimeout, resolver: resolver)
    }

    var poolLimits: ConnectionPoolState.Configuration {
        var limits = ConnectionPoolState.Configuration()
        limits.minimumConnections = minimumConnections
        limits.maximumConnections = max(maximumConnections, minimumConnections)
        limits.backoffBase = reconnectPause
        limits.backoffCap = longestReconnectPause
        limits.idleTimeout = idleTimeout
        return limits
    }

    /// The age at which a connection is replaced: less up to a tenth, so that a fleet does not reconnect all at once.
    /// - Parameter jitter: from 0 to 1, evenly distributed.
    func age(jitter: Double) -> TimeAmount? {
        maximumAge.map { .nanoseconds(Int64(Double($0.nanoseconds) * (1 - jitter / 10))) }
    }
}
