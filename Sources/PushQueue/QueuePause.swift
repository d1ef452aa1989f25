import NIOCore
import Redis

/// Pausing a queue: while it is paused, no worker claims from it. What is already claimed is sent.
public enum QueuePause {
    /// Pauses the queue, or gives a paused one another reason.
    /// - Parameter reason: why, for people.
    /// - Throws: `RedisError`.
    public static func set(_ client: RedisClient, _ keys: QueueKeys, reason: String) async throws {
        _ = try await client.call(RedisCommand("SET", keys.paused, reason))
    }

    /// Ends the pause: workers go on within about a second.
    /// - Returns: whether the queue was paused.
    /// - Throws: `RedisError`.
    public static func clear(_ client: RedisClient, _ keys: QueueKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.paused)).root.integer == 1
    }

    /// Why the queue is paused, fit to be shown whoever wrote it (see ``printable(_:)``).
    /// - Returns: `nil` when it is not paused.
    /// - Throws: `RedisError`.
    public static func reason(_ client: RedisClient, _ keys: QueueKeys) async throws -> String? {
        try await client.call(RedisCommand("GET", keys.paused)).root.string.map { printable($0) }
    }

    /// A reason without control characters and line breaks, with which it could do something to a terminal or a log.
    public static func printable(_ reason: String) -> String {
        let shown = reason.unicodeScalars.filter { scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: false
            default: true
            }
        }
        return String(String.UnicodeScalarView(shown))
    }
}
