import NIOCore

/// The settings of a ``ConnectionPool``: its connections and their timeouts.
@dynamicMemberLookup
public struct HTTP2PoolConfiguration: Sendable {
    public var connections: PoolConfiguration
    /// The limits of each connection.
    public var limits = HTTP2Limits()
    /// An unanswered request is cancelled after this time.
    public var requestTimeout = TimeAmount.seconds(20)
    /// A flow-control window may block a request for this time.
    public var windowTimeout = TimeAmount.seconds(5)
    /// The stream identifier of the first request; odd.
    var firstStream: Int32 = 1

    public init(_ connections: PoolConfiguration) { self.connections = connections }

    public subscript<Value>(dynamicMember path: WritableKeyPath<PoolConfiguration, Value>) -> Value {
        get { connections[keyPath: path] }
        set { connections[keyPath: path] = newValue }
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<HTTP2Limits, Value>) -> Value {
        get { limits[keyPath: path] }
        set { limits[keyPath: path] = newValue }
    }
}
