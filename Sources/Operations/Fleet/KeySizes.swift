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
    /// Reads the sizes of the keys that can become large, the largest first. Omits the keys of single jobs, tokens and
    /// minutes.
    /// - Throws: `RedisError`.
    package static func read(_ fleet: Fleet, _ queues: [QueueKeys]) async throws -> [KeySize] {
        let shared = fleet.sharedKeys
        var keys = queues.flatMap { [$0.jobs, $0.inbox, $0.retry, $0.dead, $0.results, $0.workers] }
        keys += [shared.invalidTokens, shared.registrations, shared.throttledTokens, shared.audit]
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
