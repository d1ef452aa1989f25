import Logging
import NIOCore
import PushJob
import PushQueue
import Redis

/// An event that a queue's consumer reports to its lane.
enum QueueEvent {
    /// Something has become possible that was not before.
    case changed
    /// A claim has returned this many jobs, which are accepted next. `isDry`: no more jobs wait.
    case claimed(Int, isDry: Bool)
    /// The jobs of a claim were accepted.
    case answered
    /// Invalid tokens were written to their set.
    case markedInvalid
    /// More jobs wait than the lane can claim; other lanes may claim them.
    case backlog
    /// A retry becomes due at a time, and this lane does not poll.
    case due(NIODeadline)
    /// An operator has sent a command to the worker.
    case command(WorkerCommand)
    /// The commands about the queue's jobs have changed.
    case jobCommands
    /// The queue's pause requires the return of unsubmitted jobs.
    case handBack
}

/// A claimed job.
struct ClaimedJob {
    let body: ByteBuffer
    let claim: ClaimID
    /// True if the job may have been sent before under the same claim.
    var isRecovered = false
    /// True if the job's turn within its campaign's rate has come.
    var hasTurn = false
}

/// A step before a job can be accepted.
enum Prerequisite {
    /// It must be the only job with its id.
    case reservation(Reservation)
    /// It needs a turn within its campaign's rate.
    case turn(UnsentJob, campaign: String, JobCommands.Command)
}

/// The interface of a queue's consumer to its lane.
protocol QueueConsumerDelegate: AnyObject {
    func consumer(_ consumer: QueueConsumer, reports event: QueueEvent)
    /// Accepts a claimed job, or ends it.
    /// - Returns: the step that must come first; `nil` if there is none.
    func accept(_ claimed: ClaimedJob, from queue: QueueContext) -> Prerequisite?
    func recordDuplicate(_ reservation: Reservation, in queue: QueueContext)
    func heartbeat(for queue: QueueContext) -> WorkerHeartbeat
    /// The number of notifications that could be in flight in addition.
    var capacity: Int { get }
    /// True while nothing is in flight, nothing waits and no problem persists.
    var isIdle: Bool { get }
}

/// Consumes one queue: claims its jobs, keeps the lease, waits for jobs, and settles ended jobs.
///
/// Each queue has its own lease: in a Cluster each queue may be on another server, and an unreachable one must not hold
/// up the others. Belongs to the lane's event loop.
final class QueueConsumer {
    /// The intervals of heartbeats and renewals.
    enum Interval {
        /// The minimum between heartbeats.
        static let heartbeat = TimeAmount.milliseconds(WorkerReport.interval)
        /// The maximum between renewals by a lane that can't claim, so that commands reach it.
        static let longestRenewal = TimeAmount.milliseconds(WorkerReport.longestInterval)
    }

    /// The kinds of requests that a reachable Redis may refuse.
    enum Request: String, CaseIterable {
        case claims, settlements, reservations, reclaims
        case waits = "waits for jobs"
        case turns = "turns of campaigns"
        /// All queues have the same set.
        case invalidTokens = "invalid tokens"
    }

    let lane: LaneContext
    let queue: QueueContext
    let store: any QueueStore
    let invalidTokens: any InvalidTokenStore
    let ledger: Ledger
    unowned let delegate: any QueueConsumerDelegate
    private(set) var window: ClaimWindow
    private var lease: Lease
    private var heartbeat = Heartbeat()
    let refusals: Refusals<Request>
    /// The error of the last lost connection.
    private var connectionError: RedisError?
    private(set) var hasBacklog = false
    /// The lane's round in which the queue last had its turn.
    private var lastTurn = 0
    var reservations: PendingReservations
    var recovery: Recovery
    var outbox: Outbox

