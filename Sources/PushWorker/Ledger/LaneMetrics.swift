import APNS
import NIOCore
import PushJob
import PushQueue
import Telemetry

/// A lane's counts: notifications by app, queue, push type and outcome, jobs by queue and outcome, and durations. All other counts are sums
/// or differences of these.
///
/// Plain numbers in tables, without a lock or an allocation, because most are counted for each notification. Only notifications that were
/// not delivered are counted in a dictionary.
///
/// Apps, queues and push types are identified by their index; apps can be added but not removed.
final class LaneMetrics {
    /// The key of a count of notifications that were not delivered.
    struct Key: Hashable {
        /// The index of the app; -1 if unknown.
        var app: Int
        var queue: Int
        /// The index of the push type; -1 if unknown.
        var pushType: Int
        var fate: Fate
        var reason: String
    }

    /// True if times are recorded for scrapes.
    let measuresTimes: Bool
    /// The time from a request's submission to its answer, in microseconds, by app.
    let sendTimes: LaneHistogram
    /// The latest exemplar in each bucket of ``sendTimes``, by app.
    private(set) var exemplars: [Int: [Int: Exemplar]] = [:]
    /// The time from enqueueing to submission, in milliseconds, by queue.
    let queueTimes: LaneHistogram
    /// The sums for the history in Redis.
    let minutes: MinuteRecorder
    var clock: () -> NIODeadline = { .now() }
    /// The notifications that were not delivered.
    private(set) var others: [Key: Int] = [:]
    /// Submitted requests, including resends.
    var submitted = 0
    /// Notifications that are sent again although APNs may have accepted an earlier request.
    var possibleDuplicates = 0
    /// Jobs whose `expiration` is a duration without a start.
    var undatedExpirations = 0
    /// Settlements of claims that another lane had reclaimed.
    var lostClaims = 0
    var redisConnections = 0
    var redisFailures = 0
    private let queues: Int
    private let fates = Fate.ofJobs.count
    // A copy, because each access to a computed constant calls a function.
    private let pushTypes = PushType.rows.count
    private var apps = 0
    private var delivered: UnsafeMutablePointer<Int>
    private let jobs: UnsafeMutablePointer<Int>
    private let claims: UnsafeMutablePointer<QueueClaims>
    private let clocks: UnsafeMutablePointer<Int64>

    struct QueueClaims {
        var claimed = 0
        /// Claims reclaimed from lanes whose lease had expired.
        var reclaimed = 0
        var poisoned = 0
    }

    // The current time, read once per iteration of the event loop.
    private var hasTime = false
    private var microseconds: UInt32 = 0
    /// The time of the last reading, in milliseconds of the lane's clock.
    private(set) var milliseconds: Int64 = 0

    init(apps: Int, queues: Int, measuresTimes: Bool) {
        self.queues = queues
        self.measuresTimes = measuresTimes
        minutes = MinuteRecorder(queues: queues)
        sendTimes = LaneHistogram(
            bounds: WorkerMetric.sendTime.buckets.map { UInt32($0 * 1_000_000) }, rows: apps)
        queueTimes = LaneHistogram(bounds: WorkerMetric.queueTime.buckets.map { UInt32($0 * 1000) }, rows: queues)
        delivered = .allocate(capacity: 0)
        jobs = .allocate(capacity: queues * fates)
        jobs.initialize(repeating: 0, count: queues * fates)
        claims = .allocate(capacity: queues)
        claims.initialize(repeating: QueueClaims(), count: queues)
        clocks = .allocate(capacity: queues)
        clocks.initialize(repeating: 0, count: queues)
        reserve(apps: apps)
    }

    deinit {
        delivered.deallocate()
        jobs.deallocate()
        claims.deallocate()
        clocks.deallocate()
    }

    private func reserve(apps wanted: Int) {
        let width = queues * pushTypes
        let larger = UnsafeMutablePointer<Int>.allocate(capacity: wanted * width)
        larger.initialize(repeating: 0, count: wanted * width)
        larger.update(from: delivered, count: apps * width)
        delivered.deallocate()
        delivered = larger
        apps = wanted
        sendTimes.reserve(rows: wanted)
    }

    // MARK: Notifications

    /// Returns the index of the counter for notifications of an app, a queue and a push type.
    @inline(__always)
    func series(app: Int, queue: Int, pushType: PushType) -> UInt32 {
        if app >= apps { reserve(apps: max(app + 1, apps * 2)) }
        return UInt32((app * queues + queue) * pushTypes + pushType.place)
    }

    @inline(__always)
    func countDelivered(_ series: UInt32) {
        precondition(Int(series) < apps * queues * pushTypes, "no such series")
        delivered[Int(series)] &+= 1
    }

    func count(_ fate: Fate, _ series: UInt32, _ count: Int, _ reason: Reason?) {
        guard count > 0 else { return }
        let (app, queue, pushType) = place(of: Int(series))
        add(count, Key(app: app, queue: queue, pushType: pushType, fate: fate, reason: reason?.code.label ?? ""))
    }

    /// Counts notifications that were never created. Their app may be unknown.
    func count(_ fate: Fate, app: Int?, queue: Int, _ count: Int, _ reason: Reason?) {
        guard count > 0 else { return }
        add(count, Key(app: app ?? -1, queue: queue, pushType: -1, fate: fate, reason: reason?.code.label ?? ""))
    }

    private func add(_ count: Int, _ key: Key) { others[key, default: 0] += count }

    /// The counts of all notifications, including delivered ones.
    var notifications: [Key: Int] {
        var all = others
        for series in 0..<apps * queues * pushTypes where delivered[series] > 0 {
            let (app, queue, pushType) = place(of: series)
            all[Key(app: app, queue: queue, pushType: pushType, fate: .ended(.delivered), reason: "")] =
                delivered[series]
        }
        return all
    }

