import Logging
import NIOCore
import PushJob
import PushQueue
import Redis

/// Consumes one queue: keeps the lease, claims jobs and waits for them.
///
/// Each queue has its own lease. In a Cluster each queue can be on another server, and an unreachable server must not delay the queues of
/// others. Belongs to the lane's event loop.
final class QueueConsumer {
    private(set) lazy var outbox = Outbox(link, self)
    let link: QueueLink
    private let lane: LaneContext
    private let intake: Intake
    private unowned let driver: Lane
    private var window: ClaimWindow
    private var lease: Lease
    private var heartbeat = Heartbeat()
    private let waiting: WaitingJobs
    private lazy var recovery = ClaimRecovery(link, self)
    private var connectionError: RedisError?
    private(set) var hasBacklog = false
    private var isWaiting = false
    /// The time of the last request to other lanes to poll instead of this lane.
    private var delegatedAt = NIODeadline.distantPast
    /// The number of the lane's last round with a turn of the queue.
    private var lastTurn = 0
    /// True if the lane may ask for a lease.
    private var mayJoin = false

    private struct Heartbeat {
        var sentAt = NIODeadline.distantPast
        /// True if the next heartbeat must not wait for its interval.
        var isUrgent = false
        /// From this time on the next heartbeat must not wait either, because another lane's claims may then be reclaimed.
        var mustBeAt = NIODeadline.distantFuture
    }

    /// The maximum duration of the blocking wait, in seconds. The kernel detects a lost server sooner.
    private static let waitSeconds = 60
    /// The minimum interval between heartbeats.
    private static let heartbeatInterval = TimeAmount.milliseconds(WorkerReport.interval)

    /// - Parameter driver: the lane, which outlives the consumer.
    init(_ link: QueueLink, _ driver: Lane) {
        self.link = link
        self.driver = driver
        lane = link.lane
        intake = driver.intake
        window = ClaimWindow(polls: driver.polls)
        lease = Lease(link.queue.limits)
        waiting = WaitingJobs(link, driver.ledger, driver.intake)
    }

    var queue: QueueContext { link.queue }
    var store: any QueueStore { link.store }

    func redisChanged(_ state: RedisClient.State) {
        if case .disconnected(let error, _) = state { connectionError = error }
        guard case .ready = state else { return }
        recovery.reset()
        checkClaims()
        outbox.writeUnconfirmed()
        waiting.ask()
        window.wake()
        askForAdmission()
        lane.schedulePump()
    }

    /// Continues with the work that needs another server than the queue's.
    func otherRedisReady() {
        outbox.writeInvalidTokens()
        waiting.ask()
    }

    // MARK: Settlements

    /// Records that invalid tokens were written to their set.
    func markedInvalid() { driver.fleet.invalidTokenCount = max(1, driver.fleet.invalidTokenCount ?? 1) }

    /// Records that a job was replaced by pieces. They are due for every lane.
    func split() {
        wake()
        driver.callbacks.backlog(queue.id)
    }

    /// Records that a job was given back for workers of another configuration.
    func gaveBack() { window.recordReturn(now: lane.now) }

    /// Records that the guard of a campaign has paused it in this queue.
    func stopped(_ campaign: StoppedCampaign) {
        link.record(campaign)
        for other in driver.consumers where other !== self { other.link.stop(campaign) }
    }

    // MARK: Claims

    /// Makes a claim if one is due.
    /// - Parameters:
    ///   - free: the number of further notifications that could be in flight.
    ///   - busy: the number of notifications in flight.
    ///   - turn: the lane's round.
    func claim(free: Int, busy: Int, turn: Int) {
        lastTurn = turn
        guard canClaim, let claim = window.next(free: free, busy: busy, now: lane.now) else { return }
        // Settlements are sent in the same write as the claim.
        outbox.flush()
        send(claim)
    }

    /// Repeats an unanswered claim that may have claimed jobs. For a quiet lane, which makes no other claims.
    func repeatClaim() {
        guard canClaim, window.isInDoubt, let claim = window.next(free: 1, busy: 0, now: lane.now) else { return }
        send(claim)
    }

    /// True if a claim could be made, given capacity for its jobs.
    private var canClaim: Bool { !window.isAsking && store.isReady && !outbox.isFull && isAdmitted }

    /// True if the lane has a lease, or may ask for one.
    private var isAdmitted: Bool { window.hasJoined || mayJoin }

