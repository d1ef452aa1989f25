import APNS
import NIOCore
import Synchronization

/// The state that all connections of a simulator share.
@dynamicMemberLookup
final class SimulatedService: Sendable {
    struct State {
        var account: Account
        var rules: RuleScript<PushAction>
        /// The delay of an answer, unless a rule sets another.
        var delay: AnswerDelay?
        /// The behaviour without rules. Changes apply to new connections.
        var settings: SimulatorSettings
        /// The topics that can be pushed to; empty for all.
        var topics: Set<String>
        var devices: DeviceRegistry
        var tokens: ProviderTokens
        var generator: SeededGenerator
        var ids: SeededGenerator
        var channels: ChannelRegistry
        var gatewayRules: RuleScript<GatewayAction>
        var feedback = FeedbackList()
        var feedbackRules: RuleScript<FeedbackAction>
        /// The dashboard's address without a trailing slash; nil if unknown.
        var dashboard: String?
    }

    let state: Mutex<State>
    let configuration: SimulatorConfiguration
    let sendTime: SendTime?
    /// Records received notifications; nil to record none.
    let recorder: Recorder?

    init(_ configuration: SimulatorConfiguration) {
        self.configuration = configuration
        recorder = configuration.recorder
        sendTime = configuration.latencyMember.map { SendTime(member: $0) }
        state = Mutex(
            State(
                account: Account(limit: configuration.accountLimit),
                rules: RuleScript(configuration.rules, limit: configuration.accountLimit),
                delay: configuration.delay, settings: configuration.settings, topics: Set(configuration.topics),
                devices: DeviceRegistry(configuration.devices),
                tokens: ProviderTokens(keys: configuration.providerKeys),
                generator: SeededGenerator(seed: configuration.seed),
                // The ids do not depend on the seed, because generated UUIDs must not repeat in the next run.
                ids: SeededGenerator(seed: .random(in: .min ... .max)),
                channels: ChannelRegistry(maximum: configuration.maximumChannels),
                gatewayRules: RuleScript(configuration.gatewayRules, limit: configuration.accountLimit),
                feedbackRules: RuleScript(configuration.feedbackRules),
                dashboard: configuration.dashboardURL.map(Self.withoutSlash)))
        addFeedback(configuration.feedback)
    }

    var dashboard: String? {
        get { state.withLock { $0.dashboard } }
        set { state.withLock { $0.dashboard = newValue.map(Self.withoutSlash) } }
    }

    private static func withoutSlash(_ url: String) -> String { url.hasSuffix("/") ? String(url.dropLast()) : url }

    subscript<Part: Sendable>(dynamicMember part: WritableKeyPath<State, Part>) -> Part {
        get { state.withLock { $0[keyPath: part] } }
        set { state.withLock { $0[keyPath: part] = newValue } }
    }

    /// Decides on a request that passed every check. If it is a notification and accepted, adds it to the account.
    /// - Parameter target: the device, the channel of a broadcast, or the app whose channels are managed.
    func judge(
        _ target: EventTarget, topic: String = "", id: APNSID, ordinal: Int, connection: Int
    ) -> PushEffect {
        state.withLock { state in
            var event = RuleEvent(point: .request, target: target, ordinal: ordinal, connection: connection)
            switch target {
            case .device(let token):
                guard let refusal = state.devices.refusal(of: token, topic: topic, state.settings) else { break }
                let delay = state.delay?.draw(&state.generator) ?? 0
                return PushEffect(answer: .response(refusal), accepts: false, delay: delay)
            case .app: event.point = .channels
            case .channel, .connection: break
            }
            let effect = PushEffect(of: &state.rules, on: event, delay: state.delay, &state.generator)
            if effect.accepts { state.account.accept(id, for: target) }
            return effect
        }
    }

    /// Returns a delay for the answer to a refused request, in microseconds.
    func ordinaryDelay() -> Int64 { state.withLock { $0.delay?.draw(&$0.generator) ?? 0 } }

    func newID() -> APNSID { state.withLock { APNSID(random: &$0.ids) } }

    func grant(authorization: [UInt8], _ environment: APNSEnvironment) -> Result<ProviderGrant, Refusal> {
        state.withLock { $0.tokens.grant(authorization: authorization, environment: environment) }
    }

    func add(_ counters: PushCounters, latencies: [Int64] = []) {
        state.withLock { $0.account.add(counters, latencies: latencies) }
    }

