import PushQueue
import Redis

extension Problem {
    /// All kinds of problems, causes before their effects. A new problem needs a row here, and a field of ``FleetStatus`` or a metric that
    /// measures it.
    package static let table: [Kind] =
        ofServers + ofRedis + ofQueues + ofJobs + ofWorkers + ofObstacles + ofProcesses + ofScopes + ofApps + ofAnswers

    // MARK: Redis

    /// Problems that a Redis server reports about itself. ``QueueServer`` has the conditions and the words.
    private static let ofServers = QueueServer.Finding.Kind.allCases.map { kind in
        func row(
            _ severity: Kind.Severity, _ condition: String, _ action: String, _ alert: Alert? = nil
        ) -> Kind {
            Kind(kind.rawValue, .redis, severity, condition, action: action, alert: alert) { status, _ in
                status.servers.flatMap { server in
                    server.found.findings.filter { $0.kind == kind }.map {
                        Finding(.server(server.found.address), $0.message, hint: $0.advice)
                    }
                }
            }
        }
        return switch kind {
        case .tooOld: row(.critical, "Redis is older than 6.2", "Upgrade Redis.")
        case .clusterNode:
            row(
                .critical, "the Redis URL names one node of a Cluster", "Begin the Redis URL with `redis+cluster://`.")
        case .replica:
            row(.critical, "Redis is a replica", "Name the master in the Redis URL, or its Sentinels.")
        case .full:
            row(
                .critical, "Redis is full",
                """
                [Raise `maxmemory`](#redis-is-full) (`CONFIG SET maxmemory`, and in the configuration of Redis), or free memory: \
                `apns-worker status` shows what the queues hold. Workers continue with waiting jobs. No restart is needed.
                """,
                Alert(
                    "RedisFull", for: "1m", .page, "Redis {{ $labels.server }} is full",
                    """
                    It uses {{ $value | humanizePercentage }} of maxmemory. At the limit it refuses new jobs, and producers get an \
                    error (OOM); with an eviction policy it loses jobs instead.
                    """,
                    "max by (job, server) (apns_worker_redis_memory_used_bytes / apns_worker_redis_memory_max_bytes) > 0.98"
                )
            )
        case .nearlyFull:
            row(
                .warning, "Redis uses 90 % of `maxmemory`",
                """
                `apns-worker status` shows what the queues hold. If jobs pile up, find out why. If dead letters or invalid tokens \
                pile up, delete some. Otherwise raise `maxmemory`. The alert also comes if Redis grows so fast that it will be full in four \
                hours.
                """,
                Alert(
                    "RedisNearlyFull", for: "5m", .ticket, "Redis {{ $labels.server }} is nearly full",
                    """
                    It uses {{ $value | humanizePercentage }} of maxmemory, or will in four hours if it grows as in the last half \
                    hour. When it is full, it refuses new jobs.
                    """,
                    """
                    max by (job, server) (apns_worker_redis_memory_used_bytes / apns_worker_redis_memory_max_bytes) > 0.9
                    or max by (job, server) (
                      predict_linear(apns_worker_redis_memory_used_bytes[30m], 4 * 3600) / apns_worker_redis_memory_max_bytes > 1
                      and apns_worker_redis_memory_used_bytes / apns_worker_redis_memory_max_bytes > 0.5)
                    """
                ))
        case .refusesWrites:
            row(
                .critical, "Redis refuses writes",
                """
                `apns-worker status` shows the error of Redis. READONLY means that the server is a replica, NOREPLICAS that it has too few \
                replicas, MISCONF that it cannot write to its disk.
                """,
                Alert(
                    "RedisRefusesWrites", for: "1m", .page, "Redis {{ $labels.server }} refuses writes",
                    "Producers cannot enqueue, and workers cannot claim jobs or settle them. No job is lost.",
                    """
                    max by (job, server) (apns_worker_redis_writes_refused) == 1
                    unless on (job, server) max by (job, server) (apns_worker_redis_memory_used_bytes / apns_worker_redis_memory_max_bytes) > 0.98
                    """))
        case .evicts:
            row(
                .warning, "Redis evicts keys",
                "Set `maxmemory-policy` to `noeviction`, with `CONFIG SET` and in the configuration of Redis.",
                Alert(
                    "RedisEvicts", for: "5m", .ticket,
                    "Redis {{ $labels.server }} evicts keys when its memory is full",
                    """
                    maxmemory is set and maxmemory-policy is not noeviction. An allkeys policy evicts waiting jobs; a volatile one \
                    evicts reservations of unique_for, pauses and rates of apps, and counters.
                    """,
                    "max by (job, server) (apns_worker_redis_evicts) == 1"))
        case .notPersistent:
            row(.notice, "Redis keeps no append-only file", "Set `appendonly` to `yes`.")
        case .noReplica:
            row(.notice, "Redis has no replica", "Connect a replica, and set `min-replicas-to-write` to 1.")
        case .noMinimumOfReplicas:
            row(
                .notice, "Redis accepts jobs that no replica has",
                "Set `min-replicas-to-write` to 1 and `min-replicas-max-lag` to a few seconds, on all its servers.")
        case .notReported:
            row(
                .notice, "Redis does not answer `INFO`",
                "Add `+info` to the [ACL](redis.md#access-control) of the user.")
        }
    }

