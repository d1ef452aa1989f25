import PushQueue
import Redis

/// A worker, as its lanes were found in its queues.
package struct WorkerStatus: Encodable, Sendable {
    package enum State: String, Encodable, Sendable { case running, quiet, draining, gone, unknown }

    /// The name of the process.
    package var name: String
    package var host = ""
    package var pid = 0
    package var version = ""
    package var state = State.unknown
    /// Living lanes, and the number that there should be.
    package var lanes = 0
    package var lanesTotal = 0
    package var queues: [String] = []
    package var startedAt: Int64?
    /// The time of its last report.
    package var updatedAt: Int64?
    /// The age of its last report, in milliseconds.
    package var silenceMs: Int64?
    /// The age in milliseconds of reports that are so late that the process must hang, or cannot reach Redis; `nil`
    /// if none are.
    package var latenessMs: Int64?
    package var isSilent: Bool { latenessMs != nil }
    /// The problems that keep it from its work, one sentence each.
    package var notReady: [String] = []
    /// Those problems that are not about an app: an app's problems are shown with the app.
    package var ownObstacles: [WorkerReport.Obstacle] = []
    /// The reason why it learns late of failovers that Sentinels announce; `nil` if it does not.
    package var failoverWatch: String?
    /// Notifications without an answer.
    package var inFlight = 0
    /// Jobs that are claimed and not settled.
    package var claimed = 0
    /// Notifications that have ended since the start.
    package var done = 0
    /// Notifications that ended per second, over the last minute.
    package var rate = 0.0
    /// The milliseconds until the first of its leases ends; negative if it has ended.
    package var leaseLeftMs: Int64 = 0
    package var redis = ""
    /// Its lanes, by their index; not for programs.
    package var laneStates: [LaneStatus] = []

    package enum CodingKeys: String, CodingKey {
        case name, host, pid, version, state, lanes, lanesTotal, queues, startedAt, updatedAt, silenceMs, latenessMs
        case notReady, failoverWatch
        case inFlight, claimed, done, rate, leaseLeftMs, redis
    }

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

/// A lane of a worker, as it was found in all of its queues.
package struct LaneStatus: Sendable {
    /// The index in its process, from 0.
    package var index: Int
    package var queues: [String]
    /// Jobs that are claimed and not settled.
    package var claimed: Int
    /// The milliseconds until the first of its leases ends; negative if it has ended.
    package var leaseLeftMs: Int64
    package var isLiving: Bool
    /// The age of its last report, in milliseconds.
    package var silenceMs: Int64?
    /// Its last report; `nil` if it can't be read.
    package var report: WorkerReport?
}

extension WorkerCommand {
    /// Gives the command to a process through one of its queues. A later command replaces it. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    package func send(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.write("SET", keys.order(process), client) { command in
            command.append(text)
            command.append("PX")
            command.append(Self.lifetime)
        }
    }
}