    /// The lane's lease on the queue.
    private struct Lease {
        var continuity = LeaseContinuity()
        var renewedAt = NIODeadline.distantPast
        /// True while Redis holds no claims of the lane, according to its last answer, so there is nothing to recover.
        var holdsNothing = false
        /// True while the lease is the long one of a lane without claims.
        var isIdle = false
        /// True while a blocking wait is in flight.
        var isWaiting = false
        /// The time at which the other lanes were last asked to poll in this lane's place.
        var delegatedAt = NIODeadline.distantPast
        /// The times from which lanes with expired leases may be reclaimed.
        var reclaimAfter: [String: NIODeadline] = [:]
    }

    private struct Heartbeat {
        var sentAt = NIODeadline.distantPast
        /// True if the next heartbeat must not wait for its interval.
        var isUrgent = false
    }

    /// The maximum duration of the blocking wait, in seconds. The kernel detects a lost server sooner.
    private static let waitSeconds = 60
    /// The maximum interval at which a lane with jobs asks for commands about them.
    private static let commandInterval = TimeAmount.milliseconds(500)

    /// - Parameter polls: true for the lane of a worker that polls: see ``ClaimWindow``.
    init(
        _ queue: QueueContext, store: any QueueStore, invalidTokens: any InvalidTokenStore, lane: LaneContext,
        ledger: Ledger, delegate: any QueueConsumerDelegate, polls: Bool
    ) {
        self.queue = queue
        self.store = store
        self.invalidTokens = invalidTokens
        self.lane = lane
        self.ledger = ledger
        self.delegate = delegate
        refusals = Refusals(lane, queue: queue.name, logger: queue.logger) { [name = queue.name] request in
            request == .invalidTokens ? request.rawValue : "\(request.rawValue) of the queue \(name)"
        }
        window = ClaimWindow(polls: polls)
        lease = Lease()
        lease.continuity.longestGap = min(.seconds(10), .milliseconds(Int64(queue.limits.lease) / 2))
        reservations = PendingReservations(ask: SoonTask(lane.eventLoop))
        recovery = Recovery(checkedAt: lane.now)
        outbox = Outbox(flush: SoonTask(lane.eventLoop))
    }

    /// Handles a change of the connection to Redis.
    func redisChanged(_ state: RedisClient.State) {
        if case .disconnected(let error, _) = state { connectionError = error }
        guard case .ready = state else { return }
        recovery.claims = ForgottenClaims()
        checkClaims()
        resendUnconfirmed()
        reservations.turns.isAsking = false
        askForTurns()
        reserveNext()
        window.wake()
        report(.changed)
    }

    func report(_ event: QueueEvent) { delegate.consumer(self, reports: event) }

    // MARK: Claims

    /// Makes the claim that is due now, if any.
    /// - Parameters:
    ///   - free: how many more notifications could be in flight.
    ///   - busy: how many are in flight.
    ///   - turn: the lane's round.
    func claim(free: Int, busy: Int, turn: Int) {
        lastTurn = turn
        guard canClaim, let claim = window.next(free: free, busy: busy, now: lane.now) else { return }
        // Settlements are sent in the same write as the claim.
        flush()
        send(claim)
    }

    /// Repeats an unanswered claim that may have claimed jobs, for a quiet lane.
    func repeatClaim() {
        guard canClaim, window.isInDoubt, let claim = window.next(free: 1, busy: 0, now: lane.now) else { return }
        send(claim)
    }

    /// True if a claim could be made, given capacity for its jobs.
    private var canClaim: Bool { !window.isAsking && store.isReady && !outbox.isFull }

    /// True while the consumer waits for nothing but jobs.
    var isAtRest: Bool {
        store.isReady && !heartbeat.isUrgent && isSettled && recovery.claims.isEmpty && reservations.isEmpty
    }

    /// The time from which it would claim jobs.
    var nextClaim: NIODeadline {
        if window.isAsking { return .distantFuture }
        return lane.isQuiet && !window.isInDoubt ? .distantFuture : window.nextClaim
    }

    /// The number of jobs that are on their way to the lane.
    var expected: Int { window.reserved(now: lane.now) + reservations.count }

