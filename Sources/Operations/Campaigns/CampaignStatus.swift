import FoundationEssentials
import PrintableText
import PushQueue
import Redis

/// A campaign in one queue, as the commands print it. Its members are those of the JSON.
package struct CampaignStatus: Encodable, Sendable {
    /// The name, as its bytes: texts for people are made of it, and never read back.
    package var campaign: String
    package var queue: String
    /// `running`, `paused` or `cancelled`.
    package var state: String
    /// True if cancelled jobs do not become dead letters.
    package var discards: Bool?
    /// The maximum number of notifications per second.
    package var limitPerSecond: Int?
    /// The time of the pause or cancellation, in milliseconds since 1970.
    package var stateSinceAt: Int64?
    package var by: String?
    package var reason: String?
    /// The total number of its notifications, if its producer has recorded it.
    package var total: Int?
    package var ended: Int
    package var left: Int?
    /// Notifications that ended, by outcome.
    package var outcomes: [String: Int]
    /// Notifications that became dead letters, by reason.
    package var deadReasons: [String: Int]
    /// The number of times that notifications were tried again, by reason.
    package var retryReasons: [String: Int]
    package var startedAt: Int64?
    package var updatedAt: Int64?
    package var finishedAt: Int64?
    /// The rules of its guard, such as `invalid_token>5%,dead>1%`.
    package var stopIf: String?
    /// The number of notifications below which its guard does not pause it.
    package var stopMin: Int?
    /// The time at which its guard last paused it, in milliseconds since 1970.
    package var stoppedAt: Int64?
    /// The rules of its guard, and how near it is to each limit.
    package var guardLevels: [CampaignGuard.Level]?
    /// Notifications that were delivered per second: since the last reading or, without one, since the start. `nil` while
    /// none ends.
    package var deliveredPerSecond: Double?
    /// The time that the remaining notifications need at the rate at which they end, in milliseconds.
    package var leftMs: Int64?
    /// The periods in which notifications ended. Reports have their sums.
    package var periods: [CampaignCounts.Period]
    /// The times from enqueueing to delivery.
    package var latencies: LatencyCounts

    private enum CodingKeys: String, CodingKey {
        case campaign, queue, state, discards, limitPerSecond, stateSinceAt, by, reason, total, ended, left, outcomes
        case deadReasons, retryReasons, startedAt, updatedAt, finishedAt, stopIf, stopMin, stoppedAt, guardLevels
        case deliveredPerSecond, leftMs
    }

    /// The time without a settlement after which a campaign is idle, in milliseconds.
    private static let idle: Int64 = 60_000

    /// - Parameter now: in milliseconds since 1970.
    package init(_ counts: CampaignCounts, _ command: JobCommands.Command?, queue: String, now: Int64) {
        campaign = counts.name
        (periods, latencies) = (counts.periods, counts.latencies)
        self.queue = queue
        state = (command?.state ?? .running).rawValue
        if command?.state == .cancelled { discards = command?.discards }
        limitPerSecond = command?.perSecond
        if let command, command.state != .running, command.since < .max { stateSinceAt = command.since }
        (by, reason) = (command?.by, command?.reason)
        (total, ended, left) = (counts.total, counts.ended, counts.left)
        outcomes = Dictionary(uniqueKeysWithValues: Outcome.allCases.map { ($0.rawValue, counts[$0]) })
        func reasons(of counter: String) -> [String: Int] {
            var reasons: [String: Int] = [:]
            for (name, count) in counts.counters where name.hasPrefix(counter + ":") {
                reasons[name.dropFirst(counter.count + 1).printable, default: 0] += count
            }
            return reasons
        }
        deadReasons = reasons(of: Outcome.dead.rawValue)
        retryReasons = reasons(of: Postponement.retried.rawValue)
        (startedAt, updatedAt, finishedAt) = (counts.startedAt, counts.updatedAt, counts.finishedAt)
        if let rules = counts.guard {
            (stopIf, stopMin, stoppedAt) = (rules.text, rules.minimum, rules.stoppedAt)
            guardLevels = rules.levels(counts.counters, ended: counts.ended)
        }
        if let startedAt, let updatedAt, updatedAt > startedAt, now - updatedAt < Self.idle {
            // At least a second, so that a campaign that ended within milliseconds has no rate that it never had.
            setRate(ended, count(.delivered), in: max(1000, now - startedAt))
        }
    }

    /// The share that has ended, from 0 to 1, if the total is known.
    package var share: Double? { total.map { $0 > 0 ? max(0, min(1, Double(ended) / Double($0))) : 1 } }

    /// The time at which it ends at its rate, in milliseconds since 1970; `nil` if that can't be known.
    package func endsAt(now: Int64) -> Int64? {
        leftMs.map { left in
            let (end, isTooLate) = now.addingReportingOverflow(left)
            return isTooLate ? .max : end
        }
    }

    /// True if its guard has paused it.
    package var isStoppedByGuard: Bool { state == "paused" && by == CampaignGuard.person }

    /// True if notifications of it are still to be sent, as far as is known: a campaign without a total counts while
    /// some of it ends.
    package var isUnfinished: Bool {
        guard state != "cancelled", finishedAt == nil else { return false }
        return left.map { $0 > 0 } ?? (state == "paused" || deliveredPerSecond != nil || startedAt == nil)
    }

    private mutating func setRate(_ ended: Int, _ delivered: Int, in milliseconds: Int64) {
        let rate = Double(max(0, ended)) * 1000 / Double(milliseconds)
        deliveredPerSecond =
            ended > 0 ? (Double(max(0, delivered)) * 10_000 / Double(milliseconds)).rounded() / 10 : nil
        leftMs = left.flatMap { rate > 0 && state == "running" ? Int64(bounding: Double($0) * 1000 / rate) : nil }
    }

    /// Computes the rates from what has ended since an earlier reading.
    package mutating func compare(with earlier: CampaignStatus, after milliseconds: Int64) {
        guard milliseconds > 0 else { return }
        setRate(ended - earlier.ended, count(.delivered) - earlier.count(.delivered), in: milliseconds)
    }

    // MARK: Text

    package static let titles = [
        "CAMPAIGN", "QUEUE", "STATE", "TOTAL", "DELIVERED", "INVALID", "DEAD", "CANCELLED", "OTHER", "RATE/S", "LEFT",
        "STARTED",
    ]

    private func count(_ outcome: Outcome) -> Int { outcomes[outcome.rawValue] ?? 0 }

    package func cells(now: Int64) -> [String] {
        let others = ended - [.delivered, .invalidToken, .dead, .cancelled].reduce(0) { $0 + count($1) }
        return [
            campaign.shown, queue, stateText, total.map(Words.number) ?? "-", Words.number(count(.delivered)),
            Words.number(count(.invalidToken)), Words.number(count(.dead)), Words.number(count(.cancelled)),
            Words.number(others), deliveredPerSecond.map(Words.rate) ?? "-", leftText,
            startedAt.map { Words.brief(now - $0) + " ago" } ?? "-",
        ]
    }

    private var stateText: String { limitPerSecond.map { "\(state), \(Words.number($0))/s" } ?? state }

    private var leftText: String {
        guard let left else { return "-" }
        return Words.number(left) + (leftMs.map { " (\(Words.brief($0)))" } ?? "")
    }

    /// Returns all facts, one per line.
    package func page(now: Int64) -> [String] {
        var lines = ["campaign \(campaign.shown), queue \(queue): \(state)"]
        if let stateSinceAt, state != "running" {
            lines[0] += " since \(Moment.text(stateSinceAt))" + (by.map { " by \($0)" } ?? "")
            if let reason { lines[0] += ": \(reason)" }
        }
        if let limitPerSecond { lines.append("limit      \(Words.number(limitPerSecond)) per second") }
        if let stopIf, let stopMin {
            lines.append("guard      \(stopIf), from \(Words.number(stopMin)) notifications on")
        }
        if let total, let share {
            let filled = Int((share * 40).rounded(.down))
            let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: 40 - filled)
            lines.append(
                "progress   \(bar) \(Int((share * 100).rounded(.down)))%  \(Words.number(ended)) of \(Words.number(total))"
            )
        } else {
            lines.append("progress   \(Words.number(ended)) have ended; the total is unknown")
        }
        for outcome in Outcome.allCases where count(outcome) > 0 {
            lines.append("  \(outcome.rawValue.padded(to: 15)) \(Words.number(count(outcome)))")
        }
        for (title, reasons) in [("dead", deadReasons), ("retries", retryReasons)] where !reasons.isEmpty {
            let sorted = reasons.largestFirst.prefix(8)
            lines.append(
                title.padded(to: 11) + sorted.map { "\(Words.number($0.value)) \($0.key)" }.joined(separator: ", "))
        }
        if let deliveredPerSecond { lines.append("rate       \(Words.rate(deliveredPerSecond)) delivered per second") }
        if let leftMs { lines.append("time left  \(Words.duration(leftMs))") }
        if let startedAt {
            lines.append("started    \(Moment.text(startedAt)) (\(Words.duration(max(0, now - startedAt))) ago)")
        }
        if let updatedAt { lines.append("last ended \(Moment.text(updatedAt))") }
        if let finishedAt { lines.append("finished   \(Moment.text(finishedAt))") }
        return lines
    }
}

