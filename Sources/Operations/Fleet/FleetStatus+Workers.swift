import PushQueue
import Redis

// Derives workers and apps from what each lane reports on each queue, without any I/O.
extension FleetStatus {
    /// A lane as it was found in a queue.
    package struct Sighting {
        package var queue: String
        package var now: Int64
        package var worker: QueueOverview.Worker

        /// The name of its process; without a report, its own name.
        package var process: String { report?.process ?? worker.name }

        /// Its report, if its name matches that of the lane.
        package var report: WorkerReport? {
            worker.report.flatMap { worker.name.hasPrefix($0.process + ".") ? $0 : nil }
        }

        /// The process and the lane's index in it.
        package var lane: String { "\(process) \(report?.lane ?? 0)" }
    }

    /// Returns the last report of each living lane; a lane reports the same on all its queues.
    package static func newest(_ sightings: [Sighting]) -> [WorkerReport] {
        var newest: [String: WorkerReport] = [:]
        for sighting in sightings where sighting.worker.isLiving {
            guard let report = sighting.report else { continue }
            if let known = newest[sighting.lane], known.updatedAt >= report.updatedAt { continue }
            newest[sighting.lane] = report
        }
        return Array(newest.values)
    }

    /// The age in milliseconds from which the report of a lane that has claims is late.
    private static let latestWithClaims = 2 * WorkerReport.interval + 2000
    /// The age from which the last report of any lane of a process is late.
    private static let latest = 2 * WorkerReport.longestInterval + 3000

    /// Returns the age in milliseconds of the reports of a living process that are late; `nil` if none are.
    private static func lateness(_ living: [Sighting], unwritable: Set<String>) -> Int64? {
        let ages = living.filter { !unwritable.contains($0.queue) }.compactMap { sighting in
            sighting.report.map { (age: sighting.now - $0.updatedAt, hasClaims: sighting.worker.claims > 0) }
        }
        let late = ages.filter { $0.hasClaims && $0.age > latestWithClaims }.map(\.age).max()
        guard late == nil, let newest = ages.map(\.age).min(), newest > latest else { return late }
        return newest
    }

    /// - Parameter unwritable: queues in which no worker can renew its lease.
    package static func workers(_ sightings: [Sighting], unwritable: Set<String>) -> [Worker] {
        Dictionary(grouping: sightings, by: \.process).map { name, sightings in
            let living = sightings.filter { $0.worker.isLiving }
            let reports = newest(sightings)
            var worker = Worker(name: name)
            worker.lanes = Set(living.map(\.lane)).count
            worker.queues = Set(sightings.map(\.queue)).sorted()
            worker.claimed = sightings.reduce(0) { $0 + $1.worker.claims }
            worker.leaseLeftMs = (living.isEmpty ? sightings : living).map(\.worker.leaseLeft).min() ?? 0
            if let any = reports.first ?? sightings.compactMap(\.report).first {
                worker.host = any.host
                worker.pid = any.processIdentifier
                worker.version = any.version
                worker.lanesTotal = any.lanes
                worker.redis = any.redis
                worker.startedAt = any.startedAt
            }
            if let last = sightings.filter({ $0.report != nil }).max(by: { at($0) < at($1) }) {
                worker.updatedAt = at(last)
                worker.silenceMs = max(0, last.now - at(last))
            }
            worker.latenessMs = lateness(living, unwritable: unwritable)
            worker.laneStates = lanes(sightings)
            worker.inFlight = reports.reduce(0) { $0 + $1.inFlight }
            worker.done = reports.reduce(0) { $0 + $1.done }
            worker.rate = reports.reduce(0) { $0 + $1.rate }
            let obstacles = reports.flatMap(\.obstacles)
            worker.notReady = Set(obstacles.map(\.reason)).sorted()
            worker.ownObstacles = Set(obstacles.filter { $0.app == nil }.map(\.reason)).sorted()
            worker.failoverWatch = reports.lazy.compactMap(\.failoverWatch).first
            worker.state = state(living: !living.isEmpty, reports)
            // A worker that could not renew its lease may well be alive.
            if worker.state == .gone, worker.queues.contains(where: unwritable.contains) { worker.state = .unknown }
            return worker
        }.sorted { ($0.host, $0.pid, $0.name) < ($1.host, $1.pid, $1.name) }
    }

