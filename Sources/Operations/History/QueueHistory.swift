import NIOCore
import PushQueue
import Redis

/// The history of a queue, for charts: sums of the minutes' counters of the last 24 hours, and the days' counters of
/// the last 40 days.
package struct QueueHistory: Sendable, Equatable {
    /// A period, and the length of its points. The raw value is its spelling in addresses.
    package enum Span: String, CaseIterable, Sendable {
        /// The last 15 minutes, in points of a minute.
        case quarter = "15m"
        /// The last hour, in 60 points.
        case hour = "1h"
        /// The last 6 hours in points of 5 minutes: 72 points.
        case sixHours = "6h"
        /// The last 24 hours in points of 20 minutes: 72 points.
        case day = "24h"
        /// The last 7 days (UTC), day by day. Days have neither latencies nor a backlog.
        case week = "7d"
        /// The last 40 days (UTC), day by day: 40 points.
        case days = "40d"

        /// The length of a point, in milliseconds.
        package var step: Int64 {
            switch self {
            case .quarter, .hour: QueueHistory.minute
            case .sixHours: 5 * QueueHistory.minute
            case .day: 20 * QueueHistory.minute
            case .week, .days: QueueHistory.day
            }
        }

        package var count: Int {
            switch self {
            case .quarter: 15
            case .hour: 60
            case .sixHours, .day: 72
            case .week: 7
            case .days: 40
            }
        }

        /// True if the points are sums of minutes; false if they are days.
        package var hasMinutes: Bool { step < QueueHistory.day }

        /// A history can be shown for this time after it was read, in seconds.
        package var freshness: Int { step == QueueHistory.minute ? 4 : hasMinutes ? 20 : 60 }
    }

    /// Two estimated percentiles of a latency. The error of each is below 50 %.
    package struct Percentiles: Sendable, Equatable {
        /// The median in milliseconds.
        package var p50: Double
        /// The 99th percentile in milliseconds.
        package var p99: Double
    }

    /// The counts of one step of the span; all zero if nothing was counted.
    package struct Point: Sendable, Equatable {
        /// The beginning of the step, in milliseconds since 1970.
        package var at: Int64
        /// The sums of the step's counters. ``MinuteCounts/retries`` and ``MinuteCounts/deferrals`` are by reason.
        package var counts = MinuteCounts()
        /// The number of jobs that could be claimed (waiting and due): the largest sample of the step, with one sample
        /// per minute; `nil` without a sample.
        package var backlog: Int?
        /// True if anything was recorded. If not, no worker ran, or there was nothing to do.
        package var isRecorded = false

        package init(at: Int64) { self.at = at }

        /// The time from enqueueing to the outcome of notifications that were sent at the first attempt; `nil` without
        /// any.
        package var latency: Percentiles? { Percentiles(counts.latencies) }
        /// The time from a request to APNs' answer; `nil` without answers.
        package var answer: Percentiles? { Percentiles(counts.answers) }

        /// Adds the counts of the same step in another queue.
        fileprivate mutating func add(_ other: Point) {
            counts += other.counts
            isRecorded = isRecorded || other.isRecorded
            if let more = other.backlog { backlog = (backlog ?? 0) + more }
        }

        /// Adds the fields and values of a hash. A key of another type adds nothing.
        fileprivate mutating func add(hash: RESPReply?) {
            guard var elements = hash?.root.children else { return }
            while let name = elements.next()?.string, let value = elements.next()?.string {
                isRecorded = true
                if name == "backlog" {
                    backlog = max(backlog ?? 0, min(Int(value) ?? 0, MinuteCounts.maximum))
                } else {
                    counts.add(name, value)
                }
            }
        }
    }

    private static let minute: Int64 = 60_000
    private static let day: Int64 = 86_400_000
    /// The number of hashes that are requested together: reading them takes Redis about a millisecond.
    private static let maximumReads = 60
    /// A day with more fields is read without its reasons.
    private static let maximumFields = 2000

    package var span: Span
    /// The points in order of time, without gaps. The last point is the current, unfinished step.
    package var points: [Point]

    /// Reads the history of a queue up to now, by Redis' clock.
    /// - Throws: `RedisError`.
    package static func read(_ span: Span, _ client: RedisClient, _ keys: QueueKeys) async throws -> QueueHistory {
        try await read(span, until: client.time(), client, keys)
    }

    /// - Parameter now: the time in milliseconds since 1970.
    static func read(
        _ span: Span, until now: Int64, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> QueueHistory {
        let last = now / span.step * span.step
        var history = QueueHistory(
            span: span, points: (1 - span.count...0).map { Point(at: last + Int64($0) * span.step) })
        if span.hasMinutes {
            try await history.readMinutes(until: now, client, keys)
        } else {
            try await history.readDays(client, keys)
        }
        return history
    }

    private mutating func readMinutes(until now: Int64, _ client: RedisClient, _ keys: QueueKeys) async throws {
        let minutes = Array(stride(from: points[0].at, through: now, by: Int(Self.minute)))
        for some in minutes.batches(of: Self.maximumReads) {
            let replies = try await client.call(
                some.map { RedisCommand("HGETALL", keys.minute(Self.name(ofMinute: $0))) })
            for (minute, reply) in zip(some, replies) {
                points[Int((minute - points[0].at) / span.step)].add(hash: reply)
            }
        }
    }

    private mutating func readDays(_ client: RedisClient, _ keys: QueueKeys) async throws {
        let names = points.map { keys.stats(Self.name(ofDay: $0.at)) }
        let sizes = try await client.call(names.map { RedisCommand("HLEN", $0) }).map { $0?.root.number ?? 0 }
        let reads = zip(names, sizes).map { name, size in
            size <= Self.maximumFields ? RedisCommand("HGETALL", name) : Self.outcomes(of: name)
        }
        for (index, reply) in try await client.call(reads).enumerated() {
            if sizes[index] <= Self.maximumFields {
                points[index].add(hash: reply)
            } else if let reply {
                points[index].isRecorded = true
                for (outcome, value) in zip(Outcome.allCases, reply.root.children) {
                    points[index].counts.add(outcome.rawValue, value.string ?? "")
                }
            }
        }
    }

    private static func outcomes(of key: String) -> RedisCommand {
        var command = RedisCommand("HMGET", key)
        for outcome in Outcome.allCases { command.append(outcome.rawValue) }
        return command
    }

    /// Returns the sums of the histories of several queues. The points have the times of the latest history.
    /// - Parameter histories: histories of one span.
    /// - Returns: `nil` without histories.
    package static func sum(of histories: [QueueHistory]) -> QueueHistory? {
        guard var sum = histories.max(by: { $0.points[0].at < $1.points[0].at }) else { return nil }
        for index in sum.points.indices {
            let at = sum.points[index].at
            sum.points[index] = Point(at: at)
            for history in histories where history.span == sum.span {
                // Histories that were read a moment apart may begin one step apart.
                let other = Int((at - history.points[0].at) / sum.span.step)
                if history.points.indices.contains(other) { sum.points[index].add(history.points[other]) }
            }
        }
        return sum
    }

    // MARK: Names

    /// The name of a minute in its key, such as `2026-11-21T14:05`.
    static func name(ofMinute time: Int64) -> String { String(Moment.text(time).prefix(16)) }

    /// The date of a time in UTC, such as `2026-11-21`.
    static func name(ofDay time: Int64) -> String { String(Moment.text(time).prefix(10)) }
}

extension QueueHistory.Percentiles {
    /// - Returns: `nil` without values.
    init?(_ counts: LatencyCounts) {
        guard let p50 = counts.percentile(0.5), let p99 = counts.percentile(0.99) else { return nil }
        self.init(p50: p50, p99: p99)
    }
}

extension RedisClient {
    /// Sends commands together and waits for the answers, in their order.
    /// - Returns: for each command its reply; `nil` for a key of another type, which another program has written.
    /// - Throws: `RedisError`.
    package func call(_ commands: [RedisCommand]) async throws -> [RESPReply?] {
        try await commands.concurrentMap { command -> RESPReply? in
            do {
                return try await self.call(command)
            } catch RedisError.server(let error) where error.prefix == "WRONGTYPE" {
                return nil
            }
        }
    }
}