    private static let ofRedis: [Kind] = [
        Kind(
            "queue_unreadable", .redis, .critical, "a queue cannot be read",
            action: """
                Restore the server that the message names. Other queues continue. Commands and pages show them, and name the \
                missing ones.
                """
        ) { status, _ in
            status.queues.compactMap { queue in
                // A key with a wrong type is reported as another problem.
                guard let error = queue.error,
                    !status.wrongKeys.contains(where: { error.contains($0.key) })
                else { return nil }
                return Finding(
                    .queue(queue.name), "queue \(queue.name) cannot be read: \(error)",
                    hint: queue.unreachable
                        ? "restore the server; other queues are not affected"
                        : "workers have the same problem; "
                            + (RedisServerError(text: error).advice ?? "see the Redis log"))
            }
        },
        Kind(
            "shared_unreadable", .redis, .critical, "the state that all queues share cannot be read",
            hint: "restore the server; until then pauses of apps, rates and invalid tokens are not known"
        ) { status, _ in
            [status.sharedError].compactMap(\.self).map {
                Finding(.shared(status.prefix), "the state that all queues share cannot be read: \($0)")
            }
        },
        Kind(
            "server_unreachable", .redis, .critical, "a server cannot be searched for queues",
            hint: "restore the server; until then its queues are shown only if --queue names them"
        ) { status, _ in
            [status.searchError].compactMap(\.self).map {
                Finding(.server(status.redis), "a server cannot be searched for queues: \($0)")
            }
        },
        Kind(
            "invalid_tokens_resharding", .redis, .critical,
            "the number of shards of the invalid tokens is being changed, and workers that start wait for it",
            hint: "if the command that changes it was interrupted, complete the change"
        ) { status, _ in
            guard let division = status.resharding, let other = division.incomplete else { return [] }
            return [
                Finding(
                    .shared(status.prefix),
                    "the number of shards of the invalid tokens is being changed"
                        + Words.since(division.since, now: status.at) + ", and workers that start wait for it",
                    since: division.since, [.reshard(to: division.shards), .reshard(to: other)])
            ]
        },
        Kind(
            "wrong_key", .redis, .critical, "a key has the wrong type",
            hint: "rename or delete the key; workers then continue by themselves"
        ) { status, _ in
            status.wrongKeys.map {
                Finding(.key($0.key), "the key \($0.key) holds a \($0.found), and it must hold a \($0.expected)")
            }
        },
        Kind(
            "bad_registrations", .redis, .warning, "registrations of devices can't be read",
            hint: "write tokens in lower-case hex, and milliseconds since 1970",
            action: """
                [Write them as documented](invalid-tokens.md): the token in lower-case hex, the time in milliseconds since 1970. Other \
                registrations have no effect.
                """
        ) { status, _ in
            [status.badRegistrations].compactMap(\.self).map {
                Finding(.shared(status.prefix), "registrations of devices can't be read: \($0)")
            }
        },
        Kind(
            "large_key", .redis, .warning, "a key is too large to be moved to another server",
            hint: "make it smaller before slots are moved: docs/redis.md says how for each key",
            action: "[Make it smaller](redis.md#large-keys) before slots are moved."
        ) { status, _ in
            status.largeKeys.map {
                Finding(
                    .key($0.key),
                    "the key \($0.key) has \(Words.bytes($0.bytes)): from about \(Words.bytes($0.limit)) on, Redis "
                        + "can't move it to another server")
            }
        },
    ]

    // MARK: Queues

    private static let ofQueues: [Kind] = [
        Kind(
            "no_worker", .queues, .critical, "jobs wait and no worker claims them",
            action: """
                [Start a worker for that queue](#jobs-wait-and-no-worker-claims-them). If workers should run (`kubectl get pods`, \
                `systemctl status apns-worker`), see why they ended: the last lines of their log name the setting or key that could \
                not be used. If they run, Prometheus cannot reach their port 9464.
                """,
            alert: Alert(
                "None", for: "3m", .page, "No worker{{ with $labels.job }} of {{ . }}{{ end }} is running",
                """
                Prometheus has not reached the admin port of any of them for 3 minutes. Jobs stay in Redis; nothing is sent.
                """,
                """
                count by (job) (max_over_time(apns_worker_build_info[1h])) unless count by (job) (apns_worker_build_info)
                or on () absent(apns_worker_build_info)
                """)
        ) { status, _ in
            status.readableQueues.compactMap { queue in
                let ready = queue.ready
                let candidates = status.living.filter { $0.queues.contains(queue.name) }
                guard ready > 0, queue.paused == nil,
                    !candidates.contains(where: { $0.state == .running || $0.state == .unknown })
                else { return nil }
                let jobs = ready == 1 ? "1 job waits" : "\(Words.number(ready)) jobs wait"
                let isQuiet = candidates.contains { $0.state == .quiet }
                let isUnwritable = status.unwritableQueues.contains(queue.name)
                let others = candidates.map { "\($0.name) is \($0.state.rawValue)" }.joined(separator: ", ")
                return Finding(
                    .queue(queue.name),
                    "queue \(queue.name): \(jobs), and no worker claims \(ready == 1 ? "it" : "them")"
                        + (others.isEmpty ? "" : " (\(others))"),
                    hint: isUnwritable
                        ? "fix Redis first; running workers resume automatically"
                        : isQuiet
                            ? "let the quiet workers work, or start another worker"
                            : "start a worker with --queue \(queue.name)",
                    isUnwritable ? [] : isQuiet ? [.unquiet] : [.startWorker(queues: [queue.name])])
            }
        },
        Kind(
            "too_old", .queues, .warning, "a job is ten minutes old, or older than `--max-age`",
            action: """
                Look for another problem with the cause (Redis, a slow app, connections). If there is none, \
                [more jobs arrive than are sent](#jobs-are-late): compare the rate of deliveries with before, look at \
                `max_per_second`, and add workers.
                """,
            alert: Alert(
                "QueueOld", for: "5m", .page, "Jobs in the queue {{ $labels.queue }} wait too long",
                "The oldest one has waited for {{ $value | humanizeDuration }}.",
                """
                max by (job, queue) (apns_worker_queue_oldest_seconds) > 300
                unless on (job, queue) max by (job, queue) (apns_worker_queue_paused) == 1
                """)
        ) { status, limits in
            let maximum = limits.age ?? ProblemLimits.defaultAge
            return status.readableQueues.compactMap { queue in
                guard queue.paused == nil, let age = queue.oldestAgeMs, age > maximum else { return nil }
                let isUnwritable = status.unwritableQueues.contains(queue.name)
                return Finding(
                    .queue(queue.name),
                    "queue \(queue.name): the oldest job should have been sent \(Words.duration(age)) ago",
                    since: (status.at + maximum).since(age),
                    hint: isUnwritable ? "fix Redis first" : "start more workers, or find out what slows them down",
                    isUnwritable ? [] : [.countJobs(queue: queue.name), .startWorker(queues: [queue.name])])
            }
        },
        Kind(
            "queue_paused", .queues, .warning,
            "a queue is paused, and its oldest job has waited for an hour, or for `--max-age`",
            action: """
                `apns-worker status` shows the reason. `apns-worker resume` ends the pause. Jobs expire in the meantime.
                """,
            alert: Alert(
                "QueuePaused", for: "5m", .ticket, "Jobs wait in the paused queue {{ $labels.queue }}",
                """
                An operator has paused it, so workers claim nothing from it. The oldest job has waited for \
                {{ $value | humanizeDuration }}.
                """,
                """
                max by (job, queue) (apns_worker_queue_oldest_seconds) > 3600
                and on (job, queue) max by (job, queue) (apns_worker_queue_paused) == 1
                """)
        ) { status, limits in
            let now = status.at
            let maximum = limits.age ?? ProblemLimits.defaultPausedAge
            return status.readableQueues.compactMap { queue in
                // The age of jobs without a time is measured from the beginning of the pause, although they may be younger.
                guard let pause = queue.paused, queue.ready > 0,
                    let age = queue.oldestAgeMs ?? pause.since.map({ now.since($0) }), age > maximum
                else { return nil }
                return Finding(
                    .queue(queue.name),
                    "queue \(queue.name) is paused\(Words.since(pause.since, now: now)) (\(pause.reason)), and "
                        + (queue.oldestAgeMs == nil
                            ? "\(queue.ready == 1 ? "1 job waits" : "\(Words.number(queue.ready)) jobs wait")"
                            : "its oldest job should have been sent \(Words.duration(age)) ago"),
                    since: (now + maximum).since(age), hint: "", [.resumeQueue(queue.name)])
            }
        },
        Kind(
            "different_apps", .queues, .warning, "the workers of a queue have different apps",
            hint:
                "during a rolling upgrade the difference ends by itself, and jobs wait for a worker that has their app; "
                + "otherwise give all workers of the queue the same apps"
        ) { status, _ in
            status.readableQueues.filter { !$0.differentApps.isEmpty }.map { queue in
                let groups = queue.differentApps.map { group in
                    "\(group.workers.joined(separator: ", ")) \(group.workers.count == 1 ? "has" : "have") "
                        + group.apps.joined(separator: ", ")
                }
                let areNamedAlike = Set(queue.differentApps.map(\.apps)).count < groups.count
                return Finding(
                    .queue(queue.name),
                    "queue \(queue.name): its workers have different apps\(areNamedAlike ? ", or topics" : ""): "
                        + groups.joined(separator: "; "))
            }
        },
    ]

