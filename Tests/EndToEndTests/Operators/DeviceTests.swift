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

        @Test(
            "after `device forget` no key of Redis has the token, and workers continue with the others",
            arguments: RedisStage.Kind.allCases)
        func forget(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let (token, other) = (TestJob.token("dead", 1), TestJob.token("a", 2))
            let simulator = try await SimulatorProcess(rules: ["prefix=dead,answer=410"])
            let worker = try WorkerProcess(
                redis: stage.url, endpoint: simulator.port, environment: ["APNS_WORKER_RESULTS": "all"])
            let inAnHour = Int(Date().timeIntervalSince1970) + 3600
            let server = try stage.server()
            try server.push([
                #"{"id":"both","tokens":["\#(token.uppercased())","\#(other)"],"alert":"x"}"#,
                // It is delivered to another device, so its ID stays reserved.
                #"{"id":"welcome-\#(token)","unique_for":"1h","token":"\#(other)","alert":"x"}"#,
                #"{"id":"later","tokens":["\#(token)","\#(other)"],"alert":"x","send_at":\#(inAnHour)}"#,
                #"{"id":"broken","token":"\#(token)","payload":7}"#,
            ])
            try await eventually("they are settled, and one is scheduled") {
                let contents = try stage.contents()
                return try contents.count("delivered") == 2 && contents.retries.count == 1
                    && server.run("HLEN", "push:{default}:worker-info").number ?? 0 > 0
                    && server.run("LLEN", "push:{default}:jobs").number == 0
                    && server.run("ZCARD", "push:{default}:dead").number == 1
            }
            let exported = try #require(try await stage.objects(["device", "export", token]).first)
            #expect((exported["jobs"] as? [Any])?.count == 1 && (exported["dead_letters"] as? [Any])?.count == 1)
            try await stage.run(["device", "forget", token], input: "").fails(64)
            let forgotten = try await stage.run(["device", "forget", token, "--yes", "--json"]).succeeds()
            let kinds = try #require(forgotten.objects.first?["by_kind"] as? [String: Int])
            #expect(kinds["job"] == 1 && kinds["dead_letter"] == 1 && kinds["reserved_id"] == 1, "\(kinds)")
            #expect(kinds["invalid_token"] == 1 && kinds["announcement"] ?? 0 > 0, "\(kinds)")
            for server in stage.servers {
                let connection = try server.connect()
                for key in try connection.run("KEYS", "*").elements?.compactMap(\.text) ?? [] {
                    let value = try connection.value(of: key)
                    #expect(!"\(key) \(value)".lowercased().contains(token), "\(key)")
                }
            }
            // The scheduled job still goes to the other device.
            try await stage.run(["jobs", "run", "--id", "later", "--yes"]).succeeds()
            try await eventually("it is sent") { try stage.contents().count("delivered") == 2 }
            _ = try await worker.stop()
        }

        @Test("an unknown device, and a text that is not a token")
        func unknown() async throws {
            let stage = try await RedisStage(.single)
            let token = TestJob.token("a", 1)
            try await stage.run(["device", token]).succeeds(
                "RESULTS  none\nnote: no worker has said yet which results are kept\n", "JOBS  none\n",
                "DEAD LETTERS  none\n"
            ).matches(/invalid +no\nthrottled +no\nregistered +not recorded\n/)
            let object = try #require(try await stage.objects(["device", token, "--json"]).first)
            #expect(object["invalid"] == nil && (object["jobs"] as? [Any])?.isEmpty == true)
            try await stage.run(["device", "forget", "\(token.prefix(8))…", "--yes"]).reports(
                "name the whole token, because another device's may begin")
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

        @Test("base64 of a token is the token, in a job and on the command line")
        func base64() async throws {
            let stage = try await RedisStage(.single)
            let bytes = (0..<32).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ 200) }
            let hex = bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
            let text = Data(bytes).base64EncodedString()
            try stage.server().push([TestJob.text(text, #""id":"b","#), TestJob.text(hex, #""id":"h","#)])
            for name in [text, hex, text.replacing("/", with: "_").replacing("+", with: "-")] {
                let object = try #require(try await stage.objects(["device", name, "--json"]).first)
                let ids = (object["jobs"] as? [[String: Any]])?.compactMap { $0["id"] as? String }
                #expect(object["token"] as? String == hex && ids == ["b", "h"])
                #expect(try await stage.run(["jobs", "list", "--count", "--token", name]).output == "2\n")
            }
        }
    }
}
