import PushQueue

/// A lane's sums for the history in Redis, by queue, until a settlement includes them.
///
/// The sums that change with every notification are plain numbers in their own memory, like those of ``LaneMetrics``.
final class MinuteRecorder {
    // Not static, because a static constant's initialization is checked on each access.
    private let latencies = LatencyCounts.bounds.count
    private let answers = (LatencyCounts.bounds.firstIndex(of: MinuteCounts.longestAnswer) ?? 0) + 1
    /// The count of numbers per queue: the buckets of both latencies, the outcomes, and the age of the oldest job plus
    /// one.
    private let width: Int
    private let queues: Int
    private let numbers: UnsafeMutablePointer<Int>
    /// The sums by queue that are not among the numbers above.
    private var others: [MinuteCounts]

    init(queues: Int) {
        self.queues = queues
        width = latencies + answers + Outcome.allCases.count + 1
        numbers = .allocate(capacity: queues * width)
        numbers.initialize(repeating: 0, count: queues * width)
        others = Array(repeating: MinuteCounts(), count: queues)
    }

    deinit { numbers.deallocate() }

    @inline(__always)  // Inlined like its callers, because a call retains and releases the object.
    private func add(_ count: Int, at place: Int, _ queue: Int) {
        precondition(queue >= 0 && queue < queues && place < width, "no such number")
        numbers[queue * width + place] &+= count
    }

    /// Counts notifications that ended.
    @inline(__always)
    func count(_ outcome: Outcome, _ count: Int = 1, queue: Int) {
        add(count, at: latencies + answers + outcome.index, queue)
    }

    /// Records the time from enqueueing to the outcome.
    @inline(__always)
    func record(latency milliseconds: Int, queue: Int) {
        add(1, at: min(LatencyCounts.bucket(of: milliseconds), latencies - 1), queue)
    }

    /// Records the time that APNs took to answer.
    @inline(__always)
    func record(answer milliseconds: Int, queue: Int) {
        add(1, at: latencies + min(LatencyCounts.bucket(of: milliseconds), answers - 1), queue)
    }

    /// Counts notifications that are returned to Redis. Scheduled ones are not part of the history.
    func count(_ postponement: Postponement, _ count: Int, _ reason: Reason, queue: Int) {
        guard count > 0 else { return }
        switch postponement {
        case .retried: others[queue].retries[reason.code.label, default: 0] += count
        case .deferred: others[queue].deferrals[reason.code.label, default: 0] += count
        case .scheduled: break
        }
    }

    /// Records the age of a claimed job in milliseconds.
    @inline(__always)
    func noteAge(_ milliseconds: Int64, queue: Int) {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let place = queue * width + width - 1
        if milliseconds >= numbers[place] { numbers[place] = Int(milliseconds) + 1 }
    }

    /// Returns and resets the sums of a queue; `nil` if nothing was counted.
    func take(queue: Int) -> MinuteCounts? {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let own = numbers + queue * width
        guard (0..<width).contains(where: { own[$0] != 0 }) || !others[queue].isEmpty else { return nil }
        var counts = MinuteCounts()
        for (index, bound) in LatencyCounts.bounds.enumerated() {
            counts.latencies.add(own[index], below: bound)
            if index < answers { counts.answers.add(own[latencies + index], below: bound) }
        }
        for outcome in Outcome.allCases {
            counts.outcomes[outcome] += own[latencies + answers + outcome.index]
        }
        if own[width - 1] > 0 { counts.oldest = Int64(own[width - 1] - 1) }
        counts += others[queue]
        own.update(repeating: 0, count: width)
        others[queue] = MinuteCounts()
        return counts
    }

    /// Restores sums that were removed but not written.
    func putBack(_ counts: MinuteCounts, queue: Int) { others[queue] += counts }
}
