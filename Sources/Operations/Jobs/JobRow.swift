import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// A job as it is shown.
package struct JobRow {
    package static let titles = [
        "STATE", "KEY", "AGE", "NEXT", "ATTEMPT", "APP", "ID", "CAMPAIGN", "TOKENS", "LAST ERROR", "DEFERRED",
    ]

    package let queue: String
    package let job: StoredJob
    package let now: Int64

    package init(queue: String, job: StoredJob, now: Int64) {
        self.queue = queue
        self.job = job
        self.now = now
    }

    /// The last failure, such as `503 ServiceUnavailable`.
    package var error: String? { Self.text(job.failure) }

    /// The reason of its deferral, such as `CampaignLimited`.
    package var deferral: String? { Self.text(job.deferral) }

    private static func text(_ cause: Envelope.Cause?) -> String? {
        let parts = [cause?.status.map(String.init), cause?.reason].compactMap { $0 }
        return parts.isEmpty ? nil : parts.joined(separator: " ")
    }

    /// The time of the next attempt, such as `in 3m`, `due` or `-`.
    private var next: String {
        guard let due = job.due else { return "-" }
        return due > now ? "in \(Moment.age(due - now + 999))" : "due"
    }

    /// The cells of a table's row, which are printable.
    package var cells: [String] {
        let tokens = job.tokens
        let first = tokens.first.map { String(String(buffer: $0).prefix(8)) + "…" } ?? "-"
        let age = job.enqueuedAt.map { Moment.age(now - $0) } ?? "?"
        let note = job.lane.map { "claimed by \($0)" } ?? error ?? (job.isValid ? "-" : "unreadable")
        let cells = [
            job.state.rawValue, job.key, age, next, "\(job.envelope.attempt)", Self.text(job.app), Self.text(job.id),
            Self.text(job.campaign), tokens.count > 1 ? "\(Words.number(tokens.count)) tokens" : first, note,
            deferral ?? "-",
        ]
        return cells.map { String($0.printable.prefix(120)) }
    }

    private static func text(_ value: ByteBuffer?) -> String { value.map { String(buffer: $0) } ?? "-" }

    /// Returns all facts and the job, for people.
    /// - Parameter verdicts: the findings of a check of the job.
    package func page(_ verdicts: [String]) -> String {
        func text(_ value: ByteBuffer?) -> String? { value.map { String(buffer: $0) } }
        func time(_ cause: Envelope.Cause?) -> String {
            cause?.at.map { ", \(Moment.text($0)), \(Moment.age(now - $0)) ago" } ?? ""
        }
        let members: [(String, String?)] = [
            ("key", job.key), ("queue", queue), ("state", job.state.rawValue), ("claimed by", job.lane),
            ("next attempt", job.due.map { $0 > now ? "\(Moment.text($0)), \(next)" : "due since \(Moment.text($0))" }),
            ("attempt", "\(job.envelope.attempt)"), ("last error", error.map { $0 + time(job.failure) }),
            ("deferred", deferral.map { $0 + time(job.deferral) }),
            ("first seen", job.enqueuedAt.map { "\(Moment.text($0)), \(Moment.age(now - $0)) ago" }),
            ("reclaimed", job.envelope.reclaims > 0 ? "\(job.envelope.reclaims) times" : nil),
            ("requeued", job.envelope.requeues > 0 ? "\(job.envelope.requeues) times" : nil),
            ("id", text(job.id)), ("app", text(job.app)), ("topic", text(job.topic)), ("campaign", text(job.campaign)),
            (
                "tokens",
                job.tokens.prefix(20).map { String(buffer: $0) }.joined(separator: " ")
                    + (job.tokens.count > 20 ? " and \(job.tokens.count - 20) more" : "")
            ),
            ("job", "\(job.original.readableBytes) bytes"),
        ]
        var page = ""
        for (name, value) in members {
            guard let value, !value.isEmpty else { continue }
            page += name.padded(to: 14) + value.printable + "\n"
        }
        for verdict in verdicts { page += "check".padded(to: 14) + verdict.printable + "\n" }
        return page + "\n" + String(decoding: job.original.readableBytesView, as: UTF8.self).printable + "\n"
    }

    private struct Object: Encodable {
        let queue, state, key: String
        let size, attempt, tokenCount: Int
        let enqueuedAt, dueAt, failedAt, deferredAt: Int64?
        let status, reclaims, requeues: Int?
        let id, app, topic, campaign, error, deferral, lane: String?
        let tokens: [String]?
        let job, jobBase64: String?
        let check: [Verdict]?
    }

    package struct Verdict: Encodable {
        package let level, sentence: String

        package init(level: String, sentence: String) {
            self.level = level
            self.sentence = sentence
        }
    }

    /// Returns a line of JSON.
    /// - Parameter verdicts: the findings of a check of the job; `nil` to omit the tokens and the job, too.
    package func json(_ verdicts: [Verdict]?) throws -> String {
        func text(_ value: ByteBuffer?) -> String? { value.map { String(buffer: $0) } }
        let bytes = job.original.readableBytesView
        let isWhole = verdicts != nil
        let original = isWhole ? String(validating: bytes, as: UTF8.self) : nil
        let failure = job.failure
        return try JSONLine.text(
            Object(
                queue: queue, state: job.state.rawValue, key: job.key, size: job.size, attempt: job.envelope.attempt,
                tokenCount: job.notifications, enqueuedAt: job.enqueuedAt, dueAt: job.due, failedAt: failure?.at,
                deferredAt: job.deferral?.at, status: failure?.status,
                reclaims: job.envelope.reclaims > 0 ? job.envelope.reclaims : nil,
                requeues: job.envelope.requeues > 0 ? Int(job.envelope.requeues) : nil, id: text(job.id),
                app: text(job.app), topic: text(job.topic), campaign: text(job.campaign), error: failure?.reason,
                deferral: job.deferral?.reason, lane: job.lane,
                tokens: isWhole ? job.tokens.map { String(buffer: $0) } : nil, job: original,
                jobBase64: isWhole && original == nil ? Data(bytes).base64EncodedString() : nil, check: verdicts),
            keys: .convertToSnakeCase)
    }
}
