import NIOCore
import Operations
import PushJob
import PushQueue
import Redis

/// Caches reads that many pages share, so that ten open dashboards ask Redis no more often than one.
actor DashboardData {
    private struct Kept<Value: Sendable> {
        var value: Value
        var at: ContinuousClock.Instant
    }

    private let source: DashboardSource
    private var status: Kept<FleetStatus>?
    private var reading: Task<FleetStatus, any Error>?
    /// The number of actions so far. A status that was read before the last one is not cached.
    private var changes = 0
    /// Something that was read of several queues, and those that could not be read.
    struct Found<Value: Sendable>: Sendable {
        var value: Value
        var unread = UnreadParts()
    }

    private var histories: [String: Kept<QueueHistory>] = [:]
    private var historyReads: [String: Task<QueueHistory, any Error>] = [:]
    /// Readings of the campaigns, the oldest first: rates are those between them.
    private var campaignReads: [Kept<Found<[CampaignStatus]>>] = []
    private var campaignRead: Task<Found<[CampaignStatus]>, any Error>?
    private var destinations: [String: Kept<Destination>] = [:]
    private var destinationReads: [String: Task<Destination, any Error>] = [:]
    private var memories: [String: Kept<ServerInfo?>] = [:]
    private var memoryReads: [String: Task<ServerInfo?, any Error>] = [:]
    private var actions: Kept<[AuditEntry]>?
    private var actionsRead: Task<[AuditEntry], any Error>?
    private var pages: [Name: Kept<CampaignPage.State>] = [:]
    private var pageReads: [Name: Task<CampaignPage.State, any Error>] = [:]
    private var sizes: Kept<Found<[KeySize]>>?
    private var sizesRead: Task<Found<[KeySize]>, any Error>?
    private var queueList: Kept<Fleet.Found>?
    private var queueSearch: Task<Fleet.Found, any Error>?

    /// The last status, however old; `nil` before the first.
    var lastStatus: FleetStatus? { status?.value }

    init(_ source: DashboardSource) { self.source = source }

    /// Returns the queues in Redis. The result is at most ten seconds old, because finding the queues scans all keys.
    func queues() async throws -> [QueueKeys] { try await foundQueues().keys }

    /// The reason why there may be more queues, if there may.
    var missingQueues: String? { get async throws { try await foundQueues().note } }

    /// Makes the next reader search for the queues.
    func forgetQueues() { (queueList, queueSearch) = (nil, nil) }

    private func foundQueues() async throws -> Fleet.Found {
        if let queueList, queueList.at.duration(to: .now) < .seconds(10) { return queueList.value }
        // Several pages share one search.
        let search = queueSearch ?? Task { [fleet = source.fleet] in try await fleet.queues() }
        queueSearch = search
        defer { queueSearch = nil }
        let found = try await search.value
        queueList = Kept(value: found, at: .now)
        return found
    }

    /// Returns a queue by name.
    /// - Throws: ``WebError`` if there is none.
    func queue(_ name: String) async throws -> QueueSource {
        try await source.fleet.queue(queues(named: [name])[0])
    }

    /// Returns the queues of a filter; all without one.
    /// - Throws: ``WebError`` for a name that is not known.
    func queues(named names: [String]) async throws -> [QueueKeys] {
        let all = try await queues()
        for name in names where !all.contains(where: { $0.queue == name }) {
            throw WebError(.notFound, Desk.unknown("queue", name, all.map(\.queue)))
        }
        return all.filter { names.isEmpty || names.contains($0.queue) }
    }

    /// Makes the next page read the status again, so that it shows the effect of an action.
    func changed() {
        changes += 1
        reading = nil
        actions = nil
        campaignRead = nil
        (pages, pageReads) = ([:], [:])
        if let last = campaignReads.indices.last { campaignReads[last].at -= .seconds(2) }
        status?.at = .now - .seconds(2)
    }

    /// The time over which the rates of campaigns are measured.
    private static let campaignWindow = Duration.seconds(20)

    /// Returns the latest campaigns, at most two seconds old, with the rates of the last seconds if there was a reading
    /// then.
    /// - Throws: `RedisError` if no queue can be read.
    func campaigns() async throws -> Found<[CampaignStatus]> {
        if let last = campaignReads.last, last.at.duration(to: .now) < .seconds(2) { return last.value }
        let keys = try await queues()
        let read =
            campaignRead
            ?? Task { [fleet = source.fleet] in
                var unread = UnreadParts()
                return Found(value: try await CampaignStatus.latest(100, in: keys, fleet, &unread), unread: unread)
            }
        campaignRead = read
        defer { campaignRead = nil }
        var found = try await read.value
        let now = ContinuousClock.now
        // Another page has kept the result of the same read.
        if let last = campaignReads.last, last.at.duration(to: now) < .seconds(1) { return last.value }
        campaignReads.removeAll { $0.at.duration(to: now) > Self.campaignWindow }
        if let earlier = campaignReads.first {
            let time = earlier.at.duration(to: now) / .milliseconds(1)
            for index in found.value.indices {
                let campaign = found.value[index]
                guard
                    let before = earlier.value.value.first(where: {
                        Name($0.campaign) == Name(campaign.campaign) && $0.queue == campaign.queue
                    })
                else { continue }
                found.value[index].compare(with: before, after: Int64(time))
            }
        }
        campaignReads.append(Kept(value: found, at: now))
        return found
    }

    /// Returns the state of a campaign, at most two seconds old: an open page asks every two seconds, and each asks all
    /// queues.
    func campaign(_ name: String) async throws -> CampaignPage.State {
        if let kept = pages[Name(name)], kept.at.duration(to: .now) < .seconds(2) { return kept.value }
        let (queues, begun) = (try await queues(), changes)
        let read =
            pageReads[Name(name)]
            ?? Task { [fleet = source.fleet] in
                var unread = UnreadParts()
                let parts = try await CampaignStatus.read(name, in: queues, fleet, &unread)
                let sendings = try await CampaignStatus.sendings(of: name, in: queues, fleet, &unread)
                return CampaignPage.State(parts: parts, sendings: sendings, unread: unread)
            }
        pageReads[Name(name)] = read
        defer { if changes == begun { pageReads[Name(name)] = nil } }
        let found = try await read.value
        guard changes == begun else { return found }
        // Visitors choose the names.
        pages = pages.filter { $0.value.at.duration(to: .now) < .seconds(2) }
        pages[Name(name)] = Kept(value: found, at: .now)
        return found
    }

    /// Returns the sizes of the largest keys, at most ten seconds old, because Redis estimates each from samples.
    func keySizes() async throws -> Found<[KeySize]> {
        if let sizes, sizes.at.duration(to: .now) < .seconds(10) { return sizes.value }
        let queues = try await queues()
        let read =
            sizesRead
            ?? Task { [fleet = source.fleet] in
                var unread = UnreadParts()
                return Found(value: try await KeySizes.read(fleet, queues, &unread), unread: unread)
            }
        sizesRead = read
        defer { sizesRead = nil }
        let found = try await read.value
        sizes = Kept(value: found, at: .now)
        return found
    }

    /// Returns the state of the fleet, at most one second old.
    func fleetStatus() async throws -> FleetStatus {
        if let status, status.at.duration(to: .now) < .seconds(1) { return status.value }
        if let reading { return try await reading.value }
        let found = try await foundQueues()
        let before = status
        // Another page may have started the read in the meantime.
        if let reading { return try await reading.value }
        let task = Task { [source] in
            var status = try await StatusReader(source.fleet, apps: source.appNames).read(found)
            if let before { status.compare(with: before.value) }
            return status
        }
        reading = task
        let begun = changes
        defer { if changes == begun { reading = nil } }
        let read = try await task.value
        // Rates cannot be measured over less than a second.
        if changes == begun, before.map({ $0.at.duration(to: .now) > .seconds(1) }) ?? true {
            status = Kept(value: read, at: .now)
        }
        return read
    }

    /// A queue for producers.
    struct Destination: Sendable {
        let source: QueueSource
        let state: QueueState
        /// The client of the server that has the jobs. It may have lost its connection in the meantime.
        let client: RedisClient
    }

    /// Returns where the jobs of a queue are pushed, and its workers' apps, at most five seconds old.
    func destination(_ keys: QueueKeys) async throws -> Destination {
        if let kept = destinations[keys.queue], kept.at.duration(to: .now) < .seconds(5) { return kept.value }
        let read =
            destinationReads[keys.queue]
            ?? Task { [source] in
                let place = try await source.fleet.queue(keys)
                let client = try await source.fleet.client(for: place.keys.retry)
                return Destination(
                    source: place,
                    state: try await QueueState.read(client, place.keys, configured: source.appNames),
                    client: try await source.fleet.client(for: place.keys.jobs))
            }
        destinationReads[keys.queue] = read
        defer { destinationReads[keys.queue] = nil }
        let found = try await read.value
        destinations[keys.queue] = Kept(value: found, at: .now)
        return found
    }

    /// Checks a job of a queue with the apps of its workers.
    func check(_ job: ByteBuffer, _ queue: QueueSource) async throws -> DashboardSource.Check {
        source.check(job, queue, try await destination(queue.keys).state.reported)
    }

    /// Returns the memory of the server of a key, at most one second old; `nil` if it may not be read.
    func memory(of key: String) async throws -> ServerInfo? {
        if let kept = memories[key], kept.at.duration(to: .now) < .seconds(1) { return kept.value }
        let read =
            memoryReads[key]
            ?? Task { [fleet = source.fleet] in
                do {
                    let reply = try await fleet.client(for: key).call(RedisCommand("INFO", "memory"))
                    return ServerInfo(reply.root.string ?? "")
                } catch RedisError.server(let error) where error.prefix == "NOPERM" {
                    return nil
                }
            }
        memoryReads[key] = read
        defer { memoryReads[key] = nil }
        let found = try await read.value
        memories[key] = Kept(value: found, at: .now)
        return found
    }

    /// The number of actions that are searched for those of a chart's time.
    static let maximumActions = 500

    /// Returns the latest actions of operators, newest first, at most two seconds old.
    func latestActions() async throws -> [AuditEntry] {
        if let actions, actions.at.duration(to: .now) < .seconds(2) { return actions.value }
        let read =
            actionsRead
            ?? Task { [fleet = source.fleet] in
                let keys = fleet.sharedKeys
                return try await AuditLog.latest(Self.maximumActions, fleet.client(for: keys.audit), keys)
            }
        actionsRead = read
        defer { actionsRead = nil }
        let found = try await read.value
        actions = Kept(value: found, at: .now)
        return found
    }

    /// Returns the combined history of some queues, at most a few seconds old; `nil` without queues.
    /// - Throws: `RedisError` if none of the queues can be read.
    func history(_ span: QueueHistory.Span, of queues: [QueueKeys]) async throws -> Found<QueueHistory?> {
        var (found, unread) = ([QueueHistory](), UnreadParts())
        for keys in queues {
            let name = "\(span) \(keys.queue)"
            if let kept = histories[name], kept.at.duration(to: .now) < .seconds(span.freshness) {
                found.append(kept.value)
                continue
            }
            let read =
                historyReads[name]
                ?? Task { [fleet = source.fleet] in
                    try await QueueHistory.read(span, fleet.client(for: keys.retry), keys)
                }
            historyReads[name] = read
            defer { historyReads[name] = nil }
            do {
                let history = try await read.value
                histories[name] = Kept(value: history, at: .now)
                found.append(history)
            } catch {
                try unread.record(error, of: UnreadParts.name(of: keys.queue))
            }
        }
        if found.isEmpty { try unread.throwFirst() }
        return Found(value: QueueHistory.sum(of: found), unread: unread)
    }
}
