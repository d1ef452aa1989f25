import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Decides which log lines about lasting problems are written. No I/O.
///
/// A problem usually affects many parts at once. For example, all lanes lose their connections to the same server. The beginning is logged
/// when the first part has the problem, and the end when no part has it.
struct OngoingIssues {
    /// A problem that begins again within this time after its last line is not logged, so that an intermittent problem does not fill the
    /// log.
    static let quiet = TimeAmount.seconds(30)
    /// The interval between log lines about a lasting problem.
    static let reminder = TimeAmount.minutes(10)

    private struct Subject {
        var began = NIODeadline.distantPast
        var event = ""
        /// The parts that have the problem.
        var sources: Set<String> = []
        /// The variants that have been logged since the problem began.
        var loggedForms: Set<String> = []
        var loggedAt: NIODeadline?
        /// The number of reports since the last line.
        var unlogged = 0
    }

    private var subjects: [String: Subject] = [:]

    /// Records that a part has a problem, or still has it.
    /// - Parameters:
    ///   - subject: identifies the problem.
    ///   - event: the event of its log lines.
    ///   - source: the part that has it.
    ///   - form: the variant of the problem. Each variant is logged.
    /// - Returns: if a line is due, the number of reports since the last line, including this one.
    mutating func began(
        _ subject: String, event: String = "", at source: String, form: String = "", now: NIODeadline
    ) -> Int? {
        var state = subjects[subject] ?? Subject()
        state.event = event
        defer { subjects[subject] = state }
        if state.sources.isEmpty { (state.began, state.loggedForms) = (now, []) }
        state.sources.insert(source)
        let pause: TimeAmount =
            if state.loggedForms.isEmpty { Self.quiet } else {
                state.loggedForms.contains(form) ? Self.reminder : .zero
            }
        state.unlogged += 1
        if let last = state.loggedAt, now - last < pause { return nil }
        state.loggedForms.insert(form)
        state.loggedAt = now
        defer { state.unlogged = 0 }
        return state.unlogged
    }

    /// Records that a part no longer has a problem.
    /// - Returns: the problem's duration, if it was logged and no part has it any more.
    mutating func ended(_ subject: String, at source: String, now: NIODeadline) -> TimeAmount? {
        guard subjects[subject]?.sources.remove(source) != nil, let state = subjects[subject], state.sources.isEmpty,
            !state.loggedForms.isEmpty
        else { return nil }
        return now - state.began
    }

    /// The number of current problems by event; 0 if all problems of an event have ended.
    var counts: [String: Int] {
        subjects.values.reduce(into: [:]) { $0[$1.event, default: 0] += $1.sources.isEmpty ? 0 : 1 }
    }
}

/// Decides which log lines about events that can occur a million times are written. The first event of a kind is logged at once, and then
/// at most one line per minute, with the number of occurrences. No I/O.
struct LogThrottle<Line: Sendable>: Sendable {
    static var pause: TimeAmount { .minutes(1) }
    /// The maximum number of kinds. Their names contain reasons from servers, which must not fill the memory.
    static var maximumKinds: Int { 1000 }

    private struct Kind: Sendable {
        /// The last line about this kind of event.
        var line: Line
        var loggedAt: NIODeadline
        /// The number of occurrences since that line.
        var unlogged = 0
    }

    private var kinds: [String: Kind] = [:]
    /// False if ``overdue(now:all:)``, which is called every second, has nothing to return.
    private var hasUnlogged = false

    /// Records occurrences.
    /// - Parameter line: makes the line; called only if one is logged now.
    /// - Returns: the number of occurrences to log now, including unlogged ones before; `nil` to log nothing.
    mutating func occurred(_ name: String, count: Int = 1, now: NIODeadline, line: () -> Line) -> Int? {
        guard let known = kinds[name] else {
            if kinds.count >= Self.maximumKinds { removeQuiet(before: now - Self.pause) }
            guard kinds.count < Self.maximumKinds else { return nil }
            kinds[name] = Kind(line: line(), loggedAt: now)
            return count
        }
        guard now - known.loggedAt >= Self.pause else {
            kinds[name]?.unlogged += count
            hasUnlogged = true
            return nil
        }
        kinds[name] = Kind(line: line(), loggedAt: now)
        return known.unlogged + count
    }

