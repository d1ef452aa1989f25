import Foundation
import NIOCore
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Feedback during outages")
    struct FeedbackOutageTests {
        @Test("a Redis that restarts in the middle is waited for, and gets all records")
        func restart() async throws {
            let gate = Gate()
            let scene = try await FeedbackScene(
                arguments: ["--appendonly", "yes", "--appendfsync", "always"],
                script: FeedbackScene.halves(gate, 0..<2000, 2000..<4000))
            let process = try scene.start()
            try await scene.has(2000)
            scene.redis.kill()
            gate.open()
            try await eventually("the wait is told of") { process.errors.contains("waiting for Redis") }
            #expect(process.ending == nil)
            try scene.redis.start()
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            #expect(process.output.hasPrefix("default: 4000 records: "), "\(process.output)")
            #expect(process.errors.contains("connected to Redis again"))
            #expect(try scene.has(0..<4000))
        }

        @Test(
            "records that Redis does not accept in time are appended to a file, or written to standard error",
            arguments: [true, false])
        func spill(toFile: Bool) async throws {
            let gate = Gate()
            let scene = try await FeedbackScene(script: FeedbackScene.halves(gate, 0..<20, 20..<1000))
            let file = scene.redis.directory.appending(path: "spill")
            let process = try scene.start("--redis-patience", "3s", "--json", "--spill", toFile ? file.path : "-")
            try await scene.has(20)
            scene.redis.kill()
            gate.open()
            #expect(try await process.wait() == .exited(1))
            let app = try #require(try FeedbackScene.Report(process.output).apps.first)
            #expect(app.records == 1000 && app.added == 20 && app.spilled == 980)
            #expect(process.errors.contains("REDIS DID NOT ACCEPT"))
            let text = toFile ? try String(contentsOf: file, encoding: .utf8) : process.errors
            let lines = text.split(separator: "\n").filter { $0.hasPrefix("{") }.joined(separator: "\n")
            let records = try FeedbackScene.Record.all(lines)
            let isWhole = records.map(\.token) == (20..<1000).map(FeedbackScene.token)
            #expect(isWhole)
            #expect(records.allSatisfy { $0.outcome == "not_written" })
            if toFile {
                #expect(!process.errors.contains(FeedbackScene.token(20)))
                let mode = try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int
                #expect(mode == 0o600)
            }
            try await Self.bringBack(text, scene)
        }

        /// Writes the records from the log to Redis twice, with other lines between them.
        private static func bringBack(_ text: String, _ scene: FeedbackScene) async throws {
            try scene.redis.start()
            try scene.redis.run("HSET", "push:{shared}:registrations", FeedbackScene.token(20), "1900000000000")
            for (added, known) in [(979, 0), (0, 979)] {
                let result = try await scene.redis.apnsWorker(
                    ["feedback", "--from", "-", "--batch", "100"], input: text
                ).succeeds()
                let words = "-: 980 records: \(added) added, \(known) already known, 1 skipped, registered since; "
                #expect(result.output.hasPrefix(words), "\(result.output)")
            }
            #expect(try scene.has(21..<1000))
            let details = try QueueContents(scene.redis).invalidTokenDetails[FeedbackScene.token(21)]
            #expect(details?.at == 1_700_000_021_000 && details?.facts.source == "feedback")
            #expect(details?.facts.topic == "com.example.app" && details?.facts.environment == "production")
        }

        @Test("a file to be written back that has lines without records is reported with their numbers")
        func badFile() async throws {
            let redis = try RedisServer()
            let good = #"{"token":"00FC","at":5,"app":"a","topic":"t"}"#
            let file = redis.directory.appending(path: "kept")
            try [good, #"{"token":"xyz"#, "", "words", #"{"at":1}"#].joined(separator: "\n")
                .write(to: file, atomically: true, encoding: .utf8)
            try await redis.apnsWorker(["feedback", "--from", file.path]).fails(
                1, "2 lines are not records and were skipped; the first is line 2"
            ).shows(": 1 record: 1 added").lacks("xyz")
            #expect(try QueueContents(redis).invalidTokens == ["00fc"])
            try await redis.apnsWorker(["feedback", "--from", "/none"]).fails(1, "/none cannot be read")
        }

        @Test(
            "SIGTERM in the middle: received records are written, and the exit status reports that there may be more",
            arguments: [SIGTERM, SIGINT])
        func terminated(signal: Int32) async throws {
            let scene = try await FeedbackScene(script: { $0.send(FeedbackScene.bytes(0..<3000)) })
            let process = try scene.start("--batch", "1")
            try await eventually("it is at work") { try scene.invalidTokens.count > 10 }
            process.send(signal)
            #expect(try await process.wait() == .exited(1))
            #expect(process.errors.contains("is stopping"), "\(process.errors)")
            // The process may have received only some records.
            let count = try scene.invalidTokens.count
            #expect(process.output.hasPrefix("default: \(count) records: \(count) added"), "\(process.output)")
        }

        @Test("SIGTERM while Redis is unavailable: records are kept elsewhere, at once")
        func terminatedWithoutRedis() async throws {
            let gate = Gate()
            let scene = try await FeedbackScene(script: FeedbackScene.halves(gate, 0..<20, 20..<50))
            let process = try scene.start()
            try await scene.has(20)
            scene.redis.kill()
            gate.open()
            try await eventually("the wait is told of") { process.errors.contains("waiting for Redis") }
            process.send(SIGTERM)
            // Without the signal, the command would wait for Redis for five minutes.
            #expect(try await process.wait() == .exited(1))
            #expect(try scene.spilled == (20..<50).map(FeedbackScene.token))
            #expect(process.errors.contains("the next run writes them to Redis first"), "\(process.errors)")
        }

        @Test("a service is not read with the certificate of another app, whose records it would send and forget")
        func otherApp() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<10))
            let wrong = try await scene.run(environment: ["APNS_WORKER_TOPIC": "com.other.app"])
            // The status 78 means a wrong setting.
            #expect(wrong.ending == .exited(78), "\(wrong.errors)")
            #expect(wrong.errors.contains("com.example.app) is for com.example.app"), "\(wrong.errors)")
            #expect(wrong.errors.contains("not for the topic com.other.app"))
            #expect(wrong.errors.contains("was not read, and keeps its records"))
            #expect(scene.server.peers.isEmpty)

            // The command reads the app `shop` although the app `news` has a wrong certificate.
            var apps = ["APNS_WORKER_APPS": "shop,news", "APNS_WORKER_TOPIC": ""]
            apps["APNS_WORKER_APPS_SHOP_TOPIC"] = "com.example.app"
            apps["APNS_WORKER_APPS_NEWS_TOPIC"] = "com.other.app"
            let both = try await scene.run("--json", environment: apps).fails(1)
            #expect(try scene.has(0..<10))
            #expect(scene.server.peers.count == 1)
            #expect(both.errors.contains("news: FAILED: ") && both.errors.contains("not for the topic com.other.app"))
        }

        @Test("needs only the Redis permissions of a worker")
        func rights() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<10))
            try scene.redis.run(
                "ACL", "SETUSER", "worker", "on", ">s3cret", "~push:*", "+@connection", "+@scripting", "+@read",
                "+@write", "+time", "+select")
            let url = "redis://worker:s3cret@127.0.0.1:\(scene.redis.port)"
            try await scene.run(environment: ["APNS_WORKER_REDIS_URL": url]).succeeds()
            #expect(try scene.invalidTokens.count == 10)
        }
    }
}
