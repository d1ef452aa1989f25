import NIOCore
import Redis

/// The rates of notifications that all workers share: those of apps, of limited campaigns, and of the values of `fair`.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class SharedRates {
    /// A limited rate that gives jobs their turns.
    public enum Limit: Sendable, Hashable {
        /// The rate of a campaign, which an operator has limited at a time in milliseconds since 1970.
        case campaign(String, perSecond: Int, since: Int64)
        /// The rate of the jobs with this `fair`, from their `fair_per_second`.
        case fair(String, perSecond: Int)

        public var perSecond: Int {
            switch self {
            case .campaign(_, let perSecond, _), .fair(_, let perSecond): perSecond
            }
        }
    }

    /// An app's unused rate is kept for this time, in milliseconds.
    private static let appLifetime = 3_600_000
    /// The rate of a `fair` is kept for this time, in milliseconds. No job waits longer for its turn.
    private static let fairLifetime = 30 * 86_400_000

    private let keys: SharedKeys
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys, clock: ClockSource = .server) {
        self.keys = keys
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Reserves a portion of an app's rate.
    /// - Parameter completion: gets the milliseconds until the portion can be sent.
    public func reserve(_ count: Int, of app: String, perSecond: Int, completion: @escaping Completion<Int64>) {
        scripts.run(
            .reserveRate, [keys.appRate(app)], expecting: 9,
            arguments: { command in
                command.append(perSecond)
                command.append(Self.appLifetime)
                command.append(count)
            }, completion: completion
        ) { reply in
            if reply.count != 1 { reply.refuse() }
            return Int64(reply.number())
        }
    }

    /// A job that asks for its turn.
    public struct Turn: Sendable, Equatable {
        public var notifications: Int
        /// True for an urgent job, and for a job that asks again after its wait.
        public var goesFirst: Bool

        public init(notifications: Int, goesFirst: Bool) {
            self.notifications = notifications
            self.goesFirst = goesFirst
        }
    }

    /// Gives jobs of a limited rate their turns, if they can be sent now.
    /// - Parameter completion: gets a number for each job: 0 if it has its turn, or the milliseconds until it should ask again.
    public func take(_ turns: [Turn], of limit: Limit, completion: @escaping Completion<[Int]>) {
        let key: String
        let (since, lifetime): (Int64, Int)
        switch limit {
        case .campaign(let name, _, let at):
            key = keys.campaignRate(name)
            (since, lifetime) = (at, QueueKeys.campaignLifetime)
        case .fair(let name, _):
            key = keys.fairRate(name)
            (since, lifetime) = (0, Self.fairLifetime)
        }
        scripts.run(
            .takeTurns, [key], expecting: 2 * turns.count + 8,
            arguments: { command in
                command.append(limit.perSecond)
                command.append(Int(since))
                command.append(lifetime)
                for turn in turns {
                    command.append(turn.notifications)
                    command.append(turn.goesFirst ? 1 : 0)
                }
            }, completion: completion
        ) { reply in
            if reply.count != turns.count { reply.refuse() }
            return turns.map { _ in reply.number() }
        }
    }
}
