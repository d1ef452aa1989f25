import Synchronization

/// Readings by key, which many pages share: ten open dashboards ask Redis no more often than one. Callers that ask for the
/// same thing at the same time wait for one reading.
actor SharedReadings<Key: Hashable & Sendable, Value: Sendable> {
    private var kept: [Key: (value: Value, at: ContinuousClock.Instant, isGood: Bool)] = [:]
    private var readings: [Key: Task<Value, any Error>] = [:]
    /// The number of actions so far: a reading that began before the last one is not kept.
    private var actions = 0
    /// The age from which a reading is made again.
    private let age: Duration
    /// The number of keys of which readings are kept: visitors choose some keys.
    private static var maximumKeys: Int { 200 }

    init(for age: Duration) { self.age = age }

    /// - Parameter read: gets the reading before, however old.
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

/// The key of the only reading.
struct OnlyKey: Hashable, Sendable {}

/// While Redis does not answer, a page is made of the last readings.
final class LastReadings: Sendable {
    /// The readings of the page that is being made; `nil` if it asks Redis.
    @TaskLocal static var wanted: LastReadings?

    /// A part of the page was never read.
    struct Missing: Error {}

    private let earliest = Mutex<ContinuousClock.Instant?>(nil)

    /// Records that the page has a reading of a time.
    func add(_ at: ContinuousClock.Instant) { earliest.withLock { $0 = min($0 ?? at, at) } }

    /// The age of the oldest reading; `nil` without any.
    var age: Duration? { earliest.withLock { $0 }?.duration(to: .now) }
}
