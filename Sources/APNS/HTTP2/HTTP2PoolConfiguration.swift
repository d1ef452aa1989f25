import NIOCore
import Sockets

/// The settings of a ``ConnectionPool``: its connections and their timeouts.
@dynamicMemberLookup
public struct HTTP2PoolConfiguration: Sendable {
    /// The settings of its connections.
    public var connections: PoolConfiguration
    /// The limits of each connection.
    public var limits = HTTP2Limits()
    /// The time after which an unanswered request is cancelled.
    public var requestTimeout = TimeAmount.seconds(20)
    /// The time for which a flow-control window may block a request.
    public var windowTimeout = TimeAmount.seconds(5)
    /// The stream identifier of the first request; odd.
    var firstStream: Int32 = 1

    /// Creates a configuration.
    public init(_ connections: PoolConfiguration) { self.connections = connections }

    /// The settings of its connections, by their names.
    public subscript<Value>(dynamicMember path: WritableKeyPath<PoolConfiguration, Value>) -> Value {
        get { connections[keyPath: path] }
        set { connections[keyPath: path] = newValue }
    }

    /// The limits of each connection, by their names.
    public subscript<Value>(dynamicMember path: WritableKeyPath<HTTP2Limits, Value>) -> Value {
        get { limits[keyPath: path] }
        set { limits[keyPath: path] = newValue }
    }

    /// The maximum number of requests that share a connection with few others.
    private static let few = 32
    /// The maximum number of connections of each isolation.
    private static let maximumIsolated = 4
    /// The longest pause before the next connection, because each may meet another such notification.
    private static let longestPause = TimeAmount.seconds(1)

    /// Returns the settings of the pool of isolated notifications.
    func isolated(_ isolation: Isolation) -> HTTP2PoolConfiguration {
        var own = self
        own.minimumConnections = 0
        own.maximumConnections = min(own.maximumConnections, Self.maximumIsolated)
        own.maximumStreams = isolation == .alone ? 1 : min(own.maximumStreams, Self.few)
        own.reconnect.longest = max(own.reconnect.first, Self.longestPause)
        return own
    }
}

/// The timeouts of a connection, and the limit of its streams.
public struct HTTP2Limits: Sendable {
    /// The maximum number of concurrent requests, even if the server allows more.
    public var maximumStreams: Int
    /// The time without a read after which the peer is sent a PING while requests are in flight.
    public var pingAfter: TimeAmount = .seconds(15)
    /// The same while none is in flight: Apple allows a PING after an hour of inactivity ("Sending notification
    /// requests to APNs").
    public var idlePingAfter: TimeAmount = .hours(1)
    /// The time without a read after which a PING goes with the next request: a NAT or a firewall on the way may have
    /// forgotten the connection.
    public var wakeAfter: TimeAmount = .seconds(5)
    /// The timeout of the answer to that PING, or four times the duration of the TLS handshake if that is longer.
    public var wakeTimeout: TimeAmount = .milliseconds(1500)
    /// The timeout of the answer to another PING.
    public var pingTimeout: TimeAmount = .seconds(5)
    /// The timeout from the end of the TLS handshake to the server's SETTINGS.
    public var settingsTimeout: TimeAmount = .seconds(5)
    /// The time for which the server may read so little that nothing more can be written.
    public var stallTimeout: TimeAmount = .seconds(20)
    /// The age at which the connection is replaced; `nil` for never.
    var lifetime: TimeAmount?

    /// Creates limits with the default timeouts.
    public init(maximumStreams: Int = 1000) { self.maximumStreams = maximumStreams }
}
