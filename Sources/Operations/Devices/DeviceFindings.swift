import NIOCore
import PrintableText
import PushQueue
import Redis

/// The marks, jobs, results and dead letters of a device, for an operator.
package struct DeviceFindings: Sendable {
    package let token: String
    /// Milliseconds since 1970.
    package let now: Int64
    package var record = DeviceRecord()
    package var results: [(queue: String, result: StoredResult)] = []
    package var searched = 0
    package var jobs: [JobRow] = []
    package var dead: [DeadLetterRow] = []
    /// True if a search ended early because its time was over.
    package var isPartial = false
    /// The results that each queue keeps; `nil` if that is not known.
    package var kept: [String: ResultsKept?] = [:]
    /// The queues with older results that were not searched.
    package var unsearched: [String] = []

    /// The gaps in the findings, as clauses.
    package var gaps: [String] {
        var gaps = ResultsKept.gaps(kept)
        if !unsearched.isEmpty {
            let place = kept.count == 1 ? "" : " of \(unsearched.joined(separator: ", "))"
            gaps.append("only the newest \(Words.number(Self.maximumResults)) results\(place) were searched")
        }
        return gaps
    }

    package init(token: String, now: Int64) {
        self.token = token
        self.now = now
    }

    /// The maximum number of results of a queue that are examined.
    fileprivate static let maximumResults = 100_000

    /// Adds the jobs, results and dead letters of one queue.
    /// - Parameters:
    ///   - limit: the maximum number of results, of jobs and of dead letters.
    ///   - time: the time limit; `nil` to search everything.
    /// - Throws: `RedisError`, or `QueueFailure`.
    package mutating func search(_ jobs: QueueJobs, limit: Int, for time: Duration? = nil) async throws {
        let (client, keys) = (jobs.client, jobs.keys)
        var filter = JobFilter()
        filter.tokens = [token]
        // Each of the three searches gets a third of the time.
        func end() -> ContinuousClock.Instant? { time.map { .now + $0 / 3 } }
        let listing = try await jobs.list(filter, limit: limit, until: end())
        isPartial = isPartial || listing.cursor != nil && listing.jobs.count < limit
        var rows = listing.jobs.prefix(limit).map { JobRow(queue: keys.queue, job: $0, now: listing.now) }
        try await JobRow.findReplacements(of: &rows, client, keys)
        self.jobs += rows
        var found: [StoredResult] = []
        let (looked, rest) = try await ResultPage.newest(
            lookingAt: Self.maximumResults, until: end(), client, keys
        ) { page in
            let own = page.filter { $0["token"].map { $0 == token || TokenText.normalized($0) == token } ?? false }
            found += own.prefix(limit - found.count)
            return found.count < limit
        }
        isPartial = isPartial || rest == .time
        if rest == .number { unsearched.append(keys.queue) }
        kept[keys.queue] = .some(jobs.resultsKept)
        results += found.map { (keys.queue, $0) }
        searched += looked
        var only = DeadLetterFilter()
        only.tokens = [token]
        var sweep = DeadLetterSweep(DeadLetters(client, keys), .list, only)
        sweep.newestFirst = true
        sweep.lower(limit)
        if let end = end() { sweep.isInterrupted = { .now >= end } }
        var dead: [DeadLetterRow] = []
        try await sweep.run { page, _ in dead += page.letters.map { DeadLetterRow($0, queue: keys.queue) } }
        self.dead += dead
        isPartial = isPartial || sweep.tally.isInterrupted
    }
}

extension DeviceFindings: Shown {
    package static let columns = Columns<Self>(
        "Device", "A device.", commands: ["device show"], isSorted: false,
        [.init("token", "Device token.", as: .key, \.token)]
            + DeviceRecord.columns {
                var record = $0.record
                if let until = record.throttledUntil, until <= $0.now { record.throttledUntil = nil }
                return record
            } + [
                .init("results", "Results, the newest of each queue first, without `entry` and `token`.") {
                    $0.results.map { queue, result in
                        var line = ResultLine(queue: queue, result: result)
                        line.omitted = ["entry", "token"]
                        return line
                    }
                },
                .init(
                    "partial",
                    "True if a search ended early because its time was over, or if a queue could not be read."
                ) {
                    $0.isPartial ? true : nil
                },
                .init("gaps", "Limits of what the other members show, as sentences.") {
                    $0.gaps.isEmpty ? nil : $0.gaps
                },
                .init("results_searched", "Number of results that were searched.", as: .count, \.searched),
                .init("jobs", "Unfinished jobs for it.", \.jobs),
                .init("dead_letters", "Dead letters of jobs for the device.", \.dead),
            ])
}

