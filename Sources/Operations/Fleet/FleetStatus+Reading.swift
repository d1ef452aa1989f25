import NIOCore
import PushJob
import PushQueue
import Redis

extension FleetStatus {
    /// The result of reading a queue.
    package struct QueueReading: Sendable {
        package var keys: QueueKeys
        package var result: Result<QueueOverview, RedisError>
        package var wrongKeys: [WrongKey] = []
        package var largeKeys: [LargeKey] = []
        /// The campaigns that their guards have paused, with the reasons.
        package var stoppedCampaigns: [String: CampaignStop] = [:]

        /// False if the queue's server did not answer.
        var isReachable: Bool {
            switch result {
            case .success: true
            case .failure(let error): error.isAnswer
            }
        }
    }

    /// Reads the status of all queues from Redis.
    /// - Throws: `RedisError` if no server can be reached.
    package static func read(
        _ fleet: Fleet, _ found: Fleet.Found, apps: [String] = [], limits: Limits = Limits()
    ) async throws -> FleetStatus {
        var status = try await read(fleet, found.keys, apps: apps)
        if let incomplete = found.incomplete { status.notes.append(incomplete) }
        status.searchError = found.unsearched?.headline
        status.problems = status.findProblems(limits, fleet.access)
        return status
    }

    /// Reads the status from Redis.
    /// - Parameters:
    ///   - queues: the queues to read.
    ///   - apps: the names of apps that are shown even if no worker has them.
    ///   - limits: the limits beyond which something is a problem.
    /// - Throws: `RedisError` if no server can be reached.
    package static func read(
        _ fleet: Fleet, _ queues: [QueueKeys], apps: [String] = [], limits: Limits = Limits()
    ) async throws -> FleetStatus {
        var status = FleetStatus()
        status.redis = "\(fleet.clients.topology)"
        status.prefix = fleet.prefix
        let readings = try await readQueues(fleet, queues)
        status.servers = try await servers(fleet, readings.filter(\.isReachable).map(\.keys))
        status.add(readings, fleet.access)
        let sightings = readings.flatMap(sightings)
        status.workers = workers(sightings, unwritable: status.unwritableQueues)
        let names = Set(newest(sightings).flatMap(\.apps).map(\.name) + apps).filter { !$0.isEmpty }
        // The last statements of a process that hangs are out of date.
        let silent = Set(status.workers.filter(\.isSilent).map(\.name))
        let reports = newest(sightings.filter { !silent.contains($0.process) })
        status.rate = reports.reduce(0) { $0 + $1.rate }
        try await status.readShared(fleet, apps: names, reports)
        let omitted = reports.map(\.moreApps).max() ?? 0
        if omitted > 0 {
            status.notes.append("workers have \(omitted) more apps, which have no problems and are not shown")
        }
        let undated = reports.reduce(0) { $0 + $1.undatedExpirations }
        if undated > 0 {
            let jobs = undated == 1 ? "1 job had" : "\(Words.number(undated)) jobs had"
            status.notes.append(
                "\(jobs) a duration as `expiration` and no `enqueued_at` since these workers started: it counts from when a "
                    + "worker first saw them; have producers set `enqueued_at`")
        }
        // Of a Redis that can't be read, the time is not known.
        if status.at == 0 { status.at = Moment.now }
        status.problems = status.findProblems(limits, fleet.access)
        return status
    }

    /// Reads each server that has queues, once.
    private static func servers(_ fleet: Fleet, _ queues: [QueueKeys]) async throws -> [Server] {
        var servers: [Server] = []
        for keys in queues {
            let client = try await fleet.client(for: keys.retry)
            let address = try await client.eventLoop.submit { client.server?.address }.get()
            if let known = servers.firstIndex(where: { $0.found.address == address }) {
                servers[known].queues.append(keys.queue)
            } else {
                servers.append(Server(found: try await QueueServer.read(client, keys), queues: [keys.queue]))
            }
        }
        return servers
    }

    /// Reads the state that the fleet shares.
    private mutating func readShared(_ fleet: Fleet, apps: Set<String>, _ reports: [WorkerReport]) async throws {
        let keys = fleet.sharedKeys
        var pauses: [String: PauseRecord] = [:]
        defer { self.apps = Self.apps(reports, names: apps, pauses: pauses) }
        let client: RedisClient
        do {
            client = try await fleet.client(for: keys.invalidTokens)
        } catch let error as RedisError where !servers.isEmpty {
            sharedError = error.headline
            return
        }
        do {
            pauses = try await AppPauses.read(apps, client, keys)
        } catch RedisError.server(let answer) {
            notes.append("the pauses of apps cannot be read: \(answer.message)")
        }
        do {
            wrongKeys += try await WrongKey.find(client, keys, apps: apps.sorted())
            largeKeys += try await LargeKey.find(client, KeySizes.growing(keys))
        } catch RedisError.server(let answer) {
            notes.append("the types and sizes of keys cannot be read: \(answer.message)")
        }
        do {
            invalidTokens = try await InvalidTokenClient.reading(fleet).count()
        } catch QueueFailure.redis(.server(let answer)) {
            notes.append("the invalid tokens cannot be counted: \(answer.message)")
        } catch QueueFailure.redis(let error) {
            throw error
        }
    }

