import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Crashes")
    struct CrashTests {
        /// Returns the number of claims once Redis has executed all commands of a dead worker.
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

        @Test("a Redis that stops, cleanly or not, and returns loses nothing", arguments: [false, true])
        func restartedRedis(killed: Bool) async throws {
            let scene = try await OutageScene(
                arguments: ["--appendonly", "yes", "--appendfsync", "always"], options: ["--lease", "60000"])
            for share in [1, 2] {
                try await eventually("some are delivered") {
                    try scene.redis.counted("delivered") > scene.count / 4 * share
                }
                if killed { scene.redis.kill() } else { scene.redis.stop() }
                // The worker can't settle the last answers before Redis is back.
                try await scene.simulator.isQuiet()
                try scene.redis.start()
            }
            let account = try await scene.worker.finish()
            let (queue, accepted) = (try QueueContents(scene.redis), try await scene.simulator.stop())
            expectAgreement(account, queue, accepted)
            #expect(account.delivered == scene.count && queue.dead.isEmpty)
            #expect(accepted.accepted == scene.count && accepted.duplicates == 0)
        }
    }
}
