import NIOCore
import Redis

/// The rates of apps, which all workers share.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class AppRates {
    /// The time for which an unused rate is kept, in milliseconds.
    private static let lifetime = 3_600_000

    private let keys: SharedKeys
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public convenience init(client: any RedisSender, keys: SharedKeys) {
        self.init(client: client, keys: keys, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, clock: ClockSource) {
        self.keys = keys
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Reserves a portion of an app's rate.
    /// - Parameters:
    ///   - perSecond: the app's rate in notifications per second.
    ///   - count: the number of notifications to send.
    ///   - completion: gets the milliseconds until they can be sent.
    public func reserve(
        _ count: Int, of app: String, perSecond: Int,
        completion: @escaping (Result<Int64, QueueFailure>) -> Void
    ) {
        scripts.reserve([count], of: keys.appRate(app), perSecond: perSecond, lifetime: Self.lifetime) { result in
            completion(result.map { Int64($0.first ?? 0) })
        }
    }
}

extension ScriptRunner {
    /// Reserves portions of a rate that all workers share.
    /// - Parameters:
    ///   - amounts: notifications that are sent together.
    ///   - key: the key of the rate.
    ///   - since: the time of the limit's last change, in milliseconds since 1970: what was reserved before does not
    ///     count. 0 if it counts.
    ///   - lifetime: the time for which the key is kept, in milliseconds.
    ///   - completion: gets the milliseconds until each amount can be sent.
    func reserve(
        _ amounts: [Int], of key: String, perSecond: Int, since: Int64 = 0, lifetime: Int,
        completion: @escaping (Result<[Int], QueueFailure>) -> Void
    ) {
        run(
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
