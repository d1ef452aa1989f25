/// A histogram with one row per app or queue. It allocates its own memory, so that it is cheap to record a value for each notification.
final class LaneHistogram {
    /// The upper bounds of the buckets.
    let bounds: [UInt32]
    private var rows = 0
    private let limits: UnsafeMutablePointer<UInt32>
    private var counts: UnsafeMutablePointer<Int>
    private var sums: UnsafeMutablePointer<Int>

    /// - Parameter bounds: the upper bounds of the buckets, ascending. A further bucket counts larger values.
    init(bounds: [UInt32], rows: Int) {
        self.bounds = bounds
        limits = .allocate(capacity: bounds.count)
        limits.initialize(from: bounds, count: bounds.count)
        counts = .allocate(capacity: 0)
        sums = .allocate(capacity: 0)
        reserve(rows: rows)
    }

    deinit {
        limits.deallocate()
        counts.deallocate()
        sums.deallocate()
    }

    /// Makes space for a number of rows; existing rows keep their values.
    func reserve(rows wanted: Int) {
        guard wanted > rows else { return }
        let width = bounds.count + 1
        let (newCounts, newSums) = (
            UnsafeMutablePointer<Int>.allocate(capacity: wanted * width),
            UnsafeMutablePointer<Int>.allocate(capacity: wanted)
        )
        newCounts.initialize(repeating: 0, count: wanted * width)
        newSums.initialize(repeating: 0, count: wanted)
        newCounts.update(from: counts, count: rows * width)
        newSums.update(from: sums, count: rows)
        counts.deallocate()
        sums.deallocate()
        (counts, sums, rows) = (newCounts, newSums, wanted)
    }

    func record(_ value: UInt32, row: Int) {
        precondition(row >= 0 && row < rows, "no such row")
        counts[row * (bounds.count + 1) + bucket(of: value)] &+= 1
        sums[row] &+= Int(value)
    }

    func bucket(of value: UInt32) -> Int {
        var bucket = 0
        while bucket < bounds.count, value > limits[bucket] { bucket += 1 }
        return bucket
    }

    /// Returns the number of values in each bucket of a row, not cumulative, and the sum of the values. All are zero for a row that does
    /// not exist yet.
    func row(_ row: Int) -> (counts: [Int], sum: Int) {
        let width = bounds.count + 1
        guard row >= 0, row < rows else { return (Array(repeating: 0, count: width), 0) }
        return (Array(UnsafeBufferPointer(start: counts + row * width, count: width)), sums[row])
    }
}
