import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("One device")
    struct DeviceTests {
        @Test(
            "everything about a token is on one page, however the token is written", arguments: RedisStage.Kind.allCases
        )
        func page(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let token = TestJob.token("dead", 1)
            let simulator = try await SimulatorProcess(rules: ["prefix=dead,answer=410", "prefix=beef,answer=413"])
            let worker = try WorkerProcess(
                redis: stage.url, endpoint: simulator.port, environment: ["APNS_WORKER_RESULTS": "all"])
            let inAnHour = Int(Date().timeIntervalSince1970) + 3600
            let server = try stage.server()
            try server.push([
                TestJob.text(token, #""id":"first","#), TestJob.text(TestJob.token("a", 2), #""id":"other","#),
            ])
            try await eventually("they are settled") {
                try stage.contents().isSettled && stage.contents().count("delivered") == 1
            }
            try server.push([TestJob.text(token.uppercased(), #""id":"reminder","send_at":\#(inAnHour),"#)])
            try await eventually("it is scheduled") { try stage.contents().retries.count == 1 }
            _ = try await worker.stop()
            let shared = try stage.server(of: "push:{shared}:invalid-tokens")
            try shared.run("ZADD", "push:{shared}:throttled-tokens", "4000000000000", token)
            try shared.run("HSET", "push:{shared}:registrations", token, "1795279247000")
            try server.bury([
                TestLetter(reason: "BadPayload", id: "letter", original: Array(TestJob.text(token).utf8)),
                TestLetter.numbered(7),
            ])

            for text in [token, token.uppercased(), "<\(token)>"] {
                try await stage.run(["device", text]).succeeds().lacks("other", "job-7").matches(
                    /invalid +since 2\d{3}-[^:]+:\d\d:\d\dZ, \d+s ago: Unregistered, for com\.example\.\w+/
                ).matches(/throttled +until 2096-/).matches(/registered +2026-/).matches(
                    /invalid_token +Unregistered +410 +default +first/
                ).matches(/scheduled +[0-9a-f]{10} .* reminder/).matches(/BadPayload +- +letter/)
            }
            let object = try #require(try await stage.objects(["device", token, "--json"]).first)
            #expect(object["token"] as? String == token && object["throttled_until"] as? Int == 4_000_000_000_000)
            #expect((object["invalid"] as? [[String: Any]])?.map { $0["reason"] as? String } == ["Unregistered"])
            #expect(object["registered_at"] as? Int == 1_795_279_247_000)
            let results = try #require(object["results"] as? [[String: Any]])
            #expect(results.first?["status"] as? Int == 410 && (results.first?["at"] as? Int ?? 0) > 1_700_000_000_000)
            #expect((object["jobs"] as? [[String: Any]])?.first?["state"] as? String == "scheduled")
            #expect((object["dead_letters"] as? [[String: Any]])?.first?["id"] as? String == "letter")
        }

        @Test("an unknown device, and a text that is not a token")
        func unknown() async throws {
            let stage = try await RedisStage(.single)
            let token = TestJob.token("a", 1)
            try await stage.run(["device", token]).succeeds(
                "RESULTS  none\nnote: no worker has recorded yet which results are kept\n", "JOBS  none\n",
                "DEAD LETTERS  none\n"
            ).matches(/invalid +no\nthrottled +no\nregistered +not recorded\n/)
            let object = try #require(try await stage.objects(["device", token, "--json"]).first)
            #expect(object["invalid"] == nil && (object["jobs"] as? [Any])?.isEmpty == true)
            try await stage.run(["device", "forget", "\(token.prefix(8))…", "--yes"]).reports(
                "name the whole token, because other tokens may begin")
            try await stage.run(["device", "zz"]).fails("not hexadecimal")
        }

        @Test("eight digits are enough if they are those of only one token")
        func beginning() async throws {
            let redis = try RedisServer()
            let token = "00fc13ad" + String(repeating: "0", count: 56)
            try redis.run("SADD", "push:{shared}:invalid-tokens", token)
            for text in ["00fc13ad", "00FC13AD…", "00fc13ad00..."] {
                try await redis.apnsWorker(["device", text]).succeeds("TOKEN       \(token)\n")
            }
            try await redis.apnsWorker(["device", "00fc13ae"]).fails(1, "no token in Redis begins with 00fc13ae")
            try redis.run("RPUSH", "push:{default}:jobs", #"{"token":"00fc13ad11\#(token.dropFirst(10))"}"#)
            try await redis.apnsWorker(["device", "00fc13ad"]).fails(1, "these tokens begin with 00fc13ad: ", token)
        }
    }
}
