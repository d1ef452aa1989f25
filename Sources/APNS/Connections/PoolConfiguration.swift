import NIOCore
import NIOPosix
import Sockets
import TLS

/// A connection whose TLS handshake has a timeout.
package protocol HandshakingConnection: AnyObject {
    /// True until TLS is set up.
    var isConnecting: Bool { get }
    /// Closes it at once.
    func close(_ error: any Error)
}

/// The settings shared by the pools of both protocols.
package protocol PoolConfiguration {
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
    package var dialer: Dialer {
        Dialer(endpoint: endpoint, tls: tls, proxy: proxy, timeout: connectTimeout, resolver: resolver)
    }

    package var poolLimits: ConnectionPoolState.Configuration {
        var limits = ConnectionPoolState.Configuration()
        limits.minimumConnections = minimumConnections
        limits.maximumConnections = max(maximumConnections, minimumConnections)
        limits.backoffBase = reconnectPause
        limits.backoffCap = longestReconnectPause
        limits.idleTimeout = idleTimeout
        return limits
    }

    /// Closes a connection if its TLS handshake exceeds the timeout. The proxy's answer has its own timeout.
    /// - Returns: a timer, to cancel when the handshake is complete.
    package func limitHandshake(of connection: some HandshakingConnection, on eventLoop: any EventLoop) -> TimeLimit {
        let (endpoint, timeout) = (endpoint, connectTimeout)
        return TimeLimit(in: timeout, on: eventLoop) {
            guard connection.isConnecting else { return }
            connection.close(
                APNSConnectionError.unresponsive(endpoint, "TLS was not set up within \(timeout.formatted)"))
        }
    }

    /// Returns the age at which a connection is replaced: the maximum less up to a tenth, so that a fleet does not
    /// reconnect all at once.
    /// - Parameter jitter: from 0 to 1, evenly distributed.
    package func age(jitter: Double) -> TimeAmount? {
        maximumAge.map { .nanoseconds(Int64(Double($0.nanoseconds) * (1 - jitter / 10))) }
    }
}
