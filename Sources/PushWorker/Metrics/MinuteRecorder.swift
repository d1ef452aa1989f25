import PushQueue

/// A lane's sums for the history in Redis, by queue, until a settlement takes them along.
///
/// Plain numbers in memory of its own for what is counted with every notification, like ``LaneMetrics``.
final class MinuteRecorder {
    private static let latencies = LatencyCounts.bounds.count
    private static let answers = (LatencyCounts.bounds.firstIndex(of: MinuteCounts.longestAnswer) ?? 0) + 1
    private static let outcomes = Outcome.allCases.count
    /// The numbers of a queue: the buckets of both latencies, the outcomes, and the age of the oldest job plus one.
    private static let width = latencies + answers + outcomes + 1

    private let queues: Int
    private let numbers: UnsafeMutablePointer<Int>
    /// The sums by queue, except for the numbers above.
    private var others: [MinuteCounts]

    init(queues: Int) {
        self.queues = queues
        numbers = .allocate(capacity: queues * Self.width)
        numbers.initialize(repeating: 0, count: queues * Self.width)
        others = Array(repeating: MinuteCounts(), count: queues)
    }

    deinit { numbers.deallocate() }

    private func add(_ count: Int, at place: Int, _ queue: Int) {
        precondition(queue >= 0 && queue < queues && place < Self.width, "no such number")
        numbers[queue * Self.width + place] &+= count
    }

    /// Counts notifications that ended.
    func count(_ outcome: Outcome, _ count: Int = 1, queue: Int) {
        add(count, at: Self.latencies + Self.answers + outcome.index, queue)
    }

    /// Records the time from enqueueing to the outcome.
    func record(latency milliseconds: Int, queue: Int) {
        add(1, at: min(LatencyCounts.bucket(of: milliseconds), Self.latencies - 1), queue)
    }

    /// Records the time that APNs took to answer.
    func record(answer milliseconds: Int, queue: Int) {
        add(1, at: Self.latencies + min(LatencyCounts.bucket(of: milliseconds), Self.answers - 1), queue)
    }

    /// Counts notifications that go back to Redis. Scheduled ones are not history.
    func count(_ postponement: Postponement, _ count: Int, _ reason: Reason, queue: Int) {
        guard count > 0 else { return }
        switch postponement {
        case .retried: others[queue].retries[reason.code.label, default: 0] += count
        case .deferred: others[queue].deferrals[reason.code.label, default: 0] += count
        case .scheduled: break
        }
    }

    /// Notes the age of a claimed job in milliseconds.
    func noteAge(_ milliseconds: Int64, queue: Int) {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let place = queue * Self.width + Self.width - 1
        if milliseconds >= numbers[place] { numbers[place] = Int(milliseconds) + 1 }
    }

    /// Returns the sums of a queue, and begins again at zero; `nil` if nothing was counted.
    func take(queue: Int) -> MinuteCounts? {
        precondition(queue >= 0 && queue < queues, "no such queue")
        let own = numbers + queue * Self.width
        guard (0..<Self.width).contains(where: { own[$0] != 0 }) || !others[queue].isEmpty else { return nil }
        var counts = MinuteCounts()
        for (index, bound) in LatencyCounts.bounds.enumerated() {
            counts.latencies.add(own[index], below: bound)
            if index < Self.answers { counts.answers.add(own[Self.latencies + index], below: bound) }
        }
        for outcome in Outcome.allCases {
            counts.outcomes[outcome] += own[Self.latencies + Self.answers + outcome.index]
        }
        if own[Self.width - 1] > 0 { counts.oldest = Int64(own[Self.width - 1] - 1) }
        counts += others[queue]
        own.update(repeating: 0, count: Self.width)
        others[queue] = MinuteCounts()
        return counts
    }

    /// Adds sums that were taken and not written.
    func putBack(_ counts: MinuteCounts, queue: Int) { others[queue] += counts }
}
