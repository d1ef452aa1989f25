import NIOCore
import Synchronization

/// What all connections of a simulator share: its rules, its credentials and its account.
final class SimulatedService: Sendable {
    struct State {
        var account = Account()
        var script: FaultScript
        var tokens: ProviderTokens
        var generator: SeededGenerator
        var ids: SeededGenerator
        var channels: ChannelRegistry
        var gatewayScript: GatewayScript
        var feedback = FeedbackList()
        var feedbackScript: FeedbackScript
    }

    let state: Mutex<State>
    let configuration: SimulatorConfiguration
    let topics: Set<String>
    let sendTime: SendTime?
    /// Where what arrives is recorded; nil for nowhere.
    let recorder: Recorder?

    init(_ configuration: SimulatorConfiguration) {
        self.configuration = configuration
        topics = Set(configuration.topics)
        recorder = configuration.recorder
        sendTime = configuration.latencyMember.map { SendTime(member: $0) }
        state = Mutex(
            State(
                script: FaultScript(rules: configuration.rules, delay: configuration.delay),
                tokens: ProviderTokens(
                    keys: configuration.providerKeys, minimumInterval: configuration.providerTokenInterval),
                generator: SeededGenerator(seed: configuration.seed),
                // Not from the seed: a UUID made up must not come back in the next run.
                ids: SeededGenerator(seed: .random(in: .min ... .max)),
                channels: ChannelRegistry(maximum: configuration.maximumChannels),
                gatewayScript: GatewayScript(rules: configuration.gatewayRules),
                feedbackScript: FeedbackScript(configuration.feedbackFaults)))
        addFeedback(configuration.feedback)
    }

    var account: Account { state.withLock { $0.account } }

    var rules: [FaultRule] { state.withLock { $0.script.rules } }

    /// Replaces the rules; their counts start anew.
    func setRules(_ rules: [FaultRule]) {
        state.withLock { $0.script = FaultScript(rules: rules, delay: $0.script.delay) }
    }

    /// Adds a rule behind the others, whose counts go on.
    func addRule(_ rule: FaultRule) { state.withLock { $0.script.add(rule) } }

    var delay: AnswerDelay? {
        get { state.withLock { $0.script.delay } }
        set { state.withLock { $0.script.delay = newValue } }
    }

    /// Decides about a request that passed every check, and enters it into the account if it is accepted.
    func judge(
        _ token: SimulatedToken, id: NotificationID, ordinal: Int, connection: Int
    ) -> FaultScript.Verdict {
        state.withLock { state in
            let verdict = state.script.judge(
                .device(token), ordinal: ordinal, connection: connection, &state.generator)
            if verdict.accepts { state.account.accept(id: id, token: token) }
            return verdict
        }
    }

    /// The same for a broadcast.
    func judge(channel: [UInt8], id: NotificationID, ordinal: Int, connection: Int) -> FaultScript.Verdict {
        state.withLock { state in
            let verdict = state.script.judge(
                .channel(channel), ordinal: ordinal, connection: connection, &state.generator)
            if verdict.accepts { state.account.accept(id: id, channel: channel) }
            return verdict
        }
    }

    // MARK: Channels

    /// What is kept of the messages of a channel; `nil` if the app has no such channel.
    func policy(ofChannel id: [UInt8], of bundleID: [UInt8]) -> ChannelRegistry.Policy? {
        state.withLock { $0.channels.policy(of: id, app: bundleID) }
    }

    /// Creates a channel.
    /// - Returns: its id; `nil` if the app has as many as it may have.
    func createChannel(_ policy: ChannelRegistry.Policy, of bundleID: [UInt8]) -> [UInt8]? {
        state.withLock { $0.channels.create(policy, app: bundleID, &$0.ids) }
    }

    /// - Returns: whether there was such a channel.
    func deleteChannel(_ id: [UInt8], of bundleID: [UInt8]) -> Bool {
        state.withLock { $0.channels.delete(id, app: bundleID) }
    }

    /// The ids of an app's channels, in the order of their creation.
    func channels(of bundleID: [UInt8]) -> [[UInt8]] { state.withLock { $0.channels.ids(app: bundleID) } }

    /// How long to hold back the answer to a request that was refused, in microseconds.
    func ordinaryDelay() -> Int64 { state.withLock { $0.script.ordinaryDelay(&$0.generator) } }

    func newID() -> NotificationID { state.withLock { NotificationID(random: &$0.ids) } }

    /// - Parameter now: seconds since 1970.
    func standing(authorization: [UInt8], now: Int64) -> ProviderTokens.Standing {
        state.withLock { $0.tokens.standing(authorization: authorization, now: now) }
    }

    func add(_ tally: ConnectionTally) { state.withLock { $0.account.add(tally) } }

    /// - Returns: the connection's number, from 1, and how it fails, if it does.
    func connectionOpened() -> (number: Int, fault: FaultRule.ConnectionFault?) {
        state.withLock { state in
            state.account.connections += 1
            let number = state.account.connections
            return (number, state.script.judge(connection: number, &state.generator))
        }
    }
}