    /// Returns the queue's availability for the schedule.
    /// - Parameter turn: the lane's round, in which each queue has at most one turn.
    func availability(turn: Int) -> QueueSchedule.Availability {
        if window.reserved(now: lane.now) > 0 { return .asked }
        return canClaim && lastTurn != turn ? .ready : .unavailable
    }

    private func send(_ claim: ClaimWindow.Claim) {
        lease.renewedAt = lane.now
        if claim.count > 0 { lease.isIdle = false }
        let generation = queue.generation
        let configuration = if case .running = lane.state { queue.configuration } else { ConfigurationDigest?.none }
        store.claim(
            count: claim.count, first: claim.first, join: claim.join, knownCommands: queue.commands.version,
            configuration: configuration, heartbeat: nextHeartbeat()
        ) { [self] result in
            guard generation == queue.generation, !lane.isStopped else { return }
            switch result {
            case .success(let claimed): received(claimed, claim)
            case .failure(let failure): failed(failure)
            }
        }
    }

    private func received(_ claimed: QueueConnection.Claimed, _ claim: ClaimWindow.Claim) {
        queue.setClock(claimed.now)
        lane.metrics.setClock(ofQueue: queue.id.index, ahead: queue.clockOffset)
        refusals.accepted(.claims)
        if let command = claimed.command { report(.command(command)) }
        if let commands = claimed.commands {
            queue.commands = commands
            heartbeat.isUrgent = true
            report(.jobCommands)
        }
        if claimed.leaseLost { return rejoin() }
        lease.continuity.renewed(now: lane.now)
        lease.holdsNothing = claimed.held == 0
        lease.isIdle = lease.holdsNothing && claim.count == 0
        logEvictions(claimed.evicted)
        if claim.join {
            queue.logger.debug("joined the queue", metadata: ["event": "queue_joined", "worker": "\(queue.holder)"])
        }
        let count = claimed.bodies.count
        if count > 0 { queue.otherConfigurations = claimed.otherConfigurations }
        hasBacklog = window.answered(
            received: count, isPaused: claimed.isPaused, nextDue: claimed.nextDue,
            isWatched: store.canWait && refusals[.waits] == nil, now: lane.now)
        if claim.count > 0 { report(.claimed(count, isDry: !hasBacklog)) }
        // If a drain began while the claim was in flight, its jobs are released with the lane's other claims.
        guard lane.isWorking else { return report(.changed) }
        ledger.recordClaimed(count, of: queue)
        for (offset, body) in claimed.bodies.enumerated() {
            accept(ClaimedJob(body: body, claim: ClaimID(number: claim.first + offset, stamp: claimed.stamp)))
        }
        if let expired = claimed.expiredWorker {
            if expired != queue.holder { considerReclaiming(expired) }
        } else {
            refusals.accepted(.reclaims)
        }
        if hasBacklog {
            report(.backlog)
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            wakeWhenDue()
        }
        queue.handsBack = claimed.handsBack
        if queue.handsBack { report(.handBack) }
        report(.answered)
    }

    func accept(_ claimed: ClaimedJob) {
        if let first = delegate.accept(claimed, from: queue) { prepare(claimed, first) }
    }

    private func failed(_ failure: QueueConnection.Failure) {
        if case .redis(let error) = failure, !error.isAnswer {
            window.failed(mayHaveRun: error.mayHaveBeenExecuted, now: lane.now)
            guard let (claim, times) = window.lost else { return }
            lane.logThrottled(
                .warning, "claim_answers_lost",
                "the connection to Redis was lost \(times) times during the answer to the same claim; asking for at most "
                    + "\(claim.count) of its jobs. If the server limits the output buffers of normal clients "
                    + "(client-output-buffer-limit), raise that above the size of the jobs",
                kind: "answers \(queue.name)", logger: queue.logger)
        } else {
            // Read-only, loading, out of memory: the server is reachable and will recover.
            window.refused(now: lane.now, pause: lane.refusalPause)
            refusals.refused(.claims, failure)
        }
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) { window.stoodStill(for: time, now: now) }

    // MARK: Waking

    /// Allows a claim at once.
    func wake() { window.wake() }

