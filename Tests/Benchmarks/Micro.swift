import ArgumentParser
import FoundationEssentials

/// Measures the hot parts one by one, on one thread.
struct Micro: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Measure the hot parts one by one.",
        discussion: """
            Prints one line of JSON: CPU nanoseconds and allocations of the measuring thread,
              decode   a job's bytes to a checked job
              encode   a notification to HTTP/2 frames, before TLS, 500 streams at once
              answer   a 200's frames to a completed request
              claim    a job, of 256 claimed at once from Redis: the command, its socket calls, the reply, the bodies
              settle   a job, of 256 settled as delivered at once: the command, its socket calls, the reply
            """)

    @Option(help: "The job, a file with @id@, @token@ and @sent@ in it.") var job: String
    @Option(help: "A private Redis, as redis://127.0.0.1:PORT. Its keys are used up.") var redis: String
    @Option(help: "The signing key, a p8 file.") var key: String
    @Option(help: "How many thousands of jobs.") var thousands = 200

    func run() async throws {
        guard (1...10_000).contains(thousands) else { throw ValidationError("--thousands must be 1 to 10000") }
        let sample = try SampleJob(file: job)
        var costs: [String: Cost] = [:]
        costs["decode"] = try DecodeBenchmark.run(sample, times: thousands * 1000)
        let token = try Token.sign(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")
        (costs["encode"], costs["answer"]) = try EncodeBenchmark.run(
            sample, providerToken: token, batches: thousands * 2)
        (costs["claim"], costs["settle"]) = try await QueueBenchmark.run(
            sample, redis: redis, batches: thousands * 1000 / QueueBenchmark.batch)
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        print(String(decoding: try encoder.encode(costs), as: UTF8.self))
    }
}
