import NIOCore
import PrintableText
import PushJob
import PushQueue

/// Selects jobs. For each property that has values, a job must match one of them.
package struct JobFilter: Sendable, Equatable {
    /// The states of the jobs; empty for all.
    package var states: Set<StoredJob.State> = []
    /// Keys, as ``StoredJob/key``.
    package var keys: Set<String> = []
    package var ids: Set<Name> = []
    /// Device tokens in lower-case hex, or channels.
    package var tokens: Set<String> = []
    package var apps: Set<Name> = []
    package var topics: Set<Name> = []
    package var campaigns: Set<Name> = []
    package var fair: Set<Name> = []
    /// Labels, such as `country=de`.
    package var labels: Set<Name> = []
    /// Reasons of the last failure; a `*` at the end matches any ending.
    package var reasons: [String] = []
    /// Texts that occur in the producer's bytes, ignoring the case of ASCII letters.
    package var texts: [String] = []
    /// The range of the times at which jobs were enqueued or, if that is unknown, first claimed, in milliseconds since 1970. Jobs of
    /// unknown age match no range.
    package var since: Int64?
    package var until: Int64?
    /// The next attempt is due before this time, in milliseconds since 1970.
    package var dueBefore: Int64?

    package init() {}

    package static let fields =
        [
            Field("state", .texts, "Jobs in these states.", words: StoredJob.State.allCases.map(\.rawValue)),
            Field("key", .texts, "Job with this key, as `jobs list` shows it."),
            Field("id", .texts, "Jobs with this ID."),
            Field("token", .texts, "Jobs for this device token, in hex or base64, or for this channel."),
            Field("app", .texts, "Jobs that name this app."), Field("topic", .texts, "Jobs that name this topic."),
            Field("campaign", .texts, "Jobs of this campaign."),
            Field("fair", .texts, "Jobs with this `fair`."),
            Field("label", .texts, "Jobs with this label, as in country=de."),
            Field("reason", .texts, "Jobs whose last failure or deferral has this reason, or prefix as in Too*."),
            Field("match", .texts, "Jobs that contain this text as the producer wrote it, ignoring case."),
        ] + Field.range("Jobs", ", by `enqueued_at` or the first claim") + [
            Field(
                "due_before", .text,
                "Jobs that are due before this time: ISO 8601, seconds since 1970, or a duration from now.")
        ]

    package static let fieldNames = fields.map(\.name)

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        self.init()
        for name in try fields.texts("state").flatMap({
            $0.trimmed.split(separator: ",", omittingEmptySubsequences: false)
        }) {
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
        ids = Set(try fields.names("id"))
        // The text itself is kept besides the normal form, because it may be a channel.
        tokens = Set(try fields.tokens().flatMap { [$0, TokenText.normalized($0)] })
        apps = Set(try fields.names("app"))
        topics = Set(try fields.names("topic"))
        campaigns = Set(try fields.names("campaign"))
        fair = Set(try fields.names("fair"))
        labels = Set(try fields.labels().map { Name($0) })
        reasons = try fields.texts("reason")
        texts = try fields.texts("match")
        (since, until) = try fields.range(now: now)
        guard let text = fields["due_before"]?.trimmed else { return }
        dueBefore = JobTime.milliseconds(text) ?? DurationText.milliseconds(text).map { now + Int64($0) }
        if dueBefore == nil {
            throw FieldMistake {
                "\($0("due_before")) must be a time such as 2026-11-21T08:00:00Z, seconds since 1970, or a duration such as 2h,"
                    + " not \(text.printable)"
            }
        }
    }

    /// Returns the sentence that no job matches.
    /// - Parameters:
    ///   - looked: the number of jobs that were examined.
    ///   - queues: the number of queues.
    package func nothingFound(looked: Int, queues: Int) -> String {
        let place = queues == 1 ? "the queue" : "the \(queues) queues"
        return looked == 0 && matchesAll
            ? "\(place) \(queues == 1 ? "has" : "have") no such jobs"
            : "no job matches (\(Words.number(looked)) searched in \(place))"
    }

    /// True if only ``states`` limits the jobs.
    package var matchesAll: Bool {
        var stateless = self
        stateless.states = []
        return stateless == JobFilter()
    }

    /// True if jobs are chosen by their ids alone.
    package var isOfIDs: Bool {
        var other = self
        other.ids = []
        return !ids.isEmpty && other == JobFilter()
    }

    /// True if jobs must be decoded to compare them.
    var readsJobs: Bool {
        !(ids.isEmpty && tokens.isEmpty && apps.isEmpty && topics.isEmpty && campaigns.isEmpty && fair.isEmpty
            && labels.isEmpty) || since != nil
            || until != nil
    }

    package func includes(_ state: StoredJob.State) -> Bool { states.isEmpty || states.contains(state) }

    /// - Parameter now: Redis' time in milliseconds since 1970.
    package func matches(_ job: StoredJob, now: Int64) -> Bool {
        guard includes(job.state) else { return false }
        if matchesAll { return true }
        if let dueBefore, (job.due ?? now) >= dueBefore { return false }
        if since != nil || until != nil {
            guard let at = job.enqueuedAt, at >= since ?? .min, at <= until ?? .max else { return false }
        }
        for (wanted, value) in [
            (ids, job.id), (apps, job.app), (topics, job.topic), (campaigns, job.campaign), (fair, job.fair),
        ]
        where !wanted.isEmpty {
            guard let value, wanted.contains(Name(value)) else { return false }
        }
        if !labels.isEmpty, !job.labels.contains(where: { labels.contains(Name("\($0.key)=\($0.value)")) }) {
            return false
        }
        if !reasons.isEmpty {
            guard [job.failure?.reason, job.deferral?.reason].contains(where: { $0.map(matches(reason:)) ?? false })
            else { return false }
        }
        if !tokens.isEmpty, !job.tokens.contains(where: matches(token:)) { return false }
        if !texts.isEmpty, !matches(text: job.original) { return false }
        return keys.isEmpty || keys.contains(job.key)
    }

    private func matches(reason: String) -> Bool {
        reasons.contains { $0.matches(reason: reason) }
    }

    private func matches(token: ByteBuffer) -> Bool {
        let text = String(buffer: token)
        return tokens.contains(text) || tokens.contains(TokenText.normalized(text))
    }

    private func matches(text original: ByteBuffer) -> Bool {
        original.withUnsafeReadableBytes { bytes in
            texts.contains { text in Array(text.utf8).withUnsafeBytes { bytes.contains(ignoringCase: $0) } }
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Returns true if a text occurs, ignoring the case of ASCII letters.
    fileprivate func contains(ignoringCase text: UnsafeRawBufferPointer) -> Bool {
        guard let first = text.first.map(Self.lowered) else { return true }
        guard count >= text.count else { return false }
        for start in 0...(count - text.count) where Self.lowered(self[start]) == first {
            var length = 1
            while length < text.count, Self.lowered(self[start + length]) == Self.lowered(text[length]) { length += 1 }
            if length == text.count { return true }
        }
        return false
    }

    private static func lowered(_ byte: UInt8) -> UInt8 { byte &- 0x41 < 26 ? byte | 0x20 : byte }
}
