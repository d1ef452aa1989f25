import ArgumentParser
import PushQueue

/// What is kept for producers of how their notifications ended.
struct ResultsOptions: ParsableArguments {
    @Option(
        help: """
            Which results to keep for producers, in a stream for each queue: all, failures or off. \
            (APNS_WORKER_RESULTS; default off)
            """)
    var results: String?

    @Option(
        help: """
            How many results a queue keeps, about; the oldest go first. (APNS_WORKER_RESULTS_LIMIT; default 100000)
            """)
    var resultsLimit: Int?

    func apply(to limits: inout QueueLimits) throws {
        let text = Setting.text(results, "APNS_WORKER_RESULTS") ?? limits.results.rawValue
        guard let kept = ResultsKept(rawValue: text.lowercased()) else {
            let known = ResultsKept.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError("APNS_WORKER_RESULTS (or --results) is \(text); it has to be one of \(known)")
        }
        limits.results = kept
        if let limit = try Setting.number(resultsLimit, "APNS_WORKER_RESULTS_LIMIT", in: 1...100_000_000) {
            limits.maximumResults = limit
        }
    }
}
