import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Workers of a queue with different configurations, as during a rolling upgrade.
    @Suite("A mixed fleet")
    struct MixedFleetTests {
        /// Starts a worker with these apps, whose topics are `com.example.<app>`.
        private static func worker(
            _ apps: [String], _ redis: RedisServer, _ simulator: SimulatorProcess
        ) throws -> FileWorker {
            let lines = apps.map {
                "  \($0):\n    topic: com.example.\($0)\n    endpoint: localhost:\(simulator.port)\n"
            }
            return try FileWorker(redis, "apps:\n" + lines.joined(), ["--results", "all"])
        }

        private static func differences(_ redis: RedisServer) async throws -> [String] {
            try await FleetView(redis.url).problems.filter { $0.kind == "different_apps" }.map(\.message)
        }

        @Test("loses no job of a new app, sends none under another app, and is named by `status`")
        func upgrade() async throws {
            let (redis, simulator) = try await startServers(simulator: [
                "--topic", "com.example.a", "--topic", "com.example.b",
            ])
            let old = try Self.worker(["a"], redis, simulator)
            let new = try Self.worker(["a", "b"], redis, simulator)
            try await eventually("both have joined, and the difference is reported") {
                try await Self.differences(redis).count == 1
            }
            let message = try #require(try await Self.differences(redis).first)
            #expect(message.contains(/has a; .* has a, b$/), "\(message)")
            for number in 0..<300 {
                let app = ["\"app\":\"b\"", "\"topic\":\"com.example.b\"", "\"app\":\"a\""][number % 3]
                try redis.push([#"{"id":"\#(number)",\#(app),"token":"\#(TestJob.token("a", number))","alert":"x"}"#])
            }
            let bad = [
                #"{"id":"u","app":"c","token":"\#(TestJob.token("c", 1))","alert":"x"}"#,
                #"{"id":"m","app":"a","token":"\#(TestJob.token("c", 2))","alert":"x","priority":"later"}"#, "{",
            ]
            try redis.push(bad)
            try await eventually("everything ends") {
                let contents = try QueueContents(redis)
                return contents.count("delivered") + contents.count("dead") >= 303
            }
            let contents = try QueueContents(redis)
            #expect(contents.count("delivered") == 300)
            #expect(contents.dead.map(\.reason).sorted() == ["InvalidMember", "MalformedJSON", "UnknownApp"])
            for result in try storedResults(redis) where result["outcome"] == "delivered" {
                let number = try #require(result["id"].flatMap { Int($0) })
                #expect(result["app"] == (number % 3 == 2 ? "a" : "b"))
            }
            // Without the old configuration, the new worker makes an invalid job a dead letter at once.
            _ = try await old.worker.stop()
            try await eventually("the old configuration is forgotten") {
                try redis.push(["["])
                try await Task.sleep(for: .milliseconds(300))
                return try redis.counted("dead") > contents.count("dead")
            }
            #expect(try await Self.differences(redis).isEmpty)
            _ = try await new.worker.stop()
        }
    }
}
