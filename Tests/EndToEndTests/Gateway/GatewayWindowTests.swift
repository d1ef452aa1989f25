import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The window of unconfirmed notifications")
    struct GatewayWindowTests {
        @Test("a full one stops the lane from claiming; a drain without the bad item counts it as uncertain")
        func full() async throws {
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(2000, prefix: "a"))
            let worker = try scene.worker(
                confirmAfter: 600_000,
                options: [
                    "--gateway-window", "100", "--gateway-barrier", "off", "--max-connections", "1",
                    "--drain-timeout", "300",
                ])
            try await eventually("the window is full") { try await scene.simulator.account().accepted == 100 }
            // Another worker gets the remaining jobs, which are nearly all.
            let other = try scene.worker(options: ["--max-connections", "1"])
            try await eventually("the other has delivered the rest") {
                let queue = try scene.queue()
                return queue.jobs.isEmpty && queue.claims <= 100 && queue.count("delivered") >= 1900
            }
            let queue = try scene.queue()
            #expect(queue.claims == 100 && queue.count("delivered") == 1900)
            #expect(try await scene.simulator.account().accepted == 2000)
            #expect(try await other.stop().delivered == 1900)
            // The gateway has reported nothing yet.
            let account = try await worker.stop()
            #expect(account.delivered == 0 && account.possibleDuplicates == 100)
            #expect(try scene.kept() == 100)
            // They are uncertain, and sent again.
            #expect(try await scene.worker(options: ["--exit-when-done"]).finish().delivered == 100)
            let end = try scene.queue()
            #expect(end.isSettled && end.count("delivered") == 2000 && end.count("possible_duplicates") == 100)
            #expect(try await scene.simulator.stop().gateway.accepted == 2100)
        }

        @Test("one with less capacity than a claim is also tested with a bad item if there is only one connection")
        func nearlyFull() async throws {
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(3000, prefix: "a"))
            // Claims are for up to 256 jobs, so that a thousand are never reached; and nothing is confirmed by age.
            let worker = try scene.worker(
                confirmAfter: 600_000, options: ["--gateway-window", "1000", "--max-connections", "1"])
            try await eventually("all are accepted") { try await scene.simulator.account().accepted == 3000 }
            let account = try await worker.stop()
            expectAgreement(account, try scene.queue())
            #expect(account.delivered == 3000 && account.possibleDuplicates == 0)
            let simulated = try await scene.simulator.stop()
            simulated.expectOrder(3000, prefix: "a")
            // Fewer than one per claim.
            #expect((3...8).contains(simulated.gateway.connections), "\(simulated.gateway.connections)")
        }

        @Test("one that is full by bytes also stops claims")
        func bytes() async throws {
            let jobs = (0..<300).map { TestJob.large(TestJob.token("a", $0), bytes: 2000) }
            let result = try await GatewayScene.deliver(
                jobs, options: ["--gateway-window-bytes", "65536", "--max-connections", "1"])
            #expect(result.worker.delivered == 300 && result.simulator.gateway.accepted == 300)
            // About 30 fit at a time.
            #expect(result.simulator.gateway.connections >= 300 / 33)
        }

        @Test("nothing is settled before its time has passed or a packet has confirmed it")
        func confirmAfter() async throws {
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(50, prefix: "a"))
            let patient = try scene.worker(confirmAfter: 600_000)
            try await eventually("all are accepted") { try await scene.simulator.account().accepted == 50 }
            // A later job has been claimed, sent and accepted, but the first ones are not settled yet.
            try scene.redis.push(TestJob.many(1, prefix: "b"))
            try await eventually("the later one is accepted too") { try await scene.simulator.account().accepted == 51 }
            let queue = try scene.queue()
            #expect(queue.claims == 51 && queue.count("delivered") == 0)
            // The packet about the bad notification confirms them.
            #expect(try await scene.simulator.account().gateway.frames["2"] == 51)
            let zeros = TestJob.token("", 0)
            try scene.redis.push([#"{"id":"x","token":"\#(zeros)","payload":{"aps":{}}}"#])
            try await eventually("what was before it is settled") { try scene.queue().count("delivered") == 51 }
            #expect(try scene.queue().invalidTokens == [zeros])
            #expect(try await patient.stop().possibleDuplicates == 0)
        }

        @Test("each command of the protocol delivers", arguments: [("simple", "0"), ("enhanced", "1"), ("items", "2")])
        func frames(name: String, command: String) async throws {
            let result = try await GatewayScene.deliver(
                TestJob.many(100, prefix: "a", members: #""priority":5,"expiration":2000000000,"#), confirmAfter: 300,
                options: ["--gateway-frame", name])
            #expect(result.worker.delivered == 100 && result.simulator.gateway.accepted == 100)
            #expect(result.simulator.gateway.frames.filter { $0.value > 0 } == [command: 100])
            let record = try #require(result.simulator.gatewayAccepted.first)
            #expect((record.identifier != nil) == (name != "simple"))
            #expect(record.expiration == (name == "simple" ? nil : 2_000_000_000))
            #expect(record.priority == (name == "items" ? 5 : nil))
        }

        @Test("a connection that is idle for too long is closed, and the next job opens another")
        func idle() async throws {
            let scene = try await GatewayScene()
            let proxy = try await FaultProxy(to: try scene.gatewayPort())
            let worker = try WorkerProcess(
                redis: scene.redis.url, gateway: proxy.port, confirmAfter: 200,
                options: ["--min-connections", "0", "--idle-timeout", "1"])
            try scene.redis.push(TestJob.many(1, prefix: "a"))
            try await eventually("it is settled") { try scene.queue().count("delivered") == 1 }
            try await eventually("the connection is closed") { try await proxy.connections == 0 }
            try scene.redis.push([#"{"tokens":["\#(TestJob.token("b", 1))","\#(TestJob.token("b", 2))"],"alert":"x"}"#])
            try await eventually("the next is settled") { try scene.queue().count("delivered") == 3 }
            expectAgreement(try await worker.stop(), try scene.queue())
            #expect(try await scene.simulator.stop().gateway.connections == 2)
            #expect(!worker.log.contains("error"), "\(worker.log)")
        }
    }
}
