import NIOCore
import PushQueue
import Redis

/// A key of the queues or of the fleet, and its size.
package struct KeySize: Sendable, Shown {
    package let key, type: String
    package let entries, bytes: Int

    package static let columns = Columns<Self>(
        "KeySize", "A key and its size.",
        [
            .init("key", "Key.", as: .key, in: .list, \.key), .init("type", "Type.", as: .key, in: .wide, \.type),
            .init("entries", "Number of its members.", as: .count, in: .list, \.entries),
            .init("bytes", "Redis' estimate of the key's memory.", as: .bytes, title: "Memory", in: .list, \.bytes),
            .text("Share", as: .key, in: .widest, \.bytes),
        ])
}

package enum KeySizes {
    /// The keys of a queue that can become large. Keys of single jobs or minutes can't.
    static func growing(_ keys: QueueKeys) -> [String] {
        keys.unclaimed + [keys.dead, keys.cancelled, keys.results, keys.workers]
    }

    /// The shared keys that can become large. Keys of single tokens can't.
    static func growing(_ keys: SharedKeys) -> [String] {
        [keys.invalidTokens, keys.registrations, keys.throttledTokens, keys.audit]
    }

    /// Reads the sizes of the keys that can become large, the largest first.
    /// - Parameter unread: gets the queues that can't be read, and the keys that all queues share, if these can't.
    /// - Throws: the first error if nothing can be read.
    package static func read(
        _ fleet: Fleet, _ queues: [QueueKeys], _ unread: inout UnreadParts
    ) async throws -> [KeySize] {
        var (sizes, isRead) = ([KeySize](), false)
        for keys in queues {
            let own = try await unread.read(keys.queue) {
                let names = growing(keys)
                return try await read(fleet.client(for: names[0]), names)
            }
            guard let own else { continue }
            (sizes, isRead) = (sizes + own, true)
        }
        do {
            let shared = fleet.sharedKeys
            let shards = try await InvalidTokenClient.reading(fleet).division().shards
            let names = shards > 1 ? [shared.throttledTokens, shared.audit] : growing(shared)
            sizes += try await sums(fleet, shards) + read(fleet.client(for: names[0]), names)
        } catch {
            try unread.record(error, of: "the part that all queues share")
            if !isRead { try unread.throwFirst() }
        }
        return sizes.sorted { ($1.bytes, $0.key) < ($0.bytes, $1.key) }
    }

    /// Reads the sizes of the existing keys among some keys of one slot.
    private static func read(_ client: RedisClient, _ keys: [String]) async throws -> [KeySize] {
        let types = try await client.call(keys.map { RedisCommand("TYPE", $0) }).map { $0?.root.string ?? "none" }
        let counts = zip(keys, types).compactMap { key, type in
            let command: String? =
                switch type {
                case "list": "LLEN"
                case "zset": "ZCARD"
                case "hash": "HLEN"
                case "set": "SCARD"
                case "stream": "XLEN"
                default: nil
                }
            return command.map { (key: key, type: type, command: RedisCommand($0, key)) }
        }
        let entries = try await client.call(counts.map(\.command))
        let sizes = try await bytes(client, counts.map(\.key))
        return zip(counts, zip(entries, sizes)).map { key, numbers in
            KeySize(key: key.key, type: key.type, entries: numbers.0?.root.number ?? 0, bytes: numbers.1)
        }
    }

    /// Returns Redis' estimates of the memory of keys in one slot, in bytes; 0 for missing keys.
    fileprivate static func bytes(_ client: RedisClient, _ keys: [String]) async throws -> [Int] {
        // A few samples: more would block Redis on large keys.
        let commands = keys.map { RedisCommand("MEMORY", "USAGE", $0, "SAMPLES", "5") }
        return try await client.call(commands).map { $0?.root.number ?? 0 }
    }

    /// Returns the total sizes of the details of invalid tokens and, in a divided set, of its sets and registrations. The totals are
    /// extrapolated from some hashes and one shard.
    private static func sums(_ fleet: Fleet, _ shards: Int) async throws -> [KeySize] {
        let shard = fleet.sharedKeys.shard(0, of: shards)
        let client = try await fleet.client(for: shard.facts)
        var sums: [KeySize] = []
        func add(_ name: String, _ type: String, _ keys: [String], of all: Int) async throws {
            let some = try await read(client, keys)
            let factor = all / keys.count * shards
            let name = name.replacing(".\(shards).0}", with: ".\(shards).*}")
            sums.append(
                KeySize(
                    key: name, type: type, entries: some.reduce(0) { $0 + $1.entries } * factor,
                    bytes: some.reduce(0) { $0 + $1.bytes } * factor))
        }
        let hashes = shard.detailHashes
        try await add("\(shard.details):*", "hash", Array(hashes.prefix(16)), of: hashes.count)
        guard shard.isShard else { return sums }
        try await add("\(shard.tokens):*", "set", shard.sets, of: shard.sets.count)
        try await add("\(shard.registrations):*", "hash", shard.registrationHashes, of: shard.registrationHashes.count)
        return sums
    }
}

/// A key that soon can't be moved to another server any more: Redis serializes a key as one value, which has a maximum
/// length.
package struct LargeKey: Sendable, Equatable, Shown {
    /// The maximum length, unless Redis returns another.
    private static let defaultLimit = 512 << 20
    /// A key is large above this part of the limit. Most keys are smaller when serialized than in memory.
    private static let share = 0.8

    package let key: String
    package let bytes: Int
    package let limit: Int

    package static let columns = Columns<Self>(
        "LargeKey", "A key that is almost too large to be moved to another server.",
        [
            .init("key", "Key.", \.key), .init("bytes", "Redis' estimate of the key's memory.", as: .bytes, \.bytes),
            .init("limit", "Maximum length of a value, in bytes.", as: .bytes, \.limit),
        ])

    /// Returns the large keys among some keys.
    /// - Parameter keys: keys on the server.
    /// - Throws: `RedisError`.
    package static func find(_ client: RedisClient, _ keys: [String]) async throws -> [LargeKey] {
        var limit = defaultLimit
        do {
            let answer = try await client.call(RedisCommand("CONFIG", "GET", "proto-max-bulk-len"))
            limit = answer.root.children.compactMap { $0.string.flatMap(Int.init) }.last ?? limit
        } catch RedisError.server {
            // Managed servers refuse CONFIG.
        }
        return zip(keys, try await KeySizes.bytes(client, keys)).compactMap { key, bytes in
            guard Double(bytes) >= share * Double(limit) else { return nil }
            return LargeKey(key: key, bytes: bytes, limit: limit)
        }
    }
}
