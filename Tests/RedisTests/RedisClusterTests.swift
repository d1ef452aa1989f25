import NIOCore
import Redis
import Synchronization
import TestSupport
import Testing

@Suite("A client of a Cluster", .timeLimit(.minutes(10)))
struct RedisClusterTests {
    @Test("computes the slots that Redis does")
    func slots() throws {
        let server = try RedisServer(cluster: true)
        let connection = try server.connect()
        var keys = ["", "a", "123456789", "push:{default}:jobs", "{}a", "{", "}", "a{b", "a{}{b}", "{{a}}", "{a}{b}"]
        var random = SeededGenerator(seed: 1)
        for _ in 0..<300 {
            let length = Int.random(in: 0...20, using: &random)
            keys.append(String((0..<length).map { _ in "ab{}é:0".randomElement(using: &random) ?? "a" }))
        }
        for key in keys {
            #expect(try connection.run("CLUSTER", "KEYSLOT", key).number == RedisHashSlot.of(key), "\(key)")
        }
        #expect(RedisHashSlot.of("push:{default}:jobs") == RedisHashSlot.of("push:{default}:retry"))
    }

    @Test("follows its slot with no more rights than a worker needs")
    func rights() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot(of: "push:{queue}")
        for node in cluster.nodes {
            try node.run(
                "ACL", "SETUSER", "worker", "on", ">s3cret", "~push:*", "+@connection", "+@scripting", "+@read",
                "+@write", "+time", "+select", "+cluster|slots", "+asking")
        }
        let url = cluster.url.replacing("://", with: "://worker:s3cret@")
        try await withClient(url, key: "push:{queue}") { client in
            _ = try await client.call(RedisCommand("RPUSH", "push:{queue}old", "1"))
            try cluster.beginMigration(ofSlot: slot, from: old, to: new)
            _ = try await client.call(RedisCommand("RPUSH", "push:{queue}new", "1"))
            #expect(try new.run("CLUSTER", "COUNTKEYSINSLOT", "\(slot)") == 1)
            try cluster.migrateKeys(ofSlot: slot, from: old, to: new)
            try cluster.finishMigration(ofSlot: slot, from: old, to: new)
            _ = try await client.call(RedisCommand("RPUSH", "push:{queue}old", "2"))
            #expect(try new.run("CLUSTER", "COUNTKEYSINSLOT", "\(slot)") == 2)
        }
    }

    @Test("finds the replica that replaced a killed master; acknowledged data is still there")
    func promotion() async throws {
        let cluster = try await RedisCluster(replicas: 1)
        let owner = try cluster.owner(ofSlot: cluster.slot(of: "{queue}"))
        try await withClient(cluster.url, key: "{queue}") { client in
            var acknowledged = try await writeAll(0..<100, to: "{queue}list", by: client)
            _ = try await client.call(RedisCommand("WAIT", "1", "5000"))
            owner.kill()
            acknowledged += try await writeAll(100..<200, to: "{queue}list", by: client)
            #expect(try await place(of: client) != .host("127.0.0.1", port: owner.port))
            let stored = try await client.call(RedisCommand("LRANGE", "{queue}list", "0", "-1"))
            // A number whose answer was lost is written again, so each occurs at least once.
            #expect(Set(stored.root.children.compactMap { $0.string.flatMap { Int($0) } }) == Set(acknowledged))
        }
    }

    @Test("repeats a blocking command at the new node of its slot")
    func blocked() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot()
        try await withClient(cluster.url, key: "{queue}") { client in
            async let moved = client.call(
                RedisCommand("BLMOVE", "{queue}jobs", "{queue}inbox", "LEFT", "RIGHT", "20"), deadline: .seconds(25))
            try await eventually { try old.run("INFO", "clients").text?.contains("blocked_clients:1") == true }
            try cluster.migrate(slot: slot, from: old, to: new)
            try await eventually { try new.run("INFO", "clients").text?.contains("blocked_clients:1") == true }
            try new.run("RPUSH", "{queue}jobs", "job")
            #expect(try await moved.root.string == "job")
        }
    }

    @Test("returns redirections that it must not follow to the caller, and continues")
    func refusals() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot()
        try await withClient(cluster.url, key: "{queue}") { client in
            #expect(try await prefix(of: RedisCommand("MGET", "{queue}a", "{other}a"), client) == "CROSSSLOT")
            let elsewhere = try #require(
                try (0..<1000).map { "key\($0)" }.first { try cluster.owner(ofSlot: cluster.slot(of: $0)) === new })
            #expect(try await prefix(of: RedisCommand("GET", elsewhere), client) == "MOVED")
            #expect(try await place(of: client) == .host("127.0.0.1", port: old.port))

            // Both keys are missing: the old node names the new one, which cannot answer for two keys before the migration ends.
            _ = try await client.call(RedisCommand("SET", "{queue}a", "1"))
            try cluster.beginMigration(ofSlot: slot, from: old, to: new)
            #expect(try await prefix(of: RedisCommand("MGET", "{queue}b", "{queue}c"), client) == "TRYAGAIN")
            let asked = try await client.call(RedisCommand("GET", "{queue}b"))
            #expect(asked.root.isNull)

            // The node to ask is unavailable: the caller learns that nothing was executed, and nothing else is lost.
            new.kill()
            #expect(try await prefix(of: RedisCommand("SET", "{queue}b", "1"), client) == "ASK")
            let here = try await client.call(RedisCommand("GET", "{queue}a"))
            #expect(here.root.string == "1")
        }
    }

    @Test("is ready again after the answer to a redirected command is lost")
    func askedNodeLost() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot()
        let states = States()
        var configuration = RedisClientConfiguration()
        configuration.commandTimeout = .milliseconds(300)
        try await withClient(cluster.url, configuration, key: "{queue}", prepare: states.record) { client in
            try cluster.beginMigration(ofSlot: slot, from: old, to: new)
            _ = try await client.call(RedisCommand("SET", "{queue}a", "1"))
            new.pause()
            let error = await #expect(throws: RedisError.self) {
                try await client.call(RedisCommand("SET", "{queue}a", "2"))
            }
            #expect(error?.mayHaveBeenExecuted == true)
            new.resume()
            try await eventually { states.all.last == .ready && states.failures.count >= 1 }
        }
    }

    @Test("finds its node through any live node, and reports if none is a Cluster's")
    func seeds() async throws {
        let cluster = try await RedisCluster(password: "hunter2")
        let dead = try RedisServer.refusedPort()
        let single = try RedisServer(password: "hunter2")
        let url = "redis+cluster://:hunter2@127.0.0.1:\(dead),127.0.0.1:\(single.port)"
        try await withClient("\(url),127.0.0.1:\(cluster.nodes[2].port)", key: "a") { client in
            let reply = try await client.call(RedisCommand("SET", "a", "1"))
            #expect(reply.root.string == "OK")
        }
        let error = try await failure(of: url)
        #expect(error.description.contains("Connection refused"))
        #expect(error.description.contains("this is not a Cluster node: use redis:// in the Redis URL"))
        #expect(!error.description.contains("hunter2"))
    }

    @Test("waits for its own nodes rather than use another Cluster that the URL names, too")
    func otherCluster() async throws {
        let own = try await RedisCluster(masters: 2)
        let other = try await RedisCluster(masters: 2)
        let addresses = [own.nodes[0], other.nodes[0]].map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
        let states = States()
        try await withClient("redis+cluster://\(addresses)", key: "k", prepare: states.record) { client in
            let places = own.nodes.map { RedisLocation.host("127.0.0.1", port: $0.port) }
            #expect(places.contains(try #require(await place(of: client))))
            for node in own.nodes { node.stop() }
            try await eventually("it refuses the other Cluster") {
                states.failures.contains { "\($0)".contains("another deployment of Redis") }
            }
            for node in own.nodes { try node.start() }
            try await client.waitUntilReady(timeout: .minutes(3))
            #expect(places.contains(try #require(await place(of: client))))
        }
    }

    @Test("says which server named an address that does not answer")
    func namedAddress() async throws {
        let node = try RedisServer(arguments: ["--cluster-announce-ip", "127.88.0.9"], cluster: true)
        try node.addSlots()
        try await eventually { try node.run("CLUSTER", "INFO").text?.contains("cluster_state:ok") == true }
        let error = try await failure(of: "redis+cluster://127.0.0.1:\(node.port)")
        let expected = "127.88.0.9:\(node.port): Connection refused (127.0.0.1:\(node.port) names this address)"
        #expect("\(error)".contains(expected), "\(error)")
    }

    @Test("of a single server's URL gets an error with the URL it needs")
    func clusterBySingleURL() async throws {
        let (_, _, _, other) = try await clusterAndSlot()
        try await withClient(other.url) { client in
            let error = await #expect(throws: RedisError.self) {
                try await client.call(RedisCommand("GET", "{queue}a"))
            }
            #expect(error?.description.hasSuffix("begin the Redis URL with redis+cluster://") == true)
        }
    }

    private func prefix(of command: RedisCommand, _ client: RedisClient) async throws -> String? {
        do {
            _ = try await client.call(command)
            return nil
        } catch RedisError.server(let error) {
            return error.prefix
        }
    }
}

/// Returns a Cluster, the slot of a key, its owner and another node.
func clusterAndSlot(
    of key: String = "{queue}", password: String? = nil, tls: Bool = false
) async throws -> (cluster: RedisCluster, slot: Int, old: RedisServer, new: RedisServer) {
    let cluster = try await RedisCluster(password: password, tls: tls)
    let slot = try cluster.slot(of: key)
    let old = try cluster.owner(ofSlot: slot)
    return (cluster, slot, old, try #require(cluster.nodes.first { $0 !== old }))
}
