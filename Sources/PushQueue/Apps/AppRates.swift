import NIOCore
import Redis

/// The rates of apps, which all workers share.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class AppRates {
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
        completion: @escaping (Result<Int64, QueueConnection.Failure>) -> Void
    ) {
        scripts.run(
            .reserveRate, [keys.appRate(app)],
            arguments: { command in
                command.append(perSecond)
                command.append(count)
            },
            completion: completion, reading: { Int64($0.number()) })
    }
}
