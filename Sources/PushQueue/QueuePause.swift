import NIOCore
import Redis

/// Pausing a queue: while it is paused, no worker claims from it. What is already claimed is sent.
public enum QueuePause {
    /// Pauses the queue, or gives a paused one another reason. Works on a Redis whose memory is full.
    /// - Parameter pause: why, for people, since when, and by whom; only ``clear(_:_:)`` ends it.
    /// - Throws: `RedisError`.
    public static func set(_ client: RedisClient, _ keys: QueueKeys, _ pause: AppPause) async throws {
        try await QueueScript.set(keys.paused, to: pause.json, client)
    }

    /// The same with nothing but a reason.
    /// - Throws: `RedisError`.
    public static func set(_ client: RedisClient, _ keys: QueueKeys, reason: String) async throws {
        try await set(client, keys, AppPause(reason: reason))
    }

    /// Ends the pause: workers go on within about a second.
    /// - Returns: whether the queue was paused.
    /// - Throws: `RedisError`.
    public static func clear(_ client: RedisClient, _ keys: QueueKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.paused)).root.integer == 1
    }

    /// Why the queue is paused, since when and by whom, fit to be shown whoever wrote it.
    /// - Returns: `nil` when it is not paused.
    /// - Throws: `RedisError`.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> AppPause? {
        try await client.call(RedisCommand("GET", keys.paused)).root.bytes.map { AppPause($0) }
    }

    /// Why the queue is paused.
    /// - Returns: `nil` when it is not paused.
    /// - Throws: `RedisError`.
    public static func reason(_ client: RedisClient, _ keys: QueueKeys) async throws -> String? {
        try await read(client, keys)?.reason
    }
}