    /// Finds out if the lane may ask for a lease. An operator who changes the number of shards of the invalid tokens makes sure that no
    /// lane has a lease. Until that is done lanes ask for none, because they could look up no tokens. If the number can't be read, they
    /// ask: others also keep working without the shared state.
    private func askForAdmission() {
        guard !isAdmitted, store.isReady else { return }
        link.fleet.invalidTokens.countIfUndivided { [self] result in
            if case .failure(let failure) = result, case .resharding = failure {
                return link.refusals.recordRefusal(.invalidTokens, failure)
            }
            mayJoin = true
            link.refusals.recordAcceptance(.invalidTokens)
            lane.schedulePump()
        }
    }

    /// True while the consumer waits for nothing but jobs.
    var isAtRest: Bool {
        store.isReady && !heartbeat.isUrgent && outbox.isEmpty && recovery.isEmpty && waiting.isEmpty
    }

    /// The earliest time of the next claim.
    var nextClaim: NIODeadline {
        if window.isAsking { return .distantFuture }
        return lane.isQuiet && !window.isInDoubt ? .distantFuture : window.nextClaim
    }

    /// The number of jobs that are on their way to the lane.
    var expected: Int { window.reserved(now: lane.now) + waiting.count }

    /// Returns the queue's availability for the schedule.
    /// - Parameter turn: the lane's round. Each queue has at most one turn in it.
    func availability(turn: Int) -> QueueSchedule.Availability {
        if window.reserved(now: lane.now) > 0 { return .asked }
        return canClaim && lastTurn != turn ? .ready : .unavailable
    }

    private func send(_ claim: ClaimWindow.Claim) {
        mayJoin = false
        lease.recordRequest(count: claim.count, now: lane.now)
        let generation = queue.generation
        let configuration = if case .running = lane.state { queue.configuration } else { ConfigurationDigest?.none }
        let request = ClaimRequest(
            count: claim.count, first: claim.first, join: claim.join, knownCommands: queue.commands.version,
            configuration: configuration, sort: lane.now < queue.sortsUntil, heartbeat: nextHeartbeat())
        store.claim(request) { [self] result in
            guard generation == queue.generation, !lane.isStopped else { return }
            switch result {
            case .success(let claimed): received(claimed, claim)
            case .failure(let failure): failed(failure)
            }
        }
    }

    private func received(_ claimed: Claimed, _ claim: ClaimWindow.Claim) {
        queue.setClock(claimed.now)
        lane.metrics.setClock(ofQueue: queue.id.index, ahead: queue.clockOffset)
        link.refusals.recordAcceptance(.claims)
        if let command = claimed.command { driver.callbacks.command(command) }
        if let commands = claimed.commands {
            queue.commands = commands
            heartbeat.isUrgent = true
            intake.applyCommands(of: queue)
        }
        if claimed.leaseLost { return rejoin() }
        lease.recordRenewal(count: claim.count, held: claimed.held, now: lane.now)
        link.logEvictions(claimed.evicted)
        if claim.join {
            queue.logger.debug("joined the queue", metadata: ["event": "queue_joined", "worker": "\(queue.holder)"])
        }
        let count = claimed.bodies.count
        if count > 0 { queue.otherConfigurations = claimed.otherConfigurations }
        hasBacklog = window.recordAnswer(
            received: count, isPaused: claimed.isPaused, nextDue: claimed.nextDue,
            isWatched: store.canWait && link.refusals[.waits] == nil, now: lane.now)
        if claim.count > 0 { driver.claimed(count, from: queue, isDry: !hasBacklog) }
        // If a drain began while the claim was in flight, its jobs are released with the lane's other claims.
        guard lane.isWorking else { return lane.schedulePump() }
        lane.metrics[claimsOf: queue.id.index].claimed += count
        for (offset, body) in claimed.bodies.enumerated() {
            accept(ClaimedJob(body: body, claim: ClaimID(number: claim.first + offset, stamp: claimed.stamp)))
        }
        if let expired = claimed.expiredWorker {
            considerReclaiming(expired)
        } else if claimed.hasLookedAround {
            link.refusals.recordAcceptance(.reclaims)
        }
        if hasBacklog {
            driver.callbacks.backlog(queue.id)
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            wakeWhenDue()
        }
        queue.handsBack = claimed.handsBack
        if queue.handsBack { for sender in intake.senders { sender.handBack(jobsOf: queue) } }
        driver.pump()
    }

