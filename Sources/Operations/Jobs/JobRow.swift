import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// A job as it is shown.
package struct JobRow: Sendable {
    package let queue: String
    package let job: StoredJob
    package let now: Int64
    /// The ID or the campaign of the newer job that replaces this job; `nil` if no job does, or if this was not read.
    package var replacedBy: String?
    /// The findings of a check of the job, if it was checked.
    package var verdicts: [Verdict] = []

    package struct Verdict: Encodable, Sendable {
        /// `ok`, `warning` or `failure`.
        package let level, subject, sentence: String

        package init(level: String, subject: String, sentence: String) {
            (self.level, self.subject, self.sentence) = (level, subject, sentence)
        }
    }

    package init(queue: String, job: StoredJob, now: Int64) { (self.queue, self.job, self.now) = (queue, job, now) }

    /// Finds the replacements of a queue's jobs. A job that is scheduled cannot be replaced yet.
    /// - Throws: `RedisError`.
    package static func findReplacements(
        of rows: inout [JobRow], _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        let questions = rows.indices.compactMap { index -> (Int, NewestJob)? in
            let stored = rows[index].job
            guard stored.state != .scheduled, let job = stored.job else { return nil }
            return NewestJob(job, now: rows[index].now).map { (index, $0) }
        }
        guard !questions.isEmpty else { return }
        let values = try await client.call(NewestJob.reading(questions.map(\.1), keys)).root.children.map(\.bytes)
        for ((index, question), value) in zip(questions, values) {
            rows[index].replacedBy = question.replacement(by: value).map { String(buffer: $0) }
        }
    }

    /// The last failure, such as `503 ServiceUnavailable`.
    package var error: String? { Self.text(job.failure) }

    /// The reason of the job's deferral, such as `CampaignLimited`.
    package var deferral: String? { Self.text(job.deferral) }

    private static func text(_ cause: Envelope.Cause?) -> String? {
        let parts = [cause?.status.map(String.init), cause?.reason].compactMap { $0 }
        return parts.isEmpty ? nil : parts.joined(separator: " ")
    }

    /// The reason why the job is not sent yet; `nil` if it only waits.
    package var note: String? {
        job.lane.map { "claimed by \($0)" } ?? error ?? (job.isValid ? nil : "unreadable")
    }

    /// The time of the next attempt, such as `in 3m` or `due`.
    private var next: String? { job.due.map { $0 > now ? "in \(Moment.age($0.since(now - 999)))" : "due" } }

    /// The beginning of the job's only device token, or the number of tokens.
    package var device: String? {
        let tokens = job.tokens
        return tokens.count > 1
            ? Words.count(tokens.count, "token") : tokens.first.map { String(String(buffer: $0).prefix(8)) + "…" }
    }

    private var reclaims: Int? { job.envelope.reclaims > 0 ? job.envelope.reclaims : nil }
    private var requeues: Int? { job.envelope.requeues > 0 ? Int(job.envelope.requeues) : nil }

    private var firstTokens: String? {
        let (tokens, shown) = (job.tokens, 20)
        let more = tokens.count > shown ? " and \(tokens.count - shown) more" : ""
        return tokens.isEmpty ? nil : tokens.prefix(shown).map { String(buffer: $0) }.joined(separator: " ") + more
    }
}

