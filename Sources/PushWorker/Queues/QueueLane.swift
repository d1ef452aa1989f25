import Logging
import NIOCore
import PushJob
import PushQueue
import Redis

/// One of a lane's queues: claims, the lease, the blocking wait, and settlement.
///
/// Belongs to its lane, and to the lane's event loop. Each queue has a lease of its own, for in a Cluster each can be with
/// another server, and one that cannot be reached must not hold up the others.
///
/// `@unchecked Sendable`: as with ``Lane``, state is touched on the event loop only; nothing else calls it.
final class QueueLane: @unchecked Sendable {
    unowned let lane: Lane
    /// Its place among the lane's queues.
    let index: Int
    let keys: QueueKeys
    /// How the queue's jobs are written.
    let format: JobFormat
    let isSidekiq: Bool
    let limits: QueueLimits
    let client: RedisClient
    /// For the blocking wait; only one lane of a process has one.
    let waiter: RedisClient?
    let logger: Logger

    var connection: QueueConnection
    var window: ClaimWindow
    private var continuity = LeaseContinuity()
    /// Redis' clock: what it said, and when.
    private var clock: (at: NIODeadline, milliseconds: Int64) = (.distantPast, 0)
    /// The name under which jobs are claimed changes when a lease is lost, and this with it.
    private(set) var generation = 0
    private(set) var hasBacklog = false
    /// What Redis refuses, and why, as long as it does.
    var refusals: [Request: String] = [:]
    /// Why there was no connection when there last was none.
    private(set) var connectionError: RedisError?
    /// In which of the lane's rounds the queue last had its turn.
    var lastTurn = 0

    /// The settlements to write next.
    var settlement = Settlement()
    var unconfirmed = UnconfirmedSettlements()
    var isSettleScheduled = false
    /// When the first of the retries in ``settlement`` is due.
    var nextRetry = NIODeadline.distantFuture
    /// Invalid tokens that are to be written before their jobs are settled.
    var awaitingInvalidTokens = 0

    /// Jobs that wait for their reservation, in the order of their claims.
    var awaitingReservation: [(reservation: Reservation, isRecovered: Bool)] = []
    var isReserving = false
    var forgotten = ForgottenClaims()
    /// True while some of them are being read.
    var isTakingForgotten = false
    var lastLook = NIODeadline.now()

    private var isWaiting = false
    /// When the other lanes were last asked to poll in this lane's place.
    private var delegatedAt = NIODeadline.distantPast
    private var reclaimAfter: [String: NIODeadline] = [:]
    private var lastRenewal = NIODeadline.distantPast
    /// True while Redis has no claims of the lane, by its last answer: there is nothing to recover then.
    private(set) var holdsNothing = false
    /// True while the lease is the long one of a lane without claims.
    private var hasIdleLease = false
    /// When it last told of itself, and whether it has something to tell at once.
    private var toldAt = NIODeadline.distantPast
    private var isNewsUrgent = false

    /// The maximum duration of the blocking wait, in seconds. The kernel notices a lost server sooner.
    private static let waitSeconds = 60
    /// Settlements that Redis has not confirmed: beyond this the lane claims no more of the queue.
    private static let maximumUnconfirmed = 10_000
    /// The same in bytes, for settlements of jobs with many tokens, all of which are to be tried again, are large.
    private static let maximumUnconfirmedSize = 64 << 20

    init(_ queue: QueueConfiguration, index: Int, lane: Lane, client: RedisClient, waiter: RedisClient?) {
        keys = queue.keys
        format = queue.format
        isSidekiq = queue.format != .native
        limits = queue.limits
        self.index = index
        self.lane = lane
        self.client = client
        self.waiter = waiter
        window = ClaimWindow(polls: lane.polls)
        continuity.longestGap = min(.seconds(10), .milliseconds(Int64(queue.limits.lease) / 2))
        var logger = lane.logger
        if lane.configuration.queues.count > 1 { logger[metadataKey: "queue"] = "\(keys.queue)" }
        self.logger = logger
        connection = QueueConnection(
            client: client, keys: keys, worker: Self.name(in: lane, generation: 0),
            limits: limits)
    }

    var eventLoop: any EventLoop { lane.eventLoop }

    /// The name under which jobs are claimed.
    var worker: String { connection.worker }

