import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Crashes")
    struct CrashTests {
        /// Returns the number of claims once Redis has executed what a worker sent before it stopped.
        private func lastClaims(_ redis: RedisServer) async throws -> Int {
            var last = -1
            try await eventually("the claims change no more") {
                let claims = try QueueContents(redis).claims
                defer { last = claims }
                return claims == last
            }
            return last
        }

        @Test("a second worker finishes the jobs of a killed one: none lost, and only jobs in flight sent twice")
        func killedWorker() async throws {
            let (redis, simulator) = try await startServers(simulator: [
                "--delay", "150ms±100ms", "--control-port", "0",
            ])
            let (quick, count) = (500, 6000)
            let jobs = TestJob.many(count)
            try redis.push(Array(jobs[..<quick]))
            let options = ["--max-connections", "1", "--max-streams", "400"]
            let first = try WorkerProcess(redis, simulator, options)
            try await redis.has(quick)
            try await simulator.control("PUT", "/delay", #"{"delay":"60s"}"#)
            try redis.push(Array(jobs[quick...]))
            try await eventually("400 notifications wait for their answers") {
                try await simulator.account().accepted == quick + 400
            }
            first.process.kill()
            try await simulator.control("PUT", "/delay", #"{"delay":"150ms±100ms"}"#)
            let claims = try await lastClaims(redis)
            #expect(claims >= 400 && claims <= 400 + 256)

            try redis.endLeases()
            let account = try await WorkerProcess(
                redis, simulator, options + ["--exit-when-done"], environment: WorkerProcess.reclaimsSoon
            ).finish()
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()

            #expect(queue.isSettled && queue.workers.isEmpty && queue.dead.isEmpty)
            #expect(queue.count("delivered") == count)
            #expect(queue.count("reclaimed") == claims)
            #expect(accepted.distinctIDs == count && accepted.distinctTokens == count)
            #expect(accepted.duplicates == 400)
            #expect(account.lostClaims == 0 && account.delivered < count)
        }

        @Test("A killed worker has written the answers that it got, although its jobs wait for slow devices")
        func killedWhileWaiting() async throws {
            let redis = try RedisServer()
            // One device in each piece of 1,000 gets no answer at first.
            let simulator = try await SimulatorProcess(rules: ["prefix=dead,answer=silence,times=1"])
            let pieces = 3
            let tokens = (0..<pieces).flatMap { piece in
                [TestJob.token("dead", piece)] + (1..<1000).map { TestJob.token("a", piece * 1000 + $0) }
            }
            try redis.push([#"{"id":"big","tokens":["\#(tokens.joined(separator: #"",""#))"],"alert":"x"}"#])
            let first = try WorkerProcess(redis, simulator)
            try await redis.has(pieces * 999)
            #expect(try QueueContents(redis).claims == pieces)
            first.process.kill()
            try redis.endLeases()
            let account = try await WorkerProcess(
                redis, simulator, ["--exit-when-done"], environment: WorkerProcess.reclaimsSoon
            ).finish()
            let queue = try QueueContents(redis)
            let requests = try await simulator.stop()
            #expect(queue.isSettled && queue.count("delivered") == tokens.count && queue.dead.isEmpty)
            #expect(account.submitted == pieces && account.possibleDuplicates == pieces)
            #expect(requests.duplicates == 0 && requests.accepted == tokens.count)
        }

        @Test("A worker that stands still for longer than its requests may take sends nothing again that was answered")
        func frozen() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "700ms±600ms"])
            let count = 500
            try redis.push(TestJob.many(count))
            let worker = try WorkerProcess(redis, simulator, ["--request-timeout", "1500ms", "--lease", "60s"])
            try await eventually("some are answered") { try await simulator.account().answers["200"] ?? 0 > 20 }
            try await worker.process.pause()
            let start = ContinuousClock.now
            try await eventually("all are answered, and all deadlines are over") {
                let answers = try await simulator.account().answers["200"]
                return answers == count && ContinuousClock.now - start > .seconds(3)
            }
            worker.process.send(SIGCONT)
            try await redis.has(count)
            let account = try await worker.stop()
            #expect(account.submitted == count && account.possibleDuplicates == 0 && account.lostClaims == 0)
            #expect(try await simulator.stop().requests == count)
            #expect(worker.lines(of: "scope_slow").isEmpty && worker.lines(of: "not_ready").isEmpty, "\(worker.log)")
        }

        @Test("a worker that was stopped for longer than its lease settles no reclaimed job")
        func zombie() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "300ms±100ms"])
            let count = 1500
            try redis.push(TestJob.many(count))
            let options = ["--max-connections", "1", "--max-streams", "200"]
            let zombie = try WorkerProcess(redis, simulator, options)
            try await eventually("it is at work") {
                let queue = try QueueContents(redis)
                return queue.count("delivered") > 100 && queue.claims > 50
            }
            try await zombie.process.pause()
            let claims = try await lastClaims(redis)
            try redis.endLeases()
            let other = try await WorkerProcess(
                redis, simulator, options + ["--exit-when-done"], environment: WorkerProcess.reclaimsSoon
            ).finish()
            zombie.process.send(SIGCONT)
            let account = try await zombie.stop()
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty)
            #expect(queue.count("delivered") == count && other.lostClaims == 0)
            #expect(queue.count("reclaimed") == claims)
            #expect(accepted.distinctIDs == count && accepted.duplicates <= claims)
            #expect(account.delivered + other.delivered >= count)
        }

        @Test("a Redis that stops, cleanly or not, and returns loses nothing", arguments: [false, true])
        func restartedRedis(killed: Bool) async throws {
            let scene = try await OutageScene(
                arguments: ["--appendonly", "yes", "--appendfsync", "always"], options: ["--lease", "60000"])
            for share in [1, 2] {
                try await eventually("some are delivered") {
                    try scene.redis.counted("delivered") > scene.count / 4 * share
                }
                if killed { scene.redis.kill() } else { scene.redis.stop() }
                // These answers cannot be settled before Redis is back.
                try await scene.apnsIsQuiet()
                try scene.redis.start()
            }
            let account = try await scene.worker.finish()
            let (queue, accepted) = (try QueueContents(scene.redis), try await scene.simulator.stop())
            expectAgreement(account, queue, accepted)
            #expect(account.delivered == scene.count && queue.dead.isEmpty)
            #expect(accepted.accepted == scene.count && accepted.duplicates == 0)
        }

        @Test("jobs are repeated after Redis returns with older data")
        func olderRedis() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "1s"])
            let count = 200
            try redis.push(TestJob.many(count))
            let worker = try WorkerProcess(redis, simulator, ["--max-streams", "200", "--max-connections", "1"])
            try await eventually("all are claimed") { try QueueContents(redis).claims == count }
            try redis.run("SAVE")
            try await redis.has(count)
            redis.kill()
            try redis.start()
            #expect(try QueueContents(redis).claims > 0)
            // No other worker may reclaim them, because their owner is alive.
            try await redis.has(count)
            let account = try await worker.stop()
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty && queue.count("reclaimed") == 0)
            #expect(accepted.distinctTokens == count && accepted.duplicates > 0)
            #expect(accepted.duplicates <= account.possibleDuplicates && account.possibleDuplicates <= count)
            #expect(!worker.lines(of: "settlements_lost").isEmpty)
        }
    }
}
