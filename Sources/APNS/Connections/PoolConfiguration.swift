import NIOCore
import Sockets
import TLS

/// The settings of a pool's connections, whatever their protocol.
@dynamicMemberLookup
public struct PoolConfiguration: Sendable {
    /// For HTTP/2, the dialer's ALPN protocols must include `h2`.
    var dialer: Dialer
    /// Minimum connections, kept open even while nothing is sent.
    public var minimumConnections = 1
    /// Maximum connections. While some are being replaced, there can be up to twice as many.
    public var maximumConnections = 4
    /// A connection beyond the minimum is closed when it has been idle for this time.
    public var idleTimeout = TimeAmount.minutes(5)
    /// The maximum age of a connection; `nil` for no limit. A connection lives up to a tenth less, so that a fleet reconnects gradually.
    public var maximumAge: TimeAmount?
    /// The pauses after failed attempts. Each lasts at least a tenth of its limit: otherwise a server that accepts and closes would
    /// sometimes be tried again at once.
    public var reconnect = Backoff(first: .milliseconds(250), longest: .seconds(30), least: 0.1)

    public init(endpoint: APNSEndpoint, tls: TLSContext) { dialer = Dialer(endpoint: endpoint, tls: tls) }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Dialer, Value>) -> Value {
        get { dialer[keyPath: path] }
        set { dialer[keyPath: path] = newValue }
    }

    /// - Parameter jitter: from 0 to 1, evenly distributed.
    public func age(jitter: Double) -> TimeAmount? {
        maximumAge.map { .nanoseconds(Int64(Double($0.nanoseconds) * (1 - jitter / 10))) }
    }

    /// The settings of the pool of isolated notifications.
    var isolated: PoolConfiguration {
        var own = self
        own.minimumConnections = 0
        own.maximumConnections = min(maximumConnections, 4)
        // The pauses are short, because each new connection may be lost to another isolated notification.
        own.reconnect.longest = max(reconnect.first, .seconds(1))
        return own
    }
}