    private func failed(_ failure: QueueFailure) {
        if case .redis(let error) = failure, !error.isAnswer {
            window.recordFailure(mayHaveRun: error.mayHaveBeenExecuted, now: lane.now)
            guard let (claim, times) = window.lost else { return }
            lane.logThrottled(
                .warning, "claim_answers_lost",
                "the connection to Redis was lost \(times) times during the answer to the same claim; asking for at most "
                    + "\(claim.count) of its jobs. If the server limits the output buffers of normal clients "
                    + "(client-output-buffer-limit), raise that above the size of the jobs",
                kind: "answers \(queue.name)", logger: queue.logger)
        } else {
            // Read-only, loading, out of memory: the server is reachable and will recover.
            window.recordRefusal(now: lane.now, pause: lane.refusalPause)
            link.refusals.recordRefusal(.claims, failure)
            // Only a claim with a heartbeat finds out if all keys have the right types again.
            heartbeat.isUrgent = true
        }
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) { window.recordStandstill(of: time, now: now) }

    func accept(_ claimed: ClaimedJob) {
        if let first = intake.accept(claimed, from: queue) { waiting.append(first) }
    }

    private func considerReclaiming(_ expired: String) {
        guard expired != queue.holder else { return }
        guard lease.recordExpired(expired, delay: .milliseconds(lane.random(in: 0...1000)), now: lane.now) else {
            guard let time = lease.reclaimTime(of: expired) else { return }
            heartbeat.mustBeAt = time
            return wake(at: time)
        }
        link.reclaim(expired) { [self] in
            window.wake()
            lane.schedulePump()
        }
    }

    // MARK: Forgotten claims

    /// Looks for forgotten claims (see ``ForgottenClaims``). Called when Redis is reachable again, and at intervals.
    private func checkClaims() { if window.hasJoined { recovery.check() } }

    func checkClaimsIfDue() { if !lease.holdsNothing, recovery.isDue { checkClaims() } }

    /// Reads as many jobs of forgotten claims as the lane has capacity for.
    func recoverClaims() { recovery.read() }

    /// The number of further jobs that the lane could accept.
    var capacity: Int { driver.capacity }

    /// Returns the forgotten claims among those that Redis lists.
    func forgotten(among listed: [ClaimID]) -> ForgottenClaims {
        let forgotten = ForgottenClaims(listed: listed, window: window, forEachKnown: forEachClaim)
        if !forgotten.isEmpty { window.recordAdopted(forgotten.largestNumber) }
        return forgotten
    }

    /// Calls the function with each claim that the lane works on, or has settled without a confirmation.
    private func forEachClaim(_ body: (ClaimID) -> Void) {
        outbox.forEachClaim(body)
        waiting.forEachClaim(body)
        // Empty entries have no claim.
        lane.jobs.forEach { job in
            if job.claim.number > 0, job.queue == queue.id, job.generation == queue.generation { body(job.claim) }
        }
    }

    // MARK: Waking

    func wake() { window.wake() }

    /// Schedules a claim for the due time of a retry, on this lane or on the worker's polling lane.
    func wake(at time: NIODeadline) {
        guard window.polls else { return driver.callbacks.due(queue.id, time) }
        window.wake(at: time)
        wakeWhenDue()
    }

    /// Schedules the next claim if it is due before the lane's next tick.
    private func wakeWhenDue() {
        let due = window.nextClaim
        guard due - lane.now < .seconds(1) else { return }
        lane.eventLoop.assumeIsolated().scheduleTask(deadline: due) { [self] in lane.schedulePump() }
    }

    /// Wakes the other lanes if a poll is due that this lane can't make because it is full or disconnected.
    func delegatePollIfDue() {
        guard window.cannotPoll(now: lane.now), lane.now - delegatedAt >= ClaimWindow.unwatchedPoll else {
            return
        }
        delegatedAt = lane.now
        driver.callbacks.backlog(queue.id)
    }

