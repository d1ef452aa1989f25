import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// A queue as it was read from Redis, for a status.
struct QueueReading: Sendable {
    let keys: QueueKeys
    private(set) var result: Result<QueueOverview, RedisError>
    private(set) var wrongKeys: [WrongKey] = []
    private(set) var largeKeys: [LargeKey] = []
    private var stoppedCampaigns: [String: (reason: String, since: Int64?)] = [:]
    private var damagedCommands: [String] = []

    /// False if the queue's server did not answer.
    var isReachable: Bool {
        switch result {
        case .success: true
        case .failure(let error): error.isAnswer
        }
    }

    /// Redis' time in milliseconds since 1970; 0 if the queue could not be read.
    var now: Int64 {
        switch result {
        case .success(let found): found.now
        case .failure: 0
        }
    }

    /// Reads queues at the same time.
    /// - Returns: the readings in the order of the queues.
    /// - Throws: `QueueFailure`, an error of the settings, or `RedisError` if a server stops answering between two calls.
    ///   Other errors of Redis are results.
    static func read(_ queues: [QueueKeys], _ fleet: Fleet) async throws -> [QueueReading] {
        try await queues.concurrentMap { try await QueueReading($0, fleet) }
    }

    private init(_ keys: QueueKeys, _ fleet: Fleet) async throws {
        self.keys = keys
        var lanes: [String] = []
        do {
            let source = try await fleet.queue(keys, ignoresSettings: true)
            let found = try await QueueOverview.read(fleet.client(for: keys.retry), source.keys)
            lanes = found.workers.map(\.name)
            result = .success(found)
        } catch let error as RedisError {
            result = .failure(error)
        }
        guard isReachable else { return }
        do {
            let client = try await fleet.client(for: keys.retry)
            wrongKeys = try await WrongKey.find(client, keys, lanes: lanes)
            largeKeys = try await LargeKey.find(client, KeySizes.growing(keys))
            let commands = try await JobCommands.read(client, keys).commands
            damagedCommands = commands.filter(\.value.isDamaged).map(\.key.field.printable).sorted()
            for case (.campaign(let name), let command) in commands
            where command.state == .paused && command.by == CampaignGuard.person {
                stoppedCampaigns[name.printable] = (command.reason ?? "", command.since)
            }
        } catch RedisError.server(let answer) {
            // An error before this one is more important.
            if case .success = result { result = .failure(.server(answer)) }
        }
    }

    var status: QueueStatus {
        var queue = QueueStatus(name: keys.queue)
        switch result {
        case .failure(.server(let answer)): queue.error = answer.message
        case .failure(let error):
            queue.error = error.headline
            queue.unreachable = true
        case .success(let found):
            queue.waiting = found.waiting
            queue.due = found.due
            queue.later = found.later
            queue.retrying = found.retrying
            queue.scheduled = found.postponed?.scheduled
            queue.deferred = found.postponed?.deferred
            queue.claimed = found.claims
            queue.dead = found.dead
            queue.deadBytes = found.deadBytes
            queue.cancelled = found.cancelled
            queue.fair = found.shares
            queue.oldestAgeMs = found.oldest
            queue.paused = found.pause
            queue.workers = found.workers.count(where: \.isLiving)
            queue.differentApps = WorkersWithApps.groups(of: found.workers.filter(\.isLiving).compactMap(\.report))
            queue.today = found.counters
            queue.deadReasons = found.deadReasons
            queue.deadSampled = found.deadSampled
            (queue.stoppedCampaigns, queue.damagedCommands) = (stoppedCampaigns, damagedCommands)
        }
        return queue
    }

    func notes(_ access: FleetAccess) -> [String] {
        guard case .success(let found) = result else { return [] }
        var notes: [String] = []
        if let latest = found.latest, latest > found.now + JobTime.farAhead {
            notes.append(
                "queue \(keys.queue) has a job that is scheduled for \(Moment.text(latest)), in more than a year; "
                    + "`\(access.command(["jobs", "list", "--state", "scheduled"]))` shows it")
        }
        if found.workerCount > found.workers.count {
            notes.append("queue \(keys.queue) has \(found.workerCount) workers; only \(found.workers.count) are shown")
        }
        return notes
    }

    /// The lanes that are alive, or whose lease has expired.
    var lanes: [LaneSighting] {
        guard case .success(let found) = result else { return [] }
        // The long lease of a lane without claims outlives its process.
        return found.workers.filter { $0.isLiving || $0.leaseLeft < 0 }.map {
            LaneSighting(queue: keys.queue, now: found.now, worker: $0)
        }
    }
}
