/// A lane's report on itself in Redis: a JSON object in `worker-info`, under the name that its lease has.
///
/// It is bounded, and has neither tokens nor payloads. Written by ``WorkerHeartbeat``, and read by whoever wants to know how the
/// fleet is.
public struct WorkerReport: Sendable, Equatable {
    /// The state of the process.
    public enum State: String, Sendable, CaseIterable {
        /// It takes jobs.
        case running
        /// It takes none, finishes what it has, and stays.
        case quiet
        /// It takes none, finishes what it has, and ends.
        case draining
    }

    /// One app, as the lane has it.
    public struct App: Sendable, Equatable {
        /// The name that jobs choose it by.
        public var name = ""
        /// The host and port of its APNs.
        public var endpoint = ""
        /// Connections that take requests.
        public var usable = 0
        /// Connections that are being made.
        public var connecting = 0
        /// Requests under way.
        public var streams = 0
        /// Requests that the usable connections allow at once.
        public var streamLimit = 0
        /// True if it has no connection because there is nothing to send.
        public var isDormant = false
        /// True while its requests get no answer at all.
        public var isUnanswered = false
        /// The server error that all its requests get; `nil` while some succeed.
        public var serverError: String?
        /// Why the app is paused, as this lane knows; `nil` where it is not.
        public var pause: String?
        /// Why it has no connection.
        public var failure: String?
        /// The time at which the provider token in use was signed, in milliseconds since 1970.
        public var tokenIssuedAt: Int64?
        /// The time until which the certificate is valid, in milliseconds since 1970.
        public var certificateExpiresAt: Int64?

        /// To be filled in.
        public init() {}

        var hasProblem: Bool { pause != nil || failure != nil || isUnanswered || serverError != nil }
    }

    /// A problem that keeps the lane from its work.
    public struct Obstacle: Sendable, Equatable {
        /// The problem, in a sentence.
        public var reason: String
        /// The app that has it; `nil` where it is a problem with Redis.
        public var app: String?

        /// From its parts.
        public init(_ reason: String, app: String? = nil) {
            self.reason = reason
            self.app = app
        }
    }

    /// How many obstacles a report has at most.
    public static let maximumObstacles = 5
    /// How many apps are told; those first that are in trouble.
    public static let maximumApps = 50
    /// How many characters of a text are told.
    static let maximumText = 200

    /// The process' name among all, unique for each start.
    public var process = ""
    /// The name of its machine.
    public var host = ""
    /// Its process id there.
    public var processIdentifier = 0
    /// The program's version.
    public var version = ""
    /// The version of the job commands that the lane applies; empty if there never was one.
    public var commands = ""
    /// The number of notifications that were in flight when the last change of the commands cancelled them.
    public var cancelledInFlight = 0
    /// Which of the process' lanes it is, from 0.
    public var lane = 0
    /// How many lanes the process has.
    public var lanes = 1
    /// Since when the process runs, in milliseconds since 1970 by Redis' clock.
    public var startedAt: Int64 = 0
    /// When this was written, by the same clock.
    public var updatedAt: Int64 = 0
    /// The state of the process.
    public var state = State.running
    /// The problems that have kept the lane from its work for a second or more, at most ``maximumObstacles``. A command to
    /// be quiet or to stop is not one.
    public var obstacles: [Obstacle] = []
    /// Notifications that were sent and have no answer.
    public var inFlight = 0
    /// Notifications that have ended since the start, whatever became of them.
    public var done = 0
    /// Those of them that APNs took.
    public var delivered = 0
    /// Jobs with a duration as `expiration` and no `enqueued_at` from which it could count, since the start.
    public var undatedExpirations = 0
    /// How many ended in a second, over the last minute.
    public var rate = 0.0
    /// The topology of its Redis: `single`, `sentinel` or `cluster`.
    public var redis = ""
    /// The list that it takes jobs from, where that is another than the queue's own; and whether its head is at the right.
    public var list: String?
    /// See ``list``.
    public var headIsRight = false
    /// Its apps, ``maximumApps`` at the most.
    public var apps: [App] = []
    /// How many more it has.
    public var moreApps = 0

    /// To be filled in.
    public init() {}
}
