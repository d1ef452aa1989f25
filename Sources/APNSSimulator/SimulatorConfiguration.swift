import TLS

/// How a simulator listens, whom it believes and what goes wrong.
package struct SimulatorConfiguration: Sendable {
    /// The address to listen on.
    package var host = "127.0.0.1"
    /// The port to listen on; 0 for any free one.
    package var port = 0
    /// The server's certificate and key.
    package var identity: TLSIdentity
    /// The issuer of client certificates; nil if none are requested.
    package var clientTrust: TLSTrust?
    /// The keys that provider tokens may be signed with. With none, any well-formed token will do.
    package var providerKeys: [ProviderKey] = []
    /// The behaviour without rules.
    package var settings = SimulatorSettings()
    /// The topics that may be pushed to, with all that Apple derives from them; empty for any.
    package var topics: [String] = []
    /// The device tokens that are known: for which topic and environment, and what became of them.
    package var devices: [RegisteredDevice] = []
    /// How many `apns-id`s, device tokens and channels the account counts apart, each, and how many of them a rule with `times`
    /// knows; the oldest are forgotten, up to as many again later. nil forgets none.
    package var accountLimit: Int? = 40_000
    /// How many broadcast channels an app may have.
    ///
    /// Source: Apple, "Sending channel management requests to APNs": up to 10,000 in each environment.
    package var maximumChannels = 10_000
    /// How many streams a connection may have open once it is trusted.
    package var maximumStreams = 1000
    /// How many it may have before its first valid provider token.
    ///
    /// Source: Apple, "Sending notification requests to APNs": one stream until a request with a valid token.
    package var initialStreams = 1
    /// How many bytes of bodies a connection may have under way before it must wait for WINDOW_UPDATE. APNs' is the least that
    /// there can be.
    package var connectionWindow: Int32 = 65_535
    /// The number of event loops.
    package var threads = 1
    /// The scripted faults, in order.
    package var rules: [FaultRule] = []
    /// How long every answer is held back, unless a rule says otherwise.
    package var delay: AnswerDelay?
    /// The member of payloads that holds the time of sending, in microseconds since 1970; nil measures no latency.
    package var latencyMember: String?
    /// The port of the binary gateway; 0 for any free one, nil for no gateway.
    ///
    /// Its clients must show a certificate that names a topic, signed by ``clientTrust`` where that is set.
    package var gatewayPort: Int?
    /// The port of the feedback service, which asks the same of its clients; 0 for any free one, nil for none.
    package var feedbackPort: Int?
    /// True if a client whose certificate is not taken by the gateway and the feedback service fails in the handshake.
    /// As at Apple, it is otherwise let in and the connection closed. It needs ``clientTrust``.
    package var refusesHandshake = false
    /// The gateway's scripted faults, in order.
    package var gatewayRules: [GatewayRule] = []
    /// The largest payload that the gateway takes, in bytes; 256 before iOS 8.
    ///
    /// Source: Apple, "Binary Provider API": less than or equal to 2 kilobytes.
    package var maximumGatewayPayload = 2048
    /// The member of payloads that identifies a notification to the gateway's count of duplicates; nil counts none.
    package var gatewayIDMember: String?
    /// The records that the feedback service has at the start.
    package var feedback: [FeedbackRecord] = []
    /// The feedback service's scripted faults, in order.
    package var feedbackRules: [FeedbackRule] = []
    /// Where notifications are recorded as they arrive; nil records none.
    package var recorder: Recorder?
    /// The port to be steered and asked by, over HTTP/1.1 in the clear; 0 for any free one, nil for none.
    ///
    /// With one, notifications are recorded even if ``recorder`` is nil.
    package var controlPort: Int?
    /// The address that the control port is on. Whoever reaches it sees every payload: not for the network.
    package var controlHost = "127.0.0.1"
    /// Host names that requests to the control port may name, besides `localhost` and all IP addresses: others are refused,
    /// because a web page's own name may resolve to this machine.
    package var controlNames: [String] = []
    /// The seed of the randomness of rules and delays.
    package var seed: UInt64 = 1

    /// A simulator without faults on a free port of 127.0.0.1.
    package init(identity: TLSIdentity) { self.identity = identity }
}
