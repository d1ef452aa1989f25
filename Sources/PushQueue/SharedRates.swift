import NIOCore
import Redis

/// The rates of notifications that all workers share: those of apps, and those by which campaigns and producers' keys
/// are limited.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
package final class SharedRates {
    /// A rate within which jobs get their turns.
    package enum Limit: Sendable, Hashable {
        /// That of a campaign, which an operator has limited at a time in milliseconds since 1970.
        case campaign(String, perSecond: Int, since: Int64)
        /// That of the jobs with this `fair`, by their `fair_per_second`.
        case fair(String, perSecond: Int)

        /// The maximum number of notifications per second.
        package var perSecond: Int {
            switch self {
            case .campaign(_, let perSecond, _), .fair(_, let perSecond): perSecond
            }
        }
    }

    /// The time for which an app's unused rate is kept, in milliseconds.
    private static let appLifetime = 3_600_000
    /// The time for which the rate of a key is kept, in milliseconds; no job waits longer for it.
    private static let fairLifetime = 30 * 86_400_000

    private let keys: SharedKeys
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    package convenience init(client: any RedisSender, keys: SharedKeys) {
        self.init(client: client, keys: keys, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, clock: ClockSource) {
        self.keys = keys
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Reserves a portion of an app's rate.
    /// - Parameters:
    ///   - count: the number of notifications to send.
    ///   - perSecond: the app's rate in notifications per second.
    ///   - completion: gets the milliseconds until they can be sent.
    package func reserve(
        _ count: Int, of app: String, perSecond: Int, completion: @escaping (Result<Int64, QueueFailure>) -> Void
    ) {
        reserve([count], of: keys.appRate(app), perSecond: perSecond, lifetime: Self.appLifetime) { result in
            completion(result.map { Int64($0.first ?? 0) })
        }
    }

    /// Assigns send times to jobs whose rate is limited.
    /// - Parameters:
    ///   - amounts: the number of notifications of each job.
    ///   - completion: gets the milliseconds until each job can be sent.
    package func reserve(
        _ amounts: [Int], of limit: Limit, completion: @escaping (Result<[Int], QueueFailure>) -> Void
    ) {
        switch limit {
        case .campaign(let name, let perSecond, let since):
            reserve(
                amounts, of: keys.campaignRate(name), perSecond: perSecond, since: since,
                lifetime: QueueKeys.campaignLifetime, completion: completion)
        case .fair(let key, let perSecond):
            reserve(
                amounts, of: keys.fairRate(key), perSecond: perSecond, lifetime: Self.fairLifetime,
                completion: completion)
        }
    }

    /// - Parameters:
    ///   - amounts: notifications that are sent together.
    ///   - key: the key of the rate.
    ///   - since: the time of the limit's last change, in milliseconds since 1970: what was reserved before does not
    ///     count. 0 if it counts.
    ///   - lifetime: the time for which the key is kept, in milliseconds.
    ///   - completion: gets the milliseconds until each amount can be sent.
    private func reserve(
        _ amounts: [Int], of key: String, perSecond: Int, since: Int64 = 0, lifetime: Int,
        completion: @escaping (Result<[Int], QueueFailure>) -> Void
    ) {
        scripts.run(
            .reserveRate, [key], expecting: amounts.count + 8,
            arguments: { command in
                command.append(perSecond)
                command.append(Int(since))
                command.append(lifetime)
                for amount in amounts { command.append(amount) }
            }, completion: completion
        ) { reply in
            if reply.count != amounts.count { reply.refuse() }
            return amounts.map { _ in reply.number() }
        }
    }
}
