import NIOCore
import Operations
import PushQueue
import Synchronization
import WebPages

/// The result of an action, for the operator who started it.
struct Note: Sendable {
    enum Ending: Sendable { case done, stopped, refused, failed }

    let ending: Ending
    /// The result or the reason, as a sentence with or without a full stop.
    let message: String
    /// The action that undoes this one; `nil` if there is none.
    var undo: Undo?

    init(_ message: String, _ ending: Ending = .done, undo: Undo? = nil) {
        (self.ending, self.undo) = (ending, undo)
        // An error quotes the wrong field, which can be as large as a request.
        self.message = message.count > Self.maximumLength ? "\(message.prefix(Self.maximumLength))…" : message
    }

    /// The maximum number of characters of a message.
    private static let maximumLength = 2000

    init(_ error: WebError) {
        self.init(error.problem, error.status.code < 500 ? .refused : .failed)
    }

    var title: String {
        switch ending {
        case .done: "Done"
        case .stopped: "Stopped"
        case .refused: "Refused"
        case .failed: "Failed"
        }
    }

    /// Returns the note as a toast, which stays until it is dismissed.
    func html(_ site: Site, _ visitor: Visitor) -> HTML {
        let tone: HTML =
            switch ending {
            case .done: "good"
            case .stopped, .refused: "warning"
            case .failed: "bad"
            }
        return """
            <div class="toast \(tone)"><p><strong>\(title).</strong> \(Elements.prose(message.asSentence))</p>\
            <div class="actions">\(undo?.form(site, visitor))\
            <button type="button" class="small quiet" data-dismiss>Dismiss</button></div></div>
            """
    }
}

/// The notes that no page has shown yet. A page gets a note by the random ID in its address, once, and only in the session that made the
/// note.
final class Notes: Sendable {
    static let maximum = 200
    /// The maximum number of notes of one session, so that it cannot push out other sessions' notes.
    static let maximumOfSession = 20
    static let lifetime = Duration.seconds(120)

    private struct Kept {
        let id: String
        /// The form token of the session.
        let owner: String
        let note: Note
        let at: ContinuousClock.Instant
    }

    /// The oldest first.
    private let kept = Mutex<[Kept]>([])

    /// Keeps a note.
    /// - Returns: its ID; `nil` for a visitor without a session, who sees no pages.
    func add(_ note: Note, for visitor: Visitor, at now: ContinuousClock.Instant = .now) -> String? {
        guard !visitor.formToken.isEmpty else { return nil }
        let id = Digest.random(16).hex
        kept.withLock { kept in
            kept.removeAll { $0.at.duration(to: now) > Self.lifetime }
            if kept.count(where: { $0.owner == visitor.formToken }) >= Self.maximumOfSession,
                let oldest = kept.firstIndex(where: { $0.owner == visitor.formToken })
            {
                kept.remove(at: oldest)
            }
            if kept.count >= Self.maximum { kept.removeFirst(kept.count - Self.maximum + 1) }
            kept.append(Kept(id: id, owner: visitor.formToken, note: note, at: now))
        }
        return id
    }

    /// Returns a path and query without the ID of a note, and the ID.
    static func separated(_ path: String) -> (path: String, id: String?) {
        let parts = path.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2 else { return (path, nil) }
        let pairs = parts[1].split(separator: "&")
        let others = pairs.filter { !$0.hasPrefix("note=") }
        let id = pairs.first { $0.hasPrefix("note=") }.map { String($0.dropFirst(5)) }
        return (String(parts[0]) + (others.isEmpty ? "" : "?" + others.joined(separator: "&")), id)
    }

    /// Returns a note of a visitor, and forgets it.
    func take(_ id: String, by visitor: Visitor, at now: ContinuousClock.Instant = .now) -> Note? {
        kept.withLock { kept in
            guard let index = kept.firstIndex(where: { $0.id == id && $0.owner == visitor.formToken }) else {
                return nil
            }
            let found = kept.remove(at: index)
            return found.at.duration(to: now) > Self.lifetime ? nil : found.note
        }
    }
}

/// An action that undoes another.
struct Undo: Sendable, Equatable {
    let action: String
    let fields: [Pair]
    var title = "Undo"

    struct Pair: Sendable, Equatable { let name, value: String }

    /// The maximum number of things that its form can name.
    static let maximum = 100