    /// The name under which jobs are, or were, claimed: a new one after each loss of the lease.
    func name(_ generation: Int) -> String {
        generation == self.generation ? worker : Self.name(in: lane, generation: generation)
    }

    private static func name(in lane: Lane, generation: Int) -> String {
        "\(lane.configuration.workerName).\(lane.index)" + (generation > 0 ? ".\(generation)" : "")
    }

    /// Redis' time in milliseconds since 1970.
    var now: Int64 { clock.milliseconds + (eventLoop.now - clock.at).nanoseconds / 1_000_000 }

    /// When Redis last answered a claim, and so renewed the lease; `nil` before it ever has, and while there are no claims
    /// that a lease protects.
    var leaseRenewedAt: NIODeadline? { window.hasJoined && !hasIdleLease ? clock.at : nil }

    private func setClock(_ milliseconds: Int64) {
        clock = (eventLoop.now, milliseconds)
        lane.metrics.setClock(
            ofQueue: index, ahead: milliseconds - Int64(clock.at.uptimeNanoseconds / 1_000_000))
    }

    /// Whether Redis has said what time it is.
    var knowsTime: Bool { clock.at > .distantPast }

    /// True when Redis has confirmed all settlements.
    var isSettled: Bool { settlement.isEmpty && unconfirmed.isEmpty && awaitingInvalidTokens == 0 }

    func redisChanged(_ state: RedisClient.State) {
        if case .disconnected(let error, _) = state { connectionError = error }
        guard case .ready = state else { return }
        forgotten = ForgottenClaims()
        lookForForgotten()
        resendUnconfirmed()
        makeReservations()
        window.wake()
        lane.schedulePump()
    }

    // MARK: Claims

    /// Makes the claim that is to be made now, if any.
    /// - Parameters:
    ///   - free: how many more notifications could be under way.
    ///   - busy: how many are.
    func claim(free: Int, busy: Int) {
        guard canClaim, let claim = window.next(free: free, busy: busy, now: eventLoop.now) else { return }
        // What is settled leaves in the same write as the claim.
        flushSettlement()
        send(claim)
    }

    /// Repeats a claim without an answer, which may have taken jobs: for a lane that is quiet.
    func claimOwn() {
        guard canClaim, window.isInDoubt, let claim = window.next(free: 1, busy: 0, now: eventLoop.now) else { return }
        send(claim)
    }

    /// Whether a claim could be made if there were room for its jobs.
    private var canClaim: Bool {
        !window.isAsking && client.isReady
            && unconfirmed.count + settlement.count + awaitingInvalidTokens < Self.maximumUnconfirmed
            && unconfirmed.size + settlement.size < Self.maximumUnconfirmedSize
    }

    /// Whether it waits for nothing but jobs.
    var isAtRest: Bool {
        client.isReady && !isNewsUrgent && isSettled && forgotten.isEmpty && awaitingReservation.isEmpty
    }

    /// When it wants to ask for jobs.
    var nextClaim: NIODeadline {
        if window.isAsking { return .distantFuture }
        return lane.isQuiet && !window.isInDoubt ? .distantFuture : window.nextClaim
    }

    /// Whether it can be asked for jobs.
    /// - Parameter turn: the lane's round, in which each queue has one turn at the most.
    func availability(turn: Int, now: NIODeadline) -> QueueSchedule.Availability {
        if window.reserved(now: now) > 0 { return .asked }
        return canClaim && lastTurn != turn ? .ready : .unavailable
    }

    func renewLeaseIfDue() {
        var interval = TimeAmount.milliseconds(Int64(limits.lease) / 3)
        // One lane of the process hears of an operator's orders soon.
        if window.polls {
            interval = min(interval, lane.isQuiet ? Lane.newsInterval : Lane.longestRenewal)
        } else if hasIdleLease, lane.isIdle {
            // The heartbeat of a lane with a problem must not be that old.
            interval = .milliseconds(Int64(limits.idleLease) / 3)
        }
        guard isNewsUrgent || eventLoop.now - lastRenewal > interval else { return }
        lastRenewal = eventLoop.now
        guard client.isReady, let claim = window.renewal(now: eventLoop.now) else { return }
        send(claim)
    }

    /// Has something to tell before long, such as that the lane is quiet now.
    func tellSoon() { isNewsUrgent = true }

