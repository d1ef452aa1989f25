import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

/// A dead letter as it is shown.
package struct DeadLetterRow {
    private struct Header: Decodable {
        let reason: String
        let attempts, status, requeues, size: Int?
        let enqueued: Int64?
        let id, app, campaign, error, detail, claim: String?
        let labels: [String: String]?
        let tokens: [String]?
    }

    package static let titles = ["QUEUE", "TIME", "AGE", "KEY", "REASON", "APP", "ID", "ATTEMPTS", "ERROR"]

    package let queue: String
    package let key: String
    package let at: Int64
    private let header: Header?
    /// The job as its producer wrote it; empty if only the header was read.
    package let original: ByteBuffer

    package init(_ listed: DeadLetters.Listed, queue: String) {
        self.queue = queue
        key = listed.key
        at = listed.at
        original = listed.letter.original
        do {
            header = try JSONDecoder().decode(Header.self, from: Data(listed.letter.header.readableBytesView))
        } catch {
            // Shown as unreadable: another program has written it.
            header = nil
        }
    }

    package var reason: String { header?.reason ?? "Unreadable" }

    /// The app that the job names.
    package var app: String? { header?.app }
    /// The ID of the job.
    package var id: String? { header?.id }
    /// The campaign of the job.
    package var campaign: String? { header?.campaign }

    /// Returns the cells of a table's row, which are printable.
    package func cells(now: Int64) -> [String] {
        let attempts = header?.attempts.map(String.init) ?? "-"
        let cells = [
            queue, Moment.text(at), Moment.age(now - at), key, reason, header?.app ?? "-", header?.id ?? "-", attempts,
            error,
        ]
        return cells.map(\.printable)
    }

    /// The last error, its detail and the number of devices; `-` if there is none.
    package var error: String {
        let tokens = header?.tokens.map { "\($0.count) token\($0.count == 1 ? "" : "s")" }
        let parts = [
            header?.status.map(String.init), header?.error, header?.detail, tokens,
            header?.requeues.map { "requeued \($0) times before" },
        ]
        let text = parts.compactMap { $0 }.joined(separator: ", ")
        return text.isEmpty ? "-" : text
    }

    private var labels: String? {
        header?.labels.map { $0.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ") }
    }

    /// Returns the known facts for people, as names and values.
    package func facts(now: Int64) -> [(name: String, value: String)] {
        let members: [(String, String?)] = [
            ("queue", queue), ("key", key), ("time", "\(Moment.text(at)), \(Moment.age(now - at)) ago"),
            ("reason", reason), ("app", header?.app), ("id", header?.id), ("campaign", header?.campaign),
            ("labels", labels), ("attempts", header?.attempts.map(String.init)),
            ("status", header?.status.map(String.init)), ("error", header?.error), ("detail", header?.detail),
            ("requeued", header?.requeues.map { "\($0) times before" }),
            ("first seen", header?.enqueued.map(Moment.text)), ("claim", header?.claim),
            ("tokens", header?.tokens?.joined(separator: " ")),
            ("job", "\(original.readableBytes) bytes"),
        ]
        return members.compactMap { name, value in value.map { (name, $0) } }
    }

    /// Returns the facts, one per line, and the job.
    package func page(now: Int64) -> String {
        let lines = facts(now: now).map { $0.name.padded(to: 12) + $0.value.printable + "\n" }
        let job = String(decoding: original.readableBytesView, as: UTF8.self)
        return lines.joined() + "\n" + job.printable + "\n"
    }

    private struct Object: Encodable {
        let queue, key, reason: String
        let at: Int64
        let attempts, status, requeues, size: Int?
        let enqueuedAt: Int64?
        let id, app, campaign, error, detail, claim: String?
        let labels: [String: String]?
        let tokenCount: Int?
        let tokens: [String]?
        let job: String?
        let jobBase64: String?

        enum CodingKeys: String, CodingKey {
            case queue, key, reason, at, attempts, status, requeues, size, id, app, campaign, labels, error, detail
            case claim, tokens, job
            case enqueuedAt = "enqueued_at"
            case tokenCount = "token_count"
            case jobBase64 = "job_base64"
        }
    }

    /// Returns a line of JSON.
    /// - Parameter isWhole: true to include the tokens and the job, as text if it is UTF-8, else as base64.
    package func json(isWhole: Bool) throws -> String {
        let bytes = original.readableBytesView
        let job = isWhole ? String(validating: bytes, as: UTF8.self) : nil
        return try JSONLine.text(
            Object(
                queue: queue, key: key, reason: reason, at: at, attempts: header?.attempts,
                status: header?.status, requeues: header?.requeues, size: header?.size, enqueuedAt: header?.enqueued,
                id: header?.id, app: header?.app, campaign: header?.campaign, error: header?.error,
                detail: header?.detail, claim: header?.claim, labels: header?.labels,
                tokenCount: header?.tokens?.count, tokens: isWhole ? header?.tokens : nil, job: job,
                jobBase64: isWhole && job == nil ? Data(bytes).base64EncodedString() : nil))
    }
}
