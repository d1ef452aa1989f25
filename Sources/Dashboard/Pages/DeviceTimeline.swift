import NIOCore
import Operations
import PushQueue
import WebPages

/// The past and future pushes to a device, the latest first.
struct DeviceTimeline {
    /// A past or future event of the device, such as a push.
    struct Entry {
        /// Milliseconds since 1970; `nil` if unknown. For a job that can be sent now, it is the present.
        var at: Int64?
        /// The outcome or the state, shown as a label.
        var word: String
        var tone: Elements.Tone
        /// Details, such as the attempt.
        var text: String = ""
        /// The reason's code, which has an explanation.
        var reason: String?
        var queue: String?
        var app: String?
        var campaign: String?
        var id: String?
        /// The page of the job or the dead letter, and its key.
        var page: (segments: [String], state: String?, key: String)?
    }

    let entries: [Entry]
    let now: Int64

    init(_ findings: DeviceFindings) {
        now = findings.now
        var entries = findings.jobs.map { Self.entry($0, now: findings.now) }
        var letters = findings.dead
        for (queue, result) in findings.results {
            var entry = Self.entry(queue, result)
            // A settlement writes the result and the dead letter of a job in one step, so they become one entry.
            if let index = letters.firstIndex(where: { Self.isSame($0, entry) }) {
                let letter = letters.remove(at: index)
                (entry.page, entry.text) = (Self.page(of: letter), letter.error ?? "")
            }
            entries.append(entry)
        }
        entries += letters.map(Self.entry)
        entries += Self.entries(findings.record, now: findings.now)
        // Entries of the same time keep the order above.
        self.entries = entries.enumerated().sorted {
            ($1.element.at ?? .min, $0.offset) < ($0.element.at ?? .min, $1.offset)
        }.map(\.element)
    }

    var future: ArraySlice<Entry> { entries.prefix { ($0.at ?? .min) > now } }
    /// The entries up to now.
    var past: ArraySlice<Entry> { entries.dropFirst(future.count) }

    // MARK: Entries

    private static func entry(_ row: JobRow, now: Int64) -> Entry {
        let job = row.job
        let isDue = job.due.map { $0 <= now } ?? true
        var words: [String] =
            switch job.state {
            case .claimed: ["claimed by lane \(job.lane ?? "?")"]
            case .waiting: ["waits for a worker"]
            case .retrying: ["attempt \(job.envelope.attempt)"]
            case .scheduled: ["not before its send_at"]
            case .deferred: ["has not failed"]
            }
        if let due = job.due, isDue { words.append("due for \(Words.duration(now.since(due)))") }
        if let error = row.error { words.append("last error \(error)") }
        if let deferral = row.deferral { words.append("deferred \(deferral)") }
        if let other = row.replacedBy { words.append("to be dropped, because \(other.shown) has replaced it") }
        if job.tokens.count > 1 { words.append("one of \(Words.number(job.tokens.count)) devices") }
        return Entry(
            at: isDue ? now : job.due, word: job.state.rawValue, tone: JobsPage.tone(job.state),
            text: words.joined(separator: ", "), queue: row.queue, app: job.app?.text, campaign: job.campaign?.text,
            id: job.id?.text, page: (["jobs", row.queue, job.key], job.state.rawValue, job.key))
    }

    private static func entry(_ queue: String, _ result: StoredResult) -> Entry {
        let outcome = result["outcome"] ?? "unknown"
        let attempts = result["attempt"].flatMap { Int($0) }.map { $0 > 1 ? "after \($0) attempts" : "" } ?? ""
        let status = result["status"].map { $0 == "200" ? "" : "status \($0)" } ?? ""
        return Entry(
            at: result.time, word: outcome, tone: tone(ofOutcome: outcome),
            text: [status, attempts, result["replaced_by"].map { "replaced by \($0.shown)" } ?? ""].filter {
                !$0.isEmpty
            }.joined(separator: ", "), reason: result["reason"],
            queue: queue, app: result["app"], campaign: result["campaign"], id: result["id"])
    }

    private static func entry(_ letter: DeadLetterRow) -> Entry {
        let isCancelled = letter.reason == DeadLetter.cancelledReason
        return Entry(
            at: letter.at, word: isCancelled ? "cancelled" : "dead", tone: isCancelled ? .plain : .bad,
            text: letter.error ?? "", reason: letter.reason, queue: letter.queue,
            app: letter.app, campaign: letter.campaign, id: letter.id, page: page(of: letter))
    }

    private static func page(of letter: DeadLetterRow) -> (segments: [String], state: String?, key: String) {
        (["dead", letter.queue, letter.key], nil, letter.key)
    }

    /// Returns true if a dead letter and the entry of a result come from the same settlement.
    private static func isSame(_ letter: DeadLetterRow, _ entry: Entry) -> Bool {
        ["dead", "cancelled"].contains(entry.word) && entry.page == nil && entry.queue == letter.queue
            && entry.id == letter.id && entry.reason == letter.reason
            && entry.at.map { abs($0 - letter.at) <= 1000 } ?? false
    }