    /// What to tell with the claim that is made now, if it is time for it.
    private func news() -> WorkerNews? {
        let now = eventLoop.now
        guard isNewsUrgent || now - toldAt >= Lane.newsInterval else { return nil }
        toldAt = now
        isNewsUrgent = false
        return lane.news(on: keys)
    }

    private func send(_ claim: ClaimWindow.Claim) {
        lastRenewal = eventLoop.now
        if claim.count > 0 { hasIdleLease = false }
        let generation = generation
        connection.claim(count: claim.count, first: claim.first, join: claim.join, telling: news()) { [self] result in
            guard generation == self.generation, lane.phase != .stopped else { return }
            switch result {
            case .success(let claimed): answered(claim, claimed)
            case .failure(let failure): failed(failure)
            }
        }
    }

    private func answered(_ claim: ClaimWindow.Claim, _ claimed: QueueConnection.Claimed) {
        setClock(claimed.now)
        accepted(.claims)
        if let order = claimed.order { lane.heard(order) }
        if claimed.leaseLost { return startAfresh() }
        continuity.renewed(now: eventLoop.now)
        holdsNothing = claimed.held == 0
        hasIdleLease = holdsNothing && claim.count == 0
        tellOfEvictions(claimed.evicted)
        if claim.join { logger.debug("joined the queue", metadata: ["worker": "\(worker)"]) }
        hasBacklog = window.answered(
            received: claimed.bodies.count, isPaused: claimed.isPaused, nextDue: claimed.nextDue,
            isWatched: waiter?.isReady == true && refusals[.waits] == nil, now: eventLoop.now)
        if claim.count > 0 { lane.schedule.answered(index, received: claimed.bodies.count, isDry: !hasBacklog) }
        // A drain began while the claim was under way: what it brought is given back with the worker's other claims.
        guard lane.phase == .running else { return lane.schedulePump() }
        lane.counters.claimedJobs += claimed.bodies.count
        lane.metrics[claimsOf: index].claimed += claimed.bodies.count
        // A lane that has nothing to do need not know what the others do.
        if !claimed.bodies.isEmpty { lane.readFleetStateIfDue() }
        for (offset, body) in claimed.bodies.enumerated() {
            lane.accept(body, claim: ClaimID(number: claim.first + offset, stamp: claimed.stamp), from: self)
        }
        if let expired = claimed.expiredWorker, expired != worker { considerReclaiming(expired) }
        if hasBacklog {
            lane.onBacklog?(index)
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            wakeWhenDue()
        }
        lane.pump()
    }

    /// Sees to it that the next claim is made in time, if that is before the lane's next tick.
    private func wakeWhenDue() {
        let due = window.nextClaim
        guard due - eventLoop.now < .seconds(1) else { return }
        eventLoop.scheduleTask(deadline: due) { [self] in lane.schedulePump() }
    }

    /// Wakes the other lanes when a poll is due that this one can't make, because it is full or has no connection.
    func delegatePollIfDue() {
        let now = eventLoop.now
        guard window.cannotPoll(now: now), now - delegatedAt >= ClaimWindow.unwatchedPoll else { return }
        delegatedAt = now
        lane.onBacklog?(index)
    }

    /// A retry becomes due: a claim is made then, here or by the lane of the process that polls.
    func wake(at time: NIODeadline) {
        guard window.polls else { return lane.onDue?(index, time) ?? () }
        window.wake(at: time)
        wakeWhenDue()
    }

    private func failed(_ failure: QueueConnection.Failure) {
        if case .redis(let error) = failure, !error.isAnswer {
            window.failed(mayHaveRun: error.mayHaveBeenExecuted, now: eventLoop.now)
        } else {
            // Read-only, loading, out of memory: the server is there, and will come round.
            window.refused(now: eventLoop.now, pause: Self.refusalPause)
            refused(.claims, failure)
        }
    }

    /// Logs evictions of dead letters, whose jobs are lost for good.
    func tellOfEvictions(_ count: Int) {
        guard count > 0 else { return }
        lane.incident(
            "evicted dead letters: too many, too large in total, or too old", key: "evicted \(index)",
            count: count, logger)
    }

