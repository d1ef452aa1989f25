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
struct Undo: Sendable {
    let action: String
    let fields: [(name: String, value: String)]
    let title: String

    /// The maximum number of things that its form can name.
    static let maximum = 100

    init(_ action: String, _ fields: [(String, String)], title: String = "Undo") {
        (self.action, self.fields, self.title) = (action, fields, title)
    }

    /// - Returns: `nil` if there are no things, or too many for a form.
    init?(_ action: String, things: [(String, String)], and others: [(String, String)] = [], title: String = "Undo") {
        guard 1...Self.maximum ~= things.count else { return nil }
        self.init(action, things + others, title: title)
    }
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
