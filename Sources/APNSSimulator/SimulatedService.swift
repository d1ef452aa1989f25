import NIOCore
import Synchronization

/// What all connections of a simulator share: its rules, its credentials and its account.
final class SimulatedService: Sendable {
    private struct State {
        var account = Account()
        var script: FaultScript
        var tokens: ProviderTokens
        var generator: SeededGenerator
        var ids: SeededGenerator
    }

    private let state: Mutex<State>
    let configuration: SimulatorConfiguration
    let topics: Set<String>
    let sendTime: SendTime?

    init(_ configuration: SimulatorConfiguration) {
        self.configuration = configuration
        topics = Set(configuration.topics)
        sendTime = configuration.latencyMember.map { SendTime(member: $0) }
        state = Mutex(
            State(
                script: FaultScript(rules: configuration.rules, delay: configuration.delay),
                tokens: ProviderTokens(
                    keys: configuration.providerKeys, minimumInterval: configuration.providerTokenInterval),
                generator: SeededGenerator(seed: configuration.seed),
                // Not from the seed: a UUID made up must not come back in the next run.
                ids: SeededGenerator(seed: .random(in: .min ... .max))))
    }

    var account: Account { state.withLock { $0.account } }

    func setRules(_ rules: [FaultRule]) {
        state.withLock { $0.script = FaultScript(rules: rules, delay: configuration.delay) }
    }

    /// Decides about a request that passed every check, and enters it into the account if it is accepted.
    func judge(_ token: SimulatedToken, id: NotificationID, ordinal: Int) -> FaultScript.Verdict {
        state.withLock { state in
            let verdict = state.script.judge(token, ordinal: ordinal, &state.generator)
            if verdict.accepts { state.account.accept(id: id, token: token) }
            return verdict
        }
    }

    /// How long to hold back the answer to a request that was refused, in microseconds.
    func ordinaryDelay() -> Int64 { state.withLock { $0.script.ordinaryDelay(&$0.generator) } }

    func newID() -> NotificationID { state.withLock { NotificationID(random: &$0.ids) } }

    /// - Parameter now: seconds since 1970.
    func standing(authorization: [UInt8], now: Int64) -> ProviderTokens.Standing {
        state.withLock { $0.tokens.standing(authorization: authorization, now: now) }
    }

    func add(_ tally: ConnectionTally) { state.withLock { $0.account.add(tally) } }

    func connectionOpened() { state.withLock { $0.account.connections += 1 } }
}