    // MARK: Jobs

    private static let ofJobs: [Kind] = [
        Kind(
            "dead_letters", .queues, .warning, "too many dead letters",
            action: """
                [The reasons](dead-letters.md) are in `apns-worker dead list --by reason`: reasons such as MalformedJSON \
                and PayloadTooLarge are mistakes of a producer, and UnknownApp is a mistake in a setting. Fix the cause, then \
                use `apns-worker requeue`.
                """,
            alert: Alert(
                "DeadLetters", .ticket, "Jobs of the queue {{ $labels.queue }} become dead letters",
                "{{ $value | humanize }} in the last 15 minutes. They are kept unchanged in Redis.",
                """
                sum by (job, queue) (increase(apns_worker_jobs_total{outcome="dead"}[15m])) > 100
                or sum by (job, queue) (
                apns_worker_jobs_total{outcome="dead"} and on (job, instance) time() - process_start_time_seconds < 15 * 60) > 100
                """)
        ) { status, limits in
            status.readableQueues.compactMap { deadLetters($0, limits) }
        },
        Kind(
            "campaign_stopped", .queues, .warning, "a guard has paused a campaign",
            action: """
                `apns-worker status` names the campaign and the share that exceeded its [limit](campaigns.md#a-guard), and `apns-worker \
                campaign show` prints its outcomes. Once the cause is known, use `apns-worker campaign resume` or `cancel`.
                """,
            alert: Alert(
                "CampaignStopped", .page, "A guard has paused a campaign in the queue {{ $labels.queue }}",
                "Too many notifications of the campaign failed. The others wait in Redis, and can expire.",
                "max by (job, queue) (apns_worker_campaigns_stopped) > 0")
        ) { status, _ in
            // All queues of a campaign are reported as one problem.
            var found: [String: (reason: String, since: Int64?, queues: [String])] = [:]
            for queue in status.queues {
                for (campaign, stop) in queue.stoppedCampaigns {
                    found[campaign, default: (stop.reason, stop.since, [])].queues.append(queue.name)
                }
            }
            return found.sorted { $0.key < $1.key }.map { campaign, stop in
                Finding(
                    .campaign(campaign),
                    "campaign \(campaign) is paused by its guard in \(stop.queues.joined(separator: ", ")): "
                        + stop.reason,
                    since: stop.since,
                    [.showCampaign(campaign), .resumeCampaign(campaign), .cancelCampaign(campaign)])
            }
        },
        Kind(
            "job_command_damaged", .queues, .warning, "an operator's command about jobs cannot be read",
            action: """
                Another program has written to `job-commands` of that queue. The jobs wait, unless the command cancels them. Repeat \
                the command: `apns-worker campaign resume`, `apns-worker campaign cancel` or `apns-worker jobs cancel --id`.
                """
        ) { status, _ in
            status.queues.flatMap { queue in
                queue.damagedCommands.map { field in
                    let campaign = field.hasPrefix("campaign:") ? String(field.dropFirst(9)) : nil
                    return Finding(
                        campaign.map { .campaign($0) } ?? .queue(queue.name),
                        "queue \(queue.name): the command \(field) cannot be read, so its jobs wait, or stay cancelled",
                        hint: campaign == nil ? "cancel the jobs with that ID again" : "",
                        campaign.map { [.resumeCampaign($0), .cancelCampaign($0)] } ?? [])
                }
            }
        },
        Kind(
            "poison", .queues, .warning, "a job was reclaimed too often from workers that ended",
            action: """
                Keep the dead letter and the previous logs of the workers: if a worker crashed each time, this is a bug of the worker.
                """,
            alert: Alert(
                "Poison", .ticket, "A job of the queue {{ $labels.queue }} may crash workers",
                "The job was reclaimed too often from workers that ended, and is a dead letter now.",
                """
                sum by (job, queue) (increase(apns_worker_claims_poisoned_total[1h])) > 0
                or sum by (job, queue) (
                apns_worker_claims_poisoned_total and on (job, instance) time() - process_start_time_seconds < 60 * 60) > 0
                """)),
        Kind(
            "jobs_reclaimed", .queues, .warning, "jobs were reclaimed from workers that disappeared",
            action: """
                Find the workers that ended without a drain (OOMKilled, evicted, exit status 137 or 139), and give the drain more \
                time or the worker more memory.
                """,
            alert: Alert(
                "JobsReclaimed", .ticket,
                "Jobs of the queue {{ $labels.queue }} were reclaimed from workers that disappeared",
                "{{ $value | humanize }} in the last hour. A worker that drains leaves none behind.",
                """
                sum by (job, queue) (increase(apns_worker_claims_reclaimed_total[1h])) > 0
                or sum by (job, queue) (
                apns_worker_claims_reclaimed_total and on (job, instance) time() - process_start_time_seconds < 60 * 60) > 0
                """)),
    ]

