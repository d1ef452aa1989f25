import Telemetry

/// The worker's metrics.
///
/// No metric has a device token, a job or a topic as a label. Reasons come from other programs, so only known reasons are labels, and the
/// rest is `other`.
enum WorkerMetric {
    private static func metric(_ name: String, _ kind: Metric.Kind, _ help: String) -> Metric {
        metric(name, kind, [], help)
    }

    private static func metric(
        _ name: String, _ kind: Metric.Kind, _ labels: [String], buckets: [Double] = [], _ help: String
    ) -> Metric { Metric("apns_worker_" + name, kind, labels, buckets: buckets, help) }

    // MARK: Counters

    static let notifications = metric(
        "notifications_total", .counter, ["app", "queue", "push_type", "outcome", "reason"],
        "Notifications by outcome: delivered, invalid_token, suppressed, expired, dropped or dead; and retried, deferred, "
            + "scheduled or resent, which are counted again later.")
    static let jobs = metric(
        "jobs_total", .counter, ["queue", "outcome"],
        "Jobs by outcome; mixed for jobs whose notifications had different outcomes.")
    static let claimedJobs = metric(
        "jobs_claimed_total", .counter, ["queue"], "Jobs claimed from the queue.")
    static let reclaimed = metric(
        "claims_reclaimed_total", .counter, ["queue"], "Jobs reclaimed from lanes whose lease had expired.")
    static let poisoned = metric(
        "claims_poisoned_total", .counter, ["queue"],
        "Jobs that became dead letters because they were reclaimed too often; they may crash workers.")
    static let lostClaims = metric(
        "claims_lost_total", .counter, "Claims that another lane had reclaimed before they were settled.")
    static let possibleDuplicates = metric(
        "possible_duplicates_total", .counter,
        "Notifications sent again although APNs may have accepted an earlier attempt.")
    static let requests = metric(
        "requests_total", .counter, "Requests submitted to APNs, including repetitions.")
    static let redisConnections = metric(
        "redis_connections_total", .counter,
        "Connections to Redis. All except the first of each lane are reconnections.")
    static let redisFailures = metric(
        "redis_failures_total", .counter, "Connections to Redis that were lost or could not be made.")
    static let connectionFailures = metric(
        "connection_failures_total", .counter, ["app", "reason"],
        "Connections to APNs that failed, or closed before any answer.")
    static let droppedAfterConfirmation = metric(
        "gateway_dropped_after_confirmation_total", .counter, ["app"],
        "Notifications that the binary gateway dropped after they counted as delivered, because its error packet was late."
    )
    static let lostLogLines = metric(
        "log_lines_lost_total", .counter,
        "Log lines lost because their reader was too slow or had stalled, or because they could not be written.")
    static let droppedSpans = metric(
        "spans_dropped_total", .counter,
        "Spans of traced jobs that were not exported, because there were too many or the collector refused them.")
    static let outcomes = metric(
        "outcomes_total", .counter, ["app", "outcome"],
        "Notifications by app and outcome. Each series begins with 0 when the worker starts, so the first notifications of an "
            + "app show in rates.")
    static let droppedSeries = metric(
        "metric_series_dropped_total", .counter, "Metric series omitted because there are too many.")

    // MARK: Histograms

