import PrintableText
import Redis

/// Times in milliseconds, counted in buckets. Percentiles can be estimated from them.
///
/// The upper bounds are 1, 2, 3, 4, 6, 8, 12, 16, 24, … ms: two buckets for each doubling, so that an estimate is off
/// by less than half. The last bucket holds all longer times, too.
public struct LatencyCounts: Sendable, Equatable {
    /// The upper bounds of all buckets in milliseconds; the last is about 70 minutes.
    public static let bounds: [Int] = (0..<maximumBuckets).map { index in
        index < 2 ? index + 1 : (index % 2 == 0 ? 3 : 4) << (index / 2 - 1)
    }

    private static let maximumBuckets = 44

    private var counts: [Int]

    /// - Parameter bound: the upper bound of the last bucket in milliseconds, one of ``bounds``.
    public init(upTo bound: Int = Self.bounds[Self.bounds.count - 1]) {
        counts = Array(repeating: 0, count: Self.bounds.firstIndex(of: bound).map { $0 + 1 } ?? Self.maximumBuckets)
    }

    public mutating func record(_ milliseconds: Int) {
        counts[min(Self.bucket(of: milliseconds), counts.count - 1)] &+= 1
    }

    /// Returns the index of a time's bucket, from its highest bit and the bit after that. May be beyond the last bucket.
    public static func bucket(of milliseconds: Int) -> Int {
        guard milliseconds > 1 else { return max(0, milliseconds) }
        let bit = Int.bitWidth - 1 - milliseconds.leadingZeroBitCount
        return 2 * bit + (milliseconds >> (bit - 1)) & 1
    }

    public var count: Int { counts.reduce(0, +) }

    public var isEmpty: Bool { !counts.contains { $0 > 0 } }

    /// The buckets that are not empty: their upper bounds in milliseconds, and the number of values in them.
    public var buckets: [(bound: Int, count: Int)] {
        zip(Self.bounds, counts).compactMap { $1 > 0 ? ($0, $1) : nil }
    }

    /// Adds values to the bucket with this upper bound. Ignores a bound that no bucket has.
    public mutating func add(_ count: Int, below bound: Int) {
        guard let index = Self.bounds.firstIndex(of: bound) else { return }
        counts[min(index, counts.count - 1)] += count
    }

    public static func += (sum: inout Self, other: Self) {
        for (bound, count) in other.buckets { sum.add(count, below: bound) }
    }

    /// Estimates the time that a share of the values does not exceed, in milliseconds. Values are assumed to be evenly
    /// distributed within a bucket.
    /// - Parameter share: from 0 to 1.
    /// - Returns: `nil` without values.
    public func percentile(_ share: Double) -> Double? {
        let total = count
        guard total > 0 else { return nil }
        let rank = max(0, min(share, 1)) * Double(total)
        var before = 0
        var (low, estimate) = (0.0, 0.0)
        for (bound, count) in zip(Self.bounds, counts) {
            if count > 0 {
                estimate = low + (Double(bound) - low) * min(1, (rank - Double(before)) / Double(count))
                if Double(before + count) >= rank { return estimate }
                before += count
            }
            low = Double(bound)
        }
        return estimate
    }
}

/// A lane's counts for a queue since it last wrote them to Redis, for charts.
///
/// Lanes add up in memory and attach the sums to a settlement about once per second. So a crash loses about a second of history. The sums
/// belong to the minute when they are written. If two lanes ended a notification, because the first had lost its lease, it counts twice
/// here, but not in the day's counters.
public struct MinuteCounts: Sendable, Equatable {
    /// The upper bound in milliseconds of the last bucket of ``answers``: no request waits that long.
    public static let longestAnswer = 32_768
    /// The name for unknown reasons, and for reasons beyond the number that a minute holds.
    public static let otherReason = "other"

    public var outcomes = OutcomeCounts()
    /// Notifications that are tried again after a failure, by reason.
    public var retries: [String: Int] = [:]
    /// Notifications that were postponed without a failure, by reason.
    public var deferrals: [String: Int] = [:]
    /// The times from enqueueing to the outcome, in milliseconds, of notifications that were sent at the first attempt.
    public var latencies = LatencyCounts()
    /// The times from the submission of requests to APNs' answers, in milliseconds.
    public var answers = LatencyCounts(upTo: Self.longestAnswer)
    /// The deliveries of each app and push type, which decide if a failure spends an attempt.
    public var deliveries: [DeliveryGroup: Int] = [:]
    /// The age of the oldest claimed job in milliseconds; `nil` if no job contains the time when it was enqueued.
    public var oldest: Int64?

    public init() {}

    public var isEmpty: Bool {
        outcomes.total == 0 && retries.isEmpty && deferrals.isEmpty && oldest == nil && latencies.isEmpty
            && answers.isEmpty
    }