    private static func entries(_ record: DeviceRecord, now: Int64) -> [Entry] {
        var entries: [Entry] = []
        if let until = record.throttledUntil, until > now {
            entries.append(
                Entry(
                    at: until, word: "throttle ends", tone: .warning,
                    text: "APNs refused too many requests to this device; its jobs wait until then"))
        }
        for mark in record.marks {
            let invalid = mark.details
            let facts = [
                invalid.source.map { "reported by \($0.text)" }, invalid.topic.map { "topic \($0.text)" },
                invalid.environment?.text, mark.set.name == nil ? "only for this topic" : nil,
            ].compactMap(\.self)
            entries.append(
                Entry(
                    at: invalid.at, word: "marked invalid", tone: .bad, text: facts.joined(separator: ", "),
                    reason: invalid.reason?.text))
        }
        if let registered = record.registeredAt {
            entries.append(
                Entry(at: registered, word: "registered", tone: .good, text: "its last known registration"))
        }
        return entries
    }

    static func tone(ofOutcome outcome: String) -> Elements.Tone {
        switch outcome {
        case "delivered": .good
        case "dead", "invalid_token": .bad
        case "cancelled", "suppressed", "dropped": .plain
        default: .warning
        }
    }

    /// Returns the meaning of the word of an entry; `nil` for a word that needs no explanation.
    static func meaning(of word: String) -> String? {
        switch word {
        case "waiting": "The job waits in its queue, and no worker has claimed it"
        case "claimed": "A worker has claimed the job and sends it"
        case "retrying": "The push failed, and is tried again at this time"
        case "scheduled": "The job's producer has set the time"
        case "deferred": "The push could not be sent, for example because its app was paused; no attempt was spent"
        case "invalid_token": "APNs refused the token"
        case "suppressed": "The push was not sent, because the token was known to be invalid"
        case "dropped":
            "The push was not sent (again): its job asks for that, the job is a duplicate, or a newer job has replaced it"
        case "dead": "The job can't be delivered as it is, and is kept as a dead letter"
        case "marked invalid": "Nothing is sent to the token for this topic"
        default: nil
        }
    }

    // MARK: The verdict

    /// Returns the most important fact about a device in a sentence or two, and its tone.
    static func verdict(_ findings: DeviceFindings) -> (sentence: String, tone: Elements.Tone) {
        let now = findings.now
        let jobs = pending(findings.jobs, now: now)
        func sentence(_ text: String, _ tone: Elements.Tone) -> (String, Elements.Tone) {
            ([text, jobs].filter { !$0.isEmpty }.joined(separator: " "), tone)
        }
        if let mark = findings.record.marks.first(where: { !$0.set.isEmpty }) {
            let reason = mark.details.reason.map { ": \($0.text)" } ?? ""
            let since = Words.since(mark.details.at, now: now)
            let end = mark.set == .sandbox ? " in the sandbox" : ""
            return sentence("Invalid\(since)\(reason). Nothing is sent to it\(end).", .bad)
        }
        if let topic = findings.record.marks.compactMap(\.details.topic).first {
            return sentence("Invalid only for another topic: \(topic.text).", .warning)
        }
        if let until = findings.record.throttledUntil, until > now {
            return sentence("APNs throttles it for another \(Words.duration(until.since(now))).", .warning)
        }
        let ends = DeviceTimeline(findings).past.filter { isEnd($0.word) }
        // If the answer may be incomplete, the sentence names the first reason.
        let gap = findings.gaps.first.map { " \($0.asSentence)" } ?? ""
        let isComplete = gap.isEmpty && !findings.isPartial
        guard let last = ends.first else {
            if !jobs.isEmpty { return ("No push to it is known to have ended.\(gap) \(jobs)", .plain) }
            let searched = findings.isPartial ? " in what was searched" : ""
            guard findings.record.registeredAt == nil else {
                return ("It is registered, and no push to it is recorded\(searched).\(gap)", .plain)
            }
            return (
                isComplete ? "Nothing is known about the device." : "No push to it is recorded\(searched).\(gap)",
                .plain
            )
        }
        let age = last.at.map { " \(Words.duration(max(0, now.since($0)))) ago" } ?? ""
        let reason = last.reason.map { ": \($0)" } ?? ""
        let text =
            switch last.word {
            case "delivered": "was delivered\(age)."
            case "invalid_token": "was refused\(age)\(reason). The token is not in the set of invalid tokens."
            case "dead": "became a dead letter\(age)\(reason)."
            case "expired": "expired\(age), before it could be sent."
            case "suppressed", "dropped", "cancelled": "was \(last.word)\(age)\(reason)."
            default: "ended\(age)\(reason)."
            }
        guard !isComplete else { return sentence("Its last push \(text)", last.tone) }
        let (known, tone) = last.word == "delivered" ? ("", last.tone) : (gap, Elements.Tone.warning)
        return sentence(
            "The last push to it that \(findings.isPartial ? "was found" : "is recorded") \(text)\(known)", tone)
    }

    /// Returns true if the word of an entry is an outcome.
    private static func isEnd(_ word: String) -> Bool {
        !["marked invalid", "registered", "throttle ends"].contains(word)
            && StoredJob.State(rawValue: word) == nil
    }

    private static func pending(_ jobs: [JobRow], now: Int64) -> String {
        guard !jobs.isEmpty else { return "" }
        let text = "\(Words.count(jobs.count, "job")) \(jobs.count == 1 ? "is" : "are") still to be sent"
        let next = jobs.map { max($0.job.due ?? now, now) }.min() ?? now
        return next > now ? "\(text), the next in \(Words.duration(next.since(now)))." : "\(text)."
    }
}
