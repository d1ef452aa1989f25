import PushQueue

/// A lane's sums for the history of each queue in Redis, until they are written.
///
/// The sums that change with each notification are plain numbers in memory of their own, as in ``LaneMetrics``.
final class MinuteRecorder {
    // Not static, because a static constant's initialization is checked on each access.
    private let latencies = LatencyCounts.bounds.count
    private let answers = (LatencyCounts.bounds.firstIndex(of: MinuteCounts.longestAnswer) ?? 0) + 1
    /// The number of values per queue: the buckets of both histograms, and the age of the oldest job plus 1, or 0 if there is no job.
    private let width: Int
    private let queues: Int
    private let numbers: UnsafeMutablePointer<Int>
    /// The sums by queue that could not be written.
    private var unwritten: [MinuteCounts]
    /// The counts of notifications by queue at the last ``take(queue:notifications:)``.
    private var included: [MinuteCounts]

    init(queues: Int) {
        self.queues = queues
        width = latencies + answers + 1
        numbers = .allocate(capacity: queues * width)
        numbers.initialize(repeating: 0, count: queues * width)
        unwritten = Array(repeating: MinuteCounts(), count: queues)
        included = unwritten
    }

    deinit { numbers.deallocate() }

    @inline(__always)  // Inlined like its callers, because a call retains and releases the object.
    private func count(at place: Int, _ queue: Int) {
        precondition(queue >= 0 && queue < queues && place < width, "no such number")
        numbers[queue * width + place] &+= 1
    }

    /// Records the time from enqueueing to the outcome.
    @inline(__always)
    func record(latency milliseconds: Int, queue: Int) {
        count(at: min(LatencyCounts.bucket(of: milliseconds), latencies - 1), queue)
    }

    /// Records the time that APNs took to answer.
    @inline(__always)
    func record(answer milliseconds: Int, queue: Int) {
        count(at: latencies + min(LatencyCounts.bucket(of: milliseconds), answers - 1), queue)
    }

    /// Records the age of a claimed job in milliseconds.
    @inline(__always)
    func recordAge(_ milliseconds: Int64, queue: Int) {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let place = queue * width + width - 1
        if milliseconds >= numbers[place] { numbers[place] = Int(milliseconds) + 1 }
    }

    /// Returns and resets the sums of a queue; `nil` if nothing was counted.
    /// - Parameter notifications: the counts of the queue's notifications since the start.
    func take(queue: Int, notifications: MinuteCounts) -> MinuteCounts? {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let own = numbers + queue * width
        var counts = notifications
        counts.subtractNotifications(included[queue])
        for (index, bound) in LatencyCounts.bounds.enumerated() {
            counts.latencies.add(own[index], below: bound)
            if index < answers { counts.answers.add(own[latencies + index], below: bound) }
        }
        if own[width - 1] > 0 { counts.oldest = Int64(own[width - 1] - 1) }
        counts += unwritten[queue]
        own.update(repeating: 0, count: width)
        unwritten[queue] = MinuteCounts()
        included[queue] = notifications
        return counts.isEmpty ? nil : counts
    }

    /// Restores sums that were removed but not written.
    func putBack(_ counts: MinuteCounts, queue: Int) { unwritten[queue] += counts }
}
