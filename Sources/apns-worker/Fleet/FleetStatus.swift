import PushQueue

/// How everything is, as `status --json` prints it. The names of the members stay; members that say nothing are left out.
struct FleetStatus: Encodable, Sendable {
    /// What needs a person.
    struct Problem: Encodable, Sendable, Equatable {
        enum Kind: String, Encodable, Sendable {
            case queueUnreadable = "queue_unreadable"
            case noWorker = "no_worker"
            case workerGone = "worker_gone"
            case appPaused = "app_paused"
            case appUnconnected = "app_unconnected"
            case appUnanswered = "app_unanswered"
            case tooOld = "too_old"
        }

        var kind: Kind
        /// The queue, the worker or the app.
        var subject: String
        /// What is wrong.
        var message: String
        /// What to do.
        var advice: String
    }

    struct Pause: Encodable, Sendable, Equatable {
        var reason: String
        /// In milliseconds since 1970; so are all times here.
        var since: Int64?
        /// When the next probe is made; a pause without one is a person's, and only a person ends it.
        var until: Int64?
        var by: String?

        init(_ pause: AppPause) {
            (reason, since, until, by) = (pause.reason, pause.since, pause.until, pause.by)
        }

        var isByHand: Bool { until == nil }
    }

    struct Queue: Encodable, Sendable {
        var name: String
        /// Jobs that nobody has taken.
        var waiting = 0
        /// Retries whose time has come.
        var due = 0
        /// Retries, scheduled and parked jobs whose time is to come.
        var later = 0
        /// Jobs that workers have.
        var claimed = 0
        /// Dead letters.
        var dead = 0
        /// The age of the oldest job that should be under way, in milliseconds, if it can be known.
        var oldestAge: Int64?
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
        var silence: Int64?
        /// Notifications without an answer.
        var inFlight = 0
        /// Jobs that it has.
        var claimed = 0
        /// Notifications that have ended since the start.
        var done = 0
        /// How many did in a second, lately.
        var rate = 0.0
        /// In how many milliseconds the first of its leases ends; negative when it has ended.
        var leaseLeft: Int64 = 0
        var redis = ""
    }

    struct App: Encodable, Sendable {
        enum State: String, Encodable, Sendable {
            case connected, idle, connecting, unconnected, unanswered, paused, unknown
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
        /// Why there is no connection.
        var failure: String?
    }

    /// Redis' time, in milliseconds since 1970.
    var at: Int64 = 0
    var redis = ""
    var prefix = ""
    var problems: [Problem] = []
    /// What is to be known of what is shown here.
    var notes: [String] = []
    var queues: [Queue] = []
    var workers: [Worker] = []
    var apps: [App] = []
    /// Tokens in the set of invalid ones.
    var invalidTokens = 0
    /// Notifications that ended in a second, lately, by the workers' own word.
    var rate = 0.0

    /// Workers that live.
    var living: [Worker] { workers.filter { $0.state != .gone } }
}
