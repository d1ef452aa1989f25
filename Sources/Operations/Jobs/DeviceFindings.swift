import NIOCore
import PrintableText
import PushQueue
import Redis

/// The findings about a device token.
package struct DeviceFindings {
    package let token: String
    /// Milliseconds since 1970.
    package let now: Int64
    package var record = DeviceRecord()
    package var results: [(queue: String, result: StoredResult)] = []
    /// The number of results that were examined.
    package var searched = 0
    package var jobs: [JobRow] = []
    package var dead: [DeadLetterRow] = []
    /// True if a search ended early because its time was over.
    package var isPartial = false

    package init(token: String, now: Int64) {
        self.token = token
        self.now = now
    }

    /// The maximum number of results of a queue that are examined.
    private static let maximumResults = 100_000

    /// Searches one queue's jobs, results and dead letters.
    /// - Parameters:
    ///   - client: a client of the server that has the queue's results and dead letters.
    ///   - limit: the maximum number of results, of jobs and of dead letters.
    ///   - time: the time limit; `nil` to search everything.
    /// - Throws: `RedisError`, or `QueueConnection.Failure`.
    package mutating func search(
        _ jobs: QueueJobs, _ client: RedisClient, limit: Int, for time: Duration? = nil
    ) async throws {
        let keys = jobs.keys
        var filter = JobFilter()
        filter.tokens = [token]
        // A third for each search, so that each can begin.
        func end() -> ContinuousClock.Instant? { time.map { .now + $0 / 3 } }
        let listing = try await jobs.list(filter, limit: limit, until: end())
        isPartial = isPartial || listing.cursor != nil && listing.jobs.count < limit
        self.jobs += listing.jobs.prefix(limit).map { JobRow(queue: keys.queue, job: $0, now: listing.now) }
        let results = try await StoredResult.of(
            token: token, limit: limit, lookingAt: Self.maximumResults, until: end(), client, keys)
        isPartial = isPartial || results.isPartial
        self.results += results.results.map { (keys.queue, $0) }
        searched += results.looked
        var only = DeadLetterFilter()
        only.tokens = TokenText.forms(ofHex: token)
        var sweep = DeadLetterSweep(DeadLetters(client, keys), .list, only)
        sweep.newestFirst = true
        sweep.lower(limit)
        if let end = end() { sweep.isInterrupted = { .now >= end } }
        var dead: [DeadLetterRow] = []
        try await sweep.run { page, _ in dead += page.letters.map { DeadLetterRow($0, queue: keys.queue) } }
        self.dead += dead
        isPartial = isPartial || sweep.tally.isInterrupted
    }

    // MARK: For programs

    package var json: String {
        get throws {
            var record = record
            if let until = record.throttledUntil, until <= now { record.throttledUntil = nil }
            var members = ["\"token\":\(try JSONLine.text(token))"] + (try record.members)
            members.append("\"results\":[\(results.map(Self.object).joined(separator: ","))]")
            if isPartial { members.append("\"partial\":true") }
            members.append("\"results_searched\":\(searched)")
            members.append("\"jobs\":[\(try jobs.map { try $0.json(nil) }.joined(separator: ","))]")
            members.append(
                "\"dead_letters\":[\(try dead.map { try $0.json(isWhole: false) }.joined(separator: ","))]")
            return "{\(members.joined(separator: ","))}"
        }
    }

    private static func object(_ queue: String, _ result: StoredResult) -> String {
        var json = ByteBuffer()
        ResultLine(queue: queue, result: result).writeJSON(to: &json, without: ["entry", "token"])
        return String(buffer: json)
    }
}
