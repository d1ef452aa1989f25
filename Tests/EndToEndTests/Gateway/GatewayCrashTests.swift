import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Crashes and drains with a gateway")
    struct GatewayCrashTests {
        @Test("a second worker finishes the unconfirmed jobs of a killed one: none lost, and no others sent twice")
        func killed() async throws {
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(3000, prefix: "a"))
            // The worker sends only one window, because neither age nor a bad notification confirms its notifications.
            let first = try scene.worker(
                confirmAfter: 600_000,
                options: ["--gateway-window", "1000", "--gateway-barrier", "off", "--max-connections", "1"])
            try await eventually("a window is on its way") {
                let claims = try scene.queue().claims
                let accepted = try await scene.simulator.account().accepted
                return claims > 600 && accepted == claims
            }
            first.process.kill()
            let claims = try scene.queue().claims
            #expect(claims > 600 && claims <= 1000)

            try scene.redis.endLeases()
            let account = try await scene.worker(
                options: ["--exit-when-done"], environment: WorkerProcess.reclaimsSoon
            ).finish()
            let queue = try scene.queue()
            let accepted = try await scene.simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty && queue.dead.isEmpty)
            #expect(queue.count("delivered") == 3000 && account.delivered == 3000 && account.lostClaims == 0)
            #expect(queue.count("reclaimed") == claims)
            #expect(accepted.acceptedByToken.count == 3000 && accepted.gateway.accepted <= 3000 + claims)
            #expect(accepted.gateway.accepted > 3000)
        }

        @Test("a drain finds out by a bad item what was accepted, returns the rest in order, and exits with 0")
        func drain() async throws {
            let scene = try await GatewayScene()
            let jobs = TestJob.many(6000, prefix: "a")
            try scene.redis.push(jobs)
            let worker = try scene.worker(confirmAfter: 600_000, options: ["--max-per-second", "1000"])
            try await eventually("some are under way") { try await scene.simulator.account().accepted > 200 }
            let account = try await worker.stop()
            let queue = try scene.queue()
            let simulated = try await scene.simulator.stop()
            #expect(account.delivered > 200 && account.delivered < jobs.count)
            #expect(simulated.gateway.accepted == account.delivered && account.possibleDuplicates == 0)
            #expect(simulated.acceptedByToken.count == account.delivered)
            // A connection that has sent nothing gets no bad notification.
            #expect(
                (1...simulated.gateway.connections).contains(simulated.gateway.packets["2 MissingDeviceToken"] ?? 0))
            #expect(queue.count("delivered") == account.delivered && account.lostClaims == 0)
            #expect(queue.claims == 0 && queue.workers.isEmpty && queue.retries.isEmpty && queue.dead.isEmpty)
            let rest = jobs.enumerated().filter { simulated.acceptedByToken[TestJob.token("a", $0.offset)] == nil }
            #expect(queue.jobs.count == rest.count)
            let place = zip(queue.jobs, rest).enumerated().first { $0.element.0 != Array($0.element.1.element.utf8) }
            #expect(place == nil, "another job stands at place \(place?.offset ?? 0) than did before")
        }
    }
}
