import NIOCore
import Redis

/// The rates of apps, which all workers share.
///
/// Not thread-safe; everything is called, and calls back, on the client's event loop.
public final class AppRates {
    private let keys: SharedKeys
    private let scripts: ScriptRunner

    /// - Parameter client: of the slot of the shared keys.
    public convenience init(client: any RedisSender, keys: SharedKeys) {
        self.init(client: client, keys: keys, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, clock: ClockSource) {
        self.keys = keys
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Reserves a portion of an app's rate.
    /// - Parameters:
    ///   - perSecond: the app's rate in notifications a second.
    ///   - count: how many notifications are to be sent.
    ///   - completion: gets in how many milliseconds they may be.
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
            completion: { result in
                completion(
                    result.flatMap { reply in
                        guard reply.root.count == 1, let wait = reply.root[0].integer else {
                            return .failure(.unexpectedReply(.reserveRate))
                        }
                        return .success(Int64(wait))
                    })
            })
    }
}
