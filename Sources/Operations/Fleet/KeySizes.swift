import NIOCore
import PushQueue
import Redis

/// A key of the queues or of the fleet, and its size.
package struct KeySize: Encodable, Sendable {
    package let key, type: String
    /// The number of its members.
    package let entries: Int
    /// Redis' estimate, in bytes.
    package let bytes: Int
}

package enum KeySizes {
    /// The keys of a queue that can become large, except those of single jobs and minutes.
    static func growing(_ keys: QueueKeys) -> [String] {
        [keys.jobs, keys.inbox, keys.retry, keys.dead, keys.cancelled, keys.results, keys.workers]
    }

    /// The keys that all queues share and that can become large, except those of single tokens.
    static func growing(_ keys: SharedKeys) -> [String] {
        [keys.invalidTokens, keys.registrations, keys.throttledTokens, keys.audit]
    }

    /// Reads the sizes of the keys that can become large, the largest first.
    /// - Throws: `RedisError`.
    package static func read(_ fleet: Fleet, _ queues: [QueueKeys]) async throws -> [KeySize] {
        let shared = fleet.sharedKeys
        let keys = queues.flatMap(growing) + growing(shared)
        var sizes: [KeySize] = []
        for key in Set(keys) {
            let client = try await fleet.client(for: key)
            let type = try await client.call(RedisCommand("TYPE", key)).root.string ?? "none"
            let count: String? =
                switch type {
                case "list": "LLEN"
                case "zset": "ZCARD"
                case "hash": "HLEN"
                case "set": "SCARD"
                case "stream": "XLEN"
                default: nil
                }
            guard let count else { continue }
            let entries = try await client.call(RedisCommand(count, key)).root.number ?? 0
            // A few samples: more would block Redis on large keys.
            let bytes = try await client.call(RedisCommand("MEMORY", "USAGE", key, "SAMPLES", "5")).root.number ?? 0
            sizes.append(KeySize(key: key, type: type, entries: entries, bytes: bytes))
        }
        sizes.append(try await details(fleet))
        return sizes.sorted { ($1.bytes, $0.key) < ($0.bytes, $1.key) }
    }

    /// Returns the sum of the hashes with the details of invalid tokens, extrapolated from some of them.
    private static func details(_ fleet: Fleet) async throws -> KeySize {
        let base = fleet.sharedKeys.invalidTokenDetails
        let client = try await fleet.client(for: base)
        let (all, some) = (4096, 16)
        var (entries, bytes) = (0, 0)
        for number in 0..<some {
            let key = "\(base):00\(String(number, radix: 16))"
            entries += try await client.call(RedisCommand("HLEN", key)).root.number ?? 0
            bytes += try await client.call(RedisCommand("MEMORY", "USAGE", key)).root.number ?? 0
        }
        return KeySize(key: "\(base):*", type: "hash", entries: entries * (all / some), bytes: bytes * (all / some))
    }
}

/// A key that soon can't be moved to another server any more: Redis serializes a key as one value, which has a maximum
/// length.
package struct LargeKey: Encodable, Sendable, Equatable {
    /// The maximum length, unless Redis returns another.
    private static let defaultLimit = 512 << 20
    /// The part of the limit from which a key is large. Most are smaller serialized than in memory.
    private static let share = 0.8

    package let key: String
    /// Redis' estimate of its memory, in bytes.
    package let bytes: Int
    /// The maximum length of a value, in bytes.
    package let limit: Int

    /// Finds the large ones.
    /// - Parameter keys: keys on the server.
    /// - Throws: `RedisError`.
    package static func find(_ client: RedisClient, _ keys: [String]) async throws -> [LargeKey] {
        // A few samples: more would block Redis on large keys.
        let replies = try await client.call(
            [RedisCommand("CONFIG", "GET", "proto-max-bulk-len")]
                + keys.map { RedisCommand("MEMORY", "USAGE", $0, "SAMPLES", "5") })
        // Managed servers refuse CONFIG.
        let limit = replies.first??.root.children.compactMap { $0.string.flatMap(Int.init) }.last ?? defaultLimit
        return zip(keys, replies.dropFirst()).compactMap { key, reply in
            guard let bytes = reply?.root.number, Double(bytes) >= share * Double(limit) else { return nil }
            return LargeKey(key: key, bytes: bytes, limit: limit)
        }
    }
}