extension CampaignStatus {
    /// Reads a campaign in all queues that know it.
    /// - Throws: `RedisError`.
    package static func read(_ name: String, in queues: [QueueKeys], _ fleet: Fleet) async throws -> [CampaignStatus] {
        var unread = UnreadParts()
        let found = try await read(name, in: queues, fleet, &unread)
        try unread.throwFirst()
        return found
    }

    /// Reads a campaign in all queues that know it.
    /// - Parameter unread: gets the queues that can't be read.
    /// - Throws: `RedisError`, if no queue can be read.
    package static func read(
        _ name: String, in queues: [QueueKeys], _ fleet: Fleet, _ unread: inout UnreadParts
    ) async throws -> [CampaignStatus] {
        try await unread.each(queues) { keys -> CampaignStatus? in
            let client = try await fleet.client(for: keys.jobs)
            let counts = try await CampaignCounts.read(name, client, keys)
            let command = try await JobCommands.read(client, keys).commands[.campaign(name)]
            guard command != nil || counts.total != nil || !counts.counters.isEmpty else { return nil }
            return CampaignStatus(counts, command, queue: keys.queue, now: Moment.now)
        }.compactMap(\.self)
    }

    /// The progress of `campaign send` through its list.
    package struct Sending: Sendable, Equatable {
        package var queue: String
        /// The number of jobs that were enqueued.
        package var enqueued: Int
        /// The number of jobs and notifications of the whole list.
        package var jobs, notifications: Int
        package var by: String
        package var startedAt, updatedAt: Int64?

        package var isComplete: Bool { enqueued >= jobs }
    }

