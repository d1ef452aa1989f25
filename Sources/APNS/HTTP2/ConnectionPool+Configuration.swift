import NIOCore
import TLS

extension ConnectionPool {
    /// Settings for connections and timeouts.
    @dynamicMemberLookup
    public struct Configuration: Sendable {
        /// The settings of its connections.
        public var connections: PoolConfiguration
        /// Maximum concurrent requests per connection, even if the server allows more.
        public var maximumStreams = 1000
        /// The time after which an unanswered request is cancelled.
        public var requestTimeout = TimeAmount.seconds(20)
        /// The time without data from the server after which it is sent a PING while requests are in flight.
        public var pingAfter = TimeAmount.seconds(15)
        /// The same while none is in flight.
        public var idlePingAfter = TimeAmount.hours(1)
        /// The time without a read after which a PING goes with the next request.
        public var wakeAfter = TimeAmount.seconds(5)
        /// The timeout of the answer to that PING, or four times the duration of the TLS handshake if that is longer.
        public var wakeTimeout = TimeAmount.milliseconds(1500)
        /// The timeout of the answer to a PING.
        public var pingTimeout = TimeAmount.seconds(5)
        /// The timeout from the end of the TLS handshake to the server's SETTINGS.
        public var settingsTimeout = TimeAmount.seconds(5)
        /// The time for which the server may read nothing of what is written to it.
        public var stallTimeout = TimeAmount.seconds(20)
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

        /// - Parameter jitter: from 0 to 1, evenly distributed.
        func connectionLimits(jitter: Double) -> HTTP2ConnectionState.Limits {
            var limits = HTTP2ConnectionState.Limits()
            limits.pingAfter = pingAfter
            limits.idlePingAfter = idlePingAfter
            limits.wakeAfter = wakeAfter
            limits.wakeTimeout = wakeTimeout
            limits.pingTimeout = pingTimeout
            limits.settingsTimeout = settingsTimeout
            limits.stallTimeout = stallTimeout
            limits.maximumAge = connections.age(jitter: jitter)
            return limits
        }
    }
}
