import FoundationEssentials
import NIOCore
import PushJob
import PushQueue
import Redis

/// The counters of a campaign in a queue: its ended and postponed notifications, by outcome and reason.
package struct CampaignCounts: Sendable, Equatable {
    /// The campaign's name as producers write it.
    package var name: String
    /// The total number of the campaign's notifications, if its producer has recorded it.
    package var total: Int?
    /// The time of the campaign's first settlement, in milliseconds since 1970; `nil` before that settlement.
    package var startedAt: Int64?
    /// The time of the campaign's last settlement, in milliseconds since 1970.
    package var updatedAt: Int64?
    /// The time when the campaign's last notification ended, in milliseconds since 1970; `nil` before that, or while the total may grow.
    package var finishedAt: Int64?
    package var `guard`: CampaignGuard?
    /// True while a producer may add to the total.
    package var isOpen = false
    /// The counters by name: an outcome or a postponement, such as `dead`, perhaps with a reason, as in `dead:BadPayload`.
    package var counters: [String: Int] = [:]

    /// The notifications that ended in a period.
    package struct Period: Sendable, Equatable {
        /// The beginning in seconds since 1970, a multiple of the length.
        package var start: Int64
        /// The length in seconds: 60, 600, 7,200 or 86,400.
        package var length: Int64
        package var ended: Int

        /// Reads a field `at:<start>/<length>`; `nil` for another field.
        init?(_ field: String, _ value: String) {
            guard field.hasPrefix("at:"), let ended = Int(bounding: value), ended > 0 else { return nil }
            let parts = field.dropFirst(3).split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count == 2, let start = Int64(parts[0]), let length = Int64(parts[1]),
                CampaignPace.lengths.contains(length), (0..<1 << 40).contains(start), start % length == 0
            else { return nil }
            (self.start, self.length, self.ended) = (start, length, ended)
        }
    }
    /// The periods with ended notifications, in no order. The longer a campaign lasts, the longer are its periods.
    package var periods: [Period] = []

    /// The times from enqueueing to delivery, in milliseconds.
    package var latencies = LatencyCounts()

    package subscript(outcome: Outcome) -> Int { counters[outcome.rawValue] ?? 0 }

    package var ended: Int { Outcome.allCases.reduce(0) { $0 + self[$1] } }

    /// The number of notifications that have not ended, if the total is known.
    package var left: Int? { total.map { max(0, $0 - ended) } }

    /// Reads the counters of a campaign. All are 0 for an unknown campaign.
    /// - Throws: `RedisError`.
    package static func read(_ name: String, _ client: RedisClient, _ keys: QueueKeys) async throws -> CampaignCounts {
        let reply = try await client.call(RedisCommand("HGETALL", keys.campaign(name)))
        var counts = CampaignCounts(name: name)
        var elements = reply.root.children
        while let field = elements.next()?.string, let value = elements.next()?.string {
            switch field {
            case "total": counts.total = Int(bounding: value)
            case "started_at": counts.startedAt = Int64(bounding: value)
            case "updated_at": counts.updatedAt = Int64(bounding: value)
            case "finished_at": counts.finishedAt = Int64(bounding: value)
            case "open": counts.isOpen = true
            case "guard": counts.guard = CampaignGuard(value)
            case "latency": counts.latencies = Self.latencies(value)
            case _ where field.hasPrefix("at:"):
                if let period = Period(field, value) { counts.periods.append(period) }
            default: counts.counters[field] = Int(bounding: value)
            }
        }
        return counts
    }

    /// Reads a JSON object of counts, whose names are the buckets' upper bounds in milliseconds. Returns no counts for another text.
    private static func latencies(_ json: String) -> LatencyCounts {
        var latencies = LatencyCounts()
        guard let counts = try? JSONDecoder().decode([String: Double].self, from: Data(json.utf8)) else {
            return latencies
        }
        for (bound, count) in counts where count > 0 {
            // As in the scripts, a bound in another spelling, such as `+1`, is ignored.
            guard let number = Int(bound), bound == "\(number)" else { continue }
            latencies.add(min(Int(bounding: count), MinuteCounts.maximum), below: number)
        }
        return latencies
    }

    /// Returns the names of the campaigns that were settled or enqueued last, the newest first.
    /// - Parameter limit: their maximum number.
    /// - Throws: `RedisError`.
    package static func names(_ limit: Int, _ client: RedisClient, _ keys: QueueKeys) async throws -> [String] {
        let reply = try await client.call(RedisCommand("ZREVRANGE", keys.campaigns, "0", "\(max(0, limit - 1))"))
        return reply.root.children.compactMap(\.string)
    }

    // MARK: Totals

    /// Records that the total of a campaign will grow. Called before the first of its jobs is pushed. The campaign finishes only after
    /// ``close(_:_:_:)``. A producer that knows the total beforehand sets the field `total` instead.
    /// - Throws: `RedisError`.
    package static func open(_ name: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await count("open", 0, name, client, keys)
    }

    /// Adds the number of pushed notifications to the total of a campaign.
    /// - Throws: `RedisError`.
    package static func addTotal(
        _ notifications: Int, of name: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        try await count("add", notifications, name, client, keys)
    }

    /// Records that the total of a campaign is complete. Called after the last of its jobs was pushed. If all its notifications have ended,
    /// the campaign finishes.
    /// - Throws: `RedisError`.
    package static func close(_ name: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await count("close", 0, name, client, keys)
    }

    /// Subtracts removed notifications, which will never end, from the total of a campaign, if the total is known. If all other
    /// notifications have ended, the campaign finishes.
    /// - Throws: `RedisError`.
    static func takeOut(_ notifications: Int, of name: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await count("remove", notifications, name, client, keys)
    }

    package static func totals(of jobs: [ByteBuffer]) -> [ByteBuffer: Int] {
        var totals: [ByteBuffer: Int] = [:]
        for body in jobs {
            // An unchecked job may have either format. A job that can't be read counts as one notification, because it becomes one dead
            // letter.
            let job = (try? JobDecoder.decode(body)) ?? (try? JobDecoder.decode(body, as: .sidekiq(classes: [])))
            guard let campaign = (job ?? JobDecoder.identify(body, as: .native)).campaignName else { continue }
            // A repeated token is sent to only once.
            totals[campaign, default: 0] += job?.tokens.map { tokens in Set(tokens.map { job?.text($0) }).count } ?? 1
        }
        return totals
    }

    /// Adds the notifications of pushed jobs to the totals of their campaigns.
    /// - Parameter isOpen: true if more jobs may follow, so that these do not finish their campaigns.
    /// - Throws: `RedisError`.
    package static func addTotals(
        of jobs: [ByteBuffer], isOpen: Bool = false, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        for (campaign, total) in totals(of: jobs) {
            try await count(isOpen ? "grow" : "add", total, String(buffer: campaign), client, keys)
        }
    }

    private static func count(
        _ action: String, _ notifications: Int, _ name: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        _ = try await QueueScript.countCampaign.run(client, [keys.campaign(name), keys.campaigns, keys.results]) {
            $0.append(name)
            $0.append(action)
            $0.append(notifications)
        } reading: {
            $0.text()
        }
    }
}

