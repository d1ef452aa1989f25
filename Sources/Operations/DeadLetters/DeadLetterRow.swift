import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// A dead letter as it is shown.
package struct DeadLetterRow: Sendable {
    private struct Header: Decodable, Sendable {
        let reason: String
        let attempts, status, requeues, size: Int?
        let enqueued: Int64?
        let id, app, campaign, fair, error, detail, claim: String?
        let labels: [String: String]?
        let tokens: [String]?
    }

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

    package var app: String? { header?.app }
    package var id: String? { header?.id }
    package var campaign: String? { header?.campaign }

    package var labels: [String: String]? { header?.labels }

    package var attempts: Int? { header?.attempts }

    /// The last error, its detail and the number of devices; `nil` without an error.
    package var error: String? {
        let parts = [
            header?.status.map(String.init), header?.error, header?.detail,
            header?.tokens.map { Words.count($0.count, "token") },
            header?.requeues.map { "requeued \($0) times before" },
        ]
        let text = parts.compactMap { $0 }.joined(separator: ", ")
        return text.isEmpty ? nil : text
    }
}

extension DeadLetterRow {
    /// Returns true if the job itself is the reason, so that it would become a dead letter again if it is requeued unchanged.
    package static func isMistakeOfJob(_ reason: String) -> Bool {
        if let code = JobError.Code(rawValue: reason) { return !curable.contains(code) }
        return mistakes.contains(reason)
    }

    /// Errors of jobs that another worker, or the same worker with other settings, can send.
    private static let curable: Set<JobError.Code> = [.otherClass, .notSidekiq, .newerWrapper]

    private static let mistakes: Set<String> = [
        "BadPayload", "PayloadTooLarge", "PayloadEmpty", "BadRequestPayload", "MalformedToken", "JobTooLarge",
        "BadPriority",
        "BadCollapseId", "BadExpirationDate", "BadMessageId", "InvalidPushType", "MissingPushType",
    ]
}

extension DeadLetterRow: Shown {
    package static let columns = Columns<Self>(
        "DeadLetter", "A dead letter.", commands: ["dead list", "dead show"],
        [
            .init("queue", "Queue of the job.", as: .queue, in: .all, under: "Reason", \.queue),
            .init("at", "Time at which the job became a dead letter.", as: .time, title: "Time", in: .all, \.at),
            .text("Age", as: .age, in: .table, \.at),
            .init("key", "Key by which commands and paths name the dead letter.", as: .key, in: .all, \.key),
            .init("reason", "Reason.", as: .key, in: .all, \.reason),
            .init("app", "App that the job names.", as: .app, in: [.table, .wide, .facts], \.app),
            .init("id", "ID of the job.", as: .key, in: [.table, .facts], \.id),
            .init("campaign", "Campaign of the job.", as: .campaign, in: [.wide, .facts], under: "App", \.campaign),
            .init("fair", "Key `fair` of the job.", in: .facts) { $0.header?.fair },
            .init("labels", "Labels of the job.", in: .facts, \.labels),
            .init("attempts", "Number of attempts.", as: .count, in: [.table, .widest, .facts], \.attempts),
            .text("Error", in: [.table, .wide], \.error),
            .init("status", "Status of the last answer.", in: .facts) { $0.header?.status },
            .init("error", "Reason of the last answer.", in: .facts) { $0.header?.error },
            .init("detail", "Explanation of the reason.", in: .facts) { $0.header?.detail },
            .init("requeues", "Number of earlier requeues.", in: .facts) { $0.header?.requeues },
            .init("enqueued_at", "Time at which the job was enqueued or first claimed.", as: .time, in: .facts) {
                $0.header?.enqueued
            },
            .init("claim", "Claim that ended.", as: .key, in: .facts) { $0.header?.claim },
            .init("token_count", "Number of devices that did not get the notification.") { $0.header?.tokens?.count },
            .init("tokens", "Tokens of these devices.", in: .facts, isDetail: true) { $0.header?.tokens },
            .init("size", "Size of the job in bytes.") { $0.header?.size },
            .text("Job", as: .bytes, in: .facts, \.original.readableBytes),
            .init("job", "Job as its producer wrote it, if it is UTF-8.", isDetail: true, \.original.utf8Text),
            .init("job_base64", "Job as produced, if it is not UTF-8.", isDetail: true, \.original.base64IfNotUTF8),
        ])
}

extension ByteBuffer {
    /// The bytes as text; `nil` if they are not UTF-8.
    var utf8Text: String? { String(validating: readableBytesView, as: UTF8.self) }
    var base64IfNotUTF8: String? { utf8Text == nil ? Data(readableBytesView).base64EncodedString() : nil }
}

extension DeadLetterRow: Counted {
    package static let (things, narrowing) = ("dead letters", "--reason")
    package static let groups = ["reason", "app", "campaign", "fair", labelGroup, "queue"]
}
