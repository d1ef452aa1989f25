import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Only the newest job of a key")
    struct NewestTests {
        private static func enqueue(_ redis: RedisServer, _ id: String, _ token: String) async throws {
            _ = try await redis.apnsWorker([
                "enqueue", "--id", id, "--replaces", "match", "--token", token, "--alert", id,
            ]).succeeds()
        }

        @Test("is sent, and commands name it while older ones wait and after they were dropped")
        func commands() async throws {
            let (redis, simulator) = try await startServers()
            let token = TestJob.token("a", 1)
            for id in ["one", "two", "three"] { try await Self.enqueue(redis, id, token) }
            let good = TestJob.token("b", 2)
            try redis.push([TestJob.text(good)])
            try await redis.apnsWorker(["jobs", "show", "--id", "one"]).succeeds().matches(/replaces +match/).matches(
                /replaced by +three/)
            try await redis.apnsWorker(["jobs", "show", "--id", "three", "--json"]).succeeds(#""replaces":"match""#)
                .lacks("replaced_by")
            let account = try await WorkerProcess(
                redis, simulator, ["--results", "all", "--exit-when-done"]
            ).finish()
            #expect(account.delivered == 2 && account.dropped == 2)
            let results = try await redis.apnsWorker(["results", "--outcome", "dropped"]).succeeds().output
            #expect(results.matches(of: /Replaced .*replaced_by=three/).count == 2, "\(results)")
            try await redis.apnsWorker(["device", "show", token, "--json"]).succeeds(#""replaced_by":"three""#)
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.count("dropped:Replaced") == 2)
        }

        @Test("counts for a whole campaign: a newer one with the same key replaces what was not sent")
        func campaign() async throws {
            let (redis, simulator) = try await startServers()
            let folder = redis.directory
            let (job, list) = (folder.appending(path: "job.json").path, folder.appending(path: "tokens").path)
            try #"{"alert":"x","replaces":"score"}"#.write(toFile: job, atomically: true, encoding: .utf8)
            let tokens = (0..<20).map { TestJob.token("c", $0) }
            try tokens.joined(separator: "\n").write(toFile: list, atomically: true, encoding: .utf8)
            func send(_ name: String, _ more: [String] = []) async throws -> CommandLineTests.Output {
                try await redis.apnsWorker(
                    ["campaign", "send", name, "--job", job, "--tokens", list, "--job-size", "3"] + more)
            }
            #expect(try await send("later", ["--at", "2030-01-31T12:00:00Z"]).errors.contains("`replaces`"))
            _ = try await send("old").succeeds()
            _ = try await send("new").succeeds()
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == 20 && account.dropped == 20)
            #expect(try redis.run("HGET", "push:{default}:campaign:old", "dropped:Replaced").text == "20")
            #expect(try redis.run("HGET", "push:{default}:campaign:new", "delivered").text == "20")
        }
    }
}
