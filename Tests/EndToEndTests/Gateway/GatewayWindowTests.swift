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
            // The other worker gets nearly all jobs.
            let other = try scene.worker(options: ["--max-connections", "1"])
            try await eventually("the other has delivered the rest") {
                let queue = try scene.queue()
                return queue.jobs.isEmpty && queue.claims <= 100 && queue.count("delivered") >= 1900
            }
            let queue = try scene.queue()
            #expect(queue.claims == 100 && queue.count("delivered") == 1900)
            #expect(try await scene.simulator.account().accepted == 2000)
            #expect(try await other.stop().delivered == 1900)
            // Nothing has confirmed the first worker's notifications.
            let account = try await worker.stop()
            #expect(account.delivered == 0 && account.possibleDuplicates == 100)
            #expect(try scene.kept() == 100)
            // Another worker sends the uncertain notifications again.
            #expect(try await scene.worker(options: ["--exit-when-done"]).finish().delivered == 100)
            let end = try scene.queue()
            #expect(end.isSettled && end.count("delivered") == 2000 && end.count("possible_duplicates") == 100)
            #expect(try await scene.simulator.stop().gateway.accepted == 2100)
        }

        @Test("one that is full by bytes also stops claims")
        func bytes() async throws {
            let jobs = (0..<300).map { TestJob.large(TestJob.token("a", $0), bytes: 2000) }
            let result = try await GatewayScene.deliver(
                jobs, options: ["--gateway-window-bytes", "65536", "--max-connections", "1"])
            #expect(result.worker.delivered == 300 && result.simulator.gateway.accepted == 300)
            // The window has room for about 30 notifications. To confirm them, the worker ends the connection with a bad notification.
            #expect(result.simulator.gateway.connections >= 300 / 33)
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
    }
}