    /// Schedules a claim for the time at which a retry becomes due, on this lane or on the worker's polling lane.
    func wake(at time: NIODeadline) {
        guard window.polls else { return report(.due(time)) }
        window.wake(at: time)
        wakeWhenDue()
    }

    /// Lets other workers be the first to claim the retries, because a job was given back to them.
    func giveWay() { window.gaveBack(now: lane.now) }

    /// Schedules the next claim if it is due before the lane's next tick.
    private func wakeWhenDue() {
        let due = window.nextClaim
        guard due - lane.now < .seconds(1) else { return }
        lane.eventLoop.assumeIsolated().scheduleTask(deadline: due) { [self] in report(.changed) }
    }

    /// Wakes the other lanes if a poll is due that this lane can't make because it is full or disconnected.
    func delegatePollIfDue() {
        guard window.cannotPoll(now: lane.now), lane.now - lease.delegatedAt >= ClaimWindow.unwatchedPoll else {
            return
        }
        lease.delegatedAt = lane.now
        report(.backlog)
    }

    /// Makes the server notify this process as soon as there is a job.
    private func waitForJob() {
        guard store.canWait, !lease.isWaiting, case .running = lane.state else { return }
        lease.isWaiting = true
        store.waitForJob(seconds: Self.waitSeconds) { [self] result in
            lease.isWaiting = false
            switch result {
            case .success(let hasCome):
                refusals.accepted(.waits)
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
                refusals.refused(.waits, failure)
                window.wake(at: lane.now + ClaimWindow.unwatchedPoll)
            }
            report(.changed)
        }
    }

    // MARK: The lease

    /// Renews the lease without a claim, unless something else has renewed it.
    func renewLeaseIfDue() {
        var interval = TimeAmount.milliseconds(Int64(queue.limits.lease) / 3)
        if window.polls {
            // At least one lane of the worker receives operators' commands promptly.
            interval = min(interval, lane.isQuiet ? Interval.heartbeat : Interval.longestRenewal)
        } else if lease.isIdle, delegate.isIdle {
            // The heartbeat of a lane with a problem must not be that old.
            interval = .milliseconds(Int64(queue.limits.idleLease) / 3)
        }
        // Unsent notifications can still be cancelled.
        if lane.jobs.count > 0 { interval = min(interval, Self.commandInterval) }
        guard heartbeat.isUrgent || lane.now - lease.renewedAt > interval else { return }
        lease.renewedAt = lane.now
        guard store.isReady, let claim = window.renewal(now: lane.now) else { return }
        send(claim)
    }

    /// The time of the last renewal; `nil` before the first, and while there are no claims that a lease protects.
    var leaseRenewedAt: NIODeadline? { window.hasJoined && !lease.isIdle ? queue.answeredAt : nil }

    /// Makes the next claim or renewal soon, with a heartbeat.
    func reportSoon() { heartbeat.isUrgent = true }

    /// Returns the heartbeat to send with the current claim, if one is due.
    private func nextHeartbeat() -> WorkerHeartbeat? {
        guard heartbeat.isUrgent || lane.now - heartbeat.sentAt >= Interval.heartbeat else { return nil }
        heartbeat = Heartbeat(sentAt: lane.now)
        return delegate.heartbeat(for: queue)
    }

    /// Continues under another name, because the lease ended while this process did not run. Other lanes have the
    /// claims now, and this lane can no longer settle what is in flight.
    private func rejoin() {
        queue.logger.warning(
            "the lease was lost; continuing under another name",
            metadata: ["event": "lease_lost", "worker": "\(queue.holder)"])
        queue.rejoin()
        store.use(worker: queue.holder)
        window.reset()
        (lease.holdsNothing, lease.isIdle) = (false, false)
        lease.continuity.lost()
        heartbeat.isUrgent = true
        ledger.recordLostClaims(outbox.forget() + reservations.forget())
        for request in [Request.settlements, .reservations, .turns] { refusals.accepted(request) }
        recovery.claims = ForgottenClaims()
        report(.changed)
    }

