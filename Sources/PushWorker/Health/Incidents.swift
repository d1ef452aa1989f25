import NIOCore

/// How often a thing of one kind is told that may happen a million times, without any I/O: at once when it happens first, and
/// then once a minute at the most, with how many there were.
struct Incidents<Line: Sendable>: Sendable {
    static var pause: TimeAmount { .minutes(1) }
    /// Kinds are named by reasons, some of which come from a server: it must not fill the memory with them.
    static var maximumKinds: Int { 1000 }

    private struct Kind: Sendable {
        /// What was told of it last.
        var line: Line
        var lastTold: NIODeadline
        /// How many there were since.
        var untold = 0
    }

    private var kinds: [String: Kind] = [:]
    /// Whether there is anything to look for in ``overdue(now:all:)``, which is asked every second.
    private var hasUntold = false

    /// Something has happened.
    /// - Parameters:
    ///   - count: how often.
    ///   - line: what to tell of its kind, when it has to be told of later; made only when it is told of now.
    /// - Returns: how many are to be told of now, those included that were not told of before; `nil` where none is.
    mutating func occurred(_ name: String, count: Int = 1, now: NIODeadline, line: () -> Line) -> Int? {
        guard let known = kinds[name] else {
            if kinds.count >= Self.maximumKinds { forgetQuiet(before: now - Self.pause) }
            guard kinds.count < Self.maximumKinds else { return nil }
            kinds[name] = Kind(line: line(), lastTold: now)
            return count
        }
        guard now - known.lastTold >= Self.pause else {
            kinds[name]?.untold += count
            hasUntold = true
            return nil
        }
        kinds[name] = Kind(line: line(), lastTold: now)
        return known.untold + count
    }

    /// What has happened and was not told of for a minute.
    /// - Parameter all: whether what was told of sooner counts too, because this is the end.
    /// - Returns: by name, so that the order is always the same.
    mutating func overdue(now: NIODeadline, all: Bool = false) -> [(line: Line, count: Int)] {
        guard hasUntold else { return [] }
        let due = kinds.filter { $0.value.untold > 0 && (all || now - $0.value.lastTold >= Self.pause) }
        for name in due.keys {
            kinds[name]?.untold = 0
            kinds[name]?.lastTold = now
        }
        hasUntold = kinds.values.contains { $0.untold > 0 }
        return due.sorted { $0.key < $1.key }.map { ($0.value.line, $0.value.untold) }
    }

    private mutating func forgetQuiet(before time: NIODeadline) {
        kinds = kinds.filter { $0.value.untold > 0 || $0.value.lastTold > time }
    }
}
