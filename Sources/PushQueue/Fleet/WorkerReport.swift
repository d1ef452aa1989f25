/// A lane's report about itself in Redis: a JSON object in `worker-info`, under the lane's name.
///
/// Its size is bounded, and it has neither tokens nor payloads. ``WorkerHeartbeat`` writes it; commands and the
/// dashboard read it.
public struct WorkerReport: Sendable, Equatable {
    /// The state of the process.
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
        /// The name by which jobs choose it.
        public var name = ""
        /// The host and port of its APNs.
        public var endpoint = ""
        /// Connections that accept requests.
        public var usable = 0
        /// Connections that are being established.
        public var connecting = 0
        /// Requests in flight.
        public var streams = 0
        /// The number of requests that the usable connections allow at once.
        public var streamLimit = 0
        /// True if it has no connection because it has nothing to send.
        public var isDormant = false
        /// True while none of its requests gets an answer.
        public var isUnanswered = false
        /// The server error that all its requests get; `nil` while some succeed.
        public var serverError: String?
        /// The reason of the app's pause, as far as this lane knows; `nil` if it is not paused.
        public var pause: String?
        /// The reason why it has no connection.
        public var failure: String?
        /// The time at which the provider token in use was signed, in milliseconds since 1970.
        public var tokenIssuedAt: Int64?
        /// The time until which the certificate is valid, in milliseconds since 1970.
        public var certificateExpiresAt: Int64?

        /// Makes an empty record.
        public init() {}

        var hasProblem: Bool { pause != nil || failure != nil || isUnanswered || serverError != nil }
    }

    /// A problem that keeps the lane from its work.
    public struct Obstacle: Sendable, Equatable {
        /// The problem, in a sentence.
        public var reason: String
        /// The app with the problem; `nil` for a problem with Redis.
        public var app: String?

        /// Makes an obstacle from its parts.
        public init(_ reason: String, app: String? = nil) {
            self.reason = reason
            self.app = app
        }
    }

    /// The interval in milliseconds at which a lane with claims reports.
    public static let interval: Int64 = 3000
    /// The maximum interval in milliseconds between reports by the lane of a process that polls.
    public static let longestInterval: Int64 = 11_000
    /// The maximum number of obstacles in a report.
    public static let maximumObstacles = 5
    /// The maximum number of apps in a report; those in trouble come first.
    public static let maximumApps = 50
    /// The maximum length of a text, in characters.
    package static let maximumText = 200

    /// The name of the process, unique for each start.
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
    /// The index of the lane in its process, from 0.
    public var lane = 0
    /// The number of lanes of the process.
    public var lanes = 1
    /// The start of the process, in milliseconds since 1970 by Redis' clock.
    public var startedAt: Int64 = 0
    /// The time of this report, by the same clock.
    public var updatedAt: Int64 = 0
    /// The state of the process.
    public var state = State.running
    /// The digest of the configuration by which it accepts jobs; `nil` if it can't be read.
    public var configuration: ConfigurationDigest?
    /// The problems that have kept the lane from its work for a second or more, at most ``maximumObstacles``. A command
    /// to be quiet or to stop is not one.
    public var obstacles: [Obstacle] = []
    /// Notifications that were sent and have no answer yet.
    public var inFlight = 0
    /// Notifications that have ended since the start, with any outcome.
    public var done = 0
    /// The number of ``done`` notifications that APNs accepted.
    public var delivered = 0
    /// Jobs with a duration as `expiration` and no `enqueued_at` from which it could count, since the start.
    public var undatedExpirations = 0
    /// Notifications that APNs accepted per second, over the last minute.
    public var rate = 0.0
    /// The reason why it learns late of failovers that Sentinels announce; `nil` if it does not.
    public var failoverWatch: String?
    /// The topology of its Redis: `single`, `sentinel` or `cluster`.
    public var redis = ""
    /// Its apps, at most ``maximumApps``.
    public var apps: [App] = []
    /// The number of its further apps.
    public var moreApps = 0

    /// Makes an empty report.
    public init() {}
}
