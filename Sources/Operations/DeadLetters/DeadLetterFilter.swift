import PrintableText
import PushQueue
import Redis

/// Selects dead letters. For each property that has values, a dead letter must match one of them.
package struct DeadLetterFilter: Sendable, Equatable {
    /// Reasons such as `BadPayload`; a `*` at the end matches any ending.
    package var reasons: [String] = []
    /// Keys of dead letters, see ``DeadLetters/Listed/key``.
    package var keys: [String] = []
    package var ids: [String] = []
    package var apps: [String] = []
    package var campaigns: [String] = []
    package var fair: [String] = []
    /// Labels, such as `country=de`.
    package var labels: [String] = []
    /// Device tokens, in hex or base64.
    package var tokens: [String] = []
    /// Texts that occur in the error or its detail, ignoring case, and HTTP statuses.
    package var errors: [String] = []
    /// The range of the times at which jobs became dead letters, in milliseconds since 1970.
    package var since: Int64?
    package var until: Int64?

    package init() {}

    package static let fields =
        [
            Field("key", .texts, "Dead letter with this key, as `dead list` shows it."),
            Field("id", .texts, "Dead letters of the job with this ID."),
            Field("token", .texts, "Dead letters of jobs for this device token, in hex or base64."),
            Field("app", .texts, "Dead letters of jobs for this app."),
            Field("campaign", .texts, "Dead letters of jobs of this campaign."),
            Field("fair", .texts, "Dead letters of jobs with this `fair`."),
            Field("label", .texts, "Dead letters of jobs with this label, as in country=de."),
            Field("reason", .texts, "Dead letters with this reason, or prefix as in Bad*."),
            Field(
                "error", .texts,
                "Dead letters whose error contains this text, ignoring case, or whose status is this number."),
        ] + Field.range("Dead letters")

    package static let fieldNames = fields.map(\.name)

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        self.init()
        keys = try fields.keys()
        ids = try fields.texts("id")
        apps = try fields.texts("app")
        campaigns = try fields.texts("campaign")
        fair = try fields.texts("fair")
        labels = try fields.labels()
        tokens = try fields.tokens()
        reasons = try fields.texts("reason")
        errors = try fields.texts("error")
        (since, until) = try fields.range(now: now)
    }

    /// Returns the filter without dead letters that are added after a time.
    func bounded(by time: Int64) -> DeadLetterFilter {
        var bounded = self
        // The script refuses an `until` before `since`. If `since` is after `time`, the range is only `since`, and no dead letter is that
        // new yet.
        bounded.until = max(min(until ?? time, time), since ?? 0)
        return bounded
    }

    package var isEmpty: Bool { self == DeadLetterFilter() }

    /// True if it can match dead letters other than cancelled jobs.
    var matchesDead: Bool { reasons.isEmpty || reasons.contains { $0 != DeadLetter.cancelledReason } }

    /// True if the filter can match cancelled jobs: it has the reason `Cancelled`, or it has no reason but a key, an ID or a token.
    var matchesCancelled: Bool {
        guard reasons.isEmpty else { return reasons.contains(DeadLetter.cancelledReason) }
        return !(keys.isEmpty && ids.isEmpty && tokens.isEmpty)
    }

    /// Appends the names and values as `page.lua` reads them.
    func append(to command: inout RedisCommand) {
        for (name, values) in [
            ("reason", reasons), ("key", keys), ("id", ids), ("app", apps), ("campaign", campaigns),
            ("fair", fair), ("label", labels), ("token", tokens), ("error", errors),
        ] {
            for value in values {
                command.append(name)
                command.append(value)
            }
        }
        for (name, time) in [("since", since), ("until", until)] {
            guard let time else { continue }
            command.append(name)
            // The script reads 13 digits as milliseconds.
            command.append(max(0, min(time, 9_999_999_999_999)).digits(13))
        }
    }
}

extension DeadLetter {
    /// The reason that cancelled jobs have as dead letters.
    package static let cancelledReason = "Cancelled"
}