    public static func += (sum: inout Self, other: Self) {
        sum.outcomes = sum.outcomes + other.outcomes
        sum.retries.merge(other.retries, uniquingKeysWith: +)
        sum.deferrals.merge(other.deferrals, uniquingKeysWith: +)
        sum.latencies += other.latencies
        sum.answers += other.answers
        sum.deliveries.merge(other.deliveries, uniquingKeysWith: +)
        sum.oldest = [sum.oldest, other.oldest].compactMap { $0 }.max()
    }

    /// Subtracts counts of notifications that were written earlier.
    public mutating func subtractNotifications(_ earlier: Self) {
        for (outcome, count) in earlier.outcomes.counted { outcomes[outcome] -= count }
        retries.merge(earlier.retries.mapValues { -$0 }, uniquingKeysWith: +)
        deferrals.merge(earlier.deferrals.mapValues { -$0 }, uniquingKeysWith: +)
        retries = retries.filter { $0.value > 0 }
        deferrals = deferrals.filter { $0.value > 0 }
        deliveries.merge(earlier.deliveries.mapValues { -$0 }, uniquingKeysWith: +)
        deliveries = deliveries.filter { $0.value > 0 }
    }

    // MARK: The form in Redis

    private static let retried = Postponement.retried.rawValue + ":"
    private static let deferred = Postponement.deferred.rawValue + ":"
    private static let latency = "latency:"
    private static let answer = "answer:"
    /// More than any real count; sums of such numbers do not overflow.
    public static let maximum = 10_000_000_000_000
    /// A day's counters can have any text as a reason, so the number of reasons is limited.
    private static let maximumReasons = 100

    /// The fields of the minute's hash: `delivered`, `retried:Shutdown`, `deferred:AppPaused`, `latency:96` (64 to 96
    /// ms), `answer:12`. Reasons come first, because a minute accepts them only while it has few fields.
    public var fields: [(name: String, amount: Int)] {
        retries.sorted { $0.key < $1.key }.map { (Self.retried + $0.key, $0.value) }
            + deferrals.sorted { $0.key < $1.key }.map { (Self.deferred + $0.key, $0.value) }
            + outcomes.counted.map { ($0.outcome.rawValue, $0.count) }
            + latencies.buckets.map { ("\(Self.latency)\($0.bound)", $0.count) }
            + answers.buckets.map { ("\(Self.answer)\($0.bound)", $0.count) }
    }

    /// Appends the last action of the script `settle`.
    func append(to command: inout RedisCommand, _ keys: QueueKeys) {
        let fields = fields
        command.append("minute")
        command.append(keys.minutesPrefix)
        command.append(keys.jobs)
        command.append(keys.sorted)
        command.append(keys.inbox)
        command.append(oldest.map { "\($0)" } ?? "")
        command.append(fields.count)
        for (name, amount) in fields {
            command.append(name)
            command.append(amount)
        }
        var sums: [String: Int] = [:]
        for (group, amount) in deliveries {
            for field in [group.field, group.appField] { sums[field, default: 0] += amount }
        }
        command.append(sums.count)
        for (field, amount) in sums {
            command.append(field)
            command.append(amount)
        }
    }

    /// Adds a field of a minute's or a day's hash. Ignores other fields, and values that are not numbers: any version
    /// of the worker, or an operator, may have written them.
    public mutating func add(_ name: String, _ value: String) {
        let value = max(0, min(Int(value) ?? 0, Self.maximum))
        if let outcome = Outcome(rawValue: name) {
            outcomes[outcome] += value
        } else if name.hasPrefix(Self.retried) {
            Self.add(value, String(name.dropFirst(Self.retried.count)), to: &retries)
        } else if name.hasPrefix(Self.deferred) {
            Self.add(value, String(name.dropFirst(Self.deferred.count)), to: &deferrals)
        } else if name.hasPrefix(Self.latency) {
            if let bound = Int(name.dropFirst(Self.latency.count)) { latencies.add(value, below: bound) }
        } else if name.hasPrefix(Self.answer) {
            if let bound = Int(name.dropFirst(Self.answer.count)) { answers.add(value, below: bound) }
        } else if name == "oldest" {
            oldest = max(oldest ?? 0, Int64(value))
        }
    }

    private static func add(_ value: Int, _ reason: String, to counts: inout [String: Int]) {
        let reason = reason.printable(replacing: "?", atMost: WorkerReport.maximumText)
        counts[counts[reason] == nil && counts.count >= maximumReasons ? otherReason : reason, default: 0] += value
    }
}

/// All notifications of an app with a push type. If a job without a campaign fails, their deliveries decide if the failure spends an
/// attempt. Nearly always, the topic follows from the app and the push type.
public struct DeliveryGroup: Sendable, Hashable {
    public let app: String
    public let pushType: String

    public init(app: String, pushType: String) {
        self.app = app
        self.pushType = pushType
    }

    /// The field of the group's deliveries in ``QueueKeys/deliveries``.
    var field: String { "\(pushType):\(app)" }

    /// The field of the app's deliveries.
    var appField: String { ":\(app)" }
}
