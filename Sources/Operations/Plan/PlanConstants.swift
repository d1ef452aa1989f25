import FoundationEssentials

/// The cost of a notification as it was measured on one machine, from which ``CapacityPlan`` calculates.
///
/// `scripts/bench --constants` writes those of the program to `constants.json`, and `apns-worker plan --measure`
/// measures those of another machine. In JSON times of CPU are in microseconds (`…_us`).
package struct PlanConstants: Codable, Sendable, Equatable {
    /// A measurement of a worker with one lane.
    package struct Sample: Codable, Sendable, Equatable {
        /// Notifications per second.
        package var perSecond: Double
        /// CPU time of the worker for a notification, in microseconds.
        package var workerMicroseconds: Double
        /// CPU time of Redis for a notification, in microseconds.
        package var redisMicroseconds: Double

        package init(perSecond: Double, workerMicroseconds: Double, redisMicroseconds: Double) {
            self.perSecond = perSecond
            self.workerMicroseconds = workerMicroseconds
            self.redisMicroseconds = redisMicroseconds
        }

        enum CodingKeys: String, CodingKey {
            case perSecond = "per_second"
            case workerMicroseconds = "worker_us"
            case redisMicroseconds = "redis_us"
        }
    }

    /// The measurements with jobs of one size.
    package struct JobSize: Codable, Sendable, Equatable {
        /// Tokens per job.
        package var tokens: Int
        /// The memory of a waiting job in Redis, in bytes.
        package var jobBytes: Double
        /// With answers at once, so that one of the CPUs is the limit.
        package var atOnce: Sample
        /// With answers after ``PlanConstants/answerMilliseconds`` on one connection, whose streams are the limit.
        package var delayed: Sample

        package init(tokens: Int, jobBytes: Double, atOnce: Sample, delayed: Sample) {
            self.tokens = tokens
            self.jobBytes = jobBytes
            self.atOnce = atOnce
            self.delayed = delayed
        }

        enum CodingKeys: String, CodingKey {
            case tokens
            case jobBytes = "job_bytes"
            case atOnce = "at_once"
            case delayed
        }
    }

    /// The processor, the number of cores and the system.
    package var machine: String
    /// The commit of the measured program.
    package var commit: String
    /// The time of the measurement, in milliseconds since 1970.
    package var measuredAt: Int64
    /// The time of delayed answers, in milliseconds.
    package var answerMilliseconds: Double
    /// The concurrent requests of the connection with delayed answers.
    package var streams: Int
    /// The peak memory of a worker with one lane, in bytes.
    package var workerBytes: Int
    /// The sizes of jobs that were measured, the smallest first.
    package var jobSizes: [JobSize]

    package init(
        machine: String, commit: String, measuredAt: Int64, answerMilliseconds: Double, streams: Int, workerBytes: Int,
        jobSizes: [JobSize]
    ) {
        self.machine = machine
        self.commit = commit
        self.measuredAt = measuredAt
        self.answerMilliseconds = answerMilliseconds
        self.streams = streams
        self.workerBytes = workerBytes
        self.jobSizes = jobSizes
    }

    enum CodingKeys: String, CodingKey {
        case machine, commit, streams
        case measuredAt = "measured_at"
        case answerMilliseconds = "answer_ms"
        case workerBytes = "worker_bytes"
        case jobSizes = "job_sizes"
    }
}

extension PlanConstants {
    /// The error for constants that cannot be read, or that no measurement can have as a result.
    package struct Invalid: Error, Equatable, CustomStringConvertible {
        /// The problem, as the end of a sentence about the file.
        package let description: String
    }

    /// Returns the constants of the program.
    /// - Throws: ``Invalid``.
    package static func ofProgram() throws(Invalid) -> PlanConstants { try read(PackageResources.constants_json) }

    /// Reads constants from JSON.
    /// - Throws: ``Invalid``.
    package static func read(_ json: some Sequence<UInt8>) throws(Invalid) -> PlanConstants {
        let constants: PlanConstants
        do {
            constants = try JSONDecoder().decode(PlanConstants.self, from: Data(json))
        } catch {
            throw Invalid(description: "does not have the constants of a plan as JSON: \(reason(error))")
        }
        try constants.check()
        return constants
    }

    private static func reason(_ error: any Error) -> String {
        switch error {
        case DecodingError.keyNotFound(let key, _): "\(key.stringValue) is missing"
        case DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context):
            "\(context.codingPath.map(\.stringValue).joined(separator: ".")) has another type"
        default: "it cannot be decoded"
        }
    }

    /// Refuses values with which a plan would have no meaning.
    private func check() throws(Invalid) {
        func require(_ name: String, _ value: Double, _ range: ClosedRange<Double>) throws(Invalid) {
            guard range.contains(value) else {
                throw Invalid(
                    description: "has \(name) \(value); it must be from \(range.lowerBound) to \(range.upperBound)")
            }
        }
        try require("answer_ms", answerMilliseconds, 0.001...60_000)
        try require("streams", Double(streams), 1...10_000)
        try require("worker_bytes", Double(workerBytes), 1...1e12)
        guard !jobSizes.isEmpty else { throw Invalid(description: "has no job_sizes") }
        var last = 0
        for size in jobSizes {
            guard size.tokens > last else {
                throw Invalid(description: "has job_sizes that are not in the order of their tokens, at least 1")
            }
            last = size.tokens
            try require("tokens", Double(size.tokens), 1...100_000)
            try require("job_bytes", size.jobBytes, 1...1e12)
            for sample in [size.atOnce, size.delayed] {
                try require("per_second", sample.perSecond, 1...1e9)
                try require("worker_us", sample.workerMicroseconds, 0.001...1e6)
                try require("redis_us", sample.redisMicroseconds, 0.0001...1e6)
            }
        }
    }
}
