import NIOCore
import Redis

/// The rates of apps, which all workers share.
///
/// Not thread-safe; everything is called, and calls back, on the clients' event loop.
public final class AppRates {
    private let clients: RedisClients
    private let keys: SharedKeys
    private let scripts: ScriptRunners

    /// - Parameter keys: whose prefix is that of the rates' keys.
    public init(clients: RedisClients, keys: SharedKeys) {
        self.clients = clients
        self.keys = keys
        scripts = ScriptRunners(clients: clients)
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
        let key = keys.appRate(app)
        scripts.runner(for: key).run(
            .rate, [key],
            arguments: { command in
                command.append(perSecond)
                command.append(count)
            },
            completion: { result in
                completion(
                    result.flatMap { reply in
                        guard reply.root.count == 1, let wait = reply.root[0].integer else {
                            return .failure(.unexpectedReply(.rate))
                        }
                        return .success(Int64(wait))
                    })
            })
    }
}
