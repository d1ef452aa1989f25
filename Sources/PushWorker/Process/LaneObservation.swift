import Glibc
import NIOCore
import PushQueue
import Sockets

/// A lane's observations of its own state.
struct LaneObservation {
    /// The number of the worker's lanes.
    let laneCount: Int
    let startedAt: NIODeadline
    /// The liveness of the event loop.
    let pulse = LoopPulse()
    var readiness = Readiness()
    var recentRate = RecentRate()
    /// The time at which each current problem began.
    var problemsSince: [String: NIODeadline] = [:]
    /// The readings of queues, which only Redis has.
    var gauges = QueueGaugeReadings()

    init(laneCount: Int, startedAt: NIODeadline) {
        self.laneCount = laneCount
        self.startedAt = startedAt
    }

    /// Records the current problems. Called about once per second.
    mutating func note(_ problems: [String], now: NIODeadline) {
        guard !problems.isEmpty || !problemsSince.isEmpty else { return }
        let before = problemsSince
        problemsSince = Dictionary(problems.map { ($0, before[$0] ?? now) }) { one, _ in one }
    }

    /// Records that the process did not run for some time, which says nothing about its problems.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        problemsSince = problemsSince.mapValues { $0.moved(by: time, now: now) }
        readiness.stoodStill(for: time, now: now)
    }

    /// Returns the time for which a problem has lasted.
    func duration(of problem: String, now: NIODeadline) -> TimeAmount { now - (problemsSince[problem] ?? now) }
}

/// Decides when to report that a lane can't work, and that it can again. No I/O.
///
/// A brief problem, such as a reconnection, is not logged, because an operator could do nothing about it.
struct Readiness {
    enum Change: Equatable {
        case lost
        /// - Parameter after: the time for which the problem lasted.
        case regained(after: TimeAmount)
    }

    /// The duration from which a problem is logged.
    static let patience = TimeAmount.seconds(1)

    private var problemSince: NIODeadline?
    private var isLogged = false

    /// True if the lane could not work at the last check. It is then checked often, to notice its recovery soon.
    var hasProblem: Bool { problemSince != nil }

    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        problemSince = problemSince?.moved(by: time, now: now)
    }

    /// - Parameter isReady: true if the lane can work now.
    /// - Returns: the change to log, if any.
    mutating func update(isReady: Bool, now: NIODeadline) -> Change? {
        guard !isReady else {
            defer { (problemSince, isLogged) = (nil, false) }
            return isLogged ? problemSince.map { .regained(after: now - $0) } : nil
        }
        let since = problemSince ?? now
        problemSince = since
        guard !isLogged, now - since >= Self.patience else { return nil }
        isLogged = true
        return .lost
    }
}

/// The recent rate per second of a count that is read at intervals. No I/O.
struct RecentRate {
    /// The time span over which the rate is measured.
    static let window = TimeAmount.seconds(60)
    /// The minimum interval between stored readings.
    static let spacing = TimeAmount.seconds(1)

    private var readings: [(at: NIODeadline, count: Int)] = []

    /// Adds a reading of the count.
    /// - Returns: the rate per second since the newest reading that is at least a window old, or else since the first.
    mutating func update(_ count: Int, now: NIODeadline) -> Double {
        if let last = readings.last, now - last.at < Self.spacing {} else { readings.append((now, count)) }
        // An older reading is kept, so that the whole window is covered.
        while readings.count > 1, now - readings[1].at >= Self.window { readings.removeFirst() }
        guard let first = readings.first, now > first.at else { return 0 }
        return Double(count - first.count) / (Double((now - first.at).nanoseconds) / 1e9)
    }
}

/// The name of this machine or container.
package enum HostName {
    /// The name at the time of first use.
    package static let current: String = {
        var host = [CChar](repeating: 0, count: 256)
        gethostname(&host, host.count - 1)
        return String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }()
}
