import FoundationEssentials
import PrintableText
import PushQueue
import Redis

/// A campaign in one queue.
package struct CampaignStatus: Sendable {
    /// The name, byte for byte. Texts for people use `campaign.shown`.
    package var campaign: String
    package var queue: String
    package var state: State
    /// The reason why the campaign is ``State/slowed``, as a clause.
    package var slowedBy: String?
    package var discards: Bool?
    package var limitPerSecond, total, left, stopMin: Int?
    package var by, reason, stopIf: String?
    package var ended: Int
    package var outcomes, deadReasons, retryReasons: [String: Int]
    package var stateSinceAt, startedAt, updatedAt, finishedAt, stoppedAt, leftMs: Int64?
    package var guardLevels: [CampaignGuard.Level]?
    package var deliveredPerSecond: Double?
    /// The periods with ended notifications. Only reports show them, as sums.
    package var periods: [CampaignCounts.Period]
    package var latencies: LatencyCounts

    package enum State: String, CaseIterable, Sendable {
        case running
        /// The campaign is not paused, but none or hardly any of its notifications are sent.
        case slowed
        /// Paused by an operator.
        case paused
        /// Paused by its guard, and not by an operator.
        case stopped
        case finished, cancelled

        /// True while an operator or its guard has paused the campaign.
        package var isPaused: Bool { self == .paused || self == .stopped }
        /// True if the campaign is not paused, cancelled or finished.
        package var isOn: Bool { self == .running || self == .slowed }

        package var words: String { self == .stopped ? "stopped by its guard" : rawValue }

        init(_ command: JobCommands.Command?, isFinished: Bool) {
            self =
                switch command?.state ?? .running {
                case .cancelled: .cancelled
                case .paused: command?.by == CampaignGuard.person ? .stopped : .paused
                case .running: isFinished ? .finished : .running
                }
        }
    }

    /// The time without a settlement after which a campaign is idle, in milliseconds.
    private static let idle: Int64 = 60_000

    /// - Parameter now: in milliseconds since 1970.
    package init(_ counts: CampaignCounts, _ command: JobCommands.Command?, queue: String, now: Int64) {
        campaign = counts.name
        (periods, latencies) = (counts.periods, counts.latencies)
        self.queue = queue
        state = State(command, isFinished: counts.finishedAt != nil)
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
        if let startedAt, let updatedAt, updatedAt > startedAt, now.since(updatedAt) < Self.idle {
            // At least one second. Otherwise the rate of a campaign that ended within milliseconds would be impossibly high.
            setRate(ended, count(.delivered), in: max(1000, now.since(startedAt)))
        }
    }

    /// The share of the notifications that has ended, from 0 to 1, if the total is known.
    package var share: Double? { total.map { $0 > 0 ? max(0, min(1, Double(ended) / Double($0))) : 1 } }

    /// Returns the expected end at the present rate, in milliseconds since 1970; `nil` if the rate or the total is unknown.
    package func endsAt(now: Int64) -> Int64? {
        leftMs.map { left in
            let (end, isTooLate) = now.addingReportingOverflow(left)
            return isTooLate ? .max : end
        }
    }

    /// Sets the state ``State/slowed`` and its cause, if the campaign should be sent.
    package mutating func slow(by cause: String) {
        guard shouldProceed else { return }
        (state, slowedBy) = (.slowed, cause)
        // The former rate does not predict the rate after the cause ends.
        (deliveredPerSecond, leftMs) = (nil, nil)
    }

    private var shouldProceed: Bool { state == .running && isUnfinished }

    /// True if some of the campaign's notifications must still be sent. Without a total, this is a guess: true before the first
    /// notification ends, during a pause, and while notifications end.
    package var isUnfinished: Bool {
        guard state != .cancelled, state != .finished else { return false }
        return left.map { $0 > 0 } ?? (state.isPaused || deliveredPerSecond != nil || startedAt == nil)
    }

    private mutating func setRate(_ ended: Int, _ delivered: Int, in milliseconds: Int64) {
        // After a pause or a cancellation, only notifications that were in flight still end, so there is no rate.
        guard state.isOn else { return (deliveredPerSecond, leftMs) = (nil, nil) }
        let rate = Double(max(0, ended)) * 1000 / Double(milliseconds)
        deliveredPerSecond =
            ended > 0 ? (Double(max(0, delivered)) * 10_000 / Double(milliseconds)).rounded() / 10 : nil
        leftMs = left.flatMap { rate > 0 && state == .running ? Int64(bounding: Double($0) * 1000 / rate) : nil }
    }

    /// Computes the rates from the notifications that have ended since an earlier reading.
    package mutating func compare(with earlier: CampaignStatus, after milliseconds: Int64) {
        guard milliseconds > 0 else { return }
        setRate(ended - earlier.ended, count(.delivered) - earlier.count(.delivered), in: milliseconds)
    }

    // MARK: Text

    private func count(_ outcome: Outcome) -> Int { outcomes[outcome.rawValue] ?? 0 }

    private var others: Int {
        ended - [.delivered, .invalidToken, .dead, .cancelled].reduce(0) { $0 + count($1) }
    }

    private var stateText: String {
        limitPerSecond.map { "\(state.rawValue), \(Words.number($0))/s" } ?? state.rawValue
    }

    private var leftText: String? {
        left.map { Words.number($0) + (leftMs.map { " (\(Words.brief($0)))" } ?? "") }
    }

    /// Returns all facts, one per line.
    package func page(now: Int64) -> [String] {
        var lines = ["campaign \(campaign.shown), queue \(queue): \(state.words)"]
        if let slowedBy { lines[0] += ": \(slowedBy)" }
        if let stateSinceAt, state == .cancelled || state.isPaused {
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
            lines.append("started    \(Moment.text(startedAt)) (\(Words.duration(max(0, now.since(startedAt)))) ago)")
        }
        if let updatedAt { lines.append("last ended \(Moment.text(updatedAt))") }
        if let finishedAt { lines.append("finished   \(Moment.text(finishedAt))") }
        return lines
    }
}

