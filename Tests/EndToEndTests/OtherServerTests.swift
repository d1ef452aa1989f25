import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Servers that use all that HTTP/2 allows, each with a different library: Go's net/http and framer, Python's h2,
    /// and nghttpd. nginx and haproxy have separate suites.
    @Suite("Third-party servers as APNs")
    struct OtherServerTests {
        /// The number of jobs. `APNS_WORKER_TEST_FOREIGN_JOBS=50000` makes a longer run.
        private static let count =
            ProcessInfo.processInfo.environment["APNS_WORKER_TEST_FOREIGN_JOBS"].flatMap(Int.init) ?? 4000

        /// Delivers jobs, and expects that none is lost, that no more are accepted twice than the worker counts as
        /// possible duplicates, that each attempt of a notification has the same `apns-id`, and that the worker follows
        /// HTTP/2.
        private func deliver(to command: [String]) async throws -> ForeignServerProcess.Account {
            let server = try await ForeignServerProcess(command)
            let redis = try RedisServer()
            try redis.push(TestJob.many(Self.count))
            let worker = try WorkerProcess(redis: redis.url, endpoint: server.port, options: ["--exit-when-done"])
            let account = try await worker.finish(within: .seconds(180))
            let queue = try QueueContents(redis)
            let seen = try await server.stop()

            expectAgreement(account, queue)
            #expect(account.delivered == Self.count && account.dead == 0 && queue.dead.isEmpty)
            #expect(seen.distinct == Self.count)
            #expect(seen.duplicates <= account.possibleDuplicates)
            #expect(seen.changedIDs == 0)
            #expect(seen.violations.isEmpty, "\(seen.violations.prefix(5))")
            return seen
        }

        @Test("Go's server restarts gracefully, each time with another stream limit: nothing lost or accepted twice")
        func goRestarts() async throws {
            let seen = try await deliver(to: [ForeignProgram.go(), "serve", "--restart-every", "\(Self.count / 10)"])
            #expect(seen.restarts >= 3 && seen.duplicates == 0, "\(seen)")
        }

        @Test("resets, GOAWAYs, changed stream limits and late answers in any order lose nothing")
        func goFrames() async throws {
            let seen = try await deliver(to: [ForeignProgram.go(), "frames"])
            #expect(seen.goAways >= 5 && seen.resets >= 100 && seen.settings >= 10 && seen.cuts == 0)
        }

        @Test("connections that end without GOAWAY among all these lose nothing")
        func goCuts() async throws {
            let seen = try await deliver(to: [ForeignProgram.go(), "frames", "--cut-every", "700", "--seed", "2"])
            #expect(seen.cuts >= 3 && seen.goAways >= 5)
        }

        @Test("Python's h2 with tiny windows, changing header tables and limits, resets and GOAWAYs loses nothing")
        func pythonH2() async throws {
            let seen = try await deliver(to: ForeignProgram.python("h2_server.py"))
            #expect(seen.goAways >= 5 && seen.resets >= 100 && seen.settings >= 10)
        }

        @Test("nghttpd with padded frames and seven streams is killed three times: nothing is lost")
        func nghttpd() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            try redis.push(TestJob.many(Self.count))
            // It answers 200 to a POST of any file that it has, without an apns-id, so the files must be empty.
            let files = FileManager.default.temporaryDirectory.appending(path: "nghttpd-\(port)")
            let devices = files.appending(path: "3/device")
            try FileManager.default.createDirectory(at: devices, withIntermediateDirectories: true)
            defer { do { try FileManager.default.removeItem(at: files) } catch { Issue.record(error) } }
            for number in 0..<Self.count { try Data().write(to: devices.appending(path: TestJob.token("", number))) }
            var servers = [try await startNghttpd(port, files)]
            let worker = try WorkerProcess(redis: redis.url, endpoint: port, options: ["--exit-when-done"])
            for _ in 0..<3 {
                let server = servers[servers.count - 1]
                // A request takes more than 1,000 bytes in its log.
                try await eventually("hundreds of requests arrive") { server.output.utf8.count > 400_000 }
                server.kill()
                servers.append(try await startNghttpd(port, files))
            }
            let account = try await worker.finish(within: .seconds(180))
            for server in servers { server.kill() }

            expectAgreement(account, try QueueContents(redis))
            #expect(account.delivered == Self.count && account.dead == 0)
            var ids: [Substring: Set<Substring>] = [:]
            var requests = 0
            for (path, id) in servers.flatMap(Self.requests) {
                requests += 1
                ids[path, default: []].insert(id)
            }
            #expect(ids.count == Self.count)
            #expect(ids.values.allSatisfy { $0.count == 1 }, "an attempt had another apns-id")
            #expect(requests - ids.count <= account.possibleDuplicates)
        }

        private func startNghttpd(_ port: Int, _ files: URL) async throws -> ChildProcess {
            let path = ProcessInfo.processInfo.environment["PATH", default: ""]
            // Line-buffered, because a kill loses buffered output.
            let process = try ChildProcess(
                "stdbuf",
                [
                    "--output=L", "nghttpd", "--verbose", "--htdocs=\(files.path)", "--padding=64",
                    "--max-concurrent-streams=7",
                    "--address=127.0.0.1", "\(port)", try TestCertificates.path("server-key.pem"),
                    try TestCertificates.path("server.pem"),
                ], environment: ["PATH": path + ":/usr/sbin:/usr/bin:/bin"])
            try await eventually("nghttpd listens") {
                if let ending = process.ending { throw process.failure("ended with \(ending)") }
                return process.output.contains("listen 127.0.0.1")
            }
            return process
        }

        /// Returns the path and the `apns-id` of each request whose header arrived completely, from a log of nghttpd.
        private static func requests(of server: ChildProcess) -> [(path: Substring, id: Substring)] {
            var paths: [String: Substring] = [:]
            var requests: [(Substring, Substring)] = []
            for line in server.output.split(separator: "\n") where line.contains("recv (stream_id=") {
                // [id=1] [  1.021] recv (stream_id=1, sensitive) apns-id: …
                let words = line.split(separator: " ").filter { $0 != "sensitive)" }
                guard let at = words.firstIndex(of: "recv"), words.count == at + 4 else { continue }
                let stream = "\(words[0])\(words[at + 1].filter(\.isNumber))"
                if words[at + 2] == ":path:" { paths[stream] = words[at + 3] }
                if words[at + 2] == "apns-id:", let path = paths[stream] { requests.append((path, words[at + 3])) }
            }
            return requests
        }
    }
}