    /// The lease ended while this process was not looking (it was stopped, or the machine was). Others have the claims
    /// now; what is still under way is no longer this worker's to settle.
    private func startAfresh() {
        logger.warning(
            "the lease was lost; going on under another name",
            metadata: ["worker": "\(worker)", "in_flight": "\(lane.flights.count)"])
        generation += 1
        window.startAfresh()
        (holdsNothing, hasIdleLease) = (false, false)
        continuity.lost()
        isNewsUrgent = true
        lane.counters.lostClaims += settlement.count + unconfirmed.count
        settlement = Settlement()
        unconfirmed = UnconfirmedSettlements()
        accepted(.settlements)
        accepted(.reservations)
        forgotten = ForgottenClaims()
        lane.counters.lostClaims += awaitingReservation.count
        awaitingReservation = []
        connection = QueueConnection(
            client: client, keys: keys, worker: name(generation), limits: limits)
        lane.schedulePump()
    }

    /// Gives back what has not been settled, and ends the lease.
    func release() -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        release(given: 0, done)
        return done.futureResult
    }

    private func release(given: Int, _ done: EventLoopPromise<Void>) {
        connection.release(endOf: lane.configuration.workerName) { [self] result in
            switch result {
            case .success(let released) where released.left > 0: return release(given: given + released.released, done)
            case .success(let released):
                let jobs = given + released.released
                if jobs > 0 { logger.info("gave unsent jobs back", metadata: ["jobs": "\(jobs)"]) }
            case .failure(let error):
                logger.warning(
                    "could not give unsent jobs back; another worker takes them when the lease ends: \(error)")
            }
            done.succeed(())
        }
    }

    // MARK: Lanes whose lease has expired

    /// Reclaims after a pause of random length, so that one lane of the fleet does it and not all at once; and only if this
    /// lane's own lease shows that there was no outage (see ``LeaseContinuity``).
    private func considerReclaiming(_ expired: String) {
        let now = eventLoop.now
        guard continuity.isSteady(now: now) else { return }
        guard let after = reclaimAfter[expired] else {
            if reclaimAfter.count > 100 { reclaimAfter.removeAll() }
            reclaimAfter[expired] = now + .milliseconds(.random(in: 0...1000))
            return
        }
        guard now >= after else { return }
        reclaimAfter[expired] = nil
        reclaim(expired)
    }

    private func reclaim(_ expired: String) {
        connection.reclaim(expired) { [self] result in
            switch result {
            case .success(let counts?):
                tellOfEvictions(counts.evicted)
                lane.metrics[claimsOf: index].takenOver += counts.reclaimed
                lane.metrics[claimsOf: index].poisoned += counts.poisoned
                logger.warning(
                    "reclaimed the jobs of a lane whose lease had expired",
                    metadata: [
                        "worker": "\(expired)", "jobs": "\(counts.reclaimed)", "poisoned": "\(counts.poisoned)",
                    ])
                window.wake()
                if counts.left > 0, lane.phase == .running { reclaim(expired) }
                lane.schedulePump()
            case .success(nil): break
            case .failure(let failure):
                lane.incident("could not reclaim the jobs of \(expired): \(failure)", key: "reclaim \(index)", logger)
            }
        }
    }

    // MARK: The blocking wait

    /// Lets the server wake this process as soon as there is a job.
    private func waitForJob() {
        guard let waiter, !isWaiting, lane.phase == .running, !lane.isQuiet, waiter.isReady else { return }
        isWaiting = true
        let command = RedisCommand(
            "BLMOVE", keys.jobs, keys.inbox, keys.head.rawValue, "RIGHT", "\(Self.waitSeconds)")
        waiter.send(command, deadline: .seconds(Int64(Self.waitSeconds) + 5)) { [self] result in
            isWaiting = false
            switch result {
            case .success(let reply):
                accepted(.waits)
                if reply.root.isNull {
                    // Nothing has come. The next poll is a claim, which is dearer than to go on waiting.
                    if window.nextClaim > eventLoop.now { waitForJob() }
                } else {
                    window.wake()
                }
            case .failure(.server(let error)) where error.prefix == "UNBLOCKED":
                window.wake()  // The server became a replica, as the next answer will show.
            case .failure(let error):
                // Without a wait the list is polled more often.
                if error.isAnswer { refused(.waits, .redis(error)) }
                window.wake(at: eventLoop.now + ClaimWindow.unwatchedPoll)
            }
            lane.schedulePump()
        }
    }
}
