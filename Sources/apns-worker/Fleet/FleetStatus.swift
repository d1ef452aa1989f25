import PrintableText
import PushQueue

/// How everything is, as `status --json` prints it. The names of the members stay; members that say nothing are left out.
struct FleetStatus: Encodable, Sendable {
    /// A problem that needs an operator.
    struct Problem: Encodable, Sendable, Equatable {
        enum Kind: String, Encodable, Sendable {
            case redisTooOld = "redis_too_old"
            case redisReplica = "redis_is_replica"
            case redisFull = "redis_full"
            case redisNearlyFull = "redis_nearly_full"
            case redisRefusesWrites = "redis_refuses_writes"
            case redisEvicts = "redis_evicts"
            case queueUnreadable = "queue_unreadable"
            case noWorker = "no_worker"
            case workerGone = "worker_gone"
            case workerNotReady = "worker_not_ready"
            case appPaused = "app_paused"
            case appUnconnected = "app_unconnected"
            case appUnanswered = "app_unanswered"
            case appServerErrors = "app_server_errors"
            case tooOld = "too_old"
            case deadLetters = "dead_letters"

            /// The status of a plugin of Nagios that has found the problem.
            var severity: NagiosStatus {
                switch self {
                case .redisNearlyFull, .redisEvicts, .workerGone, .tooOld, .deadLetters: .warning
                case .redisTooOld, .redisReplica, .redisFull, .redisRefusesWrites, .queueUnreadable, .noWorker,
                    .workerNotReady, .appPaused, .appUnconnected, .appUnanswered, .appServerErrors:
                    .critical
                }
            }
        }

        var kind: Kind
        /// The Redis server, the queue, the worker or the app.
        var subject: String
        /// The problem.
        var message: String
        /// The advice.
        var advice: String
    }

    /// The limits beyond which something needs attention.
    struct Limits: Sendable {
        /// The maximum age of the oldest job, in ms; `nil` for any age.
        var age: Int64?
        /// The maximum number of a queue's dead letters; `nil` for any number.
        var dead: Int?
        /// The maximum share of dead letters in the day's outcomes of a queue; `nil` for ``defaultDeadShare``, and at least
        /// ``leastDead`` of them.
        var deadShare: Double?

        static let defaultDeadShare = 0.01
        static let leastDead = 10
    }

    struct Pause: Encodable, Sendable, Equatable {
        var reason: String
        var detail: String?
        /// In milliseconds since 1970; so are all times here.
        var since: Int64?
        /// When the next probe is made; a pause without one is a person's, and only a person ends it.
        var until: Int64?
        var by: String?

        init(_ pause: AppPause) {
            (reason, detail, since, until, by) = (pause.reason, pause.detail, pause.since, pause.until, pause.by)
        }

        var isByHand: Bool { until == nil }
    }

    /// A Redis server that holds queues.
    struct Server: Encodable, Sendable {
        var found: QueueServer
        /// The queues that it holds.
        var queues: [String]

        /// Its report; `nil` where it refuses one.
        var info: ServerInfo? { try? found.info.get() }

        private enum CodingKeys: String, CodingKey {
            case address, queues, version, role, usedMemoryBytes, maxMemoryBytes, evictionPolicy, appendOnly, replicas
            case replicasInStep, full, writesRefused, error
        }

        func encode(to encoder: any Encoder) throws {
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

    struct Queue: Encodable, Sendable {
        var name: String
        /// Jobs that nobody has taken.
        var waiting = 0
        /// Retries whose time has come.
        var due = 0
        /// Retries, scheduled and deferred jobs whose time is to come.
        var later = 0
        /// The jobs of `due` and `later` by the reason, if they are not too many to count.
        var retrying, scheduled, deferred: Int?
        /// Jobs that workers have.
        var claimed = 0
        /// Dead letters, and the sum of their lengths in bytes.
        var dead = 0
        var deadBytes = 0
        /// The age of the oldest job that should be under way, in milliseconds, if it can be known.
        var oldestAgeMs: Int64?
        var paused: Pause?
        /// Workers with a lease.
        var workers = 0
        /// Delivered a second, where the queue has been looked at twice.
        var deliveredRate: Double?
        /// Today's counters (UTC): notifications by outcome, and by outcome and reason.
        var today: [String: Int] = [:]
        /// The newest dead letters by reason, and how many of all that are.
        var deadReasons: [String: Int] = [:]
        var deadSampled = 0
        /// Why nothing of this is known.
        var error: String?
    }

    struct Worker: Encodable, Sendable {
        enum State: String, Encodable, Sendable { case running, quiet, draining, gone, unknown }

        /// The name of the process.
        var name: String
        var host = ""
        var pid = 0
        var version = ""
        var state = State.unknown
        /// Lanes with a lease, and how many there should be.
        var lanes = 0
        var lanesTotal = 0
        var queues: [String] = []
        var startedAt: Int64?
        /// When it last told of itself.
        var updatedAt: Int64?
        /// How long ago that is, in milliseconds.
        var silenceMs: Int64?
        /// The problems that keep it from its work, a sentence each.
        var notReady: [String] = []
        /// Those of them that are not about an app: an app's problems are shown with the app.
        var ownObstacles: [String] = []
        /// Notifications without an answer.
        var inFlight = 0
        /// Jobs that it has.
        var claimed = 0
        /// Notifications that have ended since the start.
        var done = 0
        /// How many did in a second, lately.
        var rate = 0.0
        /// In how many milliseconds the first of its leases ends; negative when it has ended.
        var leaseLeftMs: Int64 = 0
        var redis = ""

        enum CodingKeys: String, CodingKey {
            case name, host, pid, version, state, lanes, lanesTotal, queues, startedAt, updatedAt, silenceMs, notReady
            case inFlight, claimed, done, rate, leaseLeftMs, redis
        }
    }

    struct App: Encodable, Sendable {
        enum State: String, Encodable, Sendable {
            case connected, idle, connecting, unconnected, unanswered, paused, unknown
            case serverErrors = "server_errors"
        }

        var name: String
        var endpoints: [String] = []
        var state = State.unknown
        var paused: Pause?
        /// Connections that take requests, and those that are being made, of all workers.
        var connections = 0
        var connecting = 0
        var streams = 0
        var streamLimit = 0
        /// Lanes that have the app.
        var lanes = 0
        /// Those of them whose requests get no answer at all.
        var lanesUnanswered = 0
        /// Lanes whose requests all get server errors, and the error.
        var lanesWithServerErrors = 0
        var serverError: String?
        /// Why there is no connection.
        var failure: String?
    }

    /// Redis' time, in milliseconds since 1970.
    var at: Int64 = 0
    var redis = ""
    var prefix = ""
    var problems: [Problem] = []
    /// Notes on what is shown.
    var notes: [String] = []
    var servers: [Server] = []
    var queues: [Queue] = []
    var workers: [Worker] = []
    var apps: [App] = []
    /// Tokens in the set of invalid ones.
    var invalidTokens = 0
    /// Notifications that ended in a second, lately, by the workers' own word.
    var rate = 0.0

    /// The status of a plugin of Nagios.
    var severity: NagiosStatus {
        problems.map(\.kind.severity).max { $0.rawValue < $1.rawValue } ?? .ok
    }

    /// Workers that live.
    var living: [Worker] { workers.filter { $0.state != .gone } }
}