    private static func deadLetters(_ queue: QueueStatus, _ limits: ProblemLimits) -> Finding? {
        guard queue.dead > 0 else { return nil }
        // Dead letters that were sent again or deleted do not count.
        let today = queue.today[Outcome.dead.rawValue] ?? 0
        let dead = min(today, queue.dead)
        let all = Outcome.allCases.reduce(0) { $0 + (queue.today[$1.rawValue] ?? 0) }
        let isShareExceeded =
            if let share = limits.deadShare {
                Double(dead) > share * Double(all)
            } else {
                dead >= ProblemLimits.leastDead && Double(dead) > ProblemLimits.defaultDeadShare * Double(all)
            }
        let isCountExceeded = limits.dead.map { queue.dead > $0 } ?? false
        guard isShareExceeded || isCountExceeded else { return nil }
        let prefix = "\(Outcome.dead.rawValue):"
        let counted = queue.today.filter { $0.key.hasPrefix(prefix) }
        let reasons =
            isShareExceeded && dead == today && !counted.isEmpty
            ? Dictionary(uniqueKeysWithValues: counted.map { (String($0.dropFirst(prefix.count)), $1) })
            : queue.deadReasons
        let sorted = reasons.largestFirst
        let words = sorted.prefix(3).map { "\($0.key) \(Words.number($0.value))" } + (sorted.count > 3 ? ["…"] : [])
        let what =
            isShareExceeded
            ? "\(Words.number(dead)) of today's \(Words.number(all)) notifications became dead letters"
            : "\(Words.number(queue.dead)) dead letters"
        // Counters sum up the rarest reasons under this name, which no dead letter has.
        let known = sorted.map(\.key).filter { $0 != MinuteCounts.otherReason }
        let reason = known.first { !DeadLetterRow.isMistakeOfJob($0) }
        let message = "queue \(queue.name): \(what)" + (words.isEmpty ? "" : " (\(words.joined(separator: ", ")))")
        guard reason != nil || known.isEmpty else {
            return Finding(
                .queue(queue.name), message,
                hint: "correct the producer: the jobs themselves are wrong, and would become dead letters again",
                [.listDeadLetters(queue: queue.name)])
        }
        return Finding(
            .queue(queue.name), message,
            [.listDeadLetters(queue: queue.name), .requeue(queue: queue.name, reason: reason)])
    }

    // MARK: Workers

    private static let ofWorkers: [Kind] = [
        Kind(
            "failovers_unwatched", .workers, .warning, "a worker learns of failovers late",
            hint: "let the worker's Sentinel user subscribe: `+subscribe &+switch-master`, "
                + "`+sentinel|get-master-addr-by-name`, `+sentinel|sentinels`, `+sentinel|myid`",
            action: "Give the worker's Sentinel user the [rights](redis.md#access-control)."
        ) { status, _ in
            status.workers.filter { !$0.isSilent }.compactMap { worker in
                worker.failoverWatch.map {
                    Finding(.worker(worker.name), "worker \(worker.name) learns of failovers late: \($0)")
                }
            }
        },
        Kind(
            "reload_refused", .workers, .warning, "a worker could not reload its configuration",
            hint: "correct the file that the message names; the worker reads it again, and works as before until then",
            action: """
                `apns-worker check` names the mistake. The worker continues with the configuration that it had, but would not \
                start again. It reads a corrected file by itself.
                """
        ) { status, _ in
            status.workers.filter { !$0.isSilent }.compactMap { worker in
                worker.refusedReload.map {
                    Finding(.worker(worker.name), "worker \(worker.name) could not reload its configuration: \($0)")
                }
            }
        },
        Kind(
            "worker_silent", .workers, .critical, "a worker sends no heartbeat",
            hint:
                "its process hangs, is stopped, or cannot reach Redis; other workers reclaim its jobs when its lease ends",
            action: """
                The process hangs, is stopped (`SIGSTOP`, a frozen container) or cannot reach Redis. `status` omits its other lines, \
                because they are out of date. Other workers reclaim its jobs when its lease ends.
                """
        ) { status, _ in
            status.workers.compactMap { worker in
                worker.latenessMs.map {
                    Finding(
                        .worker(worker.name),
                        "worker \(worker.name) has sent no heartbeat for \(Words.duration($0))",
                        since: status.at.since($0))
                }
            }
        },
        Kind(
            "worker_gone", .workers, .warning, "the jobs of a worker that ended were not reclaimed within five seconds",
            action: "Start a worker on the same queues: it reclaims the jobs. The log of the old worker has the cause."
        ) { status, _ in
            // Living workers reclaim within a second or two.
            status.workers.filter { $0.state == .gone && $0.leaseLeftMs < -5000 }.map { worker in
                let jobs = worker.claimed == 1 ? "1 job" : "\(worker.claimed) jobs"
                return Finding(
                    .worker(worker.name),
                    "the lease of worker \(worker.name) expired \(Words.duration(-worker.leaseLeftMs)) ago, and its "
                        + "jobs were not reclaimed (\(jobs))",
                    since: status.at + worker.leaseLeftMs,
                    hint: "start a worker on \(worker.queues.joined(separator: ", ")): it reclaims the jobs",
                    [.startWorker(queues: worker.queues)])
            }
        },
    ]