    /// The sums of all counts of the lane.
    var counters: LaneCounters {
        var sums = LaneCounters()
        for (key, count) in notifications {
            switch key.fate {
            case .ended(let outcome): sums.outcomes[outcome] += count
            case .postponed(.retried): sums.retried += count
            case .postponed(.deferred): sums.deferred += count
            case .postponed(.scheduled): sums.scheduled += count
            case .resent: sums.resent += count
            case .mixed, .split: break
            }
        }
        sums.claimedJobs = claimedJobs
        (sums.submitted, sums.possibleDuplicates) = (submitted, possibleDuplicates)
        (sums.undatedExpirations, sums.lostClaims) = (undatedExpirations, lostClaims)
        return sums
    }

    func pushType(of series: UInt32) -> String { PushType.rows[place(of: Int(series)).pushType].name.description }

    private func place(of series: Int) -> (app: Int, queue: Int, pushType: Int) {
        let row = series / pushTypes
        return (row / queues, row % queues, series % pushTypes)
    }

    // MARK: The history

    /// Returns a queue's counts for the history since the last call; `nil` if nothing was counted.
    /// - Parameter names: the names of the apps, by index.
    func takeMinute(ofQueue queue: Int, apps names: [String] = []) -> MinuteCounts? {
        minutes.take(queue: queue, notifications: history(ofQueue: queue, names))
    }

    /// The counts of a queue's notifications: ended ones by outcome, postponed ones by reason. The history does not include scheduled ones.
    private func history(ofQueue queue: Int, _ names: [String]) -> MinuteCounts {
        var counts = MinuteCounts()
        for app in 0..<apps {
            let first = (app * queues + queue) * pushTypes
            for series in first..<first + pushTypes where delivered[series] > 0 {
                counts.outcomes[.delivered] += delivered[series]
                guard app < names.count else { continue }
                let group = DeliveryGroup(app: names[app], pushType: PushType.rows[series - first].name.description)
                counts.deliveries[group, default: 0] += delivered[series]
            }
        }
        for (key, count) in others where key.queue == queue {
            switch key.fate {
            case .ended(let outcome): counts.outcomes[outcome] += count
            case .postponed(.retried): counts.retries[key.reason, default: 0] += count
            case .postponed(.deferred): counts.deferrals[key.reason, default: 0] += count
            case .postponed(.scheduled), .resent, .mixed, .split: break
            }
        }
        return counts
    }

    // MARK: Jobs

    @inline(__always)
    func count(_ fate: Fate, queue: Int) {
        precondition(queue >= 0 && queue < queues, "no such queue")
        jobs[queue * fates + fate.index] &+= 1
    }

    func jobs(_ fate: Fate, queue: Int) -> Int {
        precondition(queue >= 0 && queue < queues, "no such queue")
        return jobs[queue * fates + fate.index]
    }

    var claimedJobs: Int { (0..<queues).reduce(0) { $0 + claims[$1].claimed } }

    subscript(claimsOf queue: Int) -> QueueClaims {
        get {
            precondition(queue >= 0 && queue < queues, "no such queue")
            return claims[queue]
        }
        set {
            precondition(queue >= 0 && queue < queues, "no such queue")
            claims[queue] = newValue
        }
    }

    // MARK: Times

    /// Records that a new iteration of the event loop has begun, so that the time is read again.
    func turned() { hasTime = false }

    /// Records how far the clock of a queue's Redis is ahead of the event loop's clock, in milliseconds.
    func setClock(ofQueue queue: Int, ahead milliseconds: Int64) {
        precondition(queue >= 0 && queue < queues, "no such queue")
        clocks[queue] = milliseconds
    }

    /// Returns the time in microseconds since an arbitrary start. It wraps around after 71 minutes.
    @inline(__always)
    func time() -> UInt32 {
        if !hasTime { readTime(clock()) }
        return microseconds
    }

    func readTime(_ now: NIODeadline) {
        microseconds = UInt32(truncatingIfNeeded: now.uptimeNanoseconds / 1000)
        milliseconds = Int64(now.uptimeNanoseconds / 1_000_000)
        hasTime = true
    }

    /// Records an exemplar of a traced notification for the bucket of its send time.
    func record(_ exemplar: Exemplar, time: UInt32, app: Int) {
        exemplars[app, default: [:]][sendTimes.bucket(of: time)] = exemplar
    }

    /// Records the first submission of a notification.
    /// - Parameter since: the time of its enqueueing, in milliseconds of Redis' clock; -1 if its wait must not be measured.
    @inline(__always)
    func recordFirstSubmission(queue: Int, since: Int64) {
        submitted += 1
        guard measuresTimes, since >= 0 else { return }
        _ = time()
        // Producers' clocks may be ahead of Redis'.
        queueTimes.record(UInt32(clamping: milliseconds + clocks[queue] - since), row: queue)
    }

    /// Records that a notification was sent and has ended.
    /// - Parameter since: the time of its enqueueing, in milliseconds of Redis' clock; -1 if its wait must not be measured.
    @inline(__always)
    func ended(queue: Int, since: Int64) {
        guard let latency = latency(queue: queue, since: since) else { return }
        minutes.record(latency: latency, queue: queue)
    }

    /// Returns the time since a notification was enqueued, in milliseconds; `nil` for -1.
    @inline(__always)
    func latency(queue: Int, since: Int64) -> Int? {
        guard since >= 0 else { return nil }
        _ = time()
        return Int(clamping: milliseconds + clocks[queue] - since)
    }
}
