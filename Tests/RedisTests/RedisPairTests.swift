import Redis
import TestSupport
import Testing

@Suite("A command and one behind it on the same connection", .timeLimit(.minutes(10)))
struct RedisPairTests {
    private static let wait = RedisCommand("WAIT", "1", "300")

    @Test("WAIT counts replicas that have what this connection has written")
    func wait() async throws {
        let master = try RedisServer(arguments: ["--repl-diskless-sync-delay", "0"])
        let replica = try RedisServer(arguments: ["--replicaof", "127.0.0.1", "\(master.port)"])
        try await eventually { try master.run("INFO", "replication").text?.contains("state=online") == true }
        try await withClient(master.url) { client in
            let (length, replicas) = try await client.call(
                RedisCommand("RPUSH", "list", "a"), then: RedisCommand("WAIT", "1", "10000"), deadline: .seconds(15))
            #expect(length.root.integer == 1)
            #expect(try replicas.get().root.integer == 1)

            replica.pause()
            let (_, none) = try await client.call(
                RedisCommand("RPUSH", "list", "b"), then: Self.wait, deadline: .seconds(15))
            #expect(try none.get().root.integer == 0)
            // WAIT on a connection that has written nothing counts the replica nevertheless.
            #expect(try master.run("WAIT", "1", "300") == 1)
            replica.resume()
        }
    }

    @Test("an error of the first is thrown, one of the second is not")
    func errors() async throws {
        let server = try RedisServer()
        try await withClient(server.url) { client in
            try server.run("SET", "text", "x")
            await #expect(throws: RedisError.self) {
                try await client.call(RedisCommand("RPUSH", "text", "a"), then: Self.wait, deadline: .seconds(5))
            }
            let (length, second) = try await client.call(
                RedisCommand("RPUSH", "list", "a"), then: RedisCommand("WAIT", "x", "y"), deadline: .seconds(5))
            #expect(length.root.integer == 1)
            #expect(throws: RedisError.self) { try second.get() }
            try await client.close().get()
            await #expect(throws: RedisError.self) {
                try await client.call(RedisCommand("RPUSH", "list", "a"), then: Self.wait, deadline: .seconds(5))
            }
        }
    }

    @Test("in a Cluster neither is sent elsewhere: the first fails with MOVED, and the next two go to the new owner")
    func moved() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot()
        try await withClient(cluster.url, key: "{queue}") { client in
            func push() async throws {
                _ = try await client.call(
                    RedisCommand("RPUSH", "{queue}list", "a"), then: RedisCommand("WAIT", "0", "100"),
                    deadline: .seconds(5))
            }
            try await push()
            try cluster.migrate(slot: slot, from: old, to: new)
            do {
                try await push()
                Issue.record("the old owner has taken it")
            } catch RedisError.server(let error) {
                #expect(error.prefix == "MOVED")
            }
            try await client.waitUntilReady(timeout: .minutes(3))
            try await push()
            #expect(try new.run("LLEN", "{queue}list") == 2)
        }
    }
}