    /// Returns the lanes of a process.
    private static func lanes(_ sightings: [Sighting]) -> [Lane] {
        Dictionary(grouping: sightings, by: \.lane).values.map { lane in
            let last = lane.filter { $0.report != nil }.max { at($0) < at($1) }
            let living = lane.filter(\.worker.isLiving)
            return Lane(
                index: last?.report?.lane ?? 0, queues: lane.map(\.queue).sorted(),
                claimed: lane.reduce(0) { $0 + $1.worker.claims },
                leaseLeftMs: (living.isEmpty ? lane : living).map(\.worker.leaseLeft).min() ?? 0,
                isLiving: !living.isEmpty, silenceMs: last.map { max(0, $0.now - at($0)) }, report: last?.report)
        }.sorted { $0.index < $1.index }
    }

    /// Returns a queue's running workers by their apps; none if they all have the same.
    package static func differentApps(_ lanes: [QueueOverview.Worker]) -> [WorkersWithApps] {
        let running = lanes.filter(\.isLiving).compactMap(\.report).filter {
            $0.state == .running && $0.configuration != nil
        }
        let groups = Dictionary(grouping: running) { $0.configuration?.routing }
        guard groups.count > 1 else { return [] }
        return groups.values.map { reports in
            WorkersWithApps(
                workers: Set(reports.map(\.process)).sorted(), apps: Set(reports.flatMap(\.apps).map(\.name)).sorted())
        }.sorted { ($0.apps.count, $0.workers[0]) < ($1.apps.count, $1.workers[0]) }
    }

    private static func at(_ sighting: Sighting) -> Int64 { sighting.report?.updatedAt ?? 0 }

    private static func state(living: Bool, _ reports: [WorkerReport]) -> Worker.State {
        guard living else { return .gone }
        if reports.isEmpty { return .unknown }
        // Lanes receive a command one after the other, so the state of one will be that of the process.
        if reports.contains(where: { $0.state == .draining }) { return .draining }
        return reports.contains { $0.state == .quiet } ? .quiet : .running
    }

    /// - Parameters:
    ///   - names: the names of apps that are shown even without a report.
    ///   - pauses: the pauses in Redis, by app.
    package static func apps(
        _ reports: [WorkerReport], names: Set<String> = [], pauses: [String: PauseRecord]
    ) -> [App] {
        var apps: [String: App] = [:]
        for name in names { apps[name] = App(name: name) }
        for (name, pause) in pauses { apps[name, default: App(name: name)].paused = Pause(pause) }
        var appsByName: [String: [WorkerReport.App]] = [:]
        for app in reports.flatMap(\.apps) { appsByName[app.name, default: []].append(app) }
        for (name, lanes) in appsByName {
            var app = apps[name] ?? App(name: name)
            app.endpoints = Set(lanes.map(\.endpoint)).sorted()
            app.connections = lanes.reduce(0) { $0 + $1.usable }
            app.connecting = lanes.reduce(0) { $0 + $1.connecting }
            app.streams = lanes.reduce(0) { $0 + $1.streams }
            app.streamLimit = lanes.reduce(0) { $0 + $1.streamLimit }
            app.lanes = lanes.count
            app.lanesUnanswered = lanes.count(where: \.isUnanswered)
            app.lanesWithServerErrors = lanes.count { $0.serverError != nil }
            app.serverError = lanes.compactMap(\.serverError).first
            app.failure = lanes.compactMap(\.failure).first
            app.tokenIssuedAt = lanes.compactMap(\.tokenIssuedAt).min()
            app.certificateExpiresAt = lanes.compactMap(\.certificateExpiresAt).min()
            app.state =
                if app.lanesUnanswered > 0 {
                    .unanswered
                } else if app.serverError != nil {
                    .serverErrors
                } else if app.connections > 0 {
                    .connected
                } else if lanes.allSatisfy(\.isDormant) {
                    .idle
                } else {
                    app.failure == nil ? .connecting : .unconnected
                }
            apps[name] = app
        }
        return apps.values.map { app in
            var app = app
            if app.paused != nil { app.state = .paused }
            return app
        }.sorted { $0.name < $1.name }
    }
}

extension FleetStatus.Worker {
    /// Sends a command to the worker, on all of its queues.
    /// - Parameters:
    ///   - at: Redis' time in milliseconds since 1970, from which the command's lifetime counts.
    ///   - known: the queues of the fleet.
    /// - Throws: `RedisError`.
    package func send(_ command: WorkerCommand.Kind, at: Int64, _ known: [QueueKeys], _ fleet: Fleet) async throws {
        for keys in known where queues.contains(keys.queue) {
            try await WorkerCommand(command, at: at).send(to: name, fleet.client(for: keys.jobs), keys)
        }
    }
}

extension WorkerCommand {
    /// Gives the command to a process through one of its queues. A later command replaces it. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    public func send(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.write("SET", keys.order(process), client) { command in
            command.append(text)
            command.append("PX")
            command.append(Self.lifetime)
        }
    }
}
