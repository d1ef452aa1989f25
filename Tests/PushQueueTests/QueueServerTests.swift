import Foundation
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@Suite("The server that has a queue")
struct QueueServerTests {
    private static func server(
        _ fields: [String: String] = [:], isFailedOver: Bool = false, refusal: String? = nil
    ) -> QueueServer {
        let well = [
            "redis_version": "7.0.15", "used_memory": "100", "maxmemory": "1000", "maxmemory_policy": "noeviction",
            "aof_enabled": "1", "role": "master", "connected_slaves": "1", "min_slaves_good_slaves": "1",
        ]
        let lines = well.merging(fields) { $1 }.filter { !$0.value.isEmpty }.map { "\($0.key):\($0.value)\r\n" }
        return QueueServer(
            address: "a:1", isFailedOver: isFailedOver, info: .success(ServerInfo(lines.joined())),
            writeRefusal: refusal.map { RedisServerError(text: $0) })
    }

    private static func kinds(_ server: QueueServer) -> [QueueServer.Finding.Kind] { server.findings.map(\.kind) }

    // MARK: Judgement

    @Test("that is healthy has no findings, also behind Sentinels or without a limit")
    func well() {
        #expect(Self.kinds(Self.server()).isEmpty && Self.kinds(Self.server(isFailedOver: true)).isEmpty)
        let unlimited = Self.server(["maxmemory": "0", "maxmemory_policy": "allkeys-lru", "used_memory": "99999999"])
        #expect(Self.kinds(unlimited).isEmpty && !unlimited.isFull && !unlimited.refusesWrites)
        // Without Sentinels, replicas are not expected.
        let alone = Self.server(["connected_slaves": "0", "min_slaves_good_slaves": ""])
        #expect(Self.kinds(alone).isEmpty)
    }

    @Test(
        "is nearly full from 90 percent of its limit, and full at it",
        arguments: [
            ("899", []), ("900", [.nearlyFull]), ("999", [.nearlyFull]), ("1000", [.full]), ("2000", [.full]),
        ] as [(String, [QueueServer.Finding.Kind])])
    func memory(used: String, expected: [QueueServer.Finding.Kind]) {
        let server = Self.server(["used_memory": used])
        #expect(Self.kinds(server) == expected)
        #expect(server.isFull == (expected == [.full]) && server.refusesWrites == server.isFull)
    }

    @Test("is full when it reports so, whatever the figures of a moment before")
    func outOfMemory() {
        let server = Self.server(["used_memory": "990"], refusal: "OOM command not allowed when used memory > …")
        #expect(Self.kinds(server) == [.full] && server.isFull && server.refusesWrites)
        #expect(server.findings[0].message == "Redis at a:1 is full: 0.9 of 0.9 KiB; it refuses new jobs")
        #expect(!server.findings[0].advice.contains("start a worker"))
    }