extension JobRow: Shown {
    package static let columns = Columns<Self>(
        "Job", "A job.", commands: ["jobs list", "jobs show"],
        [
            .init("queue", "Queue.", as: .queue, in: .all, under: "State", \.queue),
            .init("state", "State:", as: .choice(StoredJob.State.self), in: .all, \.job.state.rawValue),
            .init("key", "Key by which commands and paths name the job.", as: .key, in: .all, \.job.key),
            .text("Age", as: .age, in: .table, \.job.enqueuedAt),
            .text("Next", in: .table, \.next),
            .init("lane", "Lane that has claimed the job.", title: "Claimed by", in: .facts, \.job.lane),
            .init(
                "due_at", "Time of the next attempt.", as: .time, title: "Next attempt", in: [.wide, .facts], \.job.due),
            .init(
                "attempt", "Number of attempts, counting the next one.", in: [.table, .widest, .facts],
                \.job.envelope.attempt),
            .init("app", "App that it names.", as: .app, in: [.table, .wide, .facts], \.job.app),
            .init("id", "ID.", as: .key, in: [.table, .facts], \.job.id),
            .init("topic", "Topic that it names.", in: .facts, \.job.topic),
            .init("campaign", "Campaign.", as: .campaign, in: [.table, .wide, .facts], under: "App", \.job.campaign),
            .init("fair", "Key by which the queue is shared fairly.", as: .plain, in: .facts, \.job.fair),
            .init("labels", "Labels.", in: .facts) { $0.job.labels.isEmpty ? nil : $0.job.labels },
            .init("replaces", "Key of which only the newest job is sent.", in: .facts, \.job.replaces),
            .init(
                "replaced_by", "ID or campaign of the newer job that replaces this job.",
                title: "Replaced by", in: .facts, isDetail: true, \.replacedBy),
            .text("Tokens", as: .key, in: [.table, .wide], \.device), .text("Last error", in: [.table, .wide], \.note),
            .text("Last error", in: .facts, \.error),
            .init("failed_at", "Time of the last failure.", as: .time, title: "Failed", in: .facts, \.job.failure?.at),
            .text("Deferred", in: [.table, .wide, .facts], \.deferral),
            .init("deferred_at", "Time since which the job is deferred.", as: .time, in: .facts, \.job.deferral?.at),
            .init(
                "enqueued_at", "Time at which the job was enqueued or first claimed.", as: .time, in: [.wide, .facts],
                under: "Next attempt",
                \.job.enqueuedAt),
            .init("status", "Status of the last failure.", \.job.failure?.status),
            .init("error", "Reason of the last failure.", \.job.failure?.reason),
            .init("deferral", "Reason why the job is deferred.", \.job.deferral?.reason),
            .init("reclaims", "Number of times that a lane reclaimed the job.", in: .facts, \.reclaims),
            .init("requeues", "Number of times that the job was requeued.", in: .facts, \.requeues),
            .text("Tokens", in: .facts, \.firstTokens),
            .init("token_count", "Number of notifications without an outcome.", \.job.notifications),
            .init("tokens", "Devices without an outcome, or the channel.", isDetail: true, \.job.tokens),
            .init("size", "Size of the stored job in bytes.", as: .bytes, in: .facts, \.job.size),
            .init("job", "Job as its producer wrote it, if it is UTF-8.", isDetail: true, \.job.original.utf8Text),
            .init(
                "job_base64", "Bytes of the job in base64, if it is not UTF-8.", isDetail: true,
                \.job.original.base64IfNotUTF8),
            .init("check", "Findings of a check.", isDetail: true, \.verdicts),
        ])
}

extension JobRow.Verdict: Shown {
    package static let columns = Columns<Self>(
        "Verdict", "A finding of a check.",
        [
            .init("level", "Level:", as: .choice(["ok", "warning", "failure"]), \.level),
            .init("sentence", "Finding.", \.sentence),
        ])
}

extension JobRow: Counted {
    package static let (things, narrowing) = ("jobs", "--id")
    package static let groups = [
        "state", "app", "campaign", "fair", labelGroup, "reason", "deferral", "topic", "queue",
    ]
    package var labels: [String: String]? { job.labels }

    /// The group `reason` is the reason of a job's last failure.
    package func group(_ name: String) -> String? { value(of: name == "reason" ? "error" : name) }

    /// Returns true if jobs must be decoded to count them by some columns.
    package static func mustRead(for groups: [String]) -> Bool {
        !Set(groups).isSubset(of: ["state", "reason", "deferral", "queue"])
    }
}