    /// Reasons why a worker is not ready. The worker has the words, and `/readyz` shows them with the hint.
    private static let ofObstacles = WorkerReport.Obstacle.Kind.allCases.map { kind in
        func row(
            _ severity: Kind.Severity, _ condition: String, hint: String = "", action: String = "",
            _ remedies: [Remedy] = [], _ alert: Alert? = nil
        ) -> Kind {
            Kind(
                kind.rawValue, .workers, severity, condition, hint: hint, action: action, alert: alert
            ) { status, _ in
                status.workers.filter { $0.state == .running && !$0.isSilent }.compactMap { worker in
                    let reasons = worker.ownObstacles.filter { $0.kind == kind }.map(\.reason)
                    guard !reasons.isEmpty else { return nil }
                    return Finding(
                        .worker(worker.name),
                        "worker \(worker.name) is not ready: \(reasons.joined(separator: "; "))", remedies)
                }
            }
        }
        return switch kind {
        case .starting:
            row(.notice, "a worker is starting", action: "Wait until the worker has connected to Redis and APNs.")
        case .draining:
            row(
                .notice, "a worker is draining",
                action: "The worker finishes its jobs and exits. Other workers continue.")
        case .quiet:
            row(
                .notice, "a worker is quiet",
                hint: "`apns-worker quiet --all --undo` lets all quiet workers claim jobs again")
        case .stuck:
            row(
                .critical, "an event loop of a worker is stuck",
                hint:
                    "keep the worker's log, and restart the worker unless a watchdog does; this is a bug of the worker",
                action: """
                    Keep the log, and a stack (`gdb -p`, `thread apply all bt`) if there is time: this is a bug of the worker. systemd's \
                    watchdog and Kubernetes' liveness probe end such a process; without them, restart it.
                    """, [],
                Alert(
                    "LoopStuck", for: "1m", .page, "An event loop of {{ $labels.instance }} is stuck",
                    "Other workers reclaim the jobs when the lease of the worker has ended.",
                    "max by (job, instance) (apns_worker_lanes_stuck) > 0"))
        case .redisUnavailable:
            row(
                .critical, "a worker cannot reach Redis",
                hint: "check Redis, its password, and the network; the worker resumes automatically",
                action: """
                    The worker's log has the cause ("cannot connect to Redis at …"; READONLY if the server has become a replica). If \
                    all workers are affected, Redis is down or its password was changed. If only one is, look at its network. No \
                    restart is needed when Redis is back.
                    """, [],
                Alert(
                    "RedisUnavailable", for: "1m", .page, "{{ $labels.instance }} has no connection to Redis",
                    """
                    Nothing is claimed from {{ $labels.queue }}. Up to 10,000 answers of APNs wait in memory until Redis is back; no \
                    job is lost.
                    """,
                    "min by (job, instance, queue) (apns_worker_redis_up) == 0"))
        case .redisRefuses:
            row(
                .critical, "Redis refuses the requests of a worker",
                hint: "fix what Redis answers; the worker resumes automatically",
                action: """
                    The answer of Redis has the cause: WRONGTYPE means a key that another program wrote, NOPERM a missing \
                    [right](redis.md#access-control), OOM a full Redis, and READONLY a replica.
                    """)
        case .noLease:
            row(
                .critical, "a worker has no lease on its queue",
                hint: "look for a slow Redis, or a worker without CPU time; the worker resumes automatically",
                action: """
                    Find the cause. If Redis refuses writes, `status` shows another problem. If Redis is slow, look at `SLOWLOG`, its CPU and, with \
                    `appendfsync always`, its disk. Otherwise look at the worker's CPU time.
                    """, [],
                Alert(
                    "LeaseOverdue", for: "1m", .page,
                    "{{ $labels.instance }} has lost its lease on the queue {{ $labels.queue }}",
                    """
                    Redis has not confirmed it for {{ $value | humanizeDuration }}; others reclaim its jobs, and some may be sent twice.
                    """,
                    """
                    max by (job, instance, queue) (apns_worker_lease_age_seconds)
                    > on (job, instance) group_left max by (job, instance) (apns_worker_lease_seconds)
                    """))
        case .nothingSent:
            row(
                .critical,
                "jobs are due, and for 30 s no answer of APNs has proved the endpoint and credential of any app of a worker good",
                hint: "`apns-worker check` tests each step to APNs; the worker resumes automatically",
                action: """
                    Another problem names the app, the credential or the address. [Fix that](#apns-refuses-an-app). A restart does \
                    not help.
                    """, [.check])
        case .other:
            row(
                .critical, "a worker is not ready",
                hint: "the worker resumes automatically; its log has the beginning of the problem",
                action: """
                    The worker's log and `/readyz` have the reason. If another alert fires too, begin with that one. A \
                    restart does not help.
                    """, [],
                Alert(
                    "NotReady", for: "10m", .ticket, "{{ $labels.instance }} is not ready",
                    "The worker has not been able to claim and send jobs for 10 minutes, or is quiet.",
                    "min by (job, instance) (apns_worker_ready) == 0"))
        }
    }

