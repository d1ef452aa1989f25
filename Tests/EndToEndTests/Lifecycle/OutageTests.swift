import Foundation
import NIOCore
import PushQueue
import Synchronization
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Outages of Redis")
    struct OutageTests {
        private static let durable = ["--appendonly", "yes", "--appendfsync", "always"]

        @Test("for longer than the lease, with eight lanes: all keep their claims, and nothing is sent twice")
        func goneForLong() async throws {
            let options = ["--lanes", "4", "--max-streams", "20"]
            let scene = try await OutageScene(count: 12_000, arguments: Self.durable, options: options)
            let other = try OutageScene.worker(scene.redis, scene.simulator, options)
            try await eventually("both are at work") { try QueueContents(scene.redis).workers.count == 8 }
            scene.redis.kill()
            let accepted = try await scene.simulator.account().accepted
            // The lease of 7 s ends, but without Redis no worker can see that.
            try await Task.sleep(for: .milliseconds(9000))
            try await scene.worker.logs("not_ready")
            try scene.redis.start()
            try await scene.worker.logs("redis_back")
            try await scene.worker.logs("ready_again")
            let accounts = [try await scene.worker.finish(), try await other.finish()]
            let queue = try QueueContents(scene.redis)
            let simulated = try await scene.simulator.stop()
            #expect(accepted < scene.count)
            #expect(queue.isSettled && queue.workers.isEmpty && queue.dead.isEmpty)
            #expect(queue.count("delivered") == scene.count && queue.count("reclaimed") == 0)
            #expect(simulated.accepted == scene.count && simulated.distinctTokens == scene.count)
            #expect(accounts.reduce(0) { $0 + $1.delivered } == simulated.accepted)
            for worker in [scene.worker, other] {
                #expect(worker.lines(of: "lease_lost").isEmpty)
                worker.expectComplaints(1...4)
            }
        }

        @Test(
            "a drain without Redis ends long before its timeout once Redis is back, and the next worker finishes the remaining jobs"
        )
        func drainWithoutRedis() async throws {
            let scene = try await OutageScene(arguments: Self.durable, options: ["--drain-timeout", "1h"])
            scene.redis.kill()
            try await scene.simulator.isQuiet()
            scene.worker.process.send(SIGTERM)
            let ended = scene.worker
            // The drain waits until its timeout, because Redis may return.
            try await Task.sleep(for: .milliseconds(500))
            #expect(ended.process.ending == nil)
            try scene.redis.start()
            let account = try await ended.finish()
            let second = try await OutageScene.worker(scene.redis, scene.simulator).finish()
            let queue = try QueueContents(scene.redis)
            let simulated = try await scene.simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty)
            #expect(account.delivered + second.delivered == scene.count && queue.count("delivered") == scene.count)
            #expect(simulated.accepted == scene.count && simulated.duplicates == 0)
        }

        @Test("a drain whose Redis stays unavailable ends in time; unsettled jobs are sent again and counted")
        func drainWithoutEnd() async throws {
            let scene = try await OutageScene(arguments: Self.durable, options: ["--drain-timeout", "1000"])
            scene.redis.kill()
            try await scene.simulator.isQuiet()
            let account = try await scene.worker.stop()
            #expect(scene.worker.lines(of: "release_skipped").count == 1)
            try scene.redis.start()
            let claims = try QueueContents(scene.redis).claims
            try scene.redis.endLeases()
            let second = try await OutageScene.worker(
                scene.redis, scene.simulator, environment: WorkerProcess.reclaimsSoon
            ).finish()
            let queue = try QueueContents(scene.redis)
            let simulated = try await scene.simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty && queue.count("delivered") == scene.count)
            #expect(queue.count("reclaimed") == claims && second.possibleDuplicates == claims)
            #expect(simulated.distinctTokens == scene.count && simulated.distinctIDs == scene.count)
            #expect(simulated.duplicates <= claims)
            #expect(account.delivered + second.delivered == simulated.accepted)
        }

        @Test("an invalid token that was confirmed but is unknown to the new Redis is written again")
        func forgottenToken() async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=Unregistered"])
            let settles = Mutex(false)
            let sent = Mutex("")
            // The settlement script has fifteen keys, first the key of the lane's claims. The pattern skips runs that settle nothing.
            let proxy = try await FaultProxy(to: redis.port) { bytes in
                let all = sent.withLock { sent in
                    sent += String(buffer: bytes)
                    return sent
                }
                guard let token = all.range(of: "SADD") else { return }
                if all[token.upperBound...].contains(
                    /\r\n\$2\r\n15\r\n\$\d+\r\npush:\{default\}:claimed:(?s:.*?)\r\n(?:ack|end|report)\r\n/)
                {
                    settles.withLock { $0 = true }
                }
            }
            try redis.push([TestJob.text(TestJob.token("a", 1))])
            try await proxy.begin(.delay(.milliseconds(500)))
            let worker = try WorkerProcess(
                redis: "redis://127.0.0.1:\(proxy.port)", endpoint: simulator.port, options: ["--exit-when-done"])
            try await eventually("the job is to be settled") { settles.withLock { $0 } }
            try await proxy.reset()
            let before = try QueueContents(redis)
            #expect(before.claims == 1 && before.invalidTokens == [TestJob.token("a", 1)])
            // Redis now lacks the token, like a new master that had not replicated the last writes.
            let detailsKey = try redis.invalidTokens().detailsKey(of: TestJob.token("a", 1))
            #expect(try redis.run("DEL", SharedKeys().invalidTokens, detailsKey) == 2)
            try await proxy.heal()
            expectAgreement(try await worker.finish(), try QueueContents(redis), try await simulator.stop())
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.count("invalid_token") == 1)
            #expect(queue.invalidTokens == before.invalidTokens)
            #expect(queue.invalidTokenDetails[TestJob.token("a", 1)]?.facts.reason == "Unregistered")
        }

        @Test("clients are paused, briefly and for longer than the time limit of an answer")
        func paused() async throws {
            let scene = try await OutageScene(count: 6000)
            try scene.redis.run("CLIENT", "PAUSE", "500", "ALL")
            let settled = try scene.redis.counted("delivered")
            try await eventually("it goes on") { try scene.redis.counted("delivered") > settled }
            #expect(scene.worker.complaints.isEmpty)
            try scene.redis.run("CLIENT", "PAUSE", "6500", "ALL")
            try await scene.worker.logs("redis_lost")
            try await scene.finishWithoutDuplicates()
        }
    }
}