    @Test("evicts jobs with some policies, with others only keys with an expiry, and the finding names which")
    func eviction() {
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
            // A cache is always full.
            let server = Self.server(["maxmemory_policy": policy, "used_memory": "1000"])
            #expect(Self.kinds(server) == [.evicts] && !server.refusesWrites)
            #expect(server.findings[0].message.contains("evicts any key, waiting jobs included, when"))
            #expect(server.findings[0].message.hasSuffix("(maxmemory-policy \(policy))"))
        }
        for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
            let server = Self.server(["maxmemory_policy": policy, "used_memory": "950"])
            #expect(Self.kinds(server) == [.evicts, .nearlyFull])
            #expect(server.findings[0].message.contains("(maxmemory-policy \(policy)): unique_for reservations"))
            #expect(server.findings[0].message.hasSuffix("but no jobs"))
            // With nothing left to evict, it refuses writes.
            let full = Self.server(["maxmemory_policy": policy], refusal: "OOM command not allowed")
            #expect(Self.kinds(full) == [.full, .evicts])
        }
    }

    @Test("loses jobs in a crash without an append-only file, or in a failover without replicas")
    func durability() {
        #expect(Self.kinds(Self.server(["aof_enabled": "0"])) == [.notPersistent])
        #expect(Self.kinds(Self.server(["aof_enabled": ""])) == [])
        #expect(Self.kinds(Self.server(["connected_slaves": "0"], isFailedOver: true)) == [.noReplica])
        #expect(Self.kinds(Self.server(["min_slaves_good_slaves": ""], isFailedOver: true)) == [.noMinimumOfReplicas])
        // A report without a section on replication leads to no finding about it.
        let unsaid = ["connected_slaves": "", "min_slaves_good_slaves": "", "role": ""]
        let silent = Self.server(unsaid, isFailedOver: true)
        #expect(Self.kinds(silent).isEmpty)
    }

    @Test(
        "refuses writes for a reason, and the advice matches it",
        arguments: [
            ("READONLY You can't write against a read only replica.", "master"),
            ("MISCONF Errors writing to the AOF file: No space left on device", "INFO persistence"),
            ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
            ("LOADING Redis is loading the dataset in memory", "wait"), ("BUSY Redis is busy", "SCRIPT KILL"),
            ("ERR no", "log"),
        ])
    func refusal(text: String, advice: String) {
        let server = Self.server(refusal: text)
        #expect(Self.kinds(server) == [.refusesWrites] && server.refusesWrites && !server.isFull)
        #expect(server.findings[0].message == "Redis at a:1 refuses writes: \(text)")
        #expect(server.findings[0].advice.contains(advice))
    }

    @Test("is judged by its refusals if it reports nothing")
    func noReport() {
        var server = Self.server()
        server.info = .failure(RedisServerError(text: "NOPERM this user has no permissions to run the 'info' command"))
        #expect(Self.kinds(server) == [.notReported] && !server.refusesWrites)
        #expect(server.findings[0].advice == "add +info to the ACL of the user")
        server.writeRefusal = RedisServerError(text: "OOM command not allowed")
        #expect(Self.kinds(server) == [.full, .notReported] && server.isFull)
        server.info = .failure(RedisServerError(text: "ERR unknown \u{1B}[31mcommand 'INFO'"))
        server.writeRefusal = RedisServerError(text: "ERR \u{1B}[2J")
        #expect(!server.findings.contains { $0.message.contains("\u{1B}") })
        server.info = .failure(RedisServerError(text: "ERR unknown command 'INFO'"))
        #expect(server.findings.last?.message.contains("ERR unknown command 'INFO'") == true)
    }

    @Test(
        "is too old before 6.2",
        arguments: [
            ("6.0.16", true), ("5.0", true), ("6.2.0", false), ("7.2.4", false), ("10.0.0", false), ("6", false),
            ("", false), ("x.y", true),
        ])
    func version(text: String, isTooOld: Bool) {
        #expect(Self.kinds(Self.server(["redis_version": text])).contains(.tooOld) == isTooOld)
    }

    // MARK: Real servers

    private func read(_ server: RedisServer) async throws -> QueueServer {
        var found: QueueServer?
        try await withQueue(on: server) { queue in
            found = try await QueueServer.read(queue.client, queue.keys)
            #expect(try queue.everything().isEmpty)
        }
        return try #require(found)
    }

    @Test("is queried and tested, and left unchanged")
    func real() async throws {
        let redis = try RedisServer(arguments: ["--appendonly", "yes"])
        let server = try await read(redis)
        #expect(server.address == "127.0.0.1:\(redis.port)" && !server.isFailedOver && !server.refusesWrites)
        #expect(server.findings.isEmpty)
        #expect(try redis.run("DBSIZE") == 0)
    }

    @Test("is reported as full, and as having free memory again", arguments: ["noeviction", "volatile-lru"])
    func realFull(policy: String) async throws {
        let redis = try RedisServer(arguments: ["--appendonly", "yes", "--maxmemory-policy", policy])
        try redis.run("CONFIG", "SET", "maxmemory", "1")
        let full = try await read(redis)
        #expect(full.isFull && full.findings.first?.kind == .full && full.writeRefusal?.prefix == "OOM")
        try redis.run("CONFIG", "SET", "maxmemory", "1gb")
        #expect(try await !read(redis).refusesWrites)
    }

    @Test("is reported to refuse writes: a replica, one without its replicas, one without its disk")
    func realRefusals() async throws {
        let redis = try RedisServer(arguments: ["--min-replicas-to-write", "1"])
        #expect(try await read(redis).writeRefusal?.prefix == "NOREPLICAS")
        try redis.run("CONFIG", "SET", "min-replicas-to-write", "0")
        // Snapshots that fail stop writes.
        try redis.run("CONFIG", "SET", "save", "3600 1")
        try redis.run("SET", "x", "y")
        try FileManager.default.removeItem(at: redis.directory)
        try redis.run("BGSAVE")
        try await eventually("the snapshot fails") {
            try redis.run("INFO", "persistence").text?.contains("rdb_last_bgsave_status:err") == true
        }
        let broken = try await read(redis)
        #expect(broken.writeRefusal?.prefix == "MISCONF" && broken.findings.first?.kind == .refusesWrites)
        try redis.run("CONFIG", "SET", "save", "")
        try redis.run("REPLICAOF", "127.0.0.1", "1")
        let replica = try await read(redis)
        #expect(replica.refusesWrites && replica.findings.first?.kind == .replica)
    }

    @Test("for a user without permissions, the only finding is that the server did not report itself")
    func realRights() async throws {
        let redis = try RedisServer()
        try redis.run("ACL", "SETUSER", "default", "-info", "-rpushx")
        let server = try await read(redis)
        #expect(server.findings.map(\.kind) == [.notReported] && !server.refusesWrites)
    }
}
