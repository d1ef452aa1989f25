import Logging
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
        /// How often it was reported since then.
        var untold = 0
    }

    private var subjects: [String: Subject] = [:]

    /// Somebody has trouble, or has it still.
    /// - Parameters:
    ///   - subject: what it is about.
    ///   - source: who has it.
    ///   - form: what tells it from others about the same; each is told.
    /// - Returns: whether to tell, and then how often it was reported since it was told last, this time included.
    mutating func began(_ subject: String, at source: String, form: String = "", now: NIODeadline) -> Int? {
        var state = subjects[subject] ?? Subject()
        defer { subjects[subject] = state }
        if state.sources.isEmpty { (state.began, state.told) = (now, []) }
        state.sources.insert(source)
        let pause: TimeAmount =
            if state.told.isEmpty { Self.quiet } else { state.told.contains(form) ? Self.reminder : .zero }
        state.untold += 1
        if let last = state.lastTold, now - last < pause { return nil }
        state.told.insert(form)
        state.lastTold = now
        defer { state.untold = 0 }
        return state.untold
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
    private struct Line {
        let level: Logger.Level
        let message: String
        let metadata: Logger.Metadata
    }

    private let troubles = NIOLockedValueBox(Troubles())
    private let incidents = NIOLockedValueBox(Incidents<Line>())

    /// See ``Troubles/began(_:at:form:now:)``.
    func began(_ subject: String, at source: String, form: String = "") -> Int? {
        troubles.withLockedValue { $0.began(subject, at: source, form: form, now: .now()) }
    }

    /// See ``Troubles/ended(_:at:now:)``.
    /// - Returns: how long it lasted, in ms, if that is to be told.
    func ended(_ subject: String, at source: String) -> Int64? {
        troubles.withLockedValue { $0.ended(subject, at: source, now: .now()) }
            .map { $0.nanoseconds / 1_000_000 }
    }

    /// Tells of something that has happened at once, and then once a minute at the most, with how many there were.
    /// - Parameters:
    ///   - kind: what it is one of.
    ///   - metadata: of all of that kind.
    ///   - example: of this one.
    /// - Returns: whether it was told now.
    @discardableResult
    func occurred(
        _ kind: String, count: Int = 1, _ level: Logger.Level, _ message: @autoclosure () -> String, _ logger: Logger,
        metadata: @autoclosure () -> Logger.Metadata = [:], example: @autoclosure () -> Logger.Metadata = [:]
    ) -> Bool {
        var line: Line?
        let count = incidents.withLockedValue { incidents in
            incidents.occurred(kind, count: count, now: .now()) {
                let made = Line(level: level, message: message(), metadata: metadata())
                line = made
                return made
            }
        }
        guard let count, let line else { return false }
        tell(line, count, logger, example: example())
        return true
    }

    /// Tells of what has happened and was not told of for a minute.
    /// - Parameter all: whether what was told of sooner counts too, because this is the end.
    func tellOverdue(_ logger: Logger, all: Bool = false) {
        for (line, count) in incidents.withLockedValue({ $0.overdue(now: .now(), all: all) }) {
            tell(line, count, logger, example: ["count": "\(count)"])
        }
    }

    private func tell(_ line: Line, _ count: Int, _ logger: Logger, example: Logger.Metadata = [:]) {
        var metadata = line.metadata.merging(example) { $1 }
        if count > 1 { metadata["count"] = "\(count)" }
        logger.log(level: line.level, "\(line.message)", metadata: metadata)
    }
}
