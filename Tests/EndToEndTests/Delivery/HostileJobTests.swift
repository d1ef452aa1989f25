import NIOCore
import PushJob
import PushQueue
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Hostile jobs")
    struct HostileJobTests {
        @Test("10,000 random and mutated jobs crash nothing: invalid ones are kept unchanged, the rest is delivered")
        func hostile() async throws {
            var maker = HostileJobs(seed: 20_261_121)
            let inputs = maker.make(10_000)
            let tooLarge = Array(
                #"{"token":"\#(TestJob.token("a", 1))","payload":{"x":"\#(String(repeating: "x", count: 17 << 20))"}}"#
                    .utf8)
            let large = Array(String(repeating: "[", count: 1 << 20).utf8)
            let (redis, simulator) = try await startServers()
            try redis.push(Array(inputs[..<5000]) + [tooLarge, large] + Array(inputs[5000...]))
            // Tokens are not marked while APNs accepts nothing of their topic, and some jobs have a topic of their own.
            let worker = try await WorkerProcess(
                redis, simulator, ["--exit-when-done"], environment: ["APNS_WORKER_EXPIRATION": "30s"]
            ).finish()
            let queue = try QueueContents(redis)
            let account = try await simulator.stop()

            var noJobs = [large: 1]
            var notifications = 0
            var jobs: [[UInt8]: Int] = [:]
            for input in inputs {
                do throws(JobError) {
                    let job = try JobDecoder.decode(ByteBuffer(bytes: input))
                    notifications += job.tokenCount
                    // The dead letter of a job has the producer's bytes without the worker's wrapper.
                    jobs[Array(input[job.original]), default: 0] += 1
                } catch {
                    let original = Envelope.read(ByteBuffer(bytes: input)).original
                    noJobs[Array(input[original]), default: 0] += 1
                }
            }
            #expect(jobs.count > 3000 && noJobs.count > 3000, "both kinds have to be there")

            let reasons = Set([
                "MalformedJSON", "TooDeep", "NotAnObject", "MissingToken", "TokenAndTokens", "MissingPayload",
                "InvalidMember", "DuplicateMember",
            ])
            let lettersOfNoJobs = queue.dead.filter { reasons.contains($0.reason) }
            #expect(multiset(lettersOfNoJobs.map(\.original)) == noJobs)
            let lettersOfJobs = queue.dead.filter { !reasons.contains($0.reason) && $0.reason != "JobTooLarge" }
            #expect(multiset(lettersOfJobs.map(\.original)).allSatisfy { $0.value <= jobs[$0.key] ?? 0 })
            #expect(queue.dead.filter { $0.reason == "JobTooLarge" }.map(\.original) == [tooLarge])

            #expect(queue.isSettled && queue.workers.isEmpty && worker.lostClaims == 0)
            let dead = worker.dead - noJobs.values.reduce(0, +)
            #expect(worker.delivered + worker.invalidToken + worker.expired + dead == notifications)
            #expect(worker.delivered == account.accepted, "\(worker.delivered)")
            #expect(worker.delivered > 2000 && worker.invalidToken > 0)
            #expect(queue.count("delivered") == worker.delivered && queue.count("invalid_token") == worker.invalidToken)
            #expect(queue.count("dead") == worker.dead + 1, "Redis itself buries what is too large to travel")
            #expect(account.protocolErrors == 0)
        }

        private func multiset(_ values: [[UInt8]]) -> [[UInt8]: Int] {
            values.reduce(into: [:]) { $0[$1, default: 0] += 1 }
        }
    }
}
