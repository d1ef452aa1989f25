import Redis

/// A key that holds another type than the schema says, so that Redis refuses the requests that need it.
public struct WrongKey: Sendable, Equatable, Encodable {
    /// The key.
    public var key: String
    /// The type that it holds, as `TYPE` names it.
    public var found: String
    /// The type that it must hold.
    public var expected: String

    /// Finds the keys of another type.
    /// - Parameter schema: keys on the server, and the types that they must hold.
    /// - Throws: `RedisError`.
    package static func find(_ client: RedisClient, _ schema: [(key: String, type: String)]) async throws -> [WrongKey]
    {
        try await withThrowingTaskGroup(of: (Int, String).self) { group in
            for (index, entry) in schema.enumerated() {
                group.addTask {
                    let reply = try await client.call(RedisCommand("TYPE", entry.key))
                    return (index, reply.root.string ?? "none")
                }
            }
            let types = try await group.reduce(into: [Int: String]()) { $0[$1.0] = $1.1 }
            return schema.enumerated().compactMap { index, entry in
                guard let found = types[index], found != "none", found != entry.type else { return nil }
                return WrongKey(key: entry.key, found: found, expected: entry.type)
            }
        }
    }

    /// Finds the keys of a queue that hold another type.
    /// - Parameter lanes: the names of the queue's lanes.
    /// - Throws: `RedisError`.
    public static func find(
        _ client: RedisClient, _ keys: QueueKeys, lanes: [String]
    ) async throws -> [WrongKey] {
        let wrong = try await find(client, keys.schema(lanes: lanes))
        guard !wrong.contains(where: { $0.key == keys.campaigns }) else { return wrong }
        let reply = try await client.call(RedisCommand("ZREVRANGE", keys.campaigns, "0", "99"))
        var names: [String] = []
        var elements = reply.root.children
        while let name = elements.next()?.string { names.append(name) }
        return wrong + (try await find(client, names.map { (keys.campaign($0), "hash") }))
    }

    /// Finds the keys that all queues share and that hold another type.
    /// - Parameter apps: the names of apps.
    /// - Throws: `RedisError`.
    public static func find(_ client: RedisClient, _ keys: SharedKeys, apps: [String]) async throws -> [WrongKey] {
        try await find(client, keys.schema(apps: apps))
    }
}
