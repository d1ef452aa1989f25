import NIOCore
import NIOPosix
import TLS

extension GatewayPool {
    /// How a pool connects, batches and waits.
    public struct Configuration: Sendable, PoolConfiguration {
        /// Where to.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate.
        public var tls: TLSContext
        /// The proxy to connect through; the endpoint's name is then looked up by the proxy.
        public var proxy: HTTPProxy?
        /// Connections that are kept open while nothing is sent.
        public var minimumConnections = 1
        /// Connections at the most, those apart on which nothing more is sent.
        public var maximumConnections = 4
        /// Which of the protocol's commands to use.
        public var frame = GatewayFrame.items
        /// Bytes of a write at the most; see ``GatewayFrame``.
        public var batchBytes = 16_384
        /// How long a write waits for more.
        public var batchTime = TimeAmount.milliseconds(2)
        /// How long the gateway must have had a notification without a word about it, to count as taken.
        public var confirmAfter = TimeAmount.seconds(2)
        /// Whether a deliberately bad item is sent where certainty is wanted at once: when no more is sent on a connection.
        public var sendsBarriers = true
        /// Notifications without confirmation on a connection at the most.
        public var windowCount = 5000
        /// Bytes of their frames at the most.
        public var windowBytes = 32 << 20
        /// How long TCP, the proxy's answer and TLS may each take.
        public var connectTimeout = TimeAmount.seconds(10)
        /// How long the other side may leave what was written unacknowledged.
        public var stallTimeout = TimeAmount.seconds(20)
        /// After how long without a notification a connection beyond the minimum is closed.
        public var idleTimeout = TimeAmount.minutes(5)
        /// After how long a connection is replaced, less up to a tenth; `nil` is never.
        public var maximumAge: TimeAmount?
        /// The first pause after a connection could not be made; see ``ConnectionPool/Configuration/reconnectPause``.
        public var reconnectPause = TimeAmount.milliseconds(250)
        /// The longest pause between attempts.
        public var longestReconnectPause = TimeAmount.seconds(30)
        /// Looks up host names; `nil` asks the system. Asked anew for each connection.
        var resolver: (any Resolver & Sendable)?

        /// Takes the endpoint and the TLS context; the rest has defaults.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
        }

        /// - Parameter jitter: from 0 to 1, evenly distributed.
        func connectionLimits(jitter: Double) -> GatewayConnectionState.Limits {
            var limits = GatewayConnectionState.Limits()
            limits.windowCount = windowCount
            limits.windowBytes = windowBytes
            limits.confirmAfter = confirmAfter
            limits.sendsBarriers = sendsBarriers && frame.hasIdentifier
            limits.stallTimeout = stallTimeout
            limits.maximumAge = age(jitter: jitter)
            return limits
        }

        var batching: GatewayConnection.Batching {
            GatewayConnection.Batching(frame: frame, bytes: batchBytes, time: batchTime)
        }
    }
}