    /// True while Redis may hold claims of the lane.
    var mayHoldClaims: Bool { !lease.holdsNothing }

    /// Records that the lane handles a claim that Redis listed.
    func adopted(_ number: Int) { window.adopted(number) }

    // MARK: The end

    /// Ends blocking waits: one in flight would move a job that this lane no longer wants.
    func stopWaiting() {
        store.stopWaiting()
        reportSoon()
    }

    /// Releases unsettled jobs and ends the lease, unless settlements are unconfirmed.
    ///
    /// The jobs of unconfirmed settlements may have been sent. Another worker reclaims them and counts them as possible
    /// duplicates; released, they would be sent again without being counted.
    func release() -> EventLoopFuture<Void> {
        writeCounts()
        let done = lane.eventLoop.makePromise(of: Void.self)
        guard isSettled else {
            queue.logger.warning(
                "Redis has not confirmed all settlements; another worker reclaims the jobs when the lease ends",
                metadata: ["event": "release_skipped", "jobs": "\(outbox.count)"])
            done.succeed(())
            return done.futureResult
        }
        release(given: 0, done)
        return done.futureResult
    }

    private func release(given: Int, _ done: EventLoopPromise<Void>) {
        store.release(of: queue.configuration, endOf: lane.configuration.workerName) { [self] result in
            switch result {
            case .success(let released) where released.left > 0: return release(given: given + released.released, done)
            case .success(let released):
                let jobs = given + released.released
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

    // MARK: Lanes whose lease has expired

    /// Reclaims after a random delay, so that one lane of the fleet does it and not all at once, and only if this
    /// lane's own lease shows that there was no outage (see ``LeaseContinuity``).
    private func considerReclaiming(_ expired: String) {
        guard lease.continuity.isSteady(now: lane.now) else { return }
        guard let after = lease.reclaimAfter[expired] else {
            if lease.reclaimAfter.count > 100 { lease.reclaimAfter.removeAll() }
            lease.reclaimAfter[expired] = lane.now + .milliseconds(lane.random(in: 0...1000))
            return
        }
        guard lane.now >= after else { return }
        lease.reclaimAfter[expired] = nil
        reclaim(expired)
    }

    private func reclaim(_ expired: String) {
        store.reclaim(expired) { [self] result in
            switch result {
            case .success(let counts?):
                logEvictions(counts.evicted)
                ledger.recordReclaimed(counts.reclaimed, poisoned: counts.poisoned, of: queue)
                queue.logger.warning(
                    "reclaimed the jobs of a lane whose lease had expired",
                    metadata: [
                        "event": "jobs_reclaimed", "worker": "\(expired)", "jobs": "\(counts.reclaimed)",
                        "poisoned": "\(counts.poisoned)",
                    ])
                window.wake()
                if counts.left > 0, lane.isWorking { reclaim(expired) }
                report(.changed)
            case .success(nil): break
            case .failure(let failure): refusals.refused(.reclaims, failure)
            }
        }
    }

    /// Logs evictions of dead letters, whose jobs are lost permanently.
    func logEvictions(_ count: Int) {
        guard count > 0 else { return }
        lane.logThrottled(
            .error, "dead_letters_evicted", "evicted dead letters: too many, too large in total, or too old",
            kind: "evicted \(queue.name)", count: count, logger: queue.logger)
    }

    // MARK: Problems

    /// The problem that prevents the lane from working on the queue, if any.
    var problem: String? {
        if !store.isReady {
            let reason = connectionError.map { ": \($0.headline)" } ?? ""
            return "Redis cannot be reached for the queue \(queue.name)\(reason)"
        }
        if window.isOverdue(now: lane.now) { return "Redis does not answer for the queue \(queue.name)" }
        // Without a wait the lane only polls more often.
        for request in Request.allCases where request != .waits {
            if let refusal = refusals[request] { return refusal }
        }
        return nil
    }

    /// The lack of a lease, if it has none yet: a lane that can't send does not ask for one.
    var lackOfLease: String? { window.hasJoined ? nil : "the worker has no lease for the queue \(queue.name) yet" }
}
