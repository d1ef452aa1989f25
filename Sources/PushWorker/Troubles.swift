import NIOConcurrencyHelpers
import NIOCore

/// What is wrong in a process, and what of it is worth a line in the log, without any I/O.
///
/// The same trouble meets many at once: each lane has connections of its own, and each of them loses its server. It is told
/// when the first of them has it, and that it is over when none has it any more.
struct Troubles {
    /// Troubles of a subject that begin sooner after the last that was told are not told: what comes and goes all the time
    /// must not fill the log.
    static let quiet = TimeAmount.seconds(30)
    /// How often a trouble is told that lasts.
    static let reminder = TimeAmount.minutes(10)

    private struct Subject {
        var began = NIODeadline.distantPast
        /// Who has it.
        var sources: Set<String> = []
        /// In which of its forms it has been told since it began.
        var told: Set<String> = []
        var lastTold: NIODeadline?
    }

    private var subjects: [String: Subject] = [:]

    /// Somebody has trouble, or has it still.
    /// - Parameters:
    ///   - subject: what it is about.
    ///   - source: who has it.
    ///   - form: what tells it from others about the same; each is told.
    /// - Returns: whether to tell.
    mutating func began(_ subject: String, at source: String, form: String = "", now: NIODeadline) -> Bool {
        var state = subjects[subject] ?? Subject()
        defer { subjects[subject] = state }
        if state.sources.isEmpty { (state.began, state.told) = (now, []) }
        state.sources.insert(source)
        let pause: TimeAmount =
            if state.told.isEmpty { Self.quiet } else { state.told.contains(form) ? Self.reminder : .zero }
        if let last = state.lastTold, now - last < pause { return false }
        state.told.insert(form)
        state.lastTold = now
        return true
    }

    /// Somebody's trouble is over.
    /// - Returns: how long it lasted, if it is over for all and was told.
    mutating func ended(_ subject: String, at source: String, now: NIODeadline) -> TimeAmount? {
        guard subjects[subject]?.sources.remove(source) != nil, let state = subjects[subject], state.sources.isEmpty,
            !state.told.isEmpty
        else { return nil }
        return now - state.began
    }
}

/// The troubles of all lanes of a process. From anywhere.
final class TroubleLog: Sendable {
    private let troubles = NIOLockedValueBox(Troubles())

    /// See ``Troubles/began(_:at:form:now:)``.
    func began(_ subject: String, at source: String, form: String = "") -> Bool {
        troubles.withLockedValue { $0.began(subject, at: source, form: form, now: .now()) }
    }

    /// See ``Troubles/ended(_:at:now:)``.
    /// - Returns: how long it lasted, in words, if that is to be told.
    func ended(_ subject: String, at source: String) -> String? {
        troubles.withLockedValue { $0.ended(subject, at: source, now: .now()) }
            .map { "\(Double($0.nanoseconds / 1_000_000) / 1000) s" }
    }
}
