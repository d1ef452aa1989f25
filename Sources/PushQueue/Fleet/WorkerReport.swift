/// A lane's report about itself in Redis: a JSON object in `worker-info`, under the lane's name.
///
/// Its size is bounded, and it has neither tokens nor payloads. ``WorkerHeartbeat`` writes it; commands and the dashboard read it.
public struct WorkerReport: Sendable, Equatable {
    public enum State: String, Sendable, CaseIterable {
        /// It claims jobs.
        case running
        /// It claims no jobs, finishes those that it has, and keeps running.
        case quiet
        /// It claims no jobs, finishes those that it has, and exits.
        case draining
    }

    /// The state of one app in the lane.
    public struct App: Sendable, Equatable {
        /// The activity of the app. The raw value is a label of its metric.
        public enum State: String, CaseIterable, Comparable, Sendable {
            case sending
            /// The endpoint does not answer, or answers only with server errors.
            case unavailable
            /// APNs refuses the app or its credential.
            case refused
            /// Its certificate is not for its topic.
            case blocked
            /// Paused by an operator.
            case paused

            public static func < (one: State, other: State) -> Bool {
                allCases.firstIndex(of: one) ?? 0 < allCases.firstIndex(of: other) ?? 0
            }
        }

        /// The name that jobs use to choose it.
        public var name = ""
        /// The host and port of its APNs.
        public var endpoint = ""
        /// The topic of jobs without a topic, then the other topics that select it; at most ``maximumTopics``.
        public var topics: [String] = []
        /// The ID of its first signing key; `nil` with a certificate.
        public var keyID: String?
        /// Connections that accept requests.
        public var usable = 0
        public var connecting = 0
        public var streams = 0
        /// The number of requests that the usable connections allow at once.
        public var streamLimit = 0
        /// True if it has no connection because it has nothing to send.
        public var isDormant = false
        /// The reasons of a state are in ``WorkerReport/scopes``.
        public var state = State.sending
        /// The reason why it is blocked or paused, if this lane knows it.
        public var pause: String?
        /// The reason why it has no connection.
        public var failure: String?
        /// The time when the provider token in use was signed, in milliseconds since 1970.
        public var tokenIssuedAt: Int64?
        /// The end of the certificate's validity, in milliseconds since 1970.
        public var certificateExpiresAt: Int64?
        /// The error of the credential in use, or of a file that could not replace it.
        public var credentialProblem: String?

        public init() {}

        var hasProblem: Bool { state != .sending || failure != nil || credentialProblem != nil }
    }

    /// A problem that keeps the lane from its work.
    public struct Obstacle: Sendable, Equatable {
        /// The kind of obstacle. The raw value is that of its row in the table of problems.
        public enum Kind: String, Sendable, CaseIterable {
            case starting = "worker_starting"
            case draining = "worker_draining"
            case quiet = "worker_quiet"
            /// An event loop does not run.
            case stuck = "loop_stuck"
            /// Redis can't be reached, or does not answer.
            case redisUnavailable = "redis_unavailable"
            /// Redis answers requests with errors.
            case redisRefuses = "redis_refuses_requests"
            case noLease = "no_lease"
            /// No app can send.
            case nothingSent = "nothing_sent"
            /// A kind that this version does not know.
            case other = "worker_not_ready"
        }

        public var kind: Kind
        /// The problem, in a sentence.
        public var reason: String
        /// The app with the problem; `nil` if it does not concern a single app.
        public var app: String?

        public init(_ kind: Kind, _ reason: String, app: String? = nil) {
            self.kind = kind
            self.reason = reason
            self.app = app
        }
    }

    /// The time between the reports of a lane with claims, in milliseconds.
    public static let interval: Int64 = 3000
    /// The maximum time between the reports of a lane whose process polls its queue for jobs, in milliseconds.
    public static let longestInterval: Int64 = 11_000
    public static let maximumObstacles = 5
    /// The maximum number of apps in a report; apps with problems come first.
    public static let maximumApps = 50
    /// The maximum number of an app's topics in a report.
    public static let maximumTopics = 10
    /// The maximum number of scopes in a report; the slow ones come first.
    public static let maximumScopes = 20
    /// The maximum length of a text, in characters.
    public static let maximumText = 200

    /// The name of the process, unique for each start.
    public var process = ""
    /// The name of its machine.
    public var host = ""
    /// The process identifier on this machine.
    public var processIdentifier = 0
    public var version = ""
    /// The version of the job commands that the lane applies; empty if there never was one.
    public var commands = ""
    /// The number of notifications that were in flight when the last change of the commands cancelled them.
    public var cancelledInFlight = 0
    /// The index of the lane in its process, from 0.
    public var lane = 0
    public var lanes = 1
    /// The start of the process, in milliseconds since 1970 by Redis' clock.
    public var startedAt: Int64 = 0
    /// The time of this report, in milliseconds since 1970 by Redis' clock.
    public var updatedAt: Int64 = 0
    public var state = State.running
    /// The digest of its configuration; `nil` if that can't be read.
    public var configuration: ConfigurationDigest?
    /// The problems that have kept the lane from its work for a second or more, at most ``maximumObstacles``. A command to be quiet or to
    /// stop does not count.
    public var obstacles: [Obstacle] = []
    /// The scopes that the lane has slowed down or suspects, at most ``maximumScopes``.
    public var scopes: [ScopeRecord] = []
    /// Notifications that were sent and have no answer yet.
    public var inFlight = 0
    /// Notifications that have ended since the start, with any outcome.
    public var done = 0
    /// The number of ``done`` notifications that APNs accepted.
    public var delivered = 0
    /// Jobs since the start that had a duration as `expiration`, but no `enqueued_at` as its beginning.
    public var undatedExpirations = 0
    /// Notifications that APNs accepted per second, over the last minute.
    public var rate = 0.0
    /// The reason why it notices the failovers of Sentinels late; `nil` if it does not.
    public var failoverWatch: String?
    /// The reason why its last reload of the configuration was refused; `nil` if it was not.
    public var refusedReload: String?
    /// The topology of its Redis: `single`, `sentinel` or `cluster`.
    public var redis = ""
    /// Its apps, at most ``maximumApps``.
    public var apps: [App] = []
    /// The number of apps that ``apps`` omits.
    public var moreApps = 0

    public init() {}
}
