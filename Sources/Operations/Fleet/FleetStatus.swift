import PrintableText
import PushQueue

/// The status of a fleet, as `status --json` prints it. The names of the members are stable; members without a value
/// are omitted.
package struct FleetStatus: Encodable, Sendable {
    /// A problem that needs an operator.
    package struct Problem: Encodable, Sendable {
        package enum Kind: String, CaseIterable, Encodable, Sendable {
            case redisTooOld = "redis_too_old"
            case redisCluster = "redis_is_cluster"
            case redisReplica = "redis_is_replica"
            case redisFull = "redis_full"
            case redisNearlyFull = "redis_nearly_full"
            case redisRefusesWrites = "redis_refuses_writes"
            case redisEvicts = "redis_evicts"
            case queueUnreadable = "queue_unreadable"
            case sharedUnreadable = "shared_unreadable"
            case serverUnreachable = "server_unreachable"
            case wrongKey = "wrong_key"
            case largeKey = "large_key"
            case noWorker = "no_worker"
            case workerGone = "worker_gone"
            case workerNotReady = "worker_not_ready"
            case workerSilent = "worker_silent"
            case failoversUnwatched = "failovers_unwatched"
            case appPaused = "app_paused"
            case appUnconnected = "app_unconnected"
            case appUnanswered = "app_unanswered"
            case appServerErrors = "app_server_errors"
            case differentApps = "different_apps"
            case tooOld = "too_old"
            case deadLetters = "dead_letters"
            case campaignStopped = "campaign_stopped"

            /// True if jobs are not sent, or may be lost. Otherwise the problem is a warning.
            package var isCritical: Bool {
                switch self {
                case .redisNearlyFull, .redisEvicts, .workerGone, .failoversUnwatched, .differentApps, .tooOld,
                    .deadLetters, .largeKey, .campaignStopped:
                    false
                case .redisTooOld, .redisCluster, .redisReplica, .redisFull, .redisRefusesWrites, .queueUnreadable,
                    .sharedUnreadable, .serverUnreachable, .wrongKey, .noWorker, .workerNotReady, .workerSilent,
                    .appPaused,
                    .appUnconnected, .appUnanswered, .appServerErrors:
                    true
                }
            }
        }

        package let kind: Kind
        /// The thing that has the problem.
        package let object: Object
        /// The problem.
        package let message: String
        /// The time at which it began, in milliseconds since 1970, if known.
        package let since: Int64?
        /// The first thing to do, as a clause; empty if the remedies are all.
        package let hint: String
        /// The things that help, in the order in which they make sense.
        package let remedies: [Remedy]
        /// The fleet that has the problem, for commands.
        package var access = FleetAccess()

        package init(
            _ kind: Kind, _ object: Object, _ message: String, since: Int64? = nil, hint: String = "",
            _ remedies: [Remedy] = []
        ) {
            (self.kind, self.object, self.message) = (kind, object, message)
            (self.since, self.hint, self.remedies) = (since, hint, remedies)
        }

        /// The name of the object.
        package var subject: String { object.name }

        /// The action that solves the problem, in words.
        package var advice: String {
            ([hint] + remedies.compactMap { $0.words(access) }).filter { !$0.isEmpty }.joined(separator: "; ")
        }

        private enum CodingKeys: String, CodingKey { case kind, subject, message, since, advice, commands }

        package func encode(to encoder: any Encoder) throws {
            var members = encoder.container(keyedBy: CodingKeys.self)
            try members.encode(kind, forKey: .kind)
            try members.encode(subject, forKey: .subject)
            try members.encode(message, forKey: .message)
            try members.encodeIfPresent(since, forKey: .since)
            try members.encode(advice, forKey: .advice)
            try members.encode(remedies.map { $0.command(access) }, forKey: .commands)
        }
    }

    /// The limits beyond which something needs attention.
    package struct Limits: Sendable {
        /// The maximum age of the oldest job, in ms; `nil` for any age.
        package var age: Int64?
        /// The maximum number of a queue's dead letters; `nil` for any number.
        package var dead: Int?
        /// The maximum share of dead letters in the day's outcomes of a queue; `nil` for ``defaultDeadShare``, and at
        /// least ``leastDead`` of them.
        package var deadShare: Double?

        package static let defaultDeadShare = 0.01
        package static let leastDead = 10

        /// Makes limits that apply only to dead letters.
        package init() {}
    }

    package struct Pause: Encodable, Sendable, Equatable {
        package var reason: String
        package var detail: String?
        /// The beginning in milliseconds since 1970, as all times here.
        package var since: Int64?
        /// The time of the next probe; `nil` for an operator's pause, which only an operator ends.
        package var until: Int64?
        package var by: String?

        package init(_ pause: PauseRecord) {
            (reason, detail, since, until, by) = (pause.reason, pause.detail, pause.since, pause.until, pause.by)
        }

        package var isByHand: Bool { until == nil }
    }

    /// A Redis server that holds queues.
    package struct Server: Encodable, Sendable {
        package var found: QueueServer
        /// The queues that it holds.
        package var queues: [String]

        /// Its report; `nil` if it refuses one.
        package var info: ServerInfo? { try? found.info.get() }

        private enum CodingKeys: String, CodingKey {
            case address, queues, version, role, usedMemoryBytes, maxMemoryBytes, evictionPolicy, appendOnly, replicas
            case replicasInStep, full, writesRefused, error
        }

        package func encode(to encoder: any Encoder) throws {
            var members = encoder.container(keyedBy: CodingKeys.self)
            try members.encode(found.address, forKey: .address)
            try members.encode(queues, forKey: .queues)
            try members.encode(found.isFull, forKey: .full)
            try members.encodeIfPresent(found.writeRefusal?.message.printable, forKey: .writesRefused)
            if case .failure(let answer) = found.info { try members.encode(answer.message.printable, forKey: .error) }
            try members.encodeIfPresent(info?.version, forKey: .version)
            try members.encodeIfPresent(info?.role.map { "\($0)" }, forKey: .role)
            try members.encodeIfPresent(info?.usedMemory, forKey: .usedMemoryBytes)
            try members.encodeIfPresent(info?.memoryLimit, forKey: .maxMemoryBytes)
            try members.encodeIfPresent(info?.evictionPolicy, forKey: .evictionPolicy)
            try members.encodeIfPresent(info?.keepsAppendOnlyFile, forKey: .appendOnly)
            try members.encodeIfPresent(info?.replicas, forKey: .replicas)
            try members.encodeIfPresent(info?.replicasInStep, forKey: .replicasInStep)
        }
    }

    package struct Queue: Encodable, Sendable {
        package var name: String
        /// Jobs that no lane has claimed.
        package var waiting = 0
        /// Retried, scheduled and deferred jobs that are due.
        package var due = 0
        /// Retried, scheduled and deferred jobs that are not due yet.
        package var later = 0
        /// The jobs of `due` and `later` by kind, unless they are too many to count.
        package var retrying, scheduled, deferred: Int?
        /// Jobs that are claimed and not settled.
        package var claimed = 0
        /// Dead letters, and the sum of their lengths in bytes.
        package var dead = 0
        package var deadBytes = 0
        /// Cancelled jobs that are kept.
        package var cancelled = 0
        /// The age of the oldest job that could be in flight by now, in milliseconds, if known.
        package var oldestAgeMs: Int64?
        package var paused: Pause?
        /// Living lanes.
        package var workers = 0
        /// Notifications delivered per second, if the queue was read twice.
        package var deliveredRate: Double?
        /// Today's counters (UTC): notifications by outcome, and by outcome and reason.
        package var today: [String: Int] = [:]
        /// The newest dead letters by reason, and their number.
        package var deadReasons: [String: Int] = [:]
        package var deadSampled = 0
        /// The waiting jobs by their member `fair`, if the queue sorts its jobs.
        package var fair: QueueShares?
        /// The campaigns that their guards have paused, with the reasons.
        package var stoppedCampaigns: [String: CampaignStop] = [:]
        /// The workers by their apps, if they do not all have the same.
        package var differentApps: [WorkersWithApps] = []
        /// The error because of which the queue could not be read.
        package var error: String?
        /// True if its server did not answer.
        package var unreachable = false
    }

    /// The stop of a campaign by its guard. Its JSON is the reason.
    package struct CampaignStop: Encodable, Sendable, Equatable {
        package var reason: String
        /// In milliseconds since 1970.
        package var since: Int64?

        package init(reason: String, since: Int64?) { (self.reason, self.since) = (reason, since) }

        package func encode(to encoder: any Encoder) throws {
            var value = encoder.singleValueContainer()
            try value.encode(reason)
        }
    }

    /// Workers of a queue that have the same apps with the same topics.
    package struct WorkersWithApps: Encodable, Sendable, Equatable {
        package var workers: [String]
        package var apps: [String]
    }

    package struct Worker: Encodable, Sendable {
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
        package var ownObstacles: [String] = []
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
        package var laneStates: [Lane] = []

        package enum CodingKeys: String, CodingKey {
            case name, host, pid, version, state, lanes, lanesTotal, queues, startedAt, updatedAt, silenceMs, latenessMs
            case notReady, failoverWatch
            case inFlight, claimed, done, rate, leaseLeftMs, redis
        }
    }

    /// A lane of a worker, as it was found in all of its queues.
    package struct Lane: Sendable {
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

    package struct App: Encodable, Sendable {
        package enum State: String, Encodable, Sendable {
            case connected, idle, connecting, unconnected, unanswered, paused, unknown
            case serverErrors = "server_errors"
        }

        package var name: String
        package var endpoints: [String] = []
        package var state = State.unknown
        package var paused: Pause?
        /// Connections that accept requests, and connections that are being established, of all workers.
        package var connections = 0
        package var connecting = 0
        package var streams = 0
        package var streamLimit = 0
        /// Lanes that have the app.
        package var lanes = 0
        /// Lanes in which no request gets an answer.
        package var lanesUnanswered = 0
        /// Lanes whose requests all get server errors, and the error.
        package var lanesWithServerErrors = 0
        package var serverError: String?
        /// The reason why there is no connection.
        package var failure: String?
        /// The time at which the oldest provider token in use was signed.
        package var tokenIssuedAt: Int64?
        /// The time until which the certificate is valid, if the app has one.
        package var certificateExpiresAt: Int64?
    }

    /// Redis' time, in milliseconds since 1970.
    package var at: Int64 = 0
    package var redis = ""
    package var prefix = ""
    package var problems: [Problem] = []
    /// Remarks about the status.
    package var notes: [String] = []
    package var servers: [Server] = []
    /// The keys that hold another type than they must.
    package var wrongKeys: [WrongKey] = []
    /// The keys that soon can't be moved to another server any more.
    package var largeKeys: [LargeKey] = []
    /// The error because of which the state that all queues share could not be read.
    package var sharedError: String?
    /// The error of a server that could not be searched for queues.
    package var searchError: String?
    package var queues: [Queue] = []
    package var workers: [Worker] = []
    package var apps: [App] = []
    /// The number of tokens in the set of invalid tokens.
    package var invalidTokens = 0
    /// Notifications that ended per second over the last minute, as the workers report it.
    package var rate = 0.0

    /// Makes an empty status.
    package init() {}

    /// Workers that are alive.
    package var living: [Worker] { workers.filter { $0.state != .gone } }
}

extension FleetStatus {
    /// Returns the names of all apps if a name is missing among them; nil if it is there, or if there are no apps.
    package func others(than app: String) -> [String]? {
        let known = Set(apps.map(\.name)).sorted()
        return known.isEmpty || known.contains(app) ? nil : known
    }
}
