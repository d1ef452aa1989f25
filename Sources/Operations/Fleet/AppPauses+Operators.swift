import NIOCore
import PushQueue
import Redis

/// Functions for operators.
extension AppPauses {
    /// Pauses an app until ``end(_:_:_:)``. Works on a Redis whose memory is full.
    /// - Throws: `RedisError`.
    public static func set(
        _ pause: AppPause, of app: String, _ client: RedisClient, _ keys: SharedKeys
    ) async throws {
        try await QueueScript.write("SET", keys.appPaused(app), client) { $0.append(pause.json) }
    }

    /// Reads the pauses of those apps that are paused, by the apps' names.
    /// - Throws: `RedisError`.
    public static func read(
        _ apps: Set<String>, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> [String: AppPause] {
        guard !apps.isEmpty else { return [:] }
        let apps = Array(apps)
        let pauses = pauses(try await client.call(query(apps, keys)), of: apps)
        return Dictionary(uniqueKeysWithValues: zip(apps, pauses).compactMap { app, pause in pause.map { (app, $0) } })
    }

    /// Reads the pause of an app; `nil` if it is not paused.
    /// - Throws: `RedisError`.
    public static func read(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> AppPause? {
        try await read([app], client, keys)[app]
    }

    /// Ends the pause of an app, also one that an operator ordered.
    /// - Returns: true if it was paused.
    /// - Throws: `RedisError`.
    public static func end(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.appPaused(app))).root.number == 1
    }
}

extension WorkerCommand {
    /// Gives the command to a process through one of its queues. A later command replaces it. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    public func send(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.write("SET", keys.order(process), client) { command in
            command.append(text)
            command.append("PX")
            command.append(Self.lifetime)
        }
    }
}
