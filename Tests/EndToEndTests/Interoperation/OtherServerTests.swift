import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Servers of different libraries that use everything that HTTP/2 allows: Go's net/http and framer, Python's h2, and nghttpd.
    @Suite("Third-party servers as APNs")
    struct OtherServerTests {
        /// The number of jobs. `APNS_WORKER_TEST_FOREIGN_JOBS=50000` makes a longer run.
        private static let count =
            ProcessInfo.processInfo.environment["APNS_WORKER_TEST_FOREIGN_JOBS"].flatMap(Int.init) ?? 4000

        /// Delivers jobs. Expects that no job is lost, that all duplicates are counted as possible duplicates, that all attempts of a
        /// notification have one `apns-id`, and that the worker does not break HTTP/2.
        private func deliver(to command: [String]) async throws -> ForeignServerProcess.Account {
            let server = try await ForeignServerProcess(command)
            let redis = try RedisServer()
            try redis.push(TestJob.many(Self.count))
            let worker = try WorkerProcess(redis: redis.url, endpoint: server.port, options: ["--exit-when-done"])
            let account = try await worker.finish()
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
    }
}
