import PushQueue
import Redis

/// A worker, as its lanes were found in its queues.
package struct WorkerStatus: Sendable {
    package enum State: String, CaseIterable, Sendable { case running, quiet, draining, gone, unknown }

    package var name: String
    package var host = "", pid = 0, version = ""
    package var state = State.unknown
    package var lanes = 0, lanesTotal = 0
    package var queues: [String] = []
    package var startedAt, updatedAt, silenceMs, latenessMs: Int64?
    package var isSilent: Bool { latenessMs != nil }
    package var notReady: [String] = []
    /// The problems that are not about an app. An app's problems are shown with the app.
    package var ownObstacles: [WorkerReport.Obstacle] = []
    package var failoverWatch: String?
    package var refusedReload: String?
    package var inFlight = 0, claimed = 0, done = 0, rate = 0.0
    package var leaseLeftMs: Int64 = 0
    package var redis = ""
    /// The worker's lanes, by index. They are not in the JSON.
    package var laneStates: [LaneStatus] = []

    /// Sends a command to the worker, on all of its queues.
    /// - Parameters:
    ///   - at: Redis' time in milliseconds since 1970. The command's lifetime begins then.
    ///   - known: the queues of the fleet.
    /// - Throws: `RedisError`.
    package func send(_ command: WorkerCommand.Kind, at: Int64, _ known: [QueueKeys], _ fleet: Fleet) async throws {
        for keys in known where queues.contains(keys.queue) {
            try await WorkerCommand(command, at: at).send(to: name, fleet.client(for: keys.jobs), keys)
        }
    }
}

extension WorkerStatus: Shown {
    package static let columns = Columns<Self>(
        "Worker", "A worker.",
        [
            .init("name", "Name of the process.", as: .worker, title: "Worker", in: .list, \.name),
            .init("host", "Host.", \.host),
            .init("pid", "ID of the process.", \.pid),
            .init("state", "State:", as: .choice(State.self), in: .list, \.state.rawValue),
            .init("lanes_total", "Number of lanes that the worker should have.", as: .count, \.lanesTotal),
            .init("queues", "Queues of the worker.", in: .list, under: "Worker", \.queues),
            .init("updated_at", "Time of the worker's last report.", as: .time, \.updatedAt),
            .init(
                "silence_ms", "Age of the last report.", as: .duration, title: "Heartbeat", in: .list, under: "State",
                \.silenceMs),
            .init("lateness_ms", "Age of a report that is late, if any.", as: .duration, \.latenessMs),
            .init("refused_reload", "Reason why the last reload of the configuration was refused.", \.refusedReload),
            .init("failover_watch", "Reason why the worker notices Sentinel's failovers late.", \.failoverWatch),
            .init("in_flight", "Notifications without an answer.", as: .count, in: .list, \.inFlight),
            .init("claimed", "Jobs that are claimed and not settled.", as: .count, in: .list, \.claimed),
            .init("done", "Notifications that have ended since the start.", as: .count, \.done),
            .init(
                "rate", "Notifications that ended per second, over the last minute.", as: .rate, title: "Per second",
                in: .list, \.rate),
            .init("lanes", "Living lanes.", as: .count, in: .wide, \.lanes),
            .init("version", "Version.", as: .key, in: .widest, \.version),
            .init("started_at", "Time of the worker's start.", as: .time, title: "Started", in: .widest, \.startedAt),
            .init(
                "lease_left_ms", "Time until a lease ends; negative if one has ended.", as: .duration, title: "Lease",
                in: .widest, \.leaseLeftMs),
            .init(
                "not_ready", "Problems that block the worker, one sentence each.", title: "Problem", in: .wide,
                \.notReady),
            .init("redis", "Redis server that the worker uses.", \.redis),
        ])
}

/// A lane of a worker, as it was found in all of its queues.
package struct LaneStatus: Sendable {
    /// The lane's index in its process, from 0.
    package var index: Int
    package var queues: [String]
    /// Jobs that are claimed and not settled.
    package var claimed: Int
    /// The milliseconds until the lane's first lease ends; negative if it has ended.
    package var leaseLeftMs: Int64
    package var isLiving: Bool
    /// The age of the lane's last report, in milliseconds.
    package var silenceMs: Int64?
    /// The lane's last report; `nil` if it can't be read.
    package var report: WorkerReport?
}

extension WorkerCommand {
    /// Gives the command to a process through one of its queues. A later command replaces it. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    package func send(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.set(keys.order(process), client) { command in
            command.append(text)
            command.append("PX")
            command.append(Self.lifetime)
        }
    }
}
