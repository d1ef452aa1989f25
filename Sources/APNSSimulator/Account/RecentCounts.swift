/// Counts the occurrences of keys. Only the newest keys are known, so that memory is bounded.
///
/// Keys are kept in two generations. When the newer generation is full, it replaces the older generation.
package struct RecentCounts<Key: Hashable & Sendable>: Sendable {
    private let limit: Int?
    private var newer: [Key: Int] = [:]
    private var older: [Key: Int] = [:]
    /// The number of forgotten keys. A forgotten key that occurs again counts as a new one.
    package private(set) var forgotten = 0

    /// - Parameter limit: at least this many keys are known, and at most twice as many; nil for all.
    package init(limit: Int?) { self.limit = limit.map { max(1, $0) } }

    /// - Returns: the number of occurrences, this one included.
    package mutating func add(_ key: Key) -> Int {
        var count = 1
        if let known = newer[key] {
            count = known + 1
        } else if !older.isEmpty, let known = older.removeValue(forKey: key) {
            count = known + 1
        }
        newer[key] = count
        if let limit, newer.count >= limit {
            swap(&newer, &older)
            forgotten += newer.count
            newer.removeAll(keepingCapacity: true)
        }
        return count
    }

    package subscript(key: Key) -> Int { newer[key] ?? older[key] ?? 0 }

    package var count: Int { newer.count + older.count }

    /// The number of different keys that occurred. A key that occurs again after it was forgotten counts twice.
    package var distinct: Int { count + forgotten }

    package var all: some Sequence<(key: Key, value: Int)> { [older, newer].joined() }
}
