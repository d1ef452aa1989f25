import ArgumentParser

/// How a worker works.
struct WorkOptions: ParsableArguments {
    @Option(help: "Event loops that work, 0 for one a core. (APNS_WORKER_LANES; default 0)")
    var lanes: Int?

    @Option(
        help: "The first retry's longest pause, in ms; it doubles each time. (APNS_WORKER_RETRY_BASE; default 1000)")
    var retryBase: Int?

    @Option(help: "The longest pause between retries, in ms. (APNS_WORKER_RETRY_CAP; default 600000)")
    var retryCap: Int?

    @Option(help: "Attempts of a job that names no number. (APNS_WORKER_MAX_ATTEMPTS; default 10)")
    var maxAttempts: Int?

    @Option(
        help: """
            How long an app that APNs refuses is paused before the first probe, in ms; it doubles each time. \
            (APNS_WORKER_PAUSE; default 15000)
            """)
    var pause: Int?

    @Option(help: "The longest pause between probes, in ms. (APNS_WORKER_PAUSE_CAP; default 300000)")
    var pauseCap: Int?

    @Option(help: "How long a drain may take, in ms. (APNS_WORKER_DRAIN_TIMEOUT; default 25000)")
    var drainTimeout: Int?

    @Option(help: "How long claims stay a silent worker's own, in ms. (APNS_WORKER_LEASE; default 30000)")
    var lease: Int?

    @Option(help: "trace, debug, info, notice, warning or error. (APNS_WORKER_LOG_LEVEL; default info)")
    var logLevel: String?

    @Option(
        help: """
            text for people, json for programs, journal for systemd's, or auto for what fits standard error. \
            (APNS_WORKER_LOG_FORMAT; default auto)
            """)
    var logFormat: String?

    @Option(
        help: """
            How often the log has a line about what was done, in ms; 0 for never. (APNS_WORKER_LOG_SUMMARY; default 60000)
            """)
    var logSummary: Int?

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

    @Option(
        help: "Maximum dead letters of a queue; the oldest go first. (APNS_WORKER_DEAD_LETTERS_LIMIT; default 1000000)")
    var deadLettersLimit: Int?

    @Option(
        help: """
            Maximum total size of a queue's dead letters, in bytes; the oldest go first. \
            (APNS_WORKER_DEAD_LETTERS_BYTES; default 1073741824)
            """)
    var deadLettersBytes: Int?

    @Option(help: "How long dead letters are kept, in days. (APNS_WORKER_DEAD_LETTERS_DAYS; default 90)")
    var deadLettersDays: Int?

    @Option(
        help: "How long invalid tokens are kept, in days; 0 for ever. (APNS_WORKER_INVALID_TOKENS_DAYS; default 365)")
    var invalidTokensDays: Int?

    /// What the flags say.
    var given: [SettingKey: String] {
        let numbers = SettingKey.given([
            (.lanes, lanes), (.retryBase, retryBase), (.retryCap, retryCap), (.maxAttempts, maxAttempts),
            (.pause, pause), (.pauseCap, pauseCap), (.drainTimeout, drainTimeout), (.lease, lease),
            (.logSummary, logSummary), (.resultsLimit, resultsLimit), (.deadLettersLimit, deadLettersLimit),
            (.deadLettersBytes, deadLettersBytes), (.deadLettersDays, deadLettersDays),
            (.invalidTokensDays, invalidTokensDays),
        ])
        let words = SettingKey.given([
            (.logLevel, logLevel?.lowercased()), (.logFormat, logFormat?.lowercased()),
            (.results, results?.lowercased()),
        ])
        return numbers.merging(words) { $1 }
    }
}