    /// Reads the positions in the lists of tokens from which a campaign is sent.
    /// - Parameter unread: gets the queues that can't be read.
    /// - Throws: `RedisError`, if no queue can be read.
    package static func sendings(
        of name: String, in queues: [QueueKeys], _ fleet: Fleet, _ unread: inout UnreadParts
    ) async throws -> [Sending] {
        try await unread.each(queues) { keys -> Sending? in
            let client = try await fleet.client(for: keys.jobs)
            let reply = try await client.call(
                RedisCommand(
                    "HMGET", keys.campaignList(name), "next", "jobs", "notifications", "by", "started_at", "updated_at")
            )
            let values = Array(reply.root.children.map(\.string))
            guard values.count == 6, let next = values[0], let jobs = values[1] else { return nil }
            return Sending(
                queue: keys.queue, enqueued: Int(bounding: next) ?? 0, jobs: Int(bounding: jobs) ?? 0,
                notifications: values[2].flatMap { Int(bounding: $0) } ?? 0, by: (values[3] ?? "").printable,
                startedAt: values[4].flatMap { Int64(bounding: $0) },
                updatedAt: values[5].flatMap { Int64(bounding: $0) })
        }.compactMap(\.self)
    }

    /// Reads the campaigns that were settled or enqueued last, those under a command, and those of the first page of waiting
    /// jobs: a campaign whose producer records no total is known otherwise once one of its jobs has ended or was postponed.
    /// - Parameters:
    ///   - limit: the maximum number of campaigns in each queue.
    ///   - unread: gets the queues that can't be read.
    /// - Throws: `RedisError`, if no queue can be read.
    package static func latest(
        _ limit: Int, in queues: [QueueKeys], _ fleet: Fleet, _ unread: inout UnreadParts
    ) async throws -> [CampaignStatus] {
        try await unread.each(queues) { keys -> [CampaignStatus] in
            var found: [CampaignStatus] = []
            let client = try await fleet.client(for: keys.jobs)
            let commands = try await JobCommands.read(client, keys).commands
            var names = try await CampaignCounts.names(limit, client, keys)
            var known = Set(names.map { Name($0) })
            for case .campaign(let name) in commands.keys.sorted(by: { Name($0.field) < Name($1.field) })
            where known.insert(Name(name)).inserted { names.append(name) }
            names += try await campaigns(ofNextJobsIn: keys, fleet).subtracting(known).sorted().map(\.text)
            for name in names.prefix(limit) {
                let counts = try await CampaignCounts.read(name, client, keys)
                found.append(CampaignStatus(counts, commands[.campaign(name)], queue: keys.queue, now: Moment.now))
            }
            return found
        }.flatMap(\.self)
    }

    /// Returns the campaigns of the first page of jobs that wait.
    private static func campaigns(ofNextJobsIn keys: QueueKeys, _ fleet: Fleet) async throws -> Set<Name> {
        var names: Set<Name> = []
        _ = try await fleet.jobs(of: keys).sweep(JobFilter(), inOrder: true) { _, jobs, _ in
            names.formUnion(jobs.compactMap { $0.campaign.map { Name($0) } })
            return jobs.isEmpty
        }
        return names
    }

    /// Returns the names of the latest campaigns and of those of the next jobs, without regard to commands. Queues that
    /// can't be read are left out.
    static func names(in queues: [QueueKeys], _ fleet: Fleet, isStopped: () -> Bool) async throws -> Set<Name> {
        var unread = UnreadParts()
        var names: Set<Name> = []
        for keys in queues where !isStopped() {
            let found = try await unread.read(keys.queue) {
                let client = try await fleet.client(for: keys.campaigns)
                return try await campaigns(ofNextJobsIn: keys, fleet)
                    .union(CampaignCounts.names(20, client, keys).map { Name($0) })
            }
            names.formUnion(found ?? [])
        }
        return names
    }
}
