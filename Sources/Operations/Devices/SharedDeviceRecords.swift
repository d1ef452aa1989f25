import NIOCore
import PushQueue
import Redis

/// The records about some devices in the keys that all queues share.
struct SharedDeviceRecords {
    /// The number of tokens of one command.
    private static let batch = 500

    let finder: TokenFinder
    /// Lower-case hex.
    let tokens: [ByteBuffer]
    let fleet: Fleet
    let invalidTokens: InvalidTokenClient

    private var keys: SharedKeys { fleet.sharedKeys }

    /// - Throws: `RedisError`, or `QueueFailure`.
    func count() async throws -> [DeviceRecordKind: Int] {
        var counts: [DeviceRecordKind: Int] = [:]
        for batch in tokens.batches(of: Self.batch) {
            counts[.invalidToken, default: 0] += try await invalidTokens.find(TokenList(batch)).count
            for token in batch where try await invalidTokens.registration(of: token) != nil {
                counts[.registration, default: 0] += 1
            }
            var command = RedisCommand("ZMSCORE", keys.throttledTokens)
            for token in batch { command.append(token) }
            let scores = try await fleet.client(for: keys.throttledTokens).call(command).root.children
            counts[.throttle, default: 0] += scores.count { $0.string != nil }
        }
        try await announcements { counts[.announcement, default: 0] += $0.count }
        return counts.filter { $0.value > 0 }
    }

    /// - Returns: the numbers by kind.
    /// - Throws: `RedisError`, or `QueueFailure`.
    func forget() async throws -> [DeviceRecordKind: Int] {
        var counts: [DeviceRecordKind: Int] = [:]
        for batch in tokens.batches(of: Self.batch) {
            counts[.invalidToken, default: 0] += try await invalidTokens.withdraw(batch)
            let shards = try await invalidTokens.division().shards
            let places = Dictionary(grouping: batch) { token in
                keys.shard(TokenDivision.shard(of: token, among: shards), of: shards).registrations(of: token)
            }
            for (key, tokens) in places {
                counts[.registration, default: 0] += try await remove(tokens, with: "HDEL", from: key)
            }
            counts[.throttle, default: 0] += try await remove(batch, with: "ZREM", from: keys.throttledTokens)
        }
        let client = try await fleet.client(for: keys.invalidTokenChanges)
        try await announcements { found in
            let replaced = try await QueueScript.replaceValues(
                "entries", keys.invalidTokenChanges,
                found.map {
                    (place: $0.id, value: ByteBuffer(string: $0.name), rest: rest(of: $0.tokens), results: 0)
                }, client)
            counts[.announcement, default: 0] += replaced.count(where: \.self)
        }
        return counts.filter { $0.value > 0 }
    }

    private func remove(_ tokens: [ByteBuffer], with name: String, from key: String) async throws -> Int {
        var command = RedisCommand(name, key)
        for token in tokens { command.append(token) }
        return try await fleet.client(for: key).call(command).root.number ?? 0
    }

    private func announcements(
        _ page: ([(id: String, name: String, tokens: ByteBuffer)]) async throws -> Void
    ) async throws {
        let client = try await fleet.client(for: keys.invalidTokenChanges)
        try await DeviceSearch.entries(of: keys.invalidTokenChanges, client) { entries in
            let found = entries.compactMap { entry in
                entry.fields.first { finder.isIn($0.value) }.map { (id: entry.id, name: $0.name, tokens: $0.value) }
            }
            if !found.isEmpty { try await page(found) }
        }
    }

    /// Returns an entry's tokens of other devices, because processes that have not read the entry still need these tokens.
    private func rest(of list: ByteBuffer) -> ByteBuffer {
        let others = list.readableBytesView.split(separator: UInt8(ascii: ",")).filter { token in
            !finder.isIn(ByteBuffer(bytes: token))
        }
        return ByteBuffer(bytes: others.joined(separator: [UInt8(ascii: ",")]))
    }
}
