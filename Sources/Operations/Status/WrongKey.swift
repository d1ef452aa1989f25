import PushQueue
import Redis

/// A key of a wrong type, so that Redis refuses the requests that need it.
package struct WrongKey: Sendable, Equatable {
    package var key, found, expected: String

    /// Finds the keys of a queue that have the wrong type.
    /// - Parameter lanes: the names of the queue's lanes.
    /// - Throws: `RedisError`.
    package static func find(
        _ client: RedisClient, _ keys: QueueKeys, lanes: [String]
    ) async throws -> [WrongKey] {
        let wrong = try await find(client, keys.schema(lanes: lanes))
        guard !wrong.contains(where: { $0.key == keys.campaigns }) else { return wrong }
        let campaigns = try await CampaignCounts.names(100, client, keys)
        return wrong + (try await find(client, campaigns.map { (keys.campaign($0), "hash") }))
    }

    /// Finds the keys that all queues share and that have the wrong type.
    /// - Parameter apps: the names of apps.
    /// - Throws: `RedisError`.
    package static func find(_ client: RedisClient, _ keys: SharedKeys, apps: [String]) async throws -> [WrongKey] {
        try await find(client, keys.schema(apps: apps))
    }

    /// - Parameter schema: keys on the server, and the types that they must hold.
    private static func find(
        _ client: RedisClient, _ schema: [(key: String, type: String)]
    ) async throws -> [WrongKey] {
        let types = try await client.call(schema.map { RedisCommand("TYPE", $0.key) })
        return zip(schema, types).compactMap { entry, reply in
            guard let found = reply?.root.string, found != "none", found != entry.type else { return nil }
            return WrongKey(key: entry.key, found: found, expected: entry.type)
        }
    }
}

extension WrongKey: Shown {
    package static let columns = Columns<Self>(
        "WrongKey", "A key of a wrong type, so that Redis refuses the requests that need it.",
        [
            .init("key", "Key.", \.key), .init("found", "Type that it holds.", \.found),
            .init("expected", "Type that the key must hold.", \.expected),
        ])
}