    /// Returns the lines about occurrences that were not logged for a minute, sorted by kind.
    /// - Parameter all: true to include occurrences of the last minute, because the process is ending.
    mutating func overdue(now: NIODeadline, all: Bool = false) -> [(line: Line, count: Int)] {
        guard hasUnlogged else { return [] }
        let due = kinds.filter { $0.value.unlogged > 0 && (all || now - $0.value.loggedAt >= Self.pause) }
        for name in due.keys {
            kinds[name]?.unlogged = 0
            kinds[name]?.loggedAt = now
        }
        hasUnlogged = kinds.values.contains { $0.unlogged > 0 }
        return due.sorted { $0.key < $1.key }.map { ($0.value.line, $0.value.unlogged) }
    }

    private mutating func removeQuiet(before time: NIODeadline) {
        kinds = kinds.filter { $0.value.unlogged > 0 || $0.value.loggedAt > time }
    }
}

/// The problems and throttled events of all lanes of a process. Safe to use from any thread.
final class IssueLog: Sendable {
    private struct Line {
        let level: Logger.Level
        let message: String
        let metadata: Logger.Metadata
    }

    private let ongoing = NIOLockedValueBox(OngoingIssues())
    private let throttle = NIOLockedValueBox(LogThrottle<Line>())
    /// The reason why the last reload of the configuration was refused; `nil` if it was not.
    let refusedReload = NIOLockedValueBox(String?.none)

    func began(
        _ subject: String, event: String = "", at source: String, form: String = "", now: NIODeadline
    ) -> Int? {
        ongoing.withLockedValue { $0.began(subject, event: event, at: source, form: form, now: now) }
    }

    var counts: [String: Int] { ongoing.withLockedValue { $0.counts } }

    /// See ``OngoingIssues/ended(_:at:now:)``.
    /// - Returns: the duration in milliseconds.
    func ended(_ subject: String, at source: String, now: NIODeadline) -> Int64? {
        ongoing.withLockedValue { $0.ended(subject, at: source, now: now) }.map { $0.nanoseconds / 1_000_000 }
    }

    /// Logs an occurrence at once, or later with others of its kind.
    /// - Parameters:
    ///   - metadata: fields that all occurrences of the kind share.
    ///   - example: fields of this occurrence.
    func occurred(
        _ kind: String, count: Int = 1, _ level: Logger.Level, _ message: @autoclosure () -> String, _ logger: Logger,
        now: NIODeadline, metadata: @autoclosure () -> Logger.Metadata = [:],
        example: @autoclosure () -> Logger.Metadata = [:]
    ) {
        var line: Line?
        let count = throttle.withLockedValue { throttle in
            throttle.occurred(kind, count: count, now: now) {
                let made = Line(level: level, message: message(), metadata: metadata())
                line = made
                return made
            }
        }
        guard let count, let line else { return }
        log(line, count, logger, example: example())
    }

    /// Logs occurrences that have not been logged for a minute.
    /// - Parameter all: true to include occurrences of the last minute, because the process is ending.
    func logOverdue(_ logger: Logger, all: Bool = false, now: NIODeadline) {
        for (line, count) in throttle.withLockedValue({ $0.overdue(now: now, all: all) }) {
            log(line, count, logger, example: ["count": "\(count)"])
        }
    }

    private func log(_ line: Line, _ count: Int, _ logger: Logger, example: Logger.Metadata = [:]) {
        var metadata = line.metadata.merging(example) { $1 }
        if count > 1 { metadata["count"] = "\(count)" }
        logger.log(level: line.level, "\(line.message)", metadata: metadata)
    }
}