    /// Adds a connection to the account.
    /// - Returns: the connection's number, from 1, and its fault, if any.
    func connectionOpened() -> (number: Int, fault: PushAction.ConnectionFault?) {
        state.withLock { state in
            state.account.http2.counters.connections += 1
            let number = state.account.http2.connections
            return (number, state.rules.first(for: .connection(number), &state.generator)?.connectionFault)
        }
    }
}

extension SimulatedService {
    /// True if ``judgeGateway(_:topic:ordinal:)`` must be called for each notification.
    var judgesGatewayNotifications: Bool {
        state.withLock { $0.gatewayRules.judgesMoreThanConnections || $0.devices.refusesAny($0.settings) }
    }

    /// Adds a connection of an accepted client to the account, and applies the rules.
    /// - Returns: the connection's number, from 1, and the effect of the rules, if any.
    func judgeGatewayConnection() -> (number: Int, effect: GatewayEffect?) {
        state.withLock { state in
            state.account.gateway.counters.connections += 1
            return (
                state.account.gateway.connections,
                GatewayEffect(ofNextConnection: &state.gatewayRules, &state.generator)
            )
        }
    }

    /// Decides on a notification that passed every check. Rules do not apply to a device that the registry refuses.
    func judgeGateway(_ token: SimulatedToken, topic: String, ordinal: Int) -> GatewayEffect? {
        state.withLock { state in
            let registered = state.devices.gatewayEffect(on: token, topic: topic, state.settings)
            if let registered, !registered.accepts { return registered }
            return GatewayEffect(of: &state.gatewayRules, on: token, ordinal: ordinal, &state.generator) ?? registered
        }
    }

    func add(_ counters: GatewayCounters, tokens: [SimulatedToken], ids: [[UInt8]]) {
        state.withLock { $0.account.add(counters, tokens: tokens, ids: ids) }
    }

    // MARK: Feedback

    /// Reports to the feedback service, if there is one, that a device no longer has the app.
    /// - Parameters:
    ///   - token: ignored if it is longer than the binary protocol allows.
    ///   - milliseconds: since 1970.
    func addFeedback(_ token: SimulatedToken, milliseconds: Int64) {
        guard configuration.feedbackPort != nil, token.fitsFeedback else { return }
        addFeedback([FeedbackRecord(token: token, seconds: UInt32(clamping: milliseconds / 1000))])
    }

    /// Adds records to the feedback service.
    /// - Returns: the number of waiting records.
    @discardableResult
    func addFeedback(_ records: [FeedbackRecord]) -> Int {
        state.withLock { state in
            for record in records where state.feedback.add(record) { state.account.feedback.forgotten += 1 }
            state.account.feedback.waiting = state.feedback.count
            return state.feedback.count
        }
    }

    /// Deletes the waiting records of the feedback service.
    /// - Returns: the number of deleted records.
    func clearFeedback() -> Int {
        state.withLock { state in
            defer {
                state.feedback = FeedbackList()
                state.account.feedback.waiting = 0
            }
            return state.feedback.count
        }
    }

    func takeFeedback(_ count: Int) -> [FeedbackRecord] {
        state.withLock { state in
            let records = state.feedback.take(count)
            state.account.feedback.served += records.count
            state.account.feedback.waiting = state.feedback.count
            return records
        }
    }

    func feedbackClientRefused() { state.withLock { $0.account.feedback.refusedClients += 1 } }

    /// Adds a connection of the feedback service to the account.
    /// - Returns: the fault of the connection, if any, and a seed for its randomness.
    func feedbackConnectionOpened() -> (fault: FeedbackAction?, seed: UInt64) {
        state.withLock { state in
            state.account.feedback.connections += 1
            return (state.feedbackRules.nextConnection(&state.generator), state.generator.next())
        }
    }
}

extension APNSID {
    /// A version 4 UUID.
    init(random generator: inout SeededGenerator) {
        self.init(high: generator.next() & ~0xF000 | 0x4000, low: generator.next() & ~(3 << 62) | (2 << 62))
    }

    /// Writes the canonical form in upper case, like the ids that APNs generates: 36 characters.
    func writeUpperCase(to bytes: UnsafeMutablePointer<UInt8>) {
        write(to: bytes)
        for index in 0..<Self.textLength where bytes[index] >= UInt8(ascii: "a") { bytes[index] -= 0x20 }
    }
}
