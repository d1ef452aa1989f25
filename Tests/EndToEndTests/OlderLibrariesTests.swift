import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Features and known bugs of older libraries for the binary protocol.
    @Suite("Features of older libraries")
    struct OlderLibrariesTests {
        @Test("tokens in every spelling: spaces, <>, mixed case, base64")
        func tokens() async throws {
            let bytes = (0..<32).map { UInt8(($0 * 37 + 251) % 256) }
            let hex = bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
            let digits = Array(hex)
            let groups = stride(from: 0, to: 64, by: 8).map { String(digits[$0..<$0 + 8]) }.joined(separator: " ")
            let mixed = String(
                digits.enumerated().map { $0.offset % 2 == 0 ? Character($0.element.uppercased()) : $0.element })
            let base64 = Data(bytes).base64EncodedString()
            let url = base64.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
            #expect(base64 != url)
            let spellings = [hex, hex.uppercased(), mixed, groups, "<\(groups)>", "< \(hex) >", base64, url]
            let scene = try await GatewayScene()
            try scene.redis.push(spellings.map { #"{"token":"\#($0)","payload":{"aps":{"alert":"x"}}}"# })
            let account = try await scene.worker(confirmAfter: 200, options: ["--exit-when-done"]).finish()
            expectAgreement(account, try scene.queue())
            #expect(account.delivered == spellings.count)
            #expect(try await scene.simulator.stop().gatewayTokens == spellings.map { _ in hex })
        }

        @Test("a token that does not have 32 to 100 bytes never reaches the gateway, where it would end the connection")
        func badTokens() async throws {
            let bad = ["", "abcd", "zz" + String(repeating: "0", count: 62), String(repeating: "0", count: 202), "%00"]
            let result = try await GatewayScene.deliver(
                TestJob.many(10, prefix: "a") + bad.map { #"{"token":"\#($0)","payload":{"aps":{}}}"# }
                    + TestJob.many(10, prefix: "b"), confirmAfter: 200)
            #expect(result.worker.delivered == 20 && result.simulator.gateway.refused.isEmpty)
            #expect(result.queue.deadReasons.values.reduce(0, +) == bad.count, "\(result.queue.deadReasons)")
            #expect(result.queue.deadReasons["MalformedToken"] ?? 0 >= 4, "\(result.queue.deadReasons)")
        }

        @Test("durations such as 30m and 1d, and expires 0, as the gateway sees them")
        func expirations() async throws {
            let now = UInt32(Date().timeIntervalSince1970)
            let expirations = [#""30m""#, #""1d""#, #""90s""#, "0", "\(now + 77_777)"]
            let jobs = expirations.enumerated().map {
                TestJob.text(TestJob.token("a", $0.offset), #""expiration":\#($0.element),"#)
            }
            let result = try await GatewayScene.deliver(
                jobs + [TestJob.text(TestJob.token("b", 1))], confirmAfter: 200)
            #expect(result.worker.delivered == 6)
            let seen = try result.simulator.gatewayAccepted.map { try #require($0.expiration) }
            let latest = UInt32(Date().timeIntervalSince1970)
            // The time at which the job was pushed or first seen, which is between the two.
            for (expiration, duration) in zip(seen, [1800, 86_400, 90] as [UInt32]) {
                #expect((now + duration - 1...latest + duration + 1).contains(expiration))
            }
            #expect(seen[3] == 0 && seen[4] == now + 77_777)
            // The gateway uses 0 for "do not store".
            #expect((now + 30 * 86_400 - 1...latest + 30 * 86_400 + 1).contains(seen[5]))
        }

        @Test("FIFO order is kept across resends")
        func order() async throws {
            var jobs = TestJob.many(600, prefix: "a")
            for number in 0..<12 { jobs.insert(TestJob.text(TestJob.token("dead", number)), at: 40 + number * 45) }
            let result = try await GatewayScene.deliver(
                jobs, rules: ["prefix=dead,answer=8,delay=20ms", "after=97,answer=10"],
                options: ["--max-connections", "1"])
            #expect(result.worker.delivered == 600 && result.worker.invalidToken == 12 && result.worker.resent > 0)
            result.simulator.expectOrder(600, prefix: "a")
        }

        @Test("close waits for pending writes")
        func close() async throws {
            let scene = try await GatewayScene()
            let jobs = (0..<3000).map {
                #"{"token":"\#(TestJob.token("a", $0))","payload":\#(TestJob.payload(bytes: 2000))}"#
            }
            try scene.redis.push(jobs)
            let worker = try scene.worker(confirmAfter: 600_000, options: ["--max-connections", "1"])
            try await eventually("it is writing") { try await scene.simulator.account().accepted > 0 }
            let account = try await worker.stop()
            let simulated = try await scene.simulator.stop()
            let queue = try scene.queue()
            #expect(account.delivered > 0 && simulated.gateway.accepted == account.delivered)
            #expect(account.possibleDuplicates == 0 && queue.claims == 0)
            #expect(queue.jobs.count == jobs.count - account.delivered && queue.retries.isEmpty)
        }

        @Test("a gateway that is unreachable at first is tried again after growing pauses, and then gets everything")
        func reconnectDelay() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            try redis.push(TestJob.many(200, prefix: "a"))
            let worker = try WorkerProcess(redis: redis.url, gateway: port, options: ["--exit-when-done"])
            try await worker.logs("apns_connection_failed", " endpoint=localhost:\(port) ", " retry_in_ms=")
            let simulator = try await GatewayScene.gateway(on: port)
            let account = try await worker.finish()
            expectAgreement(account, try QueueContents(redis))
            #expect(worker.lines(of: "apns_connection_restored").count == 1)
            #expect(worker.lines(of: "apns_connection_failed").count == 1, "\(worker.log)")
            #expect(account.delivered == 200 && account.retried == 0 && account.possibleDuplicates == 0)
            #expect(try await simulator.stop().gateway.accepted == 200)
        }

        @Test("a certificate that the gateway accepts and then drops at once is reported, and all jobs are kept")
        func droppedAtConnect() async throws {
            let result = try await GatewayScene.deliver(
                TestJob.many(50, prefix: "a"), rules: ["at=connect,answer=close,times=4"], confirmAfter: 400,
                exactlyOnce: false)
            #expect(result.worker.delivered == 50 && result.simulator.gateway.accepted == 50)
            #expect(result.queue.dead.isEmpty)
            #expect(!result.log.lines(of: "apns_connection_failed").isEmpty, "\(result.log)")
            // At most once for the first connection, and then one at a time.
            #expect(result.worker.retried <= 50 + 4)
        }

        @Test("a certificate that the gateway drops with the first notification pauses the app until it is accepted")
        func droppedAtNotification() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            let bad = try await GatewayScene.gateway(on: port, rules: ["answer=close,accept=false"])
            try redis.push(TestJob.many(100, prefix: "a"))
            let worker = try WorkerProcess(
                redis: redis.url, gateway: port, confirmAfter: 400,
                options: ["--exit-when-done", "--pause", "500", "--pause-cap", "500"])
            try await eventually("the app is paused") { try BreakerTests.pause("default", redis) != nil }
            let pause = try #require(try BreakerTests.pause("default", redis))
            #expect(pause["reason"] as? String == "HungUp")
            #expect((pause["detail"] as? String)?.contains("is the certificate right") == true)
            #expect(worker.lines(of: "app_paused").contains { $0.contains("HungUp") }, "\(worker.log)")
            let connections = try await bad.account().gateway.connections
            try await eventually("probes go on") {
                try await bad.account().gateway.connections >= connections + 2
            }
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.retries.count + queue.claims == 100 && queue.dead.isEmpty)
            // Regardless of the number of tries: the notifications of the first connection, and one for each of two
            // more.
            #expect(queue.count("retried") <= 100 + 2)
            #expect(try await bad.stop().gateway.accepted == 0)

            let good = try await GatewayScene.gateway(on: port)
            let account = try await worker.finish(within: .seconds(150))
            expectAgreement(account, try QueueContents(redis))
            #expect(account.delivered == 100 && account.dead == 0)
            #expect(worker.lines(of: "app_resumed").count == 1)
            #expect(try await good.stop().gateway.accepted == 100)
        }
    }
}