extension CampaignStatus: Shown {
    package static let columns = Columns<Self>(
        "Campaign", "A campaign in a queue.", commands: ["campaign list", "campaign show"],
        [
            .init("campaign", "Name.", as: .campaign, in: .list, \.campaign),
            .text("Campaign", in: .table, \.campaign.shown),
            .init("queue", "Queue.", as: .queue, in: .all, under: "Campaign", \.queue),
            .init("state", "State:", as: .choice(State.self), in: .list, \.state.rawValue),
            .init("slowed_by", "Cause of the state `slowed`.", \.slowedBy),
            .text("State", in: .table, \.stateText),
            .init("discards", "True if cancelled jobs are not kept.", \.discards),
            .init(
                "limit_per_second", "Maximum number of notifications per second.", as: .count, in: .list,
                under: "State",
                \.limitPerSecond),
            .init("state_since_at", "Time of the pause or cancellation.", as: .time, \.stateSinceAt),
            .init("by", "Operator or guard that paused or cancelled the campaign.", \.by),
            .init("reason", "Reason of the pause or cancellation.", \.reason),
            .init("total", "Number of all notifications, if recorded.", as: .count, in: .table, \.total),
            .init("ended", "Number of notifications that ended.", as: .count, \.ended),
            .init("left", "Number of notifications that have not ended.", as: .count, \.left),
            .init("outcomes", "Notifications that ended, by outcome.", \.outcomes),
            .text("Progress", in: .wide, \.ended),
            .text("Delivered", as: .count, in: [.table, .list]) { $0.count(.delivered) },
            .text("Invalid", as: .count, in: [.table, .wide]) { $0.count(.invalidToken) },
            .text("Dead", as: .count, in: [.table, .wide]) { $0.count(.dead) },
            .text("Cancelled", as: .count, in: [.table, .widest]) { $0.count(.cancelled) },
            .text("Other", as: .count, in: [.table, .widest], \.others),
            .init("dead_reasons", "Notifications that became dead letters, by reason.", \.deadReasons),
            .init("retry_reasons", "Number of times that notifications were tried again, by reason.", \.retryReasons),
            .init("updated_at", "Time at which the last notification ended.", as: .time, \.updatedAt),
            .init("finished_at", "Time at which all notifications had ended.", as: .time, \.finishedAt),
            .init("stop_if", "Rules of the guard, such as `invalid_token>5%,dead>1%`.", \.stopIf),
            .init("stop_min", "Number of ended notifications from which on the guard acts.", as: .count, \.stopMin),
            .init("stopped_at", "Time at which the guard last paused the campaign.", as: .time, \.stoppedAt),
            .init("guard_levels", "Present share for each limit of the guard.", \.guardLevels),
            .init(
                "delivered_per_second", "Rate of deliveries since the last reading or the start, if any.", as: .rate,
                title: "Rate/s", in: [.table, .list], \.deliveredPerSecond),
            .init(
                "left_ms", "Time for the remaining notifications at this rate.", as: .duration, title: "Time left",
                in: .list,
                \.leftMs),
            .text("Left", in: .table, \.leftText),
            .init(
                "started_at", "Time at which the first notification ended or was postponed.", as: .time, in: .list,
                under: "Campaign", \.startedAt),
            .text("Started", in: .table) { $0.startedAt.map { Words.brief(Moment.now.since($0)) + " ago" } },
        ])
}

