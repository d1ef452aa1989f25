import TLS

/// The ports, credentials, behaviour and faults of a simulator.
package struct SimulatorConfiguration: Sendable {
    package var host = "127.0.0.1"
    /// The port to listen on; 0 for any free one.
    package var port = 0
    package var identity: TLSIdentity
    /// The issuer of client certificates; nil to request no certificates.
    package var clientTrust: TLSTrust?
    /// The keys that can sign provider tokens. Without any, every well-formed token is accepted.
    package var providerKeys: [ProviderKey] = []
    /// The behaviour without rules.
    package var settings = SimulatorSettings()
    /// The topics that can be pushed to, and all topics that Apple derives from them; empty for any.
    package var topics: [String] = []
    /// The registered device tokens, with their topic, environment and state.
    package var devices: [RegisteredDevice] = []
    /// The account counts at least this many `apns-id`s, device tokens and channels separately, and a rule with `times` remembers at least
    /// this many targets. At most twice as many are kept. nil keeps all.
    package var accountLimit: Int? = 40_000
    /// The maximum number of broadcast channels per app.
    ///
    /// Source: Apple, "Sending channel management requests to APNs": up to 10,000 in each environment.
    package var maximumChannels = 10_000
    /// The maximum number of concurrent streams on a trusted connection.
    package var maximumStreams = 1000
    /// The maximum number of concurrent streams before a connection's first valid provider token.
    ///
    /// Source: Apple, "Sending notification requests to APNs": one stream until a request with a valid token.
    package var initialStreams = 1
    /// The flow-control window of a connection, in bytes. APNs uses the smallest window that HTTP/2 allows.
    package var connectionWindow: Int32 = 65_535
    package var threads = 1
    package var rules: [FaultRule] = []
    /// The delay of every answer, unless a rule sets another.
    package var delay: AnswerDelay?
    /// The payload member with the time of sending, in microseconds since 1970; nil to measure no latency.
    package var latencyMember: String?
    /// The port of the binary gateway; 0 for any free one, nil for no gateway.
    ///
    /// Its clients must present a certificate that names a topic, issued by ``clientTrust`` if that is set.
    package var gatewayPort: Int?
    /// The port of the feedback service; 0 for any free one, nil for none. Its clients need a certificate as for ``gatewayPort``.
    package var feedbackPort: Int?
    /// True if the handshake fails for a client whose certificate the gateway or the feedback service does not accept. Otherwise the
    /// handshake succeeds and the connection is closed, as at Apple. Requires ``clientTrust``.
    package var refusesHandshake = false
    package var gatewayRules: [GatewayRule] = []
    /// The largest payload that the gateway accepts, in bytes; 256 before iOS 8.
    ///
    /// Source: Apple, "Binary Provider API": less than or equal to 2 kilobytes.
    package var maximumGatewayPayload = 2048
    /// The payload member that identifies a notification, for the gateway's count of duplicates; nil to count none.
    package var gatewayIDMember: String?
    package var feedback: [FeedbackRecord] = []
    package var feedbackRules: [FeedbackRule] = []
    /// Records notifications as they arrive; nil to record none.
    package var recorder: Recorder?
    /// The port of the control API, over plaintext HTTP/1.1; 0 for any free one, nil for none.
    ///
    /// With a control port, notifications are recorded even if ``recorder`` is nil.
    package var controlPort: Int?
    /// The address of the control port. Do not expose it to a network: every client that can reach it sees all payloads.
    package var controlHost = "127.0.0.1"
    /// Host names that requests to the control port may have, besides `localhost` and all IP addresses. Other names are refused, because a
    /// web page's domain may resolve to this machine (DNS rebinding).
    package var controlNames: [String] = []
    /// The dashboard of the workers that send here. The inbox links to it; nil if it is unknown.
    package var dashboardURL: String?
    /// True in a worker that sends to this simulator. The inbox then does not explain how to start one.
    package var isInWorker = false
    /// The seed of random rules and delays.
    package var seed: UInt64 = 1

    /// The defaults make a simulator without faults, on a free port of 127.0.0.1.
    package init(identity: TLSIdentity) { self.identity = identity }
}
