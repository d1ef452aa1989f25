import NIOCore
import Redis

/// The pauses of apps by operators, which the whole fleet shares.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class AppPauses {
    /// The commands of operators for an app.
    public struct State: Sendable, Equatable {
        /// The pause; `nil` if the app is not paused.
        public var pause: PauseRecord?
        /// True if an operator resumed the app since the last reading.
        public var isResumed = false

        public init(pause: PauseRecord? = nil, isResumed: Bool = false) {
            (self.pause, self.isResumed) = (pause, isResumed)
        }
    }

    private let client: any RedisSender
    private let keys: SharedKeys
    /// The last value of ``SharedKeys/appResumed(_:)`` of each app.
    private var resumed: [String: ByteBuffer] = [:]

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys) { (self.client, self.keys) = (client, keys) }

    /// Reads the state of apps, in their order.
    public func read(_ apps: [String], completion: @escaping Completion<[State]>) {
        guard !apps.isEmpty else { return completion(.success([])) }
        var command = RedisCommand("MGET", expecting: apps.count * 2, bytes: apps.count * 128)
        for app in apps { command.append(keys.appPaused(app)) }
        for app in apps { command.append(keys.appResumed(app)) }
        client.send(command) { [self] result in
            completion(
                result.mapError(QueueFailure.redis).map { reply in
                    var elements = reply.root.children
                    var states = apps.map { _ in State(pause: elements.next()?.bytes.map { PauseRecord($0) }) }
                    for (index, app) in apps.enumerated() {
                        guard let value = elements.next()?.bytes, value != resumed[app] else { continue }
                        resumed[app] = value
                        states[index].isResumed = true
                    }
                    return states
                })
        }
    }
}