    static let sendTime = metric(
        "send_seconds", .histogram, ["app"],
        buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20],
        "Time from the submission of a request to its answer. Requests without an answer are not included.")
    static let queueTime = metric(
        "queue_seconds", .histogram, ["queue"],
        buckets: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600],
        "Time from enqueueing (enqueued_at, or the first time a worker saw the job; send_at if later) to the first "
            + "submission.")

    // MARK: Gauges

    static let inFlight = metric(
        "in_flight", .gauge, ["app"], "Notifications submitted to APNs without an answer yet.")
    static let waiting = metric(
        "waiting", .gauge, ["app"], "Notifications claimed from Redis that wait in this process to be submitted."
    )
    static let connections = metric(
        "connections", .gauge, ["app", "state"],
        "Connections to APNs: connecting, usable, or draining (finishing requests in flight).")
    static let streams = metric(
        "streams", .gauge, ["app", "state"],
        "Concurrent requests on the connections to APNs: the used and the allowed number.")
    static let appState = metric(
        "app_state", .gauge, ["app", "state"],
        "1 for the app's current state: sending, unavailable (APNs does not answer, or with server errors only; one "
            + "notification at a time is sent), refused (APNs refuses the app or its credential; probes continue), "
            + "blocked (its certificate is not for its topic), paused (by an operator).")
    static let providerTokenAge = metric(
        "provider_token_age_seconds", .gauge, ["app"],
        "Age of the provider token in use. APNs accepts none older than an hour.")
    static let certificateDays = metric(
        "certificate_days_left", .gauge, ["app"],
        "Days until the app's certificate expires; negative afterwards. Signing keys do not expire.")

    static let leaseAge = metric(
        "lease_age_seconds", .gauge, ["queue", "lane"],
        "Seconds since Redis last confirmed the lane's lease on the queue. At lease_seconds, other lanes reclaim its jobs."
    )
    static let leaseLength = metric(
        "lease_seconds", .gauge, "Seconds for which a lease is valid without a renewal.")
    static let settlements = metric(
        "settlements_waiting", .gauge, ["queue"], "Finished jobs whose settlement Redis has not confirmed.")
    static let settlementBytes = metric(
        "settlements_waiting_bytes", .gauge, ["queue"], "Memory held by settlements that Redis has not confirmed.")
    static let redisUp = metric(
        "redis_up", .gauge, ["queue"], "1 while all lanes are connected to the queue's Redis.")
    static let queueJobs = metric(
        "queue_jobs", .gauge, ["queue", "state"],
        "Jobs in Redis: waiting, scheduled (and deferred ones), retrying (after a failure), claimed (by any worker), dead. Every "
            + "worker shows the same value: use max over instances, not sum.")
    static let deadLetterBytes = metric(
        "dead_letters_bytes", .gauge, ["queue"],
        "Total size of the queue's dead letters in Redis, without the overhead of Redis.")
    static let queueOldest = metric(
        "queue_oldest_seconds", .gauge, ["queue"],
        "Age of the job at the head of the queue, from its enqueued_at or from the first time this worker saw it there. If "
            + "a retry, a scheduled job or a deferred job has been overdue for longer, that time.")
    static let queuePaused = metric("queue_paused", .gauge, ["queue"], "1 while the queue is paused.")
    static let campaignsStopped = metric(
        "campaigns_stopped", .gauge, ["queue"],
        "Campaigns that their guards have paused. Every worker shows the same value.")
    static let invalidTokens = metric(
        "invalid_tokens", .gauge, "Device tokens in the set of invalid tokens.")

    static let redisMemoryUsed = metric(
        "redis_memory_used_bytes", .gauge, ["server"],
        "Memory of a Redis server that counts against its limit. Every worker shows the same value.")
    static let redisMemoryMaximum = metric(
        "redis_memory_max_bytes", .gauge, ["server"], "maxmemory of a Redis server; absent if it is not set.")
    static let redisWritesRefused = metric(
        "redis_writes_refused", .gauge, ["server"],
        "1 while a Redis server refuses the writes of producers: full, read-only, or without its disk or replicas."
    )
    static let redisEvicts = metric(
        "redis_evicts", .gauge, ["server"],
        "1 if a Redis server evicts keys when full: maxmemory is set, and maxmemory-policy is not noeviction.")

    static let redisAppendOnly = metric(
        "redis_append_only", .gauge, ["server"], "1 if a Redis server has an append-only file.")

    static let problems = metric(
        "problems", .gauge, ["event"],
        "Number of ongoing problems by the `event` of their log lines; absent until the first problem.")
    static let ready = metric("ready", .gauge, "1 while /readyz is ready: the worker can claim and send jobs.")
    static let lanes = metric("lanes", .gauge, "Number of event loops.")
    static let lanesStuck = metric(
        "lanes_stuck", .gauge, "Number of event loops stuck for some seconds; their other metrics are out of date."
    )
    static let buildInfo = metric("build_info", .gauge, ["version"], "Always 1, with the program's version.")

    /// All metrics, in the order of the documentation.
    static let all: [Metric] = [
        notifications, outcomes, jobs, claimedJobs, reclaimed, poisoned, lostClaims, possibleDuplicates, requests,
        redisConnections, redisFailures, connectionFailures, droppedAfterConfirmation, lostLogLines,
        droppedSpans, droppedSeries, sendTime,
        queueTime, inFlight, waiting, connections, streams, appState, providerTokenAge, certificateDays,
        leaseAge, leaseLength, settlements, settlementBytes, redisUp, queueJobs, deadLetterBytes, queueOldest,
        queuePaused, campaignsStopped, invalidTokens, redisMemoryUsed, redisMemoryMaximum, redisWritesRefused,
        redisEvicts,
        redisAppendOnly, problems, ready, lanes, lanesStuck, buildInfo,
    ]
}