    init(_ action: String, _ fields: [(String, String)], title: String = "Undo") {
        (self.action, self.title) = (action, title)
        self.fields = fields.map { Pair(name: $0.0, value: $0.1) }
    }

    func form(_ site: Site, _ visitor: Visitor) -> HTML {
        site.form(visitor, action, fields.map { ($0.name, $0.value) }, "<button class=\"small\">\(title)</button>")
    }
}

extension Undo {
    /// Returns the opposite of an action that was carried out; `nil` if there is none, or if it would not restore the
    /// former state.
    /// - Parameter action: the name of an ``ActionKind``.
    init?(of action: String, _ fields: Fields, _ result: ChangeResult) {
        guard !result.hasNoEffect, result.error == nil else { return nil }
        let pauses = result.parts.compactMap { $0.report as? PauseReport }
        let campaigns = result.parts.compactMap { $0.report as? CampaignReport }
        func all(_ names: String...) -> [(String, String)] {
            names.flatMap { name in fields.all(name).map { (name, $0) } }
        }
        switch action {
        case "pause-queue", "pause-app":
            let (resume, target) =
                action == "pause-app" ? ("resume-app", all("app")) : ("resume-queue", all("queue"))
            if let before = pauses.first?.before {
                self.init(action, target + before.reasonField)
            } else {
                self.init(resume, target)
            }
        case "resume-queue", "resume-app":
            guard let before = pauses.first?.before else { return nil }
            let (pause, target) =
                action == "resume-app" ? ("pause-app", all("app")) : ("pause-queue", all("queue"))
            self.init(pause, target + before.reasonField)
        case "quiet-worker", "work-worker":
            let names = result.parts.compactMap(\.subject)
            guard !names.isEmpty, names.count <= Self.maximum else { return nil }
            self.init(action == "quiet-worker" ? "work-worker" : "quiet-worker", names.map { ("worker", $0) })
        case "pause-campaign":
            guard campaigns.allSatisfy({ $0.before == "running" }) else { return nil }
            self.init("resume-campaign", all("campaign"))
        case "resume-campaign":
            guard campaigns.allSatisfy({ $0.before == "paused" }) else { return nil }
            self.init("pause-campaign", all("campaign"))
        case "limit-campaign":
            let limits = Set(campaigns.map(\.limitBefore))
            guard limits.count == 1, let before = limits.first,
                campaigns.contains(where: { $0.limitPerSecond != before })
            else { return nil }
            self.init(
                "limit-campaign", all("campaign") + [before.map { ("per_second", "\($0)") } ?? ("off", "1")],
                title: before.map { "Undo: \(Words.number($0)) per second" } ?? "Undo: no limit")
        case "cancel-campaign":
            // Discarded jobs are lost.
            guard fields["discard"] == nil else { return nil }
            self.init("requeue-campaign", all("campaign"), title: "Send it after all…")
        case "requeue-campaign": self.init("cancel-campaign", all("campaign"), title: "Cancel it again…")
        case "change-jobs":
            // Cancelling by IDs alone also cancels jobs that are enqueued later. Only that can be undone.
            let ids = all("id")
            let isOfIDs = JobFilter.fieldNames.allSatisfy { $0 == "id" || $0 == "queue" || fields[$0] == nil }
            guard fields["action"] == "cancel", isOfIDs, !ids.isEmpty, ids.count <= Self.maximum else { return nil }
            self.init("uncancel-jobs", ids + all("queue"))
        case "uncancel-jobs":
            let ids = all("id")
            guard !ids.isEmpty, ids.count <= Self.maximum else { return nil }
            self.init("change-jobs", [("action", "cancel")] + ids + all("queue"), title: "Cancel again…")
        case "add-invalid-tokens":
            let added = result.parts.flatMap(\.changed)
            guard !added.isEmpty, added.count <= Self.maximum else { return nil }
            self.init("remove-invalid-tokens", added.map { ("token", $0) }, title: "Undo…")
        default: return nil
        }
    }
}

extension PauseRecord {
    /// The field of a form that pauses again for the same reason.
    fileprivate var reasonField: [(String, String)] { isReasonless ? [] : [("reason", reason)] }
}

extension String {
    /// The text with a capital letter and a full stop.
    var asSentence: String {
        capitalizedFirst + (hasSuffix(".") || hasSuffix("?") || hasSuffix("!") ? "" : ".")
    }
}

extension ByteBuffer {
    var text: String { String(buffer: self) }
}