    /// Problems that only Prometheus measures, because it compares several moments of a process.
    private static let ofProcesses: [Kind] = [
        Kind(
            "worker_restarts", .workers, .critical, "a worker restarts repeatedly",
            action: """
                Look at the end of the log of the previous process (`kubectl logs --previous`, `journalctl -u apns-worker`) and at its \
                exit status: 137 means that it ran out of memory, or did not drain in time.
                """,
            alert: Alert(
                "Restarting", .page, "{{ $labels.instance }} restarts repeatedly",
                "It has started {{ $value }} times in half an hour.",
                "changes(process_start_time_seconds[30m]) > 3 and on (job, instance) apns_worker_build_info")),
        Kind(
            "settlements_wait", .workers, .warning, "the settlements of a worker wait for Redis",
            action: """
                Check whether Redis is full, read-only or slow. The jobs that wait to be settled are sent again if the worker is killed now.
                """,
            alert: Alert(
                "SettlementsWait", for: "1m", .ticket, "{{ $labels.instance }} cannot settle its jobs",
                "{{ $value | humanize }} settlements wait for Redis; at 10,000 no more jobs are claimed.",
                "max by (job, instance, queue) (apns_worker_settlements_waiting) > 5000")),
        Kind(
            "possible_duplicates", .workers, .warning, "one of a hundred notifications may have been sent twice",
            action: """
                Look for workers that are killed instead of drained (exit status 137; `terminationGracePeriodSeconds` and \
                `TimeoutStopSec` longer than `drain_timeout`), and for connections that are cut off (proxies, NAT).
                """,
            alert: Alert(
                "PossibleDuplicates", .ticket,
                "{{ $value | humanizePercentage }} of notifications may have been sent twice",
                "The answers never came, or the worker that sent the notifications was killed.",
                """
                sum by (job) (rate(apns_worker_possible_duplicates_total[30m]))
                / sum by (job) (rate(apns_worker_requests_total[30m])) > 0.01
                and sum by (job) (increase(apns_worker_possible_duplicates_total[30m])) > 100
                """)),
        Kind(
            "lasting_problem", .workers, .warning, "the log of a worker has reported a problem for 15 minutes",
            action: """
                Search the worker's log for the `event` of the alert: its line has the subject and the reason. `apns-worker status` suggests what to do.
                """,
            alert: Alert(
                "Problem", for: "15m", .ticket,
                "{{ $labels.instance }} has reported {{ $labels.event }} for 15 minutes",
                "The problem lasts. It may have an alert of its own.",
                #"max by (job, instance, event) (apns_worker_problems{event!="not_ready"}) > 0"#)),
        Kind(
            "metrics_dropped", .workers, .warning, "a worker has too many metric series",
            action: "One worker has very many apps or queues. Spread them over several workers.",
            alert: Alert(
                "MetricsDropped", .ticket, "{{ $labels.instance }} has too many metric series",
                "Some series are missing, so other alerts may not fire.",
                "max by (job, instance) (apns_worker_metric_series_dropped_total) > 0")),
    ]

    // MARK: Apps

    /// Scopes that the answers of APNs show to be slow. ``ScopeStatus`` has the words.
    private static let ofScopes =
        ScopeRecord.Scope.allCases.reversed().map { scope in
            func row(
                _ severity: Kind.Severity, _ condition: String, hint: String = "", action: String = "",
                _ alert: Alert? = nil
            ) -> Kind {
                Kind(
                    "\(scope.rawValue)_slow", .apps, severity, condition, hint: hint, action: action, alert: alert
                ) { status, _ in
                    status.scopes.filter { $0.scope == scope && $0.state == .slow }.map {
                        Finding($0.object, $0.message, since: $0.since, $0.remedies)
                    }
                }
            }
            return switch scope {
            case .endpoint:
                row(
                    .critical, "an endpoint does not answer, or with errors only",
                    hint: "check the proxy, load balancer or firewall in front of it, and Apple's status page",
                    action: """
                        If all workers are affected, see Apple's status page. If only one is, look at the proxy, load balancer or \
                        firewall between it and APNs. No restart helps. The jobs are kept, and sending resumes automatically.
                        """,
                    Alert(
                        "EndpointUnavailable", for: "2m", .page,
                        "{{ $labels.instance }} gets no good answer from APNs for the app {{ $labels.app }}",
                        """
                        APNs answers nothing, or server errors only. The app's jobs wait in Redis with no attempt spent, and one \
                        notification at a time is sent until it recovers. Nothing is lost.
                        """,
                        #"max by (job, instance, app) (apns_worker_app_state{state="unavailable"}) == 1"#))
            case .credential:
                row(
                    .critical, "APNs refuses a credential",
                    hint: "fix the key, its key ID or team ID, or the certificate",
                    action: """
                        `apns-worker check` with the worker's configuration prints the answer of APNs. Fix the key, key ID, team ID or \
                        certificate. The next probe then succeeds. `apns-worker resume --app NAME` sends a probe at once.
                        """)
            case .app:
                row(
                    .critical, "APNs refuses the notifications of an app", hint: "check its topic and environment",
                    action: """
                        A refused topic or many bad tokens mean that the topic or the environment (sandbox, production) is not \
                        that of the tokens. No token is marked invalid in the meantime.
                        """,
                    Alert(
                        "AppRefused", for: "2m", .page, "APNs refuses the app {{ $labels.app }}",
                        """
                        Its topic or environment, or its credential: jobs are deferred without spending attempts, and probes are sent. Other apps are \
                        not affected.
                        """,
                        #"max by (job, app) (apns_worker_app_state{state="refused"}) == 1"#))
            case .topic:
                row(
                    .warning, "APNs refuses the notifications of a topic",
                    hint: "check the topic of these jobs, and their push type")
            case .campaign:
                row(
                    .warning, "APNs refuses the notifications of a campaign",
                    action: """
                        `apns-worker campaign show` has the outcomes. Correct the list of tokens or the payload, and cancel the rest with \
                        `apns-worker campaign cancel`. Other notifications of the app are delivered.
                        """)
            case .job:
                row(
                    .warning, "APNs refuses the notifications of a job",
                    action: """
                        `apns-worker jobs show` has the job. Correct the producer. Other notifications of the app are delivered.
                        """)
            }
        } + [
            Kind(
                "scope_suspected", .apps, .warning,
                "the last notifications of an app, a campaign or a job were refused, too few to slow it down",
                hint: "nothing is slowed down; look at the reason and the jobs"
            ) { status, _ in
                status.scopes.filter { $0.state == .suspected }.map {
                    Finding($0.object, $0.message, since: $0.since, $0.remedies)
                }
            }
        ]

    private static let ofApps: [Kind] = [
        Kind(
            "app_blocked", .apps, .critical, "the certificate of an app is not for its topic",
            hint: "correct the topic, or replace the certificate's file; workers read both again",
            action: """
                `apns-worker status` names the certificate and the topic. Correct the topic, or replace the certificate. Nothing is sent \
                until then, and no job is lost.
                """,
            alert: Alert(
                "AppBlocked", for: "2m", .page, "The certificate of the app {{ $labels.app }} is not for its topic",
                "Nothing is sent for the app. Its jobs wait with no attempt spent. Other apps are not affected.",
                #"max by (job, app) (apns_worker_app_state{state="blocked"}) == 1"#)
        ) { status, _ in
            status.apps.compactMap { app in
                guard let reason = app.blocked else { return nil }
                return Finding(.app(app.name), "nothing is sent for app \(app.name): \(reason)", [.check])
            }
        },
        Kind(
            "app_paused", .apps, .warning, "an app has been paused for an hour, or for `--max-age`",
            action: """
                `apns-worker status` shows the reason. Its jobs are deferred and expire in the meantime; `apns-worker resume --app NAME` ends \
                the pause.
                """
        ) { status, limits in
            let (now, maximum) = (status.at, limits.age ?? ProblemLimits.defaultPausedAge)
            return status.apps.compactMap { app in
                guard let pause = app.paused, let since = pause.since, now.since(since) > maximum else { return nil }
                return Finding(
                    .app(app.name),
                    "app \(app.name) is paused\(Words.since(since, now: now)) (\(pause.reason)), and its jobs are deferred",
                    since: since, hint: "", [.resumeApp(app.name)])
            }
        },
        Kind(
            "app_unconnected", .apps, .critical, "an app has no connection to APNs",
            hint: "check the network and the proxy",
            action: """
                `apns_worker_connection_failures_total` has the reason, and the worker's log a suggestion. If all workers are affected, look \
                at the firewall (443 to 17.0.0.0/8), the proxy, DNS and Apple's status page; no restart helps.
                """,
            alert: Alert(
                "NoConnection", for: "2m", .page,
                "{{ $labels.instance }} has no connection to APNs for the app {{ $labels.app }}",
                "Jobs wait for a connection, or are deferred for lack of one.",
                """
                sum by (job, instance, app) (apns_worker_connections{state="usable"}) == 0
                and on (job, instance, app) (
                sum by (job, instance, app) (apns_worker_waiting) > 0
                or sum by (job, instance, app) (increase(apns_worker_notifications_total{outcome="deferred",reason="NoConnection"}[5m])) > 0
                or sum by (job, instance, app) (increase(apns_worker_connection_failures_total[5m])) > 0
                and on (job, instance) apns_worker_ready == 0
                and on (job, instance) (
                apns_worker_queue_oldest_seconds > 0 unless on (job, instance, queue) apns_worker_queue_paused == 1))
                """)
        ) { status, _ in
            status.apps.filter { $0.state == .unconnected }.map { app in
                Finding(
                    .app(app.name),
                    "app \(app.name) has no connection to \(app.endpoints.joined(separator: ", ")): "
                        + (app.failure ?? "none succeeded"),
                    [.check])
            }
        },
        Kind(
            "provider_token_old", .apps, .critical, "the provider token of an app is not renewed",
            hint: "check the key's file and the clocks of the workers",
            action: """
                The worker's log has the reason: the key's file, or Redis. If the age is implausible, look at the clocks of the workers.
                """,
            alert: Alert(
                "ProviderTokenOld", for: "1m", .page,
                "The provider token of {{ $labels.app }} is not renewed",
                "It is {{ $value | humanizeDuration }} old, and APNs accepts none older than an hour.",
                "max by (job, instance, app) (apns_worker_provider_token_age_seconds) > 3300")
        ) { status, _ in
            status.apps.compactMap { app in
                guard let age = app.tokenIssuedAt.map({ status.at.since($0) }), age > 3_300_000 else {
                    return nil
                }
                return Finding(
                    .app(app.name),
                    "the provider token of app \(app.name) is \(Words.duration(age)) old, and APNs accepts none older "
                        + "than an hour")
            }
        },
        Kind(
            "credential_wrong", .apps, .warning,
            "the credential of an app, or the file that should replace it, can't be used",
            hint: "replace the file that the message names; workers read it again within seconds",
            action: """
                `apns-worker status` names the file or certificate, and the error. Replace it: workers read it again within seconds, and use \
                it for new requests. Until then they keep the previous one.
                """
        ) { status, _ in
            status.apps.compactMap { app in
                // The certificate of a blocked app is reported as another problem.
                guard let problem = app.credentialProblem, app.blocked == nil else { return nil }
                return Finding(.app(app.name), "the credential of app \(app.name): \(problem)", [.check])
            }
        },
        certificate(
            "certificate_expires", .warning, days: 21, below: 7,
            action: """
                Make a new one on Apple's developer site and replace the old one: the worker reads it again automatically (with \
                systemd's `LoadCredential`, at a restart).
                """,
            Alert(
                "CertificateExpires", .ticket,
                #"The certificate of {{ $labels.app }} expires in {{ $value | printf "%.0f" }} days"#,
                "APNs refuses every connection of the app if its certificate has expired.",
                "min by (job, app) (apns_worker_certificate_days_left) < 21")),
        certificate(
            "certificate_expires_soon", .critical, days: 7, below: nil,
            action: "Do today what `certificate_expires` suggests.",
            Alert(
                "CertificateExpiresSoon", .page,
                #"The certificate of {{ $labels.app }} expires in {{ $value | printf "%.0f" }} days"#,
                "APNs refuses every connection of the app if its certificate has expired.",
                "min by (job, app) (apns_worker_certificate_days_left) < 7")),
    ]

    /// Returns the row of certificates that expire within some days.
    /// - Parameter later: the number of days below which the critical kind reports the certificate instead.
    private static func certificate(
        _ name: String, _ severity: Kind.Severity, days: Int64, below later: Int64?, action: String, _ alert: Alert
    ) -> Kind {
        let day: Int64 = 86_400_000
        return Kind(
            name, .apps, severity, "the certificate of an app expires within \(days) days",
            hint: "replace its file with a new one from Apple's developer site; workers read it again", action: action,
            alert: alert
        ) { status, _ in
            status.apps.compactMap { app in
                guard let left = app.certificateExpiresAt.map({ $0.since(status.at) }), left < days * day
                else {
                    return nil
                }
                if let later, left < later * day { return nil }
                return Finding(
                    .app(app.name),
                    "the certificate of app \(app.name) "
                        + (left > 0 ? "expires in \(Words.duration(left))" : "expired \(Words.duration(-left)) ago")
                        + ", after which APNs refuses every connection")
            }
        }
    }

    /// Problems that Prometheus measures better, because it compares the counters of some minutes.
    private static let ofAnswers: [Kind] = [
        Kind(
            "invalid_tokens", .apps, .warning,
            "more than a fifth of the tokens are invalid, or more than `--max-invalid-rate`",
            action: """
                This is normal after the first campaign in a long time. Otherwise check whether \
                [tokens of the sandbox are sent to production](#many-bad-device-tokens), or tokens of one app through another, and pause \
                the queue in the meantime (`apns-worker pause`).
                """,
            alert: Alert(
                "InvalidTokens", .ticket,
                "{{ $value | humanizePercentage }} of the tokens of {{ $labels.app }} are invalid",
                "This is the share of the last half hour. The tokens were added to the set of invalid tokens in Redis.",
                """
                sum by (job, app) (rate(apns_worker_outcomes_total{outcome="invalid_token"}[30m]))
                / sum by (job, app) (rate(apns_worker_outcomes_total{outcome=~"delivered|invalid_token"}[30m])) > 0.2
                and sum by (job, app) (increase(apns_worker_outcomes_total{outcome="invalid_token"}[30m])) > 100
                """)
        ) { status, limits in
            status.readableQueues.compactMap { queue in
                let (delivered, invalid) = (
                    queue.today[Outcome.delivered.rawValue] ?? 0, queue.today[Outcome.invalidToken.rawValue] ?? 0
                )
                let share = limits.invalidShare ?? ProblemLimits.defaultInvalidShare
                let least = limits.invalidShare == nil ? ProblemLimits.leastInvalid : 1
                guard invalid >= least, Double(invalid) > share * Double(delivered + invalid) else { return nil }
                return Finding(
                    .queue(queue.name),
                    "queue \(queue.name): \(Words.number(invalid)) of today's \(Words.number(delivered + invalid)) tokens that "
                        + "were sent to are invalid",
                    hint:
                        "find the app and topic of the tokens; many are normal in the first campaign in a long time, or in a mixture of "
                        + "sandbox and production", [.listInvalidTokens])
            }
        },
        Kind(
            "retries", .apps, .warning, "most notifications of an app must be retried",
            action: """
                `apns_worker_notifications_total{outcome="retried"}` has the reasons. 5xx is a temporary problem of APNs; TooManyRequests \
                means that some devices get too many; lost connections are a problem of the network.
                """,
            alert: Alert(
                "Retries", .ticket, "Most notifications of {{ $labels.app }} must be retried",
                "{{ $value | humanizePercentage }} of the attempts in the last 15 minutes failed temporarily.",
                """
                sum by (job, app) (rate(apns_worker_outcomes_total{outcome="retried"}[15m]))
                / sum by (job, app) (rate(apns_worker_outcomes_total{outcome=~"retried|delivered"}[15m])) > 0.5
                and sum by (job, app) (increase(apns_worker_outcomes_total{outcome="retried"}[15m])) > 100
                unless on (job, app) max by (job, app) (max_over_time(apns_worker_app_state{state=~"unavailable|refused"}[15m])) == 1
                """)),
        Kind(
            "slow_answers", .apps, .warning, "one answer of APNs in a hundred takes 5 s",
            action: """
                Look at Apple's status page, at the network and the proxy, and at the CPU of the workers: a throttled worker reads \
                answers late.
                """,
            alert: Alert(
                "Slow", for: "10m", .ticket, "APNs answers slowly for the app {{ $labels.app }}",
                "One answer in a hundred takes {{ $value | humanizeDuration }} or more.",
                "histogram_quantile(0.99, sum by (job, app, le) (rate(apns_worker_send_seconds_bucket[10m]))) > 5")),
        Kind(
            "gateway_packets_late", .apps, .warning,
            "a binary gateway dropped notifications that had counted as delivered",
            action: """
                Raise `gateway.confirm_after`. The worker doubles it automatically until it is restarted, up to 10 minutes; the \
                notifications are lost, and the token that a packet named is in the set of invalid tokens.
                """,
            alert: Alert(
                "GatewayPacketLate", .ticket,
                "The gateway dropped notifications of {{ $labels.app }} that had counted as delivered",
                "{{ $value | humanize }} in the last 15 minutes: its error packets came too late.",
                "sum by (job, app) (increase(apns_worker_gateway_dropped_after_confirmation_total[15m])) > 0")),
    ]
}
