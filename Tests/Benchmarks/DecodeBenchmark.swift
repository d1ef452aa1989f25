import NIOCore
import PushJob
import PushQueue

enum DecodeBenchmark {
    /// Decodes this number of jobs, in rounds of a thousand different ones.
    static func run(_ sample: SampleJob, times: Int) throws -> Cost {
        let jobs = (0..<1000).map { sample.job(number: $0, sent: 1_790_000_000_000_000) }
        var cost = Cost()
        var tokens = 0
        for round in 0...times / jobs.count {
            let start = Usage.now()
            for job in jobs { tokens += try JobDecoder.decode(job).tokenCount }
            // The first round warms up.
            if round > 0 { cost.add(since: start, times: jobs.count) }
        }
        precondition(tokens == (times / jobs.count + 1) * jobs.count, "a job was decoded to something else")
        return cost
    }
}
