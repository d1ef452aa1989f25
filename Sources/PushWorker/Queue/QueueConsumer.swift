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
    let ledger: Ledger
    let link: QueueLink
    private let lane: LaneContext
    private let intake: Intake
    private var lease: Lease
    private var heartbeat = Heartbeat()
    private let waiting: WaitingJobs
    private var forgotten = ForgottenClaims()
    /// True while jobs of forgotten claims are being read.
    private var isReadingForgotten = false
    /// The time of the last listing of the lane's claims.
    private var listedAt: NIODeadline
    /// The answer to the last claim, until the lane takes it.
    private var answer: Answer?
    private var connectionError: RedisError?
    private(set) var hasBacklog = false
    private var isWaiting = false
    /// The time of the last request to other lanes to poll instead of this lane.
    private var delegatedAt = NIODeadline.distantPast
    /// The number of the last round of claims in which the queue had its turn.
    private var lastTurn = 0
    /// True if the lane may ask for a lease.
    private var mayJoin = false

    /// The number of jobs that a claim returned. `isDry`: true if no more jobs wait.
    typealias Answer = (received: Int, isDry: Bool)

    private struct Heartbeat {
        var sentAt = NIODeadline.distantPast
        /// True if the next heartbeat must not wait for its interval.
        var isUrgent = false
        /// The latest time of the next heartbeat, because another lane's claims may be reclaimed then.
        var mustBeAt = NIODeadline.distantFuture
    }

    /// The maximum duration of the blocking wait, in seconds. The kernel detects a lost server sooner.
    private static let waitSeconds = 60
    /// The minimum interval between heartbeats.
    private static let heartbeatInterval = TimeAmount.milliseconds(WorkerReport.interval)

    init(_ ledger: Ledger, _ intake: Intake) {
        (self.ledger, link, lane, self.intake) = (ledger, ledger.link, ledger.link.lane, intake)
        lease = Lease(link.queue.limits)
        waiting = WaitingJobs(ledger, intake)
        listedAt = lane.now
    }

    var queue: QueueContext { link.queue }
    var store: any QueueStore { link.store }

    func redisChanged(_ state: RedisClient.State) {
        if case .disconnected(let error, _) = state { connectionError = error }
        guard case .ready = state else { return }
        forgotten = ForgottenClaims()
        listClaims()
        ledger.writeUnconfirmed()
        waiting.ask()
        link.window.wake()
        askForAdmission()
        lane.schedulePump()
    }

    /// Continues with the work that needs another server than the queue's.
    func otherRedisReady() {
        ledger.writeInvalidTokens()
        waiting.ask()
    }

    // MARK: Claims

    /// Makes a claim if one is due.
    /// - Parameters:
    ///   - free: the number of further notifications that could be in flight.
    ///   - busy: the number of notifications in flight.
    ///   - turn: the lane's round.
    ///   - report: makes the lane's heartbeat, if one is due.
    func claim(free: Int, busy: Int, turn: Int, report: @autoclosure () -> WorkerHeartbeat) {
        lastTurn = turn
        guard canClaim, let claim = link.window.next(free: free, busy: busy, now: lane.now) else { return }
        // Settlements are sent in the same write as the claim.
        ledger.flush()
        send(claim, report())
    }

    /// Repeats an unanswered claim that may have claimed jobs. For a quiet lane, which makes no other claims.
    func repeatClaim(report: @autoclosure () -> WorkerHeartbeat) {
        guard canClaim, link.window.isInDoubt, let claim = link.window.next(free: 1, busy: 0, now: lane.now) else {
            return
        }
        send(claim, report())
    }

    /// Returns the answer to the last claim once.
    func takeAnswer() -> Answer? {
        defer { answer = nil }
        return answer
    }

    /// True if a claim could be made, given capacity for its jobs.
    private var canClaim: Bool { !link.window.isAsking && store.isReady && !ledger.isFull && isAdmitted }

    /// True if the lane has a lease, or may ask for one.
    private var isAdmitted: Bool { link.window.hasJoined || mayJoin }

    /// Finds out if the lane may ask for a lease. While an operator changes the number of shards of the invalid tokens, no lane may ask,
    /// because it could not look up tokens. If the number can't be read, the lane may ask, because lanes work without the shared state too.
    private func askForAdmission() {
        guard !isAdmitted, store.isReady else { return }
        link.fleet.store.invalidTokens.countIfUndivided { [self] result in
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
        store.isReady && !heartbeat.isUrgent && ledger.isEmpty && forgotten.isEmpty && waiting.isEmpty
    }

    /// The earliest time of the next claim.
    var nextClaim: NIODeadline {
        if link.window.isAsking { return .distantFuture }
        return lane.isQuiet && !link.window.isInDoubt ? .distantFuture : link.window.nextClaim
    }

    /// The number of jobs that are on their way to the lane.
    var expected: Int { link.window.reserved(now: lane.now) + waiting.count }

    /// Returns the queue's availability for the schedule.
    /// - Parameter turn: the lane's round. Each queue has at most one turn in it.
    func availability(turn: Int) -> QueueSchedule.Availability {
        if link.window.reserved(now: lane.now) > 0 { return .asked }
        return canClaim && lastTurn != turn ? .ready : .unavailable
    }

    private func send(_ claim: ClaimWindow.Claim, _ report: @autoclosure () -> WorkerHeartbeat) {
        mayJoin = false
        lease.recordRequest(count: claim.count, now: lane.now)
        let generation = queue.generation
        let configuration = if case .running = lane.state { queue.configuration } else { ConfigurationDigest?.none }
        let request = ClaimRequest(
            count: claim.count, first: claim.first, join: claim.join, knownCommands: queue.commands.version,
            configuration: configuration, sort: lane.now < queue.sortsUntil, heartbeat: isHeartbeatDue ? report() : nil)
        if request.heartbeat != nil { heartbeat = Heartbeat(sentAt: lane.now) }
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
        if let command = claimed.command { lane.callbacks.command(command) }
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
        hasBacklog = link.window.recordAnswer(
            received: count, isPaused: claimed.isPaused, nextDue: claimed.nextDue,
            isWatched: store.canWait && link.refusals[.waits] == nil, now: lane.now)
        if claim.count > 0 { answer = (count, !hasBacklog) }
        // The fleet's state is read before the jobs are accepted, so that they follow it. A lane without work does not need the state.
        if count > 0, lane.isWorking { intake.readFleetState() }
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
            lane.callbacks.backlog(queue.id)
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            link.wakeWhenDue()
        }
        queue.handsBack = claimed.handsBack
        if queue.handsBack { for sender in intake.senders { sender.handBack(jobsOf: queue) } }
        lane.pump()
    }

    private func failed(_ failure: QueueFailure) {
        if case .redis(let error) = failure, !error.isAnswer {
            link.window.recordFailure(mayHaveRun: error.mayHaveBeenExecuted, now: lane.now)
            guard let (claim, times) = link.window.lost else { return }
            lane.logThrottled(
                .warning, "claim_answers_lost",
                "the connection to Redis was lost \(times) times during the answer to the same claim; asking for at most "
                    + "\(claim.count) of its jobs. If the server limits the output buffers of normal clients "
                    + "(client-output-buffer-limit), raise that above the size of the jobs",
                kind: "answers \(queue.name)", logger: queue.logger)
        } else {
            // The server is read-only, loading or out of memory. It is reachable and will recover.
            link.window.recordRefusal(now: lane.now, pause: lane.refusalPause)
            link.refusals.recordRefusal(.claims, failure)
            // Only a claim with a heartbeat finds out if all keys have the right types again.
            heartbeat.isUrgent = true
        }
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) { link.window.recordStandstill(of: time, now: now) }

    func accept(_ claimed: ClaimedJob) {
        if let first = intake.accept(claimed, from: queue) { waiting.append(first) }
    }

    private func considerReclaiming(_ expired: String) {
        guard expired != queue.holder else { return }
        guard lease.recordExpired(expired, delay: .milliseconds(lane.random(in: 0...1000)), now: lane.now) else {
            guard let time = lease.reclaimTime(of: expired) else { return }
            heartbeat.mustBeAt = time
            return link.wake(at: time)
        }
        reclaim(expired)
    }

    // MARK: Forgotten claims

    /// Lists the lane's claims if forgotten ones (see ``ForgottenClaims``) would not be noticed otherwise. Called at intervals.
    func listClaimsIfDue() {
        guard !lease.holdsNothing, store.isReady, forgotten.isEmpty, !isReadingForgotten,
            lane.now - listedAt > .milliseconds(Int64(queue.limits.lease) / 3)
        else { return }
        listClaims()
    }

    /// Lists the lane's claims. Redis answers in the order of requests. So a claim whose settlement was sent before the listing is not
    /// mistaken for a forgotten claim.
    private func listClaims() {
        guard link.window.hasJoined else { return }
        listedAt = lane.now
        store.claims { [self, generation = queue.generation] result in
            // Without an answer the connection was lost. The listing is repeated when it is restored.
            guard generation == queue.generation, lane.isWorking, case .success(let listed) = result else { return }
            forgotten = ForgottenClaims(listed: listed, window: link.window, forEachKnown: forEachClaim)
            guard !forgotten.isEmpty else { return }
            link.window.recordAdopted(forgotten.largestNumber)
            queue.logger.warning(
                "Redis has lost settlements that it had confirmed; processing their jobs again",
                metadata: ["event": "settlements_lost", "jobs": "\(forgotten.count)"])
            lane.schedulePump()
        }
    }

    /// Reads as many jobs of forgotten claims as the lane has capacity for.
    /// - Parameter capacity: the number of further notifications that the lane could accept.
    func readForgotten(capacity: @autoclosure () -> Int) {
        guard !forgotten.isEmpty, !isReadingForgotten, link.canAsk else { return }
        let batch = forgotten.next(capacity: capacity())
        guard !batch.isEmpty else { return }
        isReadingForgotten = true
        store.bodies(of: batch) { [self, generation = queue.generation] result in
            isReadingForgotten = false
            guard generation == queue.generation, lane.isWorking, case .success(let bodies) = result else { return }
            forgotten.recordRead(batch.count, bytes: bodies.reduce(0) { $0 + ($1?.readableBytes ?? 0) })
            for (claim, body) in zip(batch, bodies) {
                if let body { accept(ClaimedJob(body: body, claim: claim, isRecovered: true)) }
            }
            lane.schedulePump()
        }
    }

    /// Calls the function with each claim that the lane works on, or has settled without a confirmation.
    private func forEachClaim(_ body: (ClaimID) -> Void) {
        ledger.forEachClaim(body)
        waiting.forEachClaim(body)
        // Empty entries have no claim.
        lane.jobs.forEach { job in
            if job.claim.number > 0, job.queue == queue.id, job.generation == queue.generation { body(job.claim) }
        }
    }

    // MARK: Waiting

    /// Wakes the other lanes if a poll is due that this lane can't make because it is full or disconnected.
    func delegatePollIfDue() {
        guard link.window.cannotPoll(now: lane.now), lane.now - delegatedAt >= ClaimWindow.unwatchedPoll else {
            return
        }
        delegatedAt = lane.now
        lane.callbacks.backlog(queue.id)
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
                    link.window.wake()
                } else if link.window.nextClaim > lane.now {
                    // The next poll is a claim, which costs more than another wait.
                    waitForJob()
                }
            case .failure(.redis(.server(let error))) where error.prefix == "UNBLOCKED":
                link.window.wake()  // The server became a replica; the next answer will report it.
            case .failure(let failure):
                // Without a wait the list is polled more often.
                link.refusals.recordRefusal(.waits, failure)
                link.window.wake(at: lane.now + ClaimWindow.unwatchedPoll)
            }
            lane.schedulePump()
        }
    }

    // MARK: The lease

    /// Renews the lease without a claim, if that is due.
    /// - Parameters:
    ///   - isAtRest: true if the lane has neither jobs nor problems.
    ///   - report: makes the lane's heartbeat, if one is due.
    func renewLeaseIfDue(isAtRest: @autoclosure () -> Bool, report: @autoclosure () -> WorkerHeartbeat) {
        askForAdmission()
        let isDue = lease.isDue(
            polls: link.window.polls, isQuiet: lane.isQuiet, hasJobs: lane.jobs.count > 0, isAtRest: isAtRest(),
            now: lane.now)
        guard heartbeat.isUrgent || isDue, store.isReady, isAdmitted, let claim = link.window.renewal(now: lane.now)
        else {
            return
        }
        send(claim, report())
    }

    /// The time of the last renewal; `nil` before the first one, and without claims that a lease protects.
    var leaseRenewedAt: NIODeadline? { link.window.hasJoined && !lease.isIdle ? queue.answeredAt : nil }

    /// Makes the next claim or renewal carry a heartbeat, and makes it soon.
    func reportSoon() { heartbeat.isUrgent = true }

    private var isHeartbeatDue: Bool {
        heartbeat.isUrgent || lane.now - heartbeat.sentAt >= Self.heartbeatInterval || lane.now >= heartbeat.mustBeAt
    }

    /// Returns the claims of a lane with an expired lease to the queue.
    private func reclaim(_ expired: String) {
        store.reclaim(expired) { [self] result in
            switch result {
            case .success(let counts?):
                link.logEvictions(counts.evicted)
                lane.metrics[claimsOf: queue.id.index].reclaimed += counts.reclaimed
                lane.metrics[claimsOf: queue.id.index].poisoned += counts.poisoned
                queue.logger.warning(
                    "reclaimed the jobs of a lane whose lease had expired",
                    metadata: [
                        "event": "jobs_reclaimed", "worker": "\(expired)", "jobs": "\(counts.reclaimed)",
                        "poisoned": "\(counts.poisoned)",
                    ])
                if counts.left > 0, lane.isWorking { reclaim(expired) }
                link.window.wake()
                lane.schedulePump()
            case .success(nil): break
            case .failure(let failure): link.refusals.recordRefusal(.reclaims, failure)
            }
        }
    }

    /// Continues under another name, because the lease has ended while this process did not run. Other lanes have the claims now, so this
    /// lane can't settle its notifications in flight.
    private func rejoin() {
        queue.logger.warning(
            "the lease was lost; continuing under another name",
            metadata: ["event": "lease_lost", "worker": "\(queue.holder)"])
        queue.rejoin()
        store.use(worker: queue.holder)
        link.window.recordLostLease()
        lease.recordLoss()
        heartbeat.isUrgent = true
        lane.metrics.lostClaims += ledger.forget() + waiting.forget()
        for request in [QueueLink.Request.settlements, .reservations, .newest, .turns] {
            link.refusals.recordAcceptance(request)
        }
        forgotten = ForgottenClaims()
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
        ledger.writeCounts()
        guard ledger.isEmpty else {
            queue.logger.warning(
                "Redis has not confirmed all settlements; another worker reclaims the jobs when the lease ends",
                metadata: ["event": "release_skipped", "jobs": "\(ledger.count)"])
            return lane.eventLoop.makeSucceededVoidFuture()
        }
        let done = lane.eventLoop.makePromise(of: Void.self)
        release(after: 0, done)
        return done.futureResult
    }

    /// Releases all claims, and ends the lease.
    /// - Parameter released: the number of jobs that were released before.
    private func release(after released: Int, _ done: EventLoopPromise<Void>) {
        store.release(of: queue.configuration, endOf: lane.configuration.workerName) { [self] result in
            switch result {
            case .success(let answer) where answer.left > 0: return release(after: released + answer.released, done)
            case .success(let answer):
                let jobs = released + answer.released
                if jobs > 0 {
                    queue.logger.info(
                        "released unsent jobs", metadata: ["event": "jobs_released", "jobs": "\(jobs)"])
                }
            case .failure(let failure):
                queue.logger.warning(
                    "could not release unsent jobs; another worker reclaims them when the lease ends: \(failure)",
                    metadata: ["event": "release_failed"])
            }
            done.succeed(())
        }
    }

    // MARK: Problems

    /// The problem that prevents the lane from working on the queue, if any.
    var problem: WorkerReport.Obstacle? {
        if !store.isReady {
            let reason = connectionError.map { ": \($0.headline)" } ?? ""
            return .init(.redisUnavailable, "Redis cannot be reached for the queue \(queue.name)\(reason)")
        }
        if link.window.isOverdue(now: lane.now) {
            return .init(.redisUnavailable, "Redis does not answer for the queue \(queue.name)")
        }
        // Without a wait the lane only polls more often.
        return QueueLink.Request.allCases.filter { $0 != .waits }.compactMap { link.refusals[$0] }.first
            .map { .init(.redisRefuses, $0) }
    }

    /// The problem that the lane has no lease yet, if any. A lane that can't send does not ask for a lease.
    var lackOfLease: WorkerReport.Obstacle? {
        link.window.hasJoined ? nil : .init(.noLease, "the worker has no lease for the queue \(queue.name) yet")
    }
}
