import PushQueue
import Redis

/// The diagnosis of a fleet: the problems that its status shows. Has no I/O.
package struct Diagnosis {
    /// The time in milliseconds for which a worker's lease can have expired before this is a problem: living workers
    /// reclaim its jobs within a second or two.
    private static let reclaimTime: Int64 = 5000

    private let status: FleetStatus
    private let limits: ProblemLimits
    private let access: FleetAccess
    private let unwritableQueues: Set<String>

    /// - Parameters:
    ///   - limits: the limits beyond which something is a problem.
    ///   - access: the fleet, for the commands that help.
    package init(
        _ status: FleetStatus, _ limits: ProblemLimits = ProblemLimits(), _ access: FleetAccess = FleetAccess()
    ) {
        (self.status, self.limits, self.access) = (status, limits, access)
        unwritableQueues = status.unwritableQueues
    }

    /// The problems, the worst first.
    package var problems: [Problem] {
        var problems = status.servers.flatMap(problems(of:))
        for queue in status.queues { problems += self.problems(of: queue) + deadLetterProblems(of: queue) }
        problems += stoppedCampaigns + unreadState + resharding + failingWorkers + keys + goneWorkers
        problems += status.apps.compactMap(problem(of:))
        for index in problems.indices { problems[index].access = access }
        // Others keep their order.
        return problems.filter(\.kind.isCritical) + problems.filter { !$0.kind.isCritical }
    }

    /// Returns the findings that need attention now. Only `check` reports those that matter when the server dies.
    private func problems(of server: ServerStatus) -> [Problem] {
        server.found.findings.compactMap { finding in
            Problem.Kind(rawValue: finding.kind.rawValue).map {
                Problem($0, .server(server.found.address), finding.message, hint: finding.advice)
            }
        }
    }

    /// The shared state, or a server, that could not be read.
    private var unreadState: [Problem] {
        var problems: [Problem] = []
        if let sharedError = status.sharedError {
            problems.append(
                Problem(
                    .sharedUnreadable, .shared(status.prefix),
                    "the state that all queues share cannot be read: \(sharedError)",
                    hint: "bring that server back; until then pauses of apps, rates and invalid tokens are not known")
            )
        }
        if let searchError = status.searchError {
            problems.append(
                Problem(
                    .serverUnreachable, .server(status.redis),
                    "a server cannot be searched for queues: \(searchError)",
                    hint: "bring that server back; until then its queues are shown only if --queue names them"))
        }
        return problems
    }

    /// An unfinished change of the number of shards of the invalid tokens, which keeps workers from starting.
    private var resharding: [Problem] {
        guard let division = status.resharding, let change = division.change else { return [] }
        return [
            Problem(
                .resharding, .shared(status.prefix),
                "the number of shards of the invalid tokens is being changed"
                    + Words.since(change.since, now: status.at) + ", and workers that start wait for it",
                since: change.since, hint: "if the command that does it was interrupted, complete it",
                [.reshard(to: division.shards), .reshard(to: change.incomplete)])
        ]
    }

    /// Workers that run and do not do their work.
    private var failingWorkers: [Problem] {
        var problems: [Problem] = []
        for worker in status.workers where !worker.isSilent {
            guard let reason = worker.failoverWatch else { continue }
            problems.append(
                Problem(
                    .failoversUnwatched, .worker(worker.name),
                    "worker \(worker.name) learns of failovers late: \(reason)",
                    hint: "let its Sentinel user subscribe: `+subscribe &+switch-master`, "
                        + "`+sentinel|get-master-addr-by-name`, `+sentinel|sentinels`, `+sentinel|myid`"))
        }
        for worker in status.workers {
            guard let lateness = worker.latenessMs else { continue }
            problems.append(
                Problem(
                    .workerSilent, .worker(worker.name),
                    "worker \(worker.name) has sent no heartbeat for \(Words.duration(lateness))",
                    since: status.at - lateness,
                    hint:
                        "its process hangs, is stopped, or cannot reach Redis; other workers reclaim its jobs when "
                        + "its lease ends"))
        }
        for worker in status.workers where worker.state == .running && !worker.isSilent && !worker.ownObstacles.isEmpty
        {
            problems.append(
                Problem(
                    .workerNotReady, .worker(worker.name),
                    "worker \(worker.name) is not ready: \(worker.ownObstacles.joined(separator: "; "))",
                    hint: "it resumes automatically; its log has the time at which this began"))
        }
        return problems
    }

    /// Keys with a wrong type or a dangerous size.
    private var keys: [Problem] {
        let wrong = status.wrongKeys.map { wrong in
            Problem(
                .wrongKey, .key(wrong.key),
                "the key \(wrong.key) holds a \(wrong.found), and it must hold a \(wrong.expected)",
                hint: "rename or delete that key; workers then continue by themselves")
        }
        let large = status.largeKeys.map { large in
            Problem(
                .largeKey, .key(large.key),
                "the key \(large.key) has \(Words.bytes(large.bytes)): from about \(Words.bytes(large.limit)) on, Redis "
                    + "can't move it to another server",
                hint: "make it smaller before slots are moved: docs/redis.md says how for each key")
        }
        return wrong + large
    }

    /// Workers that ended and whose jobs no other worker has reclaimed.
    private var goneWorkers: [Problem] {
        var problems: [Problem] = []
        for worker in status.workers where worker.state == .gone && worker.leaseLeftMs < -Self.reclaimTime {
            let jobs = worker.claimed == 1 ? "1 job" : "\(worker.claimed) jobs"
            problems.append(
                Problem(
                    .workerGone, .worker(worker.name),
                    "the lease of worker \(worker.name) expired \(Words.duration(-worker.leaseLeftMs)) ago, and its "
                        + "jobs were not reclaimed (\(jobs))",
                    since: status.at + worker.leaseLeftMs,
                    hint: "start a worker on \(worker.queues.joined(separator: ", ")): it reclaims the jobs",
                    [.startWorker(queues: worker.queues)]))
        }
        return problems
    }

    /// Returns the worst problem of an app.
    private func problem(of app: AppStatus) -> Problem? {
        if let paused = app.paused, !paused.isByHand {
            return Problem(
                .appPaused, .app(app.name),
                "app \(app.name) is paused" + Words.since(paused.since, now: status.at) + ": \(paused.reason)",
                since: paused.since, hint: Self.hint(on: paused), [.resumeApp(app.name)])
        }
        if app.lanesUnanswered > 0, app.paused == nil {
            return Problem(
                .appUnanswered, .app(app.name),
                "app \(app.name) gets no answers from \(app.endpoints.joined(separator: ", ")) "
                    + "(\(app.lanesUnanswered) of \(app.lanes) lanes)",
                hint: "check the proxy, load balancer or firewall in front of it, and Apple's status page",
                [.check])
        }
        if let error = app.serverError, app.paused == nil {
            return Problem(
                .appServerErrors, .app(app.name),
                "app \(app.name) gets only server errors from \(app.endpoints.joined(separator: ", ")): "
                    + "\(error) (\(app.lanesWithServerErrors) of \(app.lanes) lanes)",
                hint: "check Apple's status page and any proxy in front of it; the jobs are kept, and "
                    + "sending resumes automatically")
        }
        if app.state == .unconnected {
            return Problem(
                .appUnconnected, .app(app.name),
                "app \(app.name) has no connection to \(app.endpoints.joined(separator: ", ")): "
                    + (app.failure ?? "none succeeded"),
                hint: "check the network and the proxy", [.check])
        }
        return nil
    }

    /// The first thing to do about an app that APNs refuses. Whole batches of refused tokens are a matter of the
    /// environment.
    private static func hint(on pause: PauseStatus) -> String {
        ["BadDeviceToken", "DeviceTokenNotForTopic", "InvalidToken"].contains(pause.reason)
            ? "check its environment and topic: most of its tokens are for another; no token was marked invalid"
            : "fix its key, key ID, team ID, topic or environment"
    }

    private func problems(of queue: QueueStatus) -> [Problem] {
        if let error = queue.error {
            // The key itself is a problem.
            if status.wrongKeys.contains(where: { error.contains($0.key) }) { return [] }
            return [
                Problem(
                    .queueUnreadable, .queue(queue.name),
                    "queue \(queue.name) cannot be read: \(error)",
                    hint: queue.unreachable
                        ? "bring that server back; other queues are not affected"
                        : "workers have the same problem; "
                            + (RedisServerError(text: error).advice ?? "see the Redis log"))
            ]
        }
        var problems: [Problem] = []
        let ready = queue.waiting + queue.due
        let isUnwritable = unwritableQueues.contains(queue.name)
        let candidates = status.living.filter { $0.queues.contains(queue.name) }
        if ready > 0, queue.paused == nil, !candidates.contains(where: { $0.state == .running || $0.state == .unknown })
        {
            let jobs = ready == 1 ? "1 job waits" : "\(Words.number(ready)) jobs wait"
            let isQuiet = candidates.contains { $0.state == .quiet }
            let others = candidates.map { "\($0.name) is \($0.state.rawValue)" }.joined(separator: ", ")
            problems.append(
                Problem(
                    .noWorker, .queue(queue.name),
                    "queue \(queue.name): \(jobs), and no worker claims \(ready == 1 ? "it" : "them")"
                        + (others.isEmpty ? "" : " (\(others))"),
                    hint: isUnwritable
                        ? "fix Redis first; running workers resume automatically"
                        : isQuiet
                            ? "let the quiet workers work, or start another"
                            : "start a worker with --queue \(queue.name)",
                    isUnwritable ? [] : isQuiet ? [.unquiet] : [.startWorker(queues: [queue.name])]))
        }
        if !queue.differentApps.isEmpty {
            let groups = queue.differentApps.map { group in
                "\(group.workers.joined(separator: ", ")) \(group.workers.count == 1 ? "has" : "have") "
                    + group.apps.joined(separator: ", ")
            }
            let areNamedAlike = Set(queue.differentApps.map(\.apps)).count < groups.count
            problems.append(
                Problem(
                    .differentApps, .queue(queue.name),
                    "queue \(queue.name): its workers have different apps\(areNamedAlike ? ", or topics" : ""): "
                        + groups.joined(separator: "; "),
                    hint:
                        "during a rolling upgrade this ends by itself, and jobs wait for a worker that has their app; "
                        + "otherwise give all workers of the queue the same apps"))
        }
        if let maximumAge = limits.age, let age = queue.oldestAgeMs, age > maximumAge {
            problems.append(
                Problem(
                    .tooOld, .queue(queue.name),
                    "queue \(queue.name): the oldest job should have been sent \(Words.duration(age)) ago",
                    since: status.at - age + maximumAge,
                    hint: isUnwritable
                        ? "fix Redis first"
                        : queue.paused == nil ? "start more workers, or find out what slows them down" : "",
                    isUnwritable
                        ? [] : queue.paused == nil ? [.startWorker(queues: [queue.name])] : [.resumeQueue(queue.name)]))
        }
        return problems
    }

    /// The campaigns that their guards have paused, each once for all of its queues.
    private var stoppedCampaigns: [Problem] {
        var found: [String: (reason: String, since: Int64?, queues: [String])] = [:]
        for queue in status.queues {
            for (campaign, stop) in queue.stoppedCampaigns {
                found[campaign, default: (stop.reason, stop.since, [])].queues.append(queue.name)
            }
        }
        return found.sorted { $0.key < $1.key }.map { campaign, stop in
            Problem(
                .campaignStopped, .campaign(campaign),
                "campaign \(campaign) is paused by its guard in \(stop.queues.joined(separator: ", ")): "
                    + stop.reason,
                since: stop.since,
                [.showCampaign(campaign), .resumeCampaign(campaign), .cancelCampaign(campaign)])
        }
    }

    private func deadLetterProblems(of queue: QueueStatus) -> [Problem] {
        guard queue.dead > 0 else { return [] }
        let dead = queue.today[Outcome.dead.rawValue] ?? 0
        let all = Outcome.allCases.reduce(0) { $0 + (queue.today[$1.rawValue] ?? 0) }
        let isShareExceeded =
            if let share = limits.deadShare {
                Double(dead) > share * Double(all)
            } else {
                dead >= ProblemLimits.leastDead && Double(dead) > ProblemLimits.defaultDeadShare * Double(all)
            }
        let isCountExceeded = limits.dead.map { queue.dead > $0 } ?? false
        guard isShareExceeded || isCountExceeded else { return [] }
        let prefix = "\(Outcome.dead.rawValue):"
        let today = queue.today.filter { $0.key.hasPrefix(prefix) }
        let reasons =
            isShareExceeded && !today.isEmpty
            ? Dictionary(uniqueKeysWithValues: today.map { (String($0.dropFirst(prefix.count)), $1) })
            : queue.deadReasons
        let sorted = reasons.largestFirst
        let words = sorted.prefix(3).map { "\($0.key) \(Words.number($0.value))" } + (sorted.count > 3 ? ["…"] : [])
        let what =
            isShareExceeded
            ? "\(Words.number(dead)) of today's \(Words.number(all)) notifications became dead letters"
            : "\(Words.number(queue.dead)) dead letters"
        // Counters have this reason instead of the rarest, and no dead letter has it.
        let reason = sorted.first { $0.key != MinuteCounts.otherReason }?.key
        return [
            Problem(
                .deadLetters, .queue(queue.name),
                "queue \(queue.name): \(what)" + (words.isEmpty ? "" : " (\(words.joined(separator: ", ")))"),
                [.listDeadLetters(queue: queue.name), .requeue(queue: queue.name, reason: reason)])
        ]
    }
}
