import PushQueue
import Redis

/// A lane as it was found in a queue.
struct LaneSighting {
    var queue: String
    var now: Int64
    var worker: QueueOverview.Worker

    /// The name of the lane's process; without a report, the name of the lane.
    var process: String { report?.process ?? worker.name }

    /// The lane's report; `nil` if the report names another process.
    var report: WorkerReport? {
        worker.report.flatMap { worker.name.hasPrefix($0.process + ".") ? $0 : nil }
    }

    /// The process and the lane's index in it.
    var lane: String { "\(process) \(report?.lane ?? 0)" }

    /// The time of the lane's report; 0 without one.
    fileprivate var reportedAt: Int64 { report?.updatedAt ?? 0 }
}

/// The lanes of a fleet or of a process, as they were found in each of their queues. The workers are derived from
/// them, without any I/O.
struct LaneSightings {
    private let all: [LaneSighting]

    init(_ all: [LaneSighting]) { self.all = all }

    func without(_ processes: Set<String>) -> LaneSightings {
        LaneSightings(all.filter { !processes.contains($0.process) })
    }

    private var living: [LaneSighting] { all.filter(\.worker.isLiving) }

    /// The newest sighting with a report.
    private var last: LaneSighting? {
        all.filter { $0.report != nil }.max { $0.reportedAt < $1.reportedAt }
    }

    /// Jobs that are claimed and not settled.
    private var claimed: Int { all.reduce(0) { $0 + $1.worker.claims } }

    /// The milliseconds until the first lease of a living lane ends or, if no lane lives, of any lane.
    private var leaseLeft: Int64? { (living.isEmpty ? all : living).map(\.worker.leaseLeft).min() }

    /// The last report of each living lane; a lane reports the same on all its queues.
    var reports: [WorkerReport] {
        var newest: [String: WorkerReport] = [:]
        for sighting in living {
            guard let report = sighting.report else { continue }
            if let known = newest[sighting.lane], known.updatedAt >= report.updatedAt { continue }
            newest[sighting.lane] = report
        }
        return Array(newest.values)
    }

    /// - Parameter unwritable: queues whose server refuses writes, so that no worker can renew its lease.
    func workers(unwritable: Set<String>) -> [WorkerStatus] {
        Dictionary(grouping: all, by: \.process).map { name, sightings in
            LaneSightings(sightings).worker(name, unwritable: unwritable)
        }.sorted { ($0.host, $0.pid, $0.name) < ($1.host, $1.pid, $1.name) }
    }

    private func worker(_ name: String, unwritable: Set<String>) -> WorkerStatus {
        let reports = reports
        var worker = WorkerStatus(name: name)
        worker.lanes = Set(living.map(\.lane)).count
        worker.queues = Set(all.map(\.queue)).sorted()
        worker.claimed = claimed
        worker.leaseLeftMs = leaseLeft ?? 0
        if let any = reports.first ?? all.lazy.compactMap(\.report).first {
            worker.host = any.host
            worker.pid = any.processIdentifier
            worker.version = any.version
            worker.lanesTotal = any.lanes
            worker.redis = any.redis
            worker.startedAt = any.startedAt
        }
        if let last {
            worker.updatedAt = last.reportedAt
            worker.silenceMs = max(0, last.now.since(last.reportedAt))
        }
        worker.latenessMs = lateness(unwritable: unwritable)
        worker.laneStates = Dictionary(grouping: all, by: \.lane).values.map { LaneSightings($0).lane }
            .sorted { $0.index < $1.index }
        worker.inFlight = reports.reduce(0) { $0 + $1.inFlight }
        worker.done = reports.reduce(0) { $0 + $1.done }
        worker.rate = reports.reduce(0) { $0 + $1.rate }
        let obstacles = reports.flatMap(\.obstacles)
        worker.notReady = Set(obstacles.map(\.reason)).sorted()
        for obstacle in obstacles.filter({ $0.app == nil }).sorted(by: { $0.reason < $1.reason })
        where obstacle != worker.ownObstacles.last { worker.ownObstacles.append(obstacle) }
        worker.failoverWatch = reports.lazy.compactMap(\.failoverWatch).first
        worker.refusedReload = reports.lazy.compactMap(\.refusedReload).first
        worker.state = state(reports)
        // A worker that could not renew its lease may well be alive.
        if worker.state == .gone, worker.queues.contains(where: unwritable.contains) { worker.state = .unknown }
        return worker
    }

    /// The status of the lane, if all sightings are of one lane.
    private var lane: LaneStatus {
        LaneStatus(
            index: last?.report?.lane ?? 0, queues: all.map(\.queue).sorted(), claimed: claimed,
            leaseLeftMs: leaseLeft ?? 0, isLiving: !living.isEmpty,
            silenceMs: last.map { max(0, $0.now.since($0.reportedAt)) }, report: last?.report)
    }

    private func state(_ reports: [WorkerReport]) -> WorkerStatus.State {
        if living.isEmpty { return .gone }
        if reports.isEmpty { return .unknown }
        // Lanes receive a command one by one, so the state of one lane will be that of the process.
        if reports.contains(where: { $0.state == .draining }) { return .draining }
        return reports.contains { $0.state == .quiet } ? .quiet : .running
    }

    /// A report of a lane with claims is late above this age, in milliseconds.
    private static let latestWithClaims = 2 * WorkerReport.interval + 2000
    /// The newest report of a process is late above this age, in milliseconds.
    private static let latest = 2 * WorkerReport.longestInterval + 3000

    /// Returns the age in milliseconds of the oldest late report of a lane with claims or, without one, of the newest report if it is late.
    private func lateness(unwritable: Set<String>) -> Int64? {
        let ages = living.filter { !unwritable.contains($0.queue) }.compactMap { sighting in
            sighting.report.map { (age: sighting.now.since($0.updatedAt), hasClaims: sighting.worker.claims > 0) }
        }
        let late = ages.filter { $0.hasClaims && $0.age > Self.latestWithClaims }.map(\.age).max()
        guard late == nil, let newest = ages.map(\.age).min(), newest > Self.latest else { return late }
        return newest
    }
}
