import Synchronization

/// Readings by key, which many pages share, so that ten open dashboards ask Redis no more often than one. Simultaneous callers with the
/// same key wait for one reading.
actor SharedReadings<Key: Hashable & Sendable, Value: Sendable> {
    private var kept: [Key: (value: Value, at: ContinuousClock.Instant, isGood: Bool)] = [:]
    private var readings: [Key: Task<Value, any Error>] = [:]
    /// The number of actions so far. A reading that began before the last action is not kept.
    private var actions = 0
    /// The maximum age of a reading, unless a caller sets another.
    private let age: Duration
    /// The maximum number of keys with a kept reading, because visitors choose some of the keys.
    private static var maximumKeys: Int { 200 }

    init(for age: Duration) { self.age = age }

    /// - Parameter read: makes a reading, given the previous one, however old.
    func value(
        of key: Key, for age: Duration? = nil, _ read: @escaping @Sendable (_ before: Value?) async throws -> Value
    ) async throws -> Value {
        let kept = kept[key]
        if let last = LastReadings.wanted {
            guard let kept else { throw LastReadings.Missing() }
            last.add(kept.at)
            return kept.value
        }
        if let kept, kept.isGood, kept.at.duration(to: .now) < age ?? self.age { return kept.value }
        let begun = actions
        let task = readings[key] ?? Task { try await read(kept?.value) }
        readings[key] = task
        defer { if actions == begun { readings[key] = nil } }
        let value = try await task.value
        guard actions == begun else { return value }
        if self.kept.count >= Self.maximumKeys, kept == nil { self.kept = [:] }
        self.kept[key] = (value, .now, true)
        return value
    }

    /// Returns the last reading, however old; `nil` before the first.
    func last(of key: Key) -> Value? { kept[key]?.value }

    /// Makes the next caller read again, so that it sees the effect of an action.
    func expire() {
        actions += 1
        readings = [:]
        for key in kept.keys { kept[key]?.isGood = false }
    }
}

extension SharedReadings where Key == OnlyKey {
    func value(_ read: @escaping @Sendable (_ before: Value?) async throws -> Value) async throws -> Value {
        try await value(of: OnlyKey(), read)
    }
}

/// The key of a ``SharedReadings`` with a single reading.
struct OnlyKey: Hashable, Sendable {}

/// Marks a page that is made from the last readings, because Redis does not answer. Collects their times.
final class LastReadings: Sendable {
    /// Set while a page is made from the last readings; `nil` if the page asks Redis.
    @TaskLocal static var wanted: LastReadings?

    /// The page needs a reading that was never made.
    struct Missing: Error {}

    private let earliest = Mutex<ContinuousClock.Instant?>(nil)

    /// Records the time of a reading that the page shows.
    func add(_ at: ContinuousClock.Instant) { earliest.withLock { $0 = min($0 ?? at, at) } }

    /// The age of the oldest reading; `nil` without any.
    var age: Duration? { earliest.withLock { $0 }?.duration(to: .now) }
}
