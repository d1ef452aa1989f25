import Telemetry

/// The worker's metrics.
///
/// None is labelled by a device token, a job or a topic. What comes from outside, the reasons, is labelled by words that are
/// known, and `other`.
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
        "Notifications by what became of them: delivered, invalid_token, suppressed, expired, dropped and dead are ends; "
            + "retried, deferred, scheduled and resent come again.")
    static let jobs = metric(
        "jobs_total", .counter, ["queue", "outcome"],
        "Jobs by what became of them; mixed are jobs with many tokens that ended in more ways than one.")
    static let claimedJobs = metric(
        "jobs_claimed_total", .counter, ["queue"], "Jobs that were taken from the queue.")
    static let reclaimed = metric(
        "claims_reclaimed_total", .counter, ["queue"], "Jobs that were reclaimed from lanes whose lease had expired.")
    static let poisoned = metric(
        "claims_poisoned_total", .counter, ["queue"],
        "Jobs that became dead letters because they were reclaimed too often: they may be what ends the workers.")
    static let lostClaims = metric(
        "claims_lost_total", .counter, "Claims that another lane had reclaimed before they were settled.")
    static let possibleDuplicates = metric(
        "possible_duplicates_total", .counter,
        "Notifications sent, or to be sent, a second time although APNs may have taken the first.")
    static let requests = metric(
        "requests_total", .counter, "Requests submitted to APNs, those sent again included.")
    static let redisConnections = metric(
        "redis_connections_total", .counter,
        "Connections to Redis that were made; all but the first of each lane were lost.")
    static let redisFailures = metric(
        "redis_failures_total", .counter, "Connections to Redis that were lost or could not be made.")
    static let connectionFailures = metric(
        "connection_failures_total", .counter, ["app", "reason"],
        "Connections to APNs that could not be made, or went before they got an answer.")
    static let droppedAfterConfirmation = metric(
        "gateway_dropped_after_confirmation_total", .counter, ["app"],
        "Notifications that the binary gateway dropped although they had counted as delivered: its error packet came too "
            + "late.")
    static let droppedSeries = metric(
        "metric_series_dropped_total", .counter, "Series that are not here, because there are too many.")

    // MARK: Histograms

    static let sendTime = metric(
        "send_seconds", .histogram, ["app"],
        buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20],
        "From the submission of a request to APNs' answer; requests without an answer are not in it.")
    static let queueTime = metric(
        "queue_seconds", .histogram, ["queue"],
        buckets: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600],
        "From enqueueing (enqueued_at, or when a worker first saw the job; send_at where that is later) to the first "
            + "submission.")

    // MARK: Gauges

    static let inFlight = metric(
        "in_flight", .gauge, ["app"], "Notifications that were submitted to APNs and have no answer yet.")
    static let waiting = metric(
        "waiting", .gauge, ["app"], "Notifications that were taken from Redis and wait in this process to be submitted."
    )
    static let connections = metric(
        "connections", .gauge, ["app", "state"],
        "Connections to APNs: connecting, usable, or draining (they finish what is under way).")
    static let streams = metric(
        "streams", .gauge, ["app", "state"], "Requests at once on the connections to APNs: used, and allowed.")
    static let breakerState = metric(
        "breaker_state", .gauge, ["app", "state"],
        "1 for the state that the app is in: closed (it sends), unavailable (its APNs does not answer, or with server "
            + "errors only; one notification at a time is sent), open (APNs refuses it; probes go on), paused (by an "
            + "operator).")
    static let providerTokenAge = metric(
        "provider_token_age_seconds", .gauge, ["app"],
        "The age of the provider token in use; APNs takes none that is older than an hour.")
    static let certificateDays = metric(
        "certificate_days_left", .gauge, ["app"],
        "Days until the app's certificate expires, negative when it has. Signing keys do not expire.")

    static let leaseAge = metric(
        "lease_age_seconds", .gauge, ["queue", "lane"],
        "Seconds since Redis last confirmed the lane's lease on the queue; at the lease's length others take its jobs.")
    static let leaseLength = metric(
        "lease_seconds", .gauge, "How long a lease lasts that is not renewed.")
    static let settlements = metric(
        "settlements_waiting", .gauge, ["queue"], "Jobs that are done and whose settlement Redis has not confirmed.")
    static let settlementBytes = metric(
        "settlements_waiting_bytes", .gauge, ["queue"], "What those settlements hold in memory.")
    static let redisUp = metric(
        "redis_up", .gauge, ["queue"], "1 while all lanes are connected to the queue's Redis.")
    static let queueJobs = metric(
        "queue_jobs", .gauge, ["queue", "state"],
        "Jobs in Redis: waiting, retry (retries, scheduled and deferred jobs), claimed (by any worker), dead. The same from "
            + "every worker: take the max over instances, not the sum.")
    static let deadLetterBytes = metric(
        "dead_letters_bytes", .gauge, ["queue"],
        "Total size of the queue's dead letters in Redis, without its overhead.")
    static let queueOldest = metric(
        "queue_oldest_seconds", .gauge, ["queue"],
        "How long the job at the head of the queue has waited: since its enqueued_at or, without one, since this worker "
            + "first saw it there; or how long the most overdue retry is due, where that is longer.")
    static let queuePaused = metric("queue_paused", .gauge, ["queue"], "1 while the queue is paused.")
    static let invalidTokens = metric(
        "invalid_tokens", .gauge, "Device tokens in the set of invalid ones, in Redis.")

    static let redisMemoryUsed = metric(
        "redis_memory_used_bytes", .gauge, ["server"],
        "The memory of a Redis server that counts against its limit. The same from every worker.")
    static let redisMemoryMaximum = metric(
        "redis_memory_max_bytes", .gauge, ["server"], "maxmemory of a Redis server; absent where there is no limit.")
    static let redisWritesRefused = metric(
        "redis_writes_refused", .gauge, ["server"],
        "1 while a Redis server refuses writes such as producers make: full, read-only, without its disk or its replicas."
    )
    static let redisEvicts = metric(
        "redis_evicts", .gauge, ["server"],
        "1 where a Redis server evicts keys when its memory is full: maxmemory is set, and maxmemory-policy is not "
            + "noeviction.")

    static let redisAppendOnly = metric(
        "redis_append_only", .gauge, ["server"], "1 where a Redis server keeps an append-only file.")

    static let ready = metric("ready", .gauge, "1 while the worker can take and send jobs, as /readyz says.")
    static let lanes = metric("lanes", .gauge, "Event loops that work.")
    static let lanesStuck = metric(
        "lanes_stuck", .gauge, "Event loops that have not turned for some seconds; of their metrics the last are shown."
    )
    static let buildInfo = metric("build_info", .gauge, ["version"], "1, with the program's version.")
}
