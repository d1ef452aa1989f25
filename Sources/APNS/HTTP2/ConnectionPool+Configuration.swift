import NIOCore
import NIOPosix
import TLS

extension ConnectionPool {
    /// Settings for connections and timeouts.
    public struct Configuration: Sendable, PoolConfiguration {
        /// The server.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate if that is the credential. Its ALPN protocols must include `h2`.
        public var tls: TLSContext
        /// The proxy to connect through; it also resolves the endpoint's name.
        public var proxy: HTTPProxy?
        /// Minimum connections, kept open even while nothing is sent.
        public var minimumConnections = 1
        /// Maximum connections. While some are being replaced, there can be up to twice as many.
        public var maximumConnections = 4
        /// Maximum concurrent requests per connection, even if the server allows more.
        public var maximumStreams = 1000
        /// The time after which an unanswered request is cancelled.
        public var requestTimeout = TimeAmount.seconds(20)
        /// The timeout of each step: TCP, the proxy's answer, and TLS.
        public var connectTimeout = TimeAmount.seconds(10)
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
        /// The idle time after which a connection beyond the minimum is closed.
        public var idleTimeout = TimeAmount.minutes(5)
        /// The age at which a connection is replaced, less up to a tenth, so that a fleet does not reconnect all at
        /// once; `nil` for never.
        public var maximumAge: TimeAmount?
        /// The first pause after a failed attempt. It doubles with each further failure. The actual pause is random,
        /// between a tenth and all of it.
        public var reconnectPause = TimeAmount.milliseconds(250)
        /// The longest pause between attempts.
        public var longestReconnectPause = TimeAmount.seconds(30)
        /// Resolves host names, for each connection again; `nil` uses the system's resolver.
        package var resolver: (any Resolver & Sendable)?
        /// The stream identifier of the first request; odd.
        var firstStream: Int32 = 1

        /// Creates a configuration with default values for everything else.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
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
            limits.maximumAge = age(jitter: jitter)
            return limits
        }
    }
}
