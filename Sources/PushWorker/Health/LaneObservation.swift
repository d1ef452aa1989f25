import Glibc
import NIOCore
import PushQueue

/// A lane's observations of its own state.
struct LaneObservation {
    /// The number of the worker's lanes.
    let laneCount: Int
    let startedAt: NIODeadline
    /// The liveness of the event loop.
    let pulse = LoopPulse()
    var readiness = Readiness()
    var recentRate = RecentRate()
    /// The times since which problems keep the lane from its work.
    var problemsSince: [String: NIODeadline] = [:]
    /// The readings of the queues that only Redis has.
    var gauges = QueueGaugeReadings()

    init(laneCount: Int, startedAt: NIODeadline) {
        self.laneCount = laneCount
        self.startedAt = startedAt
    }

    /// Notes the current problems. Called about once per second.
    mutating func note(_ problems: [String], now: NIODeadline) {
        guard !problems.isEmpty || !problemsSince.isEmpty else { return }
        let before = problemsSince
        problemsSince = Dictionary(problems.map { ($0, before[$0] ?? now) }) { one, _ in one }
    }

    /// The time for which a problem has lasted.
    func duration(of problem: String, now: NIODeadline) -> TimeAmount { now - (problemsSince[problem] ?? now) }
}

/// When to tell that a lane cannot do its work, and that it can again, without any I/O.
///
/// A problem that lasts less than a moment, such as a reconnection, is not logged: an operator could do nothing about
/// it.
struct Readiness {
    enum Change: Equatable {
        case lost
        /// - Parameter after: how long it lasted.
        case regained(after: TimeAmount)
    }

    /// Shorter problems are not logged.
    static let patience = TimeAmount.seconds(1)

    private var troubledSince: NIODeadline?
    private var isTold = false

    /// True if the lane could not work at the last check: its recovery must be noticed soon.
    var isTroubled: Bool { troubledSince != nil }

    /// - Parameter isReady: whether the lane can do its work now.
    /// - Returns: the change to log, if any.
    mutating func update(isReady: Bool, now: NIODeadline) -> Change? {
        guard !isReady else {
            defer { (troubledSince, isTold) = (nil, false) }
            return isTold ? troubledSince.map { .regained(after: now - $0) } : nil
        }
        let since = troubledSince ?? now
        troubledSince = since
        guard !isTold, now - since >= Self.patience else { return nil }
        isTold = true
        return .lost
    }
}

/// How many of something there were in a second lately, by looking at a count now and then, without any I/O.
struct RecentRate {
    /// How long what has been is looked back at.
    static let window = TimeAmount.seconds(60)
    /// Looks that come sooner after each other are one.
    static let spacing = TimeAmount.seconds(1)

    private var looks: [(at: NIODeadline, count: Int)] = []

    /// Looks at the count.
    /// - Returns: the rate a second since the last look that is at least a window old, or since the first of all.
    mutating func update(_ count: Int, now: NIODeadline) -> Double {
        if let last = looks.last, now - last.at < Self.spacing {} else { looks.append((now, count)) }
        // One that is older is kept, so that the whole window is seen.
        while looks.count > 1, now - looks[1].at >= Self.window { looks.removeFirst() }
        guard let first = looks.first, now > first.at else { return 0 }
        return Double(count - first.count) / (Double((now - first.at).nanoseconds) / 1e9)
    }
}

/// The name of this machine or container.
package enum HostName {
    /// As it was when the process first asked.
    package static let current: String = {
        var host = [CChar](repeating: 0, count: 256)
        gethostname(&host, host.count - 1)
        return String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }()
}
