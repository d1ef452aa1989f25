import NIOCore
import Operations
import PushJob
import PushQueue
import Redis

/// Readings that many pages share.
final class DashboardData: Sendable {
    private let source: DashboardSource
    /// A value that was read from several queues, and the queues that could not be read.
    struct Found<Value: Sendable>: Sendable {
        var value: Value
        var unread = UnreadParts()
    }

    private let found = SharedReadings<OnlyKey, Fleet.Found>(for: .seconds(10))
    private let status = SharedReadings<OnlyKey, FleetStatus>(for: .seconds(1))
    private let histories = SharedReadings<String, QueueHistory>(for: .seconds(1))
    private let latestCampaigns = SharedReadings<OnlyKey, CampaignReadings>(for: .seconds(2))
    private let campaignPages = SharedReadings<Name, Campaign>(for: .seconds(2))
    private let destinations = SharedReadings<String, Destination>(for: .seconds(5))
    private let memories = SharedReadings<String, ServerInfo?>(for: .seconds(1))
    private let sizes = SharedReadings<OnlyKey, Found<[KeySize]>>(for: .seconds(10))
    private let actions = SharedReadings<OnlyKey, [AuditEntry]>(for: .seconds(2))

    init(_ source: DashboardSource) { self.source = source }

    /// The last status, however old; `nil` before the first.
    var lastStatus: FleetStatus? { get async { await status.last(of: OnlyKey()) } }

    /// Makes the next page read again everything that an action can change.
    func changed() async {
        await status.expire()
        await latestCampaigns.expire()
        await campaignPages.expire()
        await actions.expire()
    }

    // MARK: Queues

    /// Returns the queues in Redis. The result is at most ten seconds old, because finding the queues scans all keys.
    func queues() async throws -> [QueueKeys] { try await foundQueues().keys }

    /// The reason why some queues may not have been found; `nil` if all were.
    var missingQueues: String? { get async throws { try await foundQueues().note } }

    /// Makes the next reader search for the queues.
    func forgetQueues() async { await found.expire() }

    private func foundQueues() async throws -> Fleet.Found {
        try await found.value { [fleet = source.fleet] _ in try await fleet.queues() }
    }

    /// Returns a queue by name.
    /// - Throws: ``WebError`` if there is none.
    func queue(_ name: String) async throws -> QueueSource {
        try await source.fleet.queue(queues(named: [name])[0])
    }

    /// Returns the queues with these names; all queues without names.
    /// - Throws: ``WebError`` for a name that is not known.
    func queues(named names: [String]) async throws -> [QueueKeys] {
        let all = try await queues()
        for name in names where !all.contains(where: { $0.queue == name }) {
            throw WebError(.notFound, Desk.unknown("queue", name, all.map(\.queue)))
        }
        return all.filter { names.isEmpty || names.contains($0.queue) }
    }

    /// The destination of jobs that are pushed to a queue.
    struct Destination: Sendable {
        let source: QueueSource
        let state: QueueState
        /// The client of the server that has the jobs. The client may have lost its connection since the reading.
        let client: RedisClient
    }

    /// Returns the destination of a queue's jobs, at most five seconds old.
    func destination(_ keys: QueueKeys) async throws -> Destination {
        try await destinations.value(of: keys.queue) { [source] _ in
            let place = try await source.fleet.queue(keys)
            let client = try await source.fleet.client(for: place.keys.retry)
            return Destination(
                source: place,
                state: try await QueueState.read(client, place.keys, configured: source.appNames),
                client: try await source.fleet.client(for: place.keys.jobs))
        }
    }

    /// Checks a job with the apps of the queue's workers.
    func check(_ job: ByteBuffer, _ queue: QueueSource) async throws -> DashboardSource.Check {
        source.check(job, queue, try await destination(queue.keys).state.reported)
    }

    // MARK: Status

    /// Returns the state of the fleet, at most one second old, with the rates since the previous reading.
    func fleetStatus() async throws -> FleetStatus {
        let queues = try await foundQueues()
        return try await status.value { [source] before in
            var status = try await StatusReader(source.fleet, apps: source.appNames).read(queues)
            if let before { status.compare(with: before) }
            return status
        }
    }

