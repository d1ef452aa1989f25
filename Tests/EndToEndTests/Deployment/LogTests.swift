import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Logs")
    struct LogTests {
        private static let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        /// Returns the lines of a JSON log. Python parses them, because it rejects invalid UTF-8 and duplicate names.
        private static func parsed(_ worker: WorkerProcess) throws -> [[String: String]] {
            let program = """
                import json, sys
                def once(pairs):
                    assert len(dict(pairs)) == len(pairs), pairs
                    return dict(pairs)
                lines = open(sys.argv[1], "rb").read().split(b"\\n")
                assert lines.pop() == b""
                objects = [json.loads(line.decode("utf-8"), object_pairs_hook=once) for line in lines]
                numbers = {"attempt", "status", "lane", "lanes", "count", "delivered", "in_flight", "connections"}
                for line in objects:
                    for name, value in line.items():
                        assert isinstance(value, (int, float) if name in numbers or name.endswith("_ms") else object), line
                print(json.dumps([{name: value if isinstance(value, str) else json.dumps(value)
                    for name, value in line.items()} for line in objects]))
                """
            let python = try ChildProcess(
                "python3", ["-c", program, worker.process.directory.appending(path: "errors").path])
            try #require(try python.waitBlocking() == .exited(0), "\(python.errors)")
            return try JSONDecoder().decode([[String: String]].self, from: Data(python.output.utf8))
        }

        @Test("are one JSON object per line with all details of each notification, whatever the jobs contain")
        func json() async throws {
            let ids = [
                #"a\"b\\c"#, #"💥\ud83d\udca5"#, #"é\u00e9"#, String(repeating: "x", count: 255),
                #"{\"level\":\"error\"}"#, #"\u202eevil"#, "a=b c",
            ]
            let broken = [#"a\nb"#, #"\u001b[2J"#, #"\u0000"#, String(repeating: "x", count: 256)]
            var jobs = (ids + broken).enumerated().map { number, id in
                Array(
                    TestJob.text(TestJob.token("a", number), "\"id\":\"\(id)\",\"traceparent\":\"\(Self.trace)\",").utf8
                )
            }
            // This ID is not UTF-8.
            jobs.append(
                Array("{\"id\":\"".utf8) + [0xFF, 0xC3, 0x28] + Array("\",\"token\":\"aa\",\"payload\":{}}".utf8))
            let (redis, simulator) = try await startServers()
            try redis.push(jobs)
            let worker = try WorkerProcess(
                redis, simulator, ["--exit-when-done", "--log-level", "debug"],
                environment: ["APNS_WORKER_LOG_FORMAT": "json"])
            let account = try await worker.finish()
            #expect(account.delivered == ids.count && account.dead == broken.count + 1)
            let lines = try Self.parsed(worker)
            #expect(lines.allSatisfy { $0["time"]?.hasSuffix("Z") == true && $0["logger"] == "apns-worker" })
            #expect(lines.allSatisfy { $0["event"]?.isEmpty == false }, "\(lines)")
            let ends = lines.filter { $0["event"]?.hasPrefix("notification_") == true }
            let delivered = ends.filter { $0["outcome"] == "delivered" }
            let decoded = try ids.map { try JSONDecoder().decode(String.self, from: Data("\"\($0)\"".utf8)) }
            #expect(Set(delivered.compactMap { $0["job"] }) == Set(decoded))
            for line in delivered {
                #expect(line["level"] == "debug" && line["app"] == "default" && line["queue"] == "default")
                #expect(line["token"] == "a0000000…" && line["status"] == "200" && line["attempt"] == "1")
                #expect(line["apns_id"]?.count == 36 && line["reason"] == nil)
                #expect(
                    line["trace_id"] == "0af7651916cd43dd8448eb211c80319c" && line["parent_id"] == "b7ad6b7169203331")
            }
            #expect(Set(delivered.compactMap { $0["apns_id"] }).count == ids.count)
            #expect(ends.filter { $0["outcome"] == "dead" }.count == broken.count + 1)
            #expect(!worker.log.contains(TestJob.token("a", 1)) && !worker.log.contains("Hello"))
        }

        @Test("of 10,000 bad jobs are a few lines with their number")
        func flood() async throws {
            let (redis, simulator) = try await startServers()
            let bad = (0..<10_000).map { $0 % 2 == 0 ? "no job \($0)" : #"{"token":"xyz\#($0)","payload":{}}"# }
            try redis.push(bad + TestJob.many(100, prefix: "a"))
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"])
            let account = try await worker.finish()
            #expect(account.dead == 10_000 && account.delivered == 100)
            let lines = worker.log.split(separator: "\n")
            let letters = worker.lines(of: "dead_letter")
            // A slow machine needs several minutes, and the log has another line for each minute.
            #expect((4...20).contains(letters.count) && lines.count < 40, "\(worker.log)")
            #expect(letters.contains { $0.contains(" reason=MalformedToken") && $0.contains(" app=default") })
            for reason in ["MalformedJSON", "MalformedToken"] {
                let counted = letters.filter { $0.contains("reason=\(reason)") }.reduce(0) { sum, line in
                    sum + (line.firstMatch(of: #/ count=(\d+)/#).flatMap { Int($0.1) } ?? 1)
                }
                #expect(counted == 5000, "\(reason)")
            }
        }

        @Test("have a regular summary while something happens, and none otherwise")
        func summary() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=5,answer=BadCollapseId"])
            let worker = try WorkerProcess(redis, simulator, ["--log-summary", "200"])
            try redis.push(TestJob.many(50, prefix: "a") + TestJob.many(3, prefix: "5"))
            func summaries() -> [Substring] { worker.lines(of: "working") }
            func sum(_ name: String) throws -> Int {
                let number = try Regex(" \(name)=(\\d+)", as: (Substring, Substring).self)
                return summaries().reduce(0) { $0 + ($1.firstMatch(of: number).flatMap { Int($0.1) } ?? 0) }
            }
            try await eventually("all are in summaries") { try sum("delivered") == 50 && sum("dead") == 3 }
            let before = summaries().count
            // A test can't wait for a line that must not come. So it waits for the next summary, which would come after such a line.
            try await Task.sleep(for: .seconds(1))
            try redis.push(TestJob.many(1, prefix: "b"))
            try await eventually("the next summary") { try sum("delivered") == 51 }
            #expect(summaries().count <= before + 2, "\(worker.log)")
            #expect(summaries().allSatisfy { $0.contains(" in_flight=") && $0.contains(" delivered_per_second=") })
            _ = try await worker.stop()
        }

        @Test("name the trace of a retry and of a piece of a split job")
        func traces() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=7,answer=429,times=1"])
            let member = "\"traceparent\":\"\(Self.trace)\",\"tracestate\":\"vendor=1\","
            try redis.push([
                TestJob.text(TestJob.token("7", 1), member + "\"id\":\"again\","),
                TestJob.fanOut((0..<1200).map { TestJob.token("b", $0) }, member + #""id":"big","#),
                TestJob.text(TestJob.token("a", 1), #""id":"bad trace","traceparent":"00-nonsense","#),
            ])
            let worker = try WorkerProcess(
                redis, simulator,
                ["--exit-when-done", "--log-level", "debug", "--log-format", "json", "--results", "all"],
                environment: ["APNS_WORKER_LOG_FORMAT": ""])
            #expect(try await worker.finish().delivered == 1202)
            let ends = try Self.parsed(worker).filter { $0["event"]?.hasPrefix("notification_") == true }
            let traced = ends.filter { $0["trace_id"] == "0af7651916cd43dd8448eb211c80319c" }
            #expect(traced.filter { $0["job"] == "big" && $0["outcome"] == "delivered" }.count == 1200)
            let again = traced.filter { $0["job"] == "again" }
            #expect(
                again.map { $0["outcome"] } == ["retried", "delivered"] && again.map { $0["attempt"] } == ["1", "1"])
            #expect(again[0]["reason"] == "TooManyRequests" && again[0]["retry_in_ms"] != nil)
            #expect(ends.filter { $0["job"] == "bad trace" }.map { $0["trace_id"] } == [nil])
            let results = try storedResults(redis)
            #expect(results.filter { $0["trace_id"] == "0af7651916cd43dd8448eb211c80319c" }.count == 1201)
            // The first failure spends no attempt.
            #expect(results.first { $0["id"] == "again" }?["attempt"] == "1")
        }

        @Test("that cannot be written do not end the worker: a closed pipe, a full disk")
        func unreadable() async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(20, prefix: "a"))
            for target in ["2>/dev/full", "2> >(exec 0<&-)"] {
                try redis.push(TestJob.many(20, prefix: "a"))
                let shell = try ChildProcess(
                    "bash",
                    [
                        "-c",
                        "exec \(BuiltProgram.path("apns-worker")) run --exit-when-done --log-level debug \(target)",
                    ],
                    environment: [
                        "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
                        "APNS_WORKER_CA": try TestCertificates.path("ca.pem"), "APNS_WORKER_LANES": "1",
                        "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                        "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
                        "APNS_WORKER_TOPIC": "com.example.app",
                    ])
                #expect(try await shell.wait() == .exited(0), "\(target)")
            }
            #expect(try redis.counted("delivered") == 60)
        }

        @Test("an unknown format is refused")
        func unknownFormat() async throws {
            let worker = try WorkerProcess(
                redis: "redis://127.0.0.1:1", endpoint: 1, environment: ["APNS_WORKER_LOG_FORMAT": "xml"])
            #expect(try await worker.process.wait() == .exited(78))
            #expect(worker.log.contains("APNS_WORKER_LOG_FORMAT") && worker.log.contains("auto, text, json or journal"))
        }
    }
}
