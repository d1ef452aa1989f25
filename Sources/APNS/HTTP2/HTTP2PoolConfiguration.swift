import NIOCore
import Sockets

/// The settings of a ``ConnectionPool``: its connections and their timeouts.
@dynamicMemberLookup
public struct HTTP2PoolConfiguration: Sendable {
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

    public subscript<Value>(dynamicMember path: WritableKeyPath<PoolConfiguration, Value>) -> Value {
        get { connections[keyPath: path] }
        set { connections[keyPath: path] = newValue }
    }

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
