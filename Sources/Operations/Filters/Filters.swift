import PrintableText
import PushJob
import PushQueue
import Redis

// The filters of commands, pages and the API, read from their fields.

extension JobFilter {
    /// The names of its fields.
    package static let fieldNames = [
        "state", "key", "id", "token", "app", "topic", "campaign", "reason", "match", "since", "until", "due_before",
    ]

    /// - Parameter now: the time from which durations count back, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        self.init()
        for name in try fields.texts("state").flatMap({ $0.split(separator: ",", omittingEmptySubsequences: false) }) {
            guard let state = StoredJob.State(rawValue: String(name)) else {
                let known = StoredJob.State.allCases.map(\.rawValue)
                let hint = String(name).nearest(of: known).map { "; did you mean \($0)?" } ?? ""
                throw FieldMistake { _ in
                    "\(String(name).printable) is not a state; states are \(known.joined(separator: ", "))\(hint)"
                }
            }
            states.insert(state)
        }
        keys = Set(try fields.keys())
        ids = Set(try fields.texts("id"))
        // Channels are compared as they are.
        tokens = Set(try fields.tokens().flatMap { [$0, TokenText.normalized($0)] })
        apps = Set(try fields.texts("app"))
        topics = Set(try fields.texts("topic"))
        campaigns = Set(try fields.texts("campaign"))
        reasons = try fields.texts("reason")
        texts = try fields.texts("match")
        (since, until) = try fields.range(now: now)
        guard let text = fields["due_before"] else { return }
        dueBefore = JobTime.milliseconds(text) ?? DurationText.milliseconds(text).map { now + Int64($0) }
        if dueBefore == nil {
            throw FieldMistake {
                "\($0("due_before")) must be a time such as 2026-11-21T08:00:00Z, seconds since 1970, or a duration such as 2h,"
                    + " not \(text.printable)"
            }
        }
    }
}

extension JobFilter {
    /// Says that no job matches.
    /// - Parameters:
    ///   - looked: the number of jobs that were examined.
    ///   - queues: the number of queues.
    package func nothingFound(looked: Int, queues: Int) -> String {
        let place = queues == 1 ? "the queue" : "the \(queues) queues"
        return looked == 0 && matchesAll
            ? "\(place) \(queues == 1 ? "has" : "have") no such jobs"
            : "no job matches (\(Words.number(looked)) searched in \(place))"
    }
}

extension DeadLetterFilter {
    package static let fieldNames = ["key", "id", "token", "app", "campaign", "reason", "error", "since", "until"]

    /// - Parameter now: the time from which durations count back, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        self.init()
        keys = try fields.keys()
        ids = try fields.texts("id")
        apps = try fields.texts("app")
        campaigns = try fields.texts("campaign")
        // Producers write tokens in several ways, and dead letters keep what they wrote.
        tokens = try fields.tokens().flatMap { TokenText.forms(ofHex: TokenText.normalized($0)) }
        reasons = try fields.texts("reason")
        errors = try fields.texts("error")
        (since, until) = try fields.range(now: now)
    }

    /// The same dead letters, without those that are added after a time.
    func bounded(by time: Int64) -> DeadLetterFilter {
        var bounded = self
        bounded.until = min(until ?? time, time)
        return bounded
    }
}

extension ResultFilter {
    package init(_ fields: Fields) throws(FieldMistake) {
        self.init()
        outcomes = Set(try fields.texts("outcome"))
        let known = Outcome.allCases.map(\.rawValue)
        if let wrong = outcomes.first(where: { !known.contains($0) }) {
            throw FieldMistake {
                "\($0("outcome")) is \(wrong.printable); it must be \(known.joined(separator: ", "))"
            }
        }
        ids = Set(try fields.texts("id"))
        tokens = Self.forms(of: try fields.tokens())
        reasons = try fields.texts("reason")
        apps = Set(try fields.texts("app"))
        campaigns = Set(try fields.texts("campaign"))
        events = Set(try fields.texts("event"))
        attempt = try fields.number("attempt", 0...Int(Int32.max))
    }

    /// Returns tokens as results have them: as they were sent, or as the job has them if they are not valid.
    package static func forms(of tokens: [String]) -> Set<String> {
        Set(tokens.flatMap { [$0, TokenText.normalized($0)] })
    }
}

extension InvalidTokenFilter {
    package static let fieldNames = ["topic", "reason", "source", "environment", "since", "until"]

    /// - Parameter now: the time from which durations count back, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        let sources = try fields.texts("source")
        if let wrong = sources.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw FieldMistake { "\($0("source")) must be apns, gateway, feedback or import, not \(wrong.printable)" }
        }
        let (earliest, latest) = try fields.range(now: now)
        self.init(
            topics: try fields.texts("topic"), reasons: try fields.texts("reason"), sources: sources,
            environments: try fields.texts("environment"), earliest: earliest, latest: latest)
    }
}

extension Fleet {
    /// Redis' time in milliseconds since 1970: of the server of the first of some queues, or of the shared keys.
    package func now(of queues: [QueueKeys] = []) async throws -> Int64 {
        try await client(for: queues.first?.retry ?? sharedKeys.audit).time()
    }
}