    /// Waits for a job, so that the server notifies this process as soon as there is one.
    private func waitForJob() {
        guard store.canWait, !isWaiting, case .running = lane.state else { return }
        isWaiting = true
        store.waitForJob(seconds: Self.waitSeconds) { [self] result in
            isWaiting = false
            switch result {
            case .success(let hasCome):
                link.refusals.recordAcceptance(.waits)
                if hasCome {
                    window.wake()
                } else if window.nextClaim > lane.now {
                    // The next poll is a claim, which costs more than another wait.
                    waitForJob()
                }
            case .failure(.redis(.server(let error))) where error.prefix == "UNBLOCKED":
                window.wake()  // The server became a replica; the next answer will report it.
            case .failure(let failure):
                // Without a wait the list is polled more often.
                link.refusals.recordRefusal(.waits, failure)
                window.wake(at: lane.now + ClaimWindow.unwatchedPoll)
            }
            lane.schedulePump()
        }
    }

    // MARK: The lease

    /// Renews the lease without a claim, if that is due.
    func renewLeaseIfDue() {
        askForAdmission()
        let isDue = lease.isDue(
            polls: window.polls, isQuiet: lane.isQuiet, hasJobs: lane.jobs.count > 0, isAtRest: driver.isIdle,
            now: lane.now)
        guard heartbeat.isUrgent || isDue, store.isReady, isAdmitted, let claim = window.renewal(now: lane.now) else {
            return
        }
        send(claim)
    }

    /// The time of the last renewal; `nil` before the first one, and without claims that a lease protects.
    var leaseRenewedAt: NIODeadline? { window.hasJoined && !lease.isIdle ? queue.answeredAt : nil }

    /// Makes the next claim or renewal carry a heartbeat, and makes it soon.
    func reportSoon() { heartbeat.isUrgent = true }

    /// Returns the heartbeat for the current claim, if one is due.
    private func nextHeartbeat() -> WorkerHeartbeat? {
        guard
            heartbeat.isUrgent || lane.now - heartbeat.sentAt >= Self.heartbeatInterval
                || lane.now >= heartbeat.mustBeAt
        else { return nil }
        heartbeat = Heartbeat(sentAt: lane.now)
        return driver.observer.heartbeat(for: queue)
    }

    /// Continues under another name, because the lease has ended while this process did not run. Other lanes have the claims now, so this
    /// lane can't settle its notifications in flight.
    private func rejoin() {
        queue.logger.warning(
            "the lease was lost; continuing under another name",
            metadata: ["event": "lease_lost", "worker": "\(queue.holder)"])
        queue.rejoin()
        store.use(worker: queue.holder)
        window.recordLostLease()
        lease.recordLoss()
        heartbeat.isUrgent = true
        lane.metrics.lostClaims += outbox.forget() + waiting.forget()
        for request in [QueueLink.Request.settlements, .reservations, .newest, .turns] {
            link.refusals.recordAcceptance(request)
        }
        recovery.reset()
        mayJoin = false
        askForAdmission()
        lane.schedulePump()
    }

    // MARK: The end

    /// Ends blocking waits, which would move a job that this lane no longer wants.
    func stopWaiting() {
        store.stopWaiting()
        reportSoon()
    }

    /// Releases unsettled jobs and ends the lease, unless settlements are unconfirmed.
    ///
    /// The jobs of unconfirmed settlements may have been sent. If they were released, they would be sent again without being counted as
    /// possible duplicates. So another worker has to reclaim them.
    func release() -> EventLoopFuture<Void> {
        outbox.writeCounts()
        guard outbox.isEmpty else {
            queue.logger.warning(
                "Redis has not confirmed all settlements; another worker reclaims the jobs when the lease ends",
                metadata: ["event": "release_skipped", "jobs": "\(outbox.count)"])
            return lane.eventLoop.makeSucceededVoidFuture()
        }
        return link.release()
    }

    // MARK: Problems

    /// The problem that prevents the lane from working on the queue, if any.
    var problem: WorkerReport.Obstacle? {
        if !store.isReady {
            let reason = connectionError.map { ": \($0.headline)" } ?? ""
            return .init(.redisUnavailable, "Redis cannot be reached for the queue \(queue.name)\(reason)")
        }
        if window.isOverdue(now: lane.now) {
            return .init(.redisUnavailable, "Redis does not answer for the queue \(queue.name)")
        }
        // Without a wait the lane only polls more often.
        return QueueLink.Request.allCases.filter { $0 != .waits }.compactMap { link.refusals[$0] }.first
            .map { .init(.redisRefuses, $0) }
    }

    /// The problem that the lane has no lease yet, if so. A lane that can't send does not ask for one.
    var lackOfLease: WorkerReport.Obstacle? {
        window.hasJoined ? nil : .init(.noLease, "the worker has no lease for the queue \(queue.name) yet")
    }
}