/// The device tokens in Redis that begin with some digits. Operators need them because logs and pages show only the beginning of a token.
package struct TokenMatches: Sendable {
    /// Lower-case hex, at least ``TokenText/shownDigits`` digits.
    package let beginning: String
    /// The tokens in lower-case hex, at most ``limit``. Tokens with the newest results come first.
    package private(set) var tokens: [String] = []
    /// The numbers of examined results, jobs and dead letters.
    package private(set) var results = 0, jobs = 0, letters = 0
    /// True if a search ended early because its time was over, or because there are more tokens.
    package private(set) var isPartial = false

    package static let limit = 20

    /// - Returns: `nil` for a text that is not the beginning of a token.
    package init?(_ beginning: String) {
        guard beginning.isHexadecimal, (TokenText.shownDigits..<TokenText.wholeDigits).contains(beginning.utf8.count)
        else { return nil }
        self.beginning = beginning.lowercased()
    }

    /// Returns the hex of a token, or of a token's beginning as people see it, perhaps with an ellipsis.
    package static func digits(of text: String) -> String {
        let ellipsis = ["…", "..."].first { text.hasSuffix($0) } ?? ""
        return TokenText.normalized(String(text.dropLast(ellipsis.count)))
    }

    /// Adds a token if it begins with the digits.
    mutating func add(_ text: String) {
        let token = TokenText.normalized(text)
        guard token.hasPrefix(beginning), TokenText.isToken(token), !tokens.contains(token) else { return }
        if tokens.count < Self.limit { tokens.append(token) } else { isPartial = true }
    }

    /// Searches the set of invalid tokens. Redis compares the tokens of one shard.
    /// - Parameter time: the time limit; `nil` to search everything.
    /// - Throws: `QueueFailure`.
    package mutating func search(_ invalidTokens: InvalidTokenClient, for time: Duration?) async throws {
        let end = time.map { ContinuousClock.now + $0 }
        var cursor: String?
        repeat {
            let page = try await invalidTokens.scan(
                after: cursor, count: 5000, withDetails: false, beginning: beginning)
            for listed in page.tokens { add(String(buffer: listed.token)) }
            cursor = page.cursor
            if cursor != nil, let end, .now >= end {
                isPartial = true
                return
            }
        } while cursor != nil && tokens.count < Self.limit
    }

    /// Searches one queue's results, jobs and dead letters.
    /// - Parameter time: the time limit; `nil` to search everything.
    /// - Throws: `RedisError`, or `QueueFailure`.
    package mutating func search(_ queue: QueueJobs, for time: Duration?) async throws {
        // Each of the three searches gets a third of the time.
        func end() -> ContinuousClock.Instant? { time.map { .now + $0 / 3 } }
        var found = self
        let looked = try await ResultPage.newest(
            lookingAt: DeviceFindings.maximumResults, until: end(), queue.client, queue.keys
        ) { page in
            for token in page.compactMap({ $0["token"] }) { found.add(token) }
            return found.tokens.count < Self.limit
        }
        found.results += looked.looked
        found.isPartial = found.isPartial || looked.rest != nil
        let endOfJobs = end()
        found.jobs += try await queue.sweep(JobFilter()) { _, page, _ in
            for token in page.flatMap(\.tokens) { found.add(String(buffer: token)) }
            guard let endOfJobs, .now >= endOfJobs else { return found.tokens.count < Self.limit }
            found.isPartial = true
            return false
        }
        var sweep = DeadLetterSweep(DeadLetters(queue.client, queue.keys), .show, DeadLetterFilter())
        sweep.newestFirst = true
        if let end = end() { sweep.isInterrupted = { .now >= end } }
        try await sweep.run { page, _ in
            for letter in page.letters.map(\.letter.original) {
                let job = StoredJob(letter, size: letter.readableBytes, format: queue.format)
                for token in job.tokens { found.add(String(buffer: token)) }
            }
        }
        found.letters += sweep.tally.looked
        found.isPartial = found.isPartial || sweep.tally.isInterrupted
        self = found
    }
}