    /// Returns the combined history of some queues, at most a few seconds old; `nil` without queues.
    /// - Throws: `RedisError` if none of the queues can be read.
    func history(_ span: QueueHistory.Span, of queues: [QueueKeys]) async throws -> Found<QueueHistory?> {
        var (found, unread) = ([QueueHistory](), UnreadParts())
        for keys in queues {
            do {
                found.append(
                    try await histories.value(of: "\(span) \(keys.queue)", for: .seconds(span.freshness)) {
                        [fleet = source.fleet] _ in
                        try await QueueHistory.read(span, fleet.client(for: keys.retry), keys)
                    })
            } catch {
                try unread.record(error, of: UnreadParts.name(of: keys.queue))
            }
        }
        if found.isEmpty { try unread.throwFirst() }
        return Found(value: QueueHistory.sum(of: found), unread: unread)
    }

    /// The number of latest actions in which a chart searches for the actions of its time range.
    static let maximumActions = 500

    /// Returns the latest actions of operators, newest first, at most two seconds old.
    func latestActions() async throws -> [AuditEntry] {
        try await actions.value { [fleet = source.fleet] _ in
            let keys = fleet.sharedKeys
            return try await AuditLog.latest(Self.maximumActions, fleet.client(for: keys.audit), keys)
        }
    }

    // MARK: Campaigns

    /// The records of a campaign in Redis: its state in each queue that knows it, and the positions of its lists.
    struct Campaign: Sendable {
        let parts: [CampaignStatus]
        let sendings: [CampaignStatus.Sending]
        let unread: UnreadParts
    }

    /// Readings of the campaigns, the oldest first. Their differences give the rates.
    private struct CampaignReadings: Sendable {
        /// The time over which rates are measured.
        static let window = Duration.seconds(20)

        var all: [(found: Found<[CampaignStatus]>, at: ContinuousClock.Instant)]

        /// Adds a reading, with the rates since the oldest reading in the window.
        init(_ before: CampaignReadings?, _ reading: Found<[CampaignStatus]>) {
            let now = ContinuousClock.now
            all = (before?.all ?? []).filter { $0.at.duration(to: now) <= Self.window }
            var found = reading
            if let earlier = all.first {
                let time = earlier.at.duration(to: now) / .milliseconds(1)
                for (index, campaign) in found.value.enumerated() {
                    let twin = earlier.found.value.first {
                        Name($0.campaign) == Name(campaign.campaign) && $0.queue == campaign.queue
                    }
                    if let twin { found.value[index].compare(with: twin, after: Int64(time)) }
                }
            }
            // Rates can't be measured over less than a second.
            if let last = all.last, last.at.duration(to: now) < .seconds(1) { all.removeLast() }
            all.append((found, now))
        }
    }

    /// Returns the latest campaigns, at most two seconds old. They have rates if there was a reading in the last 20 seconds.
    /// - Throws: `RedisError` if no queue can be read.
    func campaigns() async throws -> Found<[CampaignStatus]> {
        let keys = try await queues()
        let readings = try await latestCampaigns.value { [fleet = source.fleet] before in
            var unread = UnreadParts()
            let latest = try await CampaignStatus.latest(100, in: keys, fleet, &unread)
            return CampaignReadings(before, Found(value: latest, unread: unread))
        }
        return readings.all[readings.all.count - 1].found
    }

    /// Returns the state of a campaign, at most two seconds old. Each open page asks every two seconds, and a reading asks all queues.
    func campaign(_ name: String) async throws -> Campaign {
        let queues = try await queues()
        return try await campaignPages.value(of: Name(name)) { [fleet = source.fleet] _ in
            var unread = UnreadParts()
            let parts = try await CampaignStatus.read(name, in: queues, fleet, &unread)
            let sendings = try await CampaignStatus.sendings(of: name, in: queues, fleet, &unread)
            return Campaign(parts: parts, sendings: sendings, unread: unread)
        }
    }

    // MARK: Redis

    /// Returns the sizes of the largest keys, at most ten seconds old, because Redis estimates each from samples.
    func keySizes() async throws -> Found<[KeySize]> {
        let queues = try await queues()
        return try await sizes.value { [fleet = source.fleet] _ in
            var unread = UnreadParts()
            return Found(value: try await KeySizes.read(fleet, queues, &unread), unread: unread)
        }
    }

    /// Returns the memory of the server of a key, at most one second old; `nil` if Redis does not permit `INFO`.
    func memory(of key: String) async throws -> ServerInfo? {
        try await memories.value(of: key) { [fleet = source.fleet] _ in
            do {
                let reply = try await fleet.client(for: key).call(RedisCommand("INFO", "memory"))
                return ServerInfo(reply.root.string ?? "")
            } catch RedisError.server(let error) where error.prefix == "NOPERM" {
                return nil
            }
        }
    }
}
