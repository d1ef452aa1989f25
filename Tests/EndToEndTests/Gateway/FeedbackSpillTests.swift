import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Feedback records that are not in Redis yet")
    struct FeedbackSpillTests {
        /// Returns a script that serves only the first client, because the service forgets what it has sent once.
        private static func once(_ script: @escaping FeedbackServer.Script) -> FeedbackServer.Script {
            let connections = Counter()
            return { peer in
                if connections.next() == 1 { script(peer) } else { peer.hangUp() }
            }
        }

        /// Returns a scene whose Redis loses no write. The service sends 20 records, and 30 more when the gate opens.
        private static func durable(_ gate: Gate) async throws -> FeedbackScene {
            try await FeedbackScene(
                arguments: ["--appendonly", "yes", "--appendfsync", "always"],
                script: once(FeedbackScene.halves(gate, 0..<20, 20..<50)))
        }

        @Test("kill -9 loses no record that was read: the next run writes it before it reads the service")
        func killed() async throws {
            let gate = Gate()
            let scene = try await FeedbackScene(script: Self.once(FeedbackScene.halves(gate, 0..<20, 20..<1000)))
            let process = try scene.start()
            try await scene.has(20)
            try await eventually("nothing is kept of them") { try scene.spilled.isEmpty }
            scene.redis.pause()
            gate.open()
            try await eventually("records are on the disk, and not in Redis") { try !scene.spilled.isEmpty }
            process.kill()
            scene.redis.resume()
            let kept = try scene.spilled
            // When Redis continues, it may execute a command that it had not read yet.
            let written = try scene.invalidTokens
            #expect(written == FeedbackScene.tokens(0..<20) || written == FeedbackScene.tokens(0..<20).union(kept))
            let mode = try FileManager.default.attributesOfItem(atPath: scene.spill.path)[.posixPermissions] as? Int
            #expect(mode == 0o600)

            let file = scene.redis.directory.appending(path: "records")
            let next = try await scene.run("--json", "--exec", "cat > '\(file.path)'").succeeds()
            let report = try FeedbackScene.Report(next.output)
            #expect(report.apps.map(\.app) == [scene.spill.path, "default"])
            #expect(report.apps.map(\.records) == [kept.count, 0])
            #expect(try scene.invalidTokens == FeedbackScene.tokens(0..<20).union(kept))
            #expect(try scene.spilled.isEmpty)
            // The command of --exec also gets the records of the file, with their app.
            let handed = try FeedbackScene.Record.all(String(contentsOf: file, encoding: .utf8))
            #expect(handed.map(\.token) == kept && handed.allSatisfy { $0.app == "default" })
        }

        @Test("records that Redis refused are written by the next run before it reads the service")
        func leftover() async throws {
            let gate = Gate()
            let scene = try await Self.durable(gate)
            let process = try scene.start("--redis-patience", "2s")
            try await scene.has(20)
            scene.redis.kill()
            gate.open()
            #expect(try await process.wait() == .exited(1))
            #expect(process.errors.contains("They are in \(scene.spill.path)"), "\(process.errors)")
            #expect(try scene.spilled == (20..<50).map(FeedbackScene.token))

            try await scene.run("--redis-patience", "1s").fails(1)
            #expect(try scene.spilled.count == 30)
            #expect(scene.server.peers.count == 1)

            try scene.redis.start()
            let next = try await scene.run().succeeds()
            #expect(next.output.hasPrefix("\(scene.spill.path): 30 records: 30 added, "), "\(next.output)")
            #expect(try scene.has(0..<50) && scene.spilled.isEmpty)
            #expect(scene.server.peers.count == 2)
        }

        @Test("with --interval a round first writes the records that the previous one could not write")
        func interval() async throws {
            let gate = Gate()
            let scene = try await Self.durable(gate)
            let process = try scene.start("--redis-patience", "1s", "--interval", "1s")
            try await scene.has(20)
            scene.redis.kill()
            gate.open()
            try await eventually("Redis has not taken some") { process.errors.contains("REDIS DID NOT ACCEPT") }
            try scene.redis.start()
            try await eventually("it has all") { try scene.has(0..<50) }
            try await eventually("nothing is kept any more") { try scene.spilled.isEmpty }
            process.send(SIGTERM)
            try await process.wait()
        }

        @Test(
            "a service is not read while Redis is unavailable or refuses writes",
            arguments: [
                ("full", "OOM"), ("replica", "READONLY"), ("few replicas", "NOREPLICAS"), ("no disk", "MISCONF"),
                ("wrong type", "push:{shared}:invalid-tokens:facts holds a string"), ("stopped", "was not read"),
            ])
        func refused(kind: String, word: String) async throws {
            let scene = try await FeedbackScene(
                arguments: ["--dbfilename", "blocked"], script: Self.once(FeedbackScene.sending(0..<10)))
            let (redis, other) = (scene.redis, try RedisServer())
            switch kind {
            case "full": try redis.run("CONFIG", "SET", "maxmemory", "1")
            case "replica":
                try redis.run("REPLICAOF", "127.0.0.1", "\(other.port)")
                try await eventually("it follows its master") {
                    try redis.run("INFO", "replication").text?.contains("master_link_status:up") == true
                }
            case "few replicas": try redis.run("CONFIG", "SET", "min-replicas-to-write", "1")
            case "wrong type": try redis.run("SET", "push:{shared}:invalid-tokens:facts", "x")
            case "stopped": redis.stop()
            default:
                // Redis can't save, because a directory has the name of its file.
                try FileManager.default.createDirectory(
                    at: redis.directory.appending(path: "blocked"), withIntermediateDirectories: true)
                try redis.run("CONFIG", "SET", "save", "3600 1000000")
                try redis.run("BGSAVE")
                try await eventually("saving has failed") {
                    try redis.run("INFO", "persistence").text?.contains("rdb_last_bgsave_status:err") == true
                }
            }
            try await scene.run("--redis-patience", "1s").fails(1, "was not read, and keeps its records", word)
            #expect(scene.server.peers.isEmpty)

            switch kind {
            case "full": try redis.run("CONFIG", "SET", "maxmemory", "0")
            case "replica": try redis.run("REPLICAOF", "NO", "ONE")
            case "few replicas": try redis.run("CONFIG", "SET", "min-replicas-to-write", "0")
            case "wrong type": try redis.run("DEL", "push:{shared}:invalid-tokens:facts")
            case "stopped": try redis.start()
            default: try redis.run("CONFIG", "SET", "save", "")
            }
            try await scene.run().succeeds()
            #expect(try scene.has(0..<10))
            // The check of Redis leaves no key.
            #expect(try redis.run("KEYS", "*probe*").elements?.isEmpty == true)
        }

        @Test("an incomplete last line is dropped, and all lines before it are written")
        func cutShort() async throws {
            let scene = try await FeedbackScene(script: Self.once(FeedbackScene.sending(0..<3)))
            let heading = Self.heading(scene)
            func line(_ number: Int) -> String {
                #"{"token":"\#(FeedbackScene.token(number))","at":5,"app":"a","topic":"t"}"#
            }
            try (heading + line(7) + "\n" + line(8) + "\n" + line(9).prefix(50))
                .write(to: scene.spill, atomically: true, encoding: .utf8)
            let next = try await scene.run().succeeds()
            #expect(next.errors.contains("\(scene.spill.path): line 4 is incomplete"), "\(next.errors)")
            #expect(try scene.invalidTokens == FeedbackScene.tokens(0..<3).union(FeedbackScene.tokens(7..<9)))
            #expect(try scene.spilled.isEmpty)

            // A broken line in the middle is not the trace of a crash. The command changes nothing until an operator has looked at it.
            let bad = heading + line(10) + "\n" + line(11).prefix(50) + "\n" + line(12) + "\n"
            try bad.write(to: scene.spill, atomically: true, encoding: .utf8)
            let peers = scene.server.peers.count
            try await scene.run().fails(1, "1 lines are not records and were skipped; the first is line 3")
            #expect(try scene.invalidTokens.isSuperset(of: FeedbackScene.tokens(12..<13)))
            #expect(try String(contentsOf: scene.spill, encoding: .utf8) == bad)
            #expect(scene.server.peers.count == peers)

            // The file has only a part of its first line, because the machine stopped during the write.
            try String(heading.prefix(20)).write(to: scene.spill, atomically: true, encoding: .utf8)
            #expect(try await scene.run().ending == .exited(0))
            #expect(try Data(contentsOf: scene.spill).isEmpty)
        }

        private static func heading(_ scene: FeedbackScene) -> String {
            "# Records of apns-worker feedback for \(scene.redis.url) and the prefix push; "
                + "its next run writes them there.\n"
        }

        @Test("a file with other contents, or of another Redis, is left unchanged, and no service is read")
        func otherFile() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<3))
            let other = "# Records of apns-worker feedback for redis://other:6379 and the prefix push; …\n{}\n"
            for text in ["my notes\n", other, "{\"token\":\"00fc\"}\n"] {
                try text.write(to: scene.spill, atomically: true, encoding: .utf8)
                let result = try await scene.run().fails(64)
                let words = "\(scene.spill.path) cannot be used: it has no records for"
                #expect(result.errors.contains(words), "\(result.errors)")
                #expect(try String(contentsOf: scene.spill, encoding: .utf8) == text)
            }
            try await scene.run("--spill", "/dev/null").fails(64, "it is not a regular file")
            #expect(scene.server.peers.isEmpty)
        }

        @Test("two processes cannot use one file")
        func locked() async throws {
            let scene = try await FeedbackScene(script: { $0.send(FeedbackScene.bytes(0..<1)) })
            let first = try scene.start()
            try await scene.has(1)
            try await scene.run().fails(1, "another apns-worker feedback is using \(scene.spill.path)")
            #expect(scene.server.peers.count == 1)
            // A second process can run with another file, or without a file.
            #expect(try await scene.run("--spill", "-", "--timeout", "1s").ending == .exited(1))
            #expect(scene.server.peers.count == 2)
            first.kill()
        }

        @Test("with a full disk all records still reach Redis, and the exit status is 1")
        func noRoom() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<1000))
            // The limit of files is 4,000 bytes. A longer write fails, because the signal XFSZ is ignored.
            let process = try ChildProcess(
                "/bin/sh",
                [
                    "-c", "trap '' XFSZ; exec prlimit --fsize=4000 \"$0\" feedback",
                    try BuiltProgram.path("apns-worker"),
                ],
                environment: scene.environment)
            #expect(try await process.wait() == .exited(1))
            #expect(
                process.errors.contains("\(scene.spill.path) cannot be written: File too large"), "\(process.errors)")
            #expect(try scene.has(0..<1000))
            #expect(try Data(contentsOf: scene.spill).isEmpty)
        }

        @Test("without a state directory the file is in the home directory; without that it must be named")
        func home() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<3))
            let home = scene.redis.directory.appending(path: "home")
            func at(_ home: String) -> [String: String] { ["STATE_DIRECTORY": "", "XDG_STATE_HOME": "", "HOME": home] }
            try await scene.run(environment: at(home.path)).succeeds()
            let directory = home.appending(path: ".local/state/apns-worker")
            #expect(FileManager.default.fileExists(atPath: directory.appending(path: "feedback.ndjson").path))
            let mode = try FileManager.default.attributesOfItem(atPath: directory.path)[.posixPermissions] as? Int
            #expect(mode == 0o700)
            for lost in ["", "/dev/null"] {
                try await scene.run(environment: at(lost)).fails(64, "--spill")
            }
            #expect(scene.server.peers.count == 1)
            try await scene.run("--spill", "-", environment: at("")).succeeds()
        }

        @Test("the simulator's feedback service is read")
        func simulator() async throws {
            let redis = try RedisServer()
            let file = redis.directory.appending(path: "waiting")
            try (0..<5).map { "\(FeedbackScene.token($0)) \(FeedbackScene.seconds($0))\n" }.joined()
                .write(to: file, atomically: true, encoding: .utf8)
            let simulator = try await SimulatorProcess(feedback: [], options: ["--feedback", file.path])
            let port = try #require(simulator.feedbackPort)
            #expect(try await simulator.account().feedback.waiting == 5)
            try await redis.apnsWorker(["feedback"], environment: FeedbackScene.environment(redis, port)).succeeds()
            #expect(try QueueContents(redis).invalidTokens == FeedbackScene.tokens(0..<5))
            #expect(try await simulator.stop().feedback.waiting == 0)
        }
    }
}