package enum CampaignPace {
    /// The lengths of periods in seconds. Each length is a multiple of the previous one.
    package static let lengths: [Int64] = [60, 600, 7200, 86_400]
    /// The maximum number of points. Longer periods reduce their number. If even days are too many, the oldest days are omitted.
    private static let maximumPoints: Int64 = 200

    /// The notifications that ended in a period.
    package struct Point: Sendable, Equatable {
        /// The beginning, in milliseconds since 1970.
        package var at: Int64
        /// The length of the period, in seconds.
        package var seconds: Int64
        package var ended: Int
        package var endedPerSecond: Double
    }

    /// Returns points of equal length without gaps. Each point is the sum of the periods within it.
    static func points(of periods: [CampaignCounts.Period]) -> [Point] {
        guard let first = periods.map(\.start).min(), let last = periods.map(\.start).max() else { return [] }
        let longest = periods.map(\.length).max() ?? 0
        let length =
            lengths.first { $0 >= longest && (last - first) / $0 < maximumPoints } ?? lengths[lengths.count - 1]
        var sums: [Int64: Int] = [:]
        for period in periods {
            let number = period.start / length
            sums[number] = Int(bounding: Double(sums[number] ?? 0) + Double(period.ended))
        }
        let end = last / length
        return (max(first / length, end - maximumPoints + 1)...end).map { number in
            let ended = sums[number] ?? 0
            return Point(
                at: number * length * 1000, seconds: length, ended: ended,
                endedPerSecond: (Double(ended) * 10 / Double(length)).rounded() / 10)
        }
    }
}

extension CampaignPace.Point: Shown {
    package static let columns = Columns<Self>(
        "Pace", "A period of a campaign.",
        [
            .init("at", "Beginning.", as: .time, \.at), .init("seconds", "Length in seconds.", \.seconds),
            .init("ended", "Number of notifications that ended.", as: .count, \.ended),
            .init("ended_per_second", "Notifications that ended per second.", as: .rate, \.endedPerSecond),
        ])
}
