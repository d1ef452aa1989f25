import NIOCore
import NIOPosix
import TLS

extension ConnectionPool {
    /// How a pool connects and waits.
    public struct Configuration: Sendable, PoolConfiguration {
        /// Where to.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate where that is the credential. `h2` must be among its protocols.
        public var tls: TLSContext
        /// The proxy to connect through; the endpoint's name is then looked up by the proxy.
        public var proxy: HTTPProxy?
        /// Connections that are kept open while nothing is sent.
        public var minimumConnections = 1
        /// Connections at the most. While some are being replaced there may be up to as many again.
        public var maximumConnections = 4
        /// Requests at once on a connection, whatever more the server would allow.
        public var maximumStreams = 1000
        /// How long a request may go unanswered.
        public var requestTimeout = TimeAmount.seconds(20)
        /// How long TCP, the proxy's answer and TLS may each take.
        public var connectTimeout = TimeAmount.seconds(10)
        /// The time without a word from the server after which it is sent a PING while requests are in flight.
        public var pingAfter = TimeAmount.seconds(15)
        /// The same while none is in flight.
        public var idlePingAfter = TimeAmount.hours(1)
        /// How long it has to answer that.
        public var pingTimeout = TimeAmount.seconds(5)
        /// How long the server may take from the end of the TLS handshake to its SETTINGS.
        public var settingsTimeout = TimeAmount.seconds(5)
        /// How long the server may read nothing of what is written to it.
        public var stallTimeout = TimeAmount.seconds(20)
        /// How long a flow-control window may keep a request from being written.
        public var windowTimeout = TimeAmount.seconds(5)
        /// After how long without a request a connection beyond the minimum is closed.
        public var idleTimeout = TimeAmount.minutes(5)
        /// After how long a connection is replaced, less up to a tenth of it so that a fleet does not reconnect all at
        /// once; `nil` is never.
        public var maximumAge: TimeAmount?
        /// The first pause after a connection could not be made. It doubles with each further failure; of each pause, a
        /// part between a tenth and all of it is chosen at random.
        public var reconnectPause = TimeAmount.milliseconds(250)
        /// The longest pause between attempts.
        public var longestReconnectPause = TimeAmount.seconds(30)
        /// Looks up host names; `nil` asks the system. Asked anew for each connection.
        var resolver: (any Resolver & Sendable)?
        /// The first request's stream, odd.
        var firstStream: Int32 = 1

        /// Takes the endpoint and the TLS context; the rest has defaults.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
        }

        /// - Parameter jitter: from 0 to 1, evenly distributed.
        func connectionLimits(jitter: Double) -> HTTP2ConnectionState.Limits {
            var limits = HTTP2ConnectionState.Limits()
            limits.pingAfter = pingAfter
            limits.idlePingAfter = idlePingAfter
            limits.pingTimeout = pingTimeout
            limits.settingsTimeout = settingsTimeout
            limits.stallTimeout = stallTimeout
            limits.maximumAge = age(jitter: jitter)
            return limits
        }
    }
}
