import PushQueue
import Redis

/// Reads the status of a fleet, with its problems, from Redis.
package struct StatusReader: Sendable {
    private let fleet: Fleet
    private let apps: [String]
    private let limits: ProblemLimits

    /// - Parameters:
    ///   - apps: the names of apps that are shown even if no worker has them.
    ///   - limits: the limits beyond which something is a problem.
    package init(_ fleet: Fleet, apps: [String] = [], limits: ProblemLimits = ProblemLimits()) {
        (self.fleet, self.apps, self.limits) = (fleet, apps, limits)
    }

    /// - Throws: `RedisError` if no server can be reached.
    package func read(_ queues: [QueueKeys]) async throws -> FleetStatus {
        try await read(Fleet.Found(keys: queues))
    }

    /// - Throws: `RedisError` if no server can be reached.
    package func read(_ found: Fleet.Found) async throws -> FleetStatus {
        var status = FleetStatus()
        status.redis = "\(fleet.clients.topology)"
        status.prefix = fleet.prefix
        let readings = try await QueueReading.read(found.keys, fleet)
        status.servers = try await ServerStatus.read(readings.filter(\.isReachable).map(\.keys), fleet)
        for reading in readings {
            status.at = max(status.at, reading.now)
            status.queues.append(reading.status)
            status.notes += reading.notes(fleet.access)
            status.wrongKeys += reading.wrongKeys
            status.largeKeys += reading.largeKeys
        }
        let lanes = LaneSightings(readings.flatMap(\.lanes))
        status.workers = lanes.workers(unwritable: status.unwritableQueues)
        let names = Set(lanes.reports.flatMap(\.apps).map(\.name) + apps).filter { !$0.isEmpty }
        // The last reports of a process that hangs are out of date.
        let reports = lanes.without(Set(status.workers.filter(\.isSilent).map(\.name))).reports
        status.rate = reports.reduce(0) { $0 + $1.rate }
        let pauses = try await readShared(&status, names)
        status.apps = AppStatus.apps(reports, names: names, pauses: pauses)
        status.scopes = ScopeStatus.scopes(reports)
        status.notes += Self.notes(reports)
        if let incomplete = found.incomplete { status.notes.append(incomplete) }
        status.searchError = found.unsearched?.headline
        // The time of a Redis that can't be read is unknown.
        if status.at == 0 { status.at = Moment.now }
        status.problems = status.findProblems(limits, fleet.access)
        return status
    }

    /// Reads the state that the fleet shares.
    /// - Returns: the pauses of apps, by their names.
    private func readShared(_ status: inout FleetStatus, _ apps: Set<String>) async throws -> [String: PauseRecord] {
        let keys = fleet.sharedKeys
        var pauses: [String: PauseRecord] = [:]
        let client: RedisClient
        do {
            client = try await fleet.client(for: keys.invalidTokens)
        } catch let error as RedisError where !status.servers.isEmpty {
            status.sharedError = error.headline
            return pauses
        }
        do {
            pauses = try await AppPauses.read(apps, client, keys)
        } catch RedisError.server(let answer) {
            status.notes.append("the pauses of apps cannot be read: \(answer.message)")
        }
        do {
            status.wrongKeys += try await WrongKey.find(client, keys, apps: apps.sorted())
            status.largeKeys += try await LargeKey.find(client, KeySizes.growing(keys))
        } catch RedisError.server(let answer) {
            status.notes.append("the types and sizes of keys cannot be read: \(answer.message)")
        }
        do {
            let tokens = try await InvalidTokenClient.reading(fleet)
            let division = try await tokens.division()
            if division.incomplete != nil { status.resharding = division }
            status.invalidTokens = try await tokens.count(among: division.shards)
            status.badRegistrations = try await tokens.badRegistrations(among: division.shards)
        } catch QueueFailure.redis(.server(let answer)) {
            status.notes.append("the invalid tokens cannot be counted: \(answer.message)")
        } catch QueueFailure.redis(let error) {
            throw error
        }
        return pauses
    }

    private static func notes(_ reports: [WorkerReport]) -> [String] {
        var notes: [String] = []
        let omitted = reports.map(\.moreApps).max() ?? 0
        if omitted > 0 {
            notes.append("workers have \(omitted) more apps, which have no problems and are not shown")
        }
        let undated = reports.reduce(0) { $0 + $1.undatedExpirations }
        if undated > 0 {
            let jobs = undated == 1 ? "1 job had" : "\(Words.number(undated)) jobs had"
            notes.append(
                "\(jobs) a duration as `expiration` and no `enqueued_at` since these workers started: the duration counts from the time when a "
                    + "worker first saw the job; have producers set `enqueued_at`")
        }
        return notes
    }
}