    private static func readQueues(_ fleet: Fleet, _ queues: [QueueKeys]) async throws -> [QueueReading] {
        let readings = try await withThrowingTaskGroup(of: (Int, QueueReading).self) { group in
            for (index, keys) in queues.enumerated() {
                group.addTask {
                    return (index, try await read(fleet, keys))
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        return readings.sorted { $0.0 < $1.0 }.map(\.1)
    }

    private static func read(_ fleet: Fleet, _ keys: QueueKeys) async throws -> QueueReading {
        var reading: QueueReading
        var lanes: [String] = []
        do {
            let source = try await fleet.queue(keys, ignoresSettings: true)
            let found = try await QueueOverview.read(fleet.client(for: keys.retry), source.keys)
            lanes = found.workers.map(\.name)
            reading = QueueReading(keys: keys, result: .success(found))
        } catch let error as RedisError {
            reading = QueueReading(keys: keys, result: .failure(error))
        }
        guard reading.isReachable else { return reading }
        do {
            let client = try await fleet.client(for: keys.retry)
            reading.wrongKeys = try await WrongKey.find(client, keys, lanes: lanes)
            reading.largeKeys = try await LargeKey.find(client, KeySizes.growing(keys))
            for case (.campaign(let name), let command) in try await JobCommands.read(client, keys).commands
            where command.state == .paused && command.by == CampaignGuard.person {
                reading.stoppedCampaigns[name.printable] = CampaignStop(
                    reason: command.reason ?? "", since: command.since)
            }
        } catch RedisError.server(let answer) {
            // An earlier error is the more important one.
            if case .success = reading.result { reading.result = .failure(.server(answer)) }
        }
        return reading
    }

    private mutating func add(_ readings: [QueueReading], _ access: FleetAccess) {
        for reading in readings {
            wrongKeys += reading.wrongKeys
            largeKeys += reading.largeKeys
            var queue = Queue(name: reading.keys.queue)
            switch reading.result {
            case .failure(.server(let answer)): queue.error = answer.message
            case .failure(let error):
                queue.error = error.headline
                queue.unreachable = true
            case .success(let found):
                at = max(at, found.now)
                queue.waiting = found.waiting
                queue.due = found.due
                queue.later = found.later
                queue.retrying = found.retries?.retrying
                queue.scheduled = found.retries?.scheduled
                queue.deferred = found.retries?.deferred
                queue.claimed = found.claims
                queue.dead = found.dead
                queue.deadBytes = found.deadBytes
                queue.cancelled = found.cancelled
                queue.fair = found.shares
                queue.oldestAgeMs = found.oldest
                queue.paused = found.pause.map(Pause.init)
                queue.workers = found.workers.count(where: \.isLiving)
                queue.differentApps = Self.differentApps(found.workers)
                queue.today = found.counters
                queue.deadReasons = found.deadReasons
                queue.deadSampled = found.deadSampled
                queue.stoppedCampaigns = reading.stoppedCampaigns
                if let latest = found.latest, latest > found.now + JobTime.farAhead {
                    notes.append(
                        "queue \(queue.name) has a job that is scheduled for \(Moment.text(latest)), in more than a year; "
                            + "`\(access.command(["jobs", "list", "--state", "scheduled"]))` shows it")
                }
                if found.workerCount > found.workers.count {
                    notes.append(
                        "queue \(queue.name) has \(found.workerCount) workers; only \(found.workers.count) are shown")
                }
            }
            queues.append(queue)
        }
    }

    private static func sightings(_ reading: QueueReading) -> [Sighting] {
        guard case .success(let found) = reading.result else { return [] }
        // The long lease of a lane without claims outlives its process.
        return found.workers.filter { $0.isLiving || $0.leaseLeft < 0 }.map {
            Sighting(queue: reading.keys.queue, now: found.now, worker: $0)
        }
    }

    /// Computes the rates, which need two readings.
    package mutating func compare(with before: FleetStatus) {
        let seconds = Double(at - before.at) / 1000
        guard seconds > 0 else { return }
        for (index, queue) in queues.enumerated() {
            guard let old = before.queues.first(where: { $0.name == queue.name }), old.error == nil else { continue }
            let delivered = (queue.today["delivered"] ?? 0) - (old.today["delivered"] ?? 0)
            // At midnight the counters restart at 0.
            queues[index].deliveredRate = Double(max(0, delivered)) / seconds
        }
    }
}