extension CampaignStatus {
    /// Reads a campaign in all queues that have its counters or a command about it.
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
            var found = [CampaignStatus(counts, command, queue: keys.queue, now: Moment.now)]
            try await findCauses(&found, keys, fleet, readsJobs: true)
            return found[0]
        }.compactMap(\.self)
    }

    /// Finds out why campaigns are not sent: the queue is paused, or no notification of a campaign has ended for a minute. In the second
    /// case, the cause is the reason why one of the campaign's jobs waits.
    /// - Parameter readsJobs: true to read one page of the jobs that are due next.
    private static func findCauses(
        _ found: inout [CampaignStatus], _ keys: QueueKeys, _ fleet: Fleet, readsJobs: Bool
    ) async throws {
        let on = found.indices.filter { found[$0].shouldProceed }
        guard !on.isEmpty else { return }
        if try await QueuePause.readAny(fleet.client(for: keys.paused), keys) != nil {
            for index in on { found[index].slow(by: "queue \(keys.queue) is paused") }
            return
        }
        let now = Moment.now
        let idle = on.filter { found[$0].updatedAt.map { now.since($0) >= Self.idle } ?? true }
        guard !idle.isEmpty else { return }
        var next: [StoredJob] = []
        if readsJobs {
            let jobs = try await fleet.jobs(of: keys)
            for place in [QueueJobs.Place.retry, .failed] {
                next += try await jobs.page(place, after: nil, decodes: true).jobs
            }
        }
        var causes: [Name: String] = [:]
        for job in next {
            guard let campaign = job.campaign.map({ Name($0) }), causes[campaign] == nil else { continue }
            let app = job.app.map { " (app \(String(buffer: $0).shown))" } ?? ""
            let row = JobRow(queue: keys.queue, job: job, now: now)
            causes[campaign] =
                row.deferral.map { "its jobs are deferred: \($0)\(app)" }
                ?? row.error.map { "its jobs are tried again: \($0)\(app)" }
        }
        for index in idle {
            if let cause = causes[Name(found[index].campaign)] {
                found[index].slow(by: cause)
            } else if let last = found[index].updatedAt {
                found[index].slow(by: "none of its notifications has ended for \(Words.duration(now.since(last)))")
            }
        }
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

    /// Reads the progress of `campaign send` with a campaign in each queue.
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

    /// Reads the campaigns that were settled or enqueued last, that have a command, or that have a job in the first page of waiting jobs.
    /// Without this page, a campaign whose producer records no total would be unknown until one of its jobs has ended or was postponed.
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
            try await findCauses(&found, keys, fleet, readsJobs: false)
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

    /// Returns the names of the latest campaigns, and of the campaigns of the next jobs. Campaigns that only a command names are omitted,
    /// because they may not exist. Queues that can't be read are omitted.
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
