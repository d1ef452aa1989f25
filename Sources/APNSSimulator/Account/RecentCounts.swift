/// How often each key came, of the newest keys: the memory that it takes is bounded.
///
/// Keys are kept in two halves. When the newer one is full it becomes the older one, and what was there is forgotten, so that at
/// least the newest keys up to the limit are known.
package struct RecentCounts<Key: Hashable & Sendable>: Sendable {
    private let limit: Int?
    private var newer: [Key: Int] = [:]
    private var older: [Key: Int] = [:]
    /// How many keys were forgotten. One that comes again later counts as another.
    package private(set) var forgotten = 0

    /// - Parameter limit: how many keys are known at least; twice as many at most. nil for all.
    package init(limit: Int?) { self.limit = limit.map { max(1, $0) } }

    /// Counts a key.
    /// - Returns: how often it came, this time included.
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

    /// How many keys are known.
    package var count: Int { newer.count + older.count }

    /// How many different keys came, as far as is known.
    package var distinct: Int { count + forgotten }

    /// The keys that are known, with how often each came.
    package var all: some Sequence<(key: Key, value: Int)> { [older, newer].joined() }
}
