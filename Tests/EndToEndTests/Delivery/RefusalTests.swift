import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// A Redis that answers but refuses commands.
    @Suite("Refusals of Redis")
    struct RefusalTests {
        /// The most jobs that a worker may have claimed: the limit of unsettled jobs, its last claim, a job for each stream, and the jobs
        /// claimed ahead.
        private static let mostClaims = 10_000 + 256 + 200 + 512

        @Test("READONLY: the server becomes a replica, and a master again")
        func readOnly() async throws {
            let scene = try await OutageScene()
            // A replica of a missing master keeps its data.
            try scene.redis.run("REPLICAOF", "127.0.0.1", "\(RedisServer.refusedPort())")
            try await scene.worker.logs("redis_refused", "READONLY")
            try await scene.worker.logs("not_ready")
            func refusals() throws -> Int {
                let errors = try scene.redis.run("INFO", "errorstats").text ?? ""
                return errors.firstMatch(of: /errorstat_READONLY:count=(\d+)/).flatMap { Int($0.1) } ?? 0
            }
            let first = try refusals()
            try await eventually("it goes on trying") { try refusals() >= first + 3 }
            try scene.redis.run("REPLICAOF", "NO", "ONE")
            try await scene.worker.logs("redis_accepted")
            try await scene.worker.logs("ready_again")
            try await scene.finishWithoutDuplicates()
        }

        @Test("LOADING: the server is back and still reads its data")
        func loading() async throws {
            // A loading server reads from its connections once for each 2 MB of data: after five of these keys, of which each takes 200
            // ms.
            let scene = try await OutageScene(arguments: ["--key-load-delay", "200000", "--rdbcompression", "no"])
            try scene.redis.run(
                "EVAL", "for i = 1, 100 do redis.call('SET', KEYS[1] .. i, string.rep('x', 400000)) end", "1", "ballast"
            )
            try scene.redis.run("CONFIG", "SET", "save", "3600 1")
            let redis = scene.redis
            redis.stop()
            try await scene.simulator.isQuiet()
            // The call returns only when the data is loaded.
            let started = Task.detached { try redis.start() }
            try await eventually("the worker is refused several times") {
                // The connection fails until the server listens. Only the worker names its connections (SETNAME).
                (try? redis.calls())?["client|setname"] ?? 0 > 2
            }
            try redis.run("CONFIG", "SET", "key-load-delay", "0")
            try await started.value
            try await scene.worker.logs("ready_again")
            try await scene.finishWithoutDuplicates()
        }

        @Test("BUSY: another client's script does not end")
        func busy() async throws {
            let scene = try await OutageScene(arguments: ["--lua-time-limit", "100"])
            let script = try EndlessScript(on: scene.redis)
            try await scene.worker.logs("redis_refused", "BUSY")
            try await scene.worker.logs("not_ready", "BUSY")
            try scene.redis.run("SCRIPT", "KILL")
            try await script.ended()
            try await scene.worker.logs("redis_accepted")
            try await scene.worker.logs("ready_again")
            try await scene.finishWithoutDuplicates()
        }

        @Test("BUSY at the start: the worker is ready again soon, also if no job comes")
        func busyWhileIdle() async throws {
            let (redis, simulator) = try await startServers(redis: ["--lua-time-limit", "100"])
            let worker = try WorkerProcess(redis, simulator)
            try await worker.logs("started")
            let script = try EndlessScript(on: redis)
            try await worker.logs("not_ready", "BUSY")
            try redis.run("SCRIPT", "KILL")
            try await script.ended()
            // If Redis refuses the fleet's provider token, the worker asks for it again after 30 s.
            try await worker.logs("ready_again")
            _ = try await worker.stop()
        }

        @Test("UNBLOCKED: the wait for jobs ends early, by an error or because the server became a replica")
        func unblocked() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator)
            for round in 0..<4 {
                func blocked() throws -> String {
                    let waits = (try redis.run("CLIENT", "LIST").text ?? "").split(separator: "\n").filter {
                        $0.contains(":wait") && $0.contains(" flags=b ")
                    }
                    return waits.first?.split(separator: " ").first?.dropFirst("id=".count).description ?? ""
                }
                try await eventually("the worker waits for jobs") { try !blocked().isEmpty }
                let waiter = try blocked()
                if round < 3 {
                    try redis.run("CLIENT", "UNBLOCK", waiter, round == 0 ? "TIMEOUT" : "ERROR")
                } else {
                    try redis.run("REPLICAOF", "127.0.0.1", "\(RedisServer.refusedPort())")
                    try await eventually("the wait has ended") { try blocked() != waiter }
                    try redis.run("REPLICAOF", "NO", "ONE")
                }
                try redis.push(TestJob.many(100, prefix: "\(round)"))
                try await redis.has(100 * (round + 1))
            }
            let (account, _, _) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 400)
            worker.expectComplaints(0...4)
        }

        @Test("while nothing can be settled, at most about 10,000 jobs are claimed")
        func unsettled() async throws {
            let scene = try await OutageScene(count: 14_000)
            try scene.redis.run("ACL", "SETUSER", "default", "-hdel")
            try await scene.worker.logs("redis_refused", "settlements")
            let settled = try scene.redis.counted("delivered")
            #expect(try await scene.simulator.isQuiet(after: settled + 10_000) - settled <= Self.mostClaims)
            try await scene.worker.logs("not_ready", "settlements")
            try scene.redis.run("ACL", "SETUSER", "default", "+@all")
            try await scene.worker.logs("redis_accepted")
            try await scene.worker.logs("ready_again")
            try await scene.finishWithoutDuplicates()
        }

        @Test("while the set of invalid tokens cannot be written, at most about 10,000 jobs are claimed")
        func unwrittenTokens() async throws {
            let redis = try RedisServer()
            let count = 14_000
            try redis.push(TestJob.many(count))
            try redis.run("SET", "push:{shared}:invalid-tokens", "what is this?")
            let simulator = try await SimulatorProcess(rules: ["answer=410"])
            let worker = try OutageScene.worker(redis, simulator)
            try await worker.logs("redis_refused", "invalid tokens", "WRONGTYPE")
            #expect(try await simulator.isQuiet(after: 10_000) <= Self.mostClaims)
            #expect(try redis.counted("invalid_token") == 0)
            try await worker.logs("not_ready", "WRONGTYPE")
            try redis.run("DEL", "push:{shared}:invalid-tokens")
            try await worker.logs("redis_accepted", "invalid tokens")
            let account = try await worker.finish()
            let queue = try QueueContents(redis)
            expectAgreement(account, queue, try await simulator.stop())
            #expect(account.invalidToken == count && queue.invalidTokens.count == count)
            worker.expectComplaints(1...3)
        }

        @Test("dead letters stay within the bytes of the setting: the oldest are deleted, and status counts the rest")
        func deadLettersBytes() async throws {
            let (redis, simulator) = try await startServers()
            let padding = String(repeating: "x", count: 1000)
            try redis.push((0..<200).map { "no job \($0) \(padding)" })
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done", "--dead-letters-bytes", "20000"])
            #expect(try await worker.finish().dead == 200)
            let members = try redis.run("ZRANGE", "push:{default}:dead", "0", "-1").elements ?? []
            let bytes = members.reduce(0) { $0 + ($1.text?.utf8.count ?? 0) }
            #expect((15_000...20_000).contains(bytes), "\(bytes) bytes")
            #expect(try redis.counted("dead_evicted") == 200 - members.count)
            #expect(members.last?.text?.contains("no job 199 ") == true)
            #expect(try await FleetView(redis.url).queue("default").dead_bytes == bytes)
            try await redis.apnsWorker(["status"]).shows(
                "DEAD LETTERS  \(members.count), ", " KiB: MalformedJSON \(members.count)")
        }

        @Test("A limit of answers: large jobs are claimed in parts, and the log names the setting")
        func limitedAnswers() async throws {
            let (redis, simulator) = try await startServers()
            let filler = String(repeating: "x", count: 60_000)
            try redis.push(
                (0..<30).map {
                    #"{"id":"\#($0)","token":"\#(TestJob.token("f", $0))","alert":"hi","own":"\#(filler)"}"#
                })
            try redis.run("CONFIG", "SET", "client-output-buffer-limit", "normal 262144 0 0")
            let worker = try WorkerProcess(redis, simulator)
            try await eventually("all are delivered") { try await simulator.account().distinctTokens == 30 }
            let account = try await worker.stop()
            #expect(account.delivered == 30 && account.possibleDuplicates == 0)
            #expect(worker.process.errors.contains("client-output-buffer-limit"), "\(worker.process.errors)")
            let accepted = try await simulator.stop()
            #expect(accepted.duplicates == 0 && accepted.distinctTokens == 30)
        }
    }
}

/// A Lua script that runs until it is killed.
private final class EndlessScript: Sendable {
    private let task: Task<RedisValue, any Error>

    init(on redis: RedisServer) throws { task = Task.detached { try redis.run("EVAL", "while true do end", "0") } }

    func ended() async throws { _ = try await task.value }
}
