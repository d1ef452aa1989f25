/// The names under which lines of the log say what they are about: one spelling for each, lower case with underscores, with
/// the unit in the name where there is one. A test holds the sources to this table.
package enum LogKey: String, CaseIterable, Sendable {
    // What a line is about.

    /// The event, as a stable word for programs: the sentence may change, this may not.
    case event
    /// The configured app.
    case app
    /// The queue.
    case queue
    /// The lane of a process that has several.
    case lane
    /// The producer's id of the job.
    case job
    /// The campaign of the job.
    case campaign
    /// The labels of the job, a JSON object.
    case labels
    /// The beginning of a device token or channel, and an ellipsis.
    case token
    /// The trace of the job's `traceparent`.
    case traceID = "trace_id"
    /// The producer's span of the job's `traceparent`.
    case parentID = "parent_id"
    /// A worker's name under which it claims jobs.
    case worker

    // What became of a notification.

    /// How it ended, or `retried` or `deferred`.
    case outcome
    /// APNs' reason, or one of the worker's own.
    case reason
    /// The failure of the last attempt, if that is not the reason itself.
    case cause
    /// More about the reason, for people.
    case detail
    /// The requirement of Apple's that a notification does not meet.
    case rule
    /// APNs' status, or the gateway's.
    case status
    /// The `apns-id` of the request.
    case apnsID = "apns_id"
    /// The `apns-unique-id` that APNs answered.
    case apnsUniqueID = "apns_unique_id"
    /// How many attempts were made.
    case attempt

    // Where the other side is.

    /// Host and port of APNs or of the gateway.
    case endpoint
    /// Redis, as it is configured, without its password.
    case redis
    /// The server of Redis that was connected to.
    case server
    /// The apps of a worker and their endpoints.
    case apps
    /// The number of lanes of a process.
    case lanes
    /// Where the admin port is.
    case host, port
    /// The ports of a simulator.
    case apns, control, gateway, feedback

    // How much, how often, how long.

    /// How many there were since such a line was written last, where that is more than one.
    case count
    /// How often it was tried.
    case failures
    /// In how many milliseconds it is tried again.
    case retryIn = "retry_in_ms"
    /// How many milliseconds a trouble lasted.
    case after = "after_ms"
    /// How many milliseconds something may take.
    case limit = "limit_ms"
    /// The former problem.
    case was
    /// How many jobs.
    case jobs
    /// How many of them went to the dead letters, having been claimed too often.
    case poisoned
    /// How many connections.
    case connections
    /// Connections that were lost in the interval of a summary.
    case connectionsLost = "connections_lost"
    /// Connections that were made in it.
    case connectionsMade = "connections_made"
    /// How many requests are unanswered.
    case inFlight = "in_flight"
    /// How many notifications are claimed and not sent.
    case waiting
    /// How many seconds a summary is about.
    case seconds
    /// How many were delivered in a second.
    case perSecond = "per_second"
    /// How many notifications ended in each way; see the outcomes.
    case delivered
    case invalidToken = "invalid_token"
    case suppressed, expired, dropped, dead
    /// How many are tried again, with and without an attempt spent.
    case retried, deferred
    /// How many jobs were claimed.
    case claimed
    /// The number of notifications that a simulator accepted, in all and by its gateway.
    case accepted
    case acceptedByGateway = "by_gateway"
    /// The error, as some libraries name it.
    case error
}
