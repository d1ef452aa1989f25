import Logging
import NIOCore
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
    var window = ClaimWindow()
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

    /// What is to be settled next, and what was written and not yet confirmed.
    var settlement = Settlement()
    var unconfirmed: [Int: Settlement] = [:]
    var nextSettlement = 0
    var unconfirmedClaims = 0
    var unconfirmedSize = 0
    /// Settlements that were refused, and are written again after a while.
    var refusedSettlements: Set<Int> = []
    var isSettleScheduled = false
    /// Invalid tokens that are to be written before their jobs are settled.
    var awaitingInvalidTokens = 0

    /// Jobs that wait for their reservation, in the order of their claims.
    var awaitingReservation: [(reservation: Reservation, isRecovered: Bool)] = []
    var isReserving = false
    /// Claims that Redis has brought back, and whether some of them are being fetched.
    var forgotten: [Int] = []
    var isTakingForgotten = false
    var lastLook = NIODeadline.now()

    private var isWaiting = false
    private var waiterID: Int?
    private var reapAfter: [String: NIODeadline] = [:]
    private var lastRenewal = NIODeadline.distantPast
    /// When it last told of itself, and whether it has something to tell at once.
    private var toldAt = NIODeadline.distantPast
    private var isNewsUrgent = false
    /// Whether the wait may have brought a job that no claim has taken up.
    private(set) var inboxMayHoldJob = false

    /// How long the server may hold the blocking wait, in seconds. Less than any lease: when a lease has ended, no wait of
    /// its owner can still put a job into the inbox.
    private static let waitSeconds = 5
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

    /// When Redis last answered a claim, and so renewed the lease; `nil` before it ever has.
    var leaseRenewedAt: NIODeadline? { window.hasJoined ? clock.at : nil }

    private func setClock(_ milliseconds: Int64) {
        clock = (eventLoop.now, milliseconds)
        lane.metrics.setClock(
            ofQueue: index, ahead: milliseconds - Int64(clock.at.uptimeNanoseconds / 1_000_000))
    }

    /// Whether Redis has said what time it is.
    var knowsTime: Bool { clock.at > .distantPast }

    /// Whether Redis has confirmed all that there was to settle, and no wait can bring another job.
    var isSettled: Bool { isSettledButForWaiting && !isWaiting }

    private var isSettledButForWaiting: Bool {
        settlement.isEmpty && unconfirmed.isEmpty && awaitingInvalidTokens == 0
    }

    func redisChanged(_ state: RedisClient.State) {
        if case .disconnected(let error, _) = state { connectionError = error }
        guard case .ready = state else { return }
        forgotten = []
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

    /// Takes what the wait has brought, and what a claim without an answer may have taken: for a lane that is quiet.
    func claimOwn() {
        guard canClaim, inboxMayHoldJob || window.isInDoubt,
            let claim = window.next(free: 1, busy: 0, now: eventLoop.now)
        else { return }
        send(claim)
    }

    /// Whether a claim could be made if there were room for its jobs.
    private var canClaim: Bool {
        !window.isAsking && client.isReady
            && unconfirmedClaims + settlement.count + awaitingInvalidTokens < Self.maximumUnconfirmed
            && unconfirmedSize + settlement.size < Self.maximumUnconfirmedSize
    }

    /// Whether it waits for nothing but jobs.
    var isAtRest: Bool {
        client.isReady && !isNewsUrgent && isSettledButForWaiting && forgotten.isEmpty && awaitingReservation.isEmpty
    }

    /// When it wants to ask for jobs.
    var nextClaim: NIODeadline {
        if window.isAsking { return .distantFuture }
        // A quiet lane wants none, but for its own.
        return lane.isQuiet && !inboxMayHoldJob && !window.isInDoubt ? .distantFuture : window.nextClaim
    }

    /// Whether it can be asked for jobs.
    /// - Parameter turn: the lane's round, in which each queue has one turn at the most.
    func availability(turn: Int, now: NIODeadline) -> QueueSchedule.Availability {
        if window.reserved(now: now) > 0 { return .asked }
        return canClaim && lastTurn != turn ? .ready : .unavailable
    }

    func renewLeaseIfDue() {
        let longest = lane.isQuiet ? Lane.newsInterval : Lane.longestRenewal
        let interval = min(.milliseconds(Int64(limits.lease) / 5), longest)
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
        let generation = generation
        // What the wait brings from now on, this claim may come too early for; and one that is repeated may only be told what
        // it took before.
        let takesInbox = claim.count > 0 && inboxMayHoldJob && !window.isInDoubt
        if takesInbox { inboxMayHoldJob = false }
        connection.claim(count: claim.count, first: claim.first, join: claim.join, telling: news()) { [self] result in
            guard generation == self.generation, lane.phase != .stopped else { return }
            switch result {
            case .success(let claimed):
                if takesInbox, claimed.isPaused { inboxMayHoldJob = true }
                answered(claim, claimed)
            case .failure(let failure):
                if takesInbox { inboxMayHoldJob = true }
                failed(failure)
            }
        }
    }

    private func answered(_ claim: ClaimWindow.Claim, _ claimed: QueueConnection.Claimed) {
        setClock(claimed.now)
        accepted(.claims)
        if let order = claimed.order { lane.heard(order) }
        if claimed.leaseLost { return startAfresh() }
        tellOfEvictions(claimed.evicted)
        if claim.join { logger.debug("joined the queue", metadata: ["worker": "\(worker)"]) }
        hasBacklog = window.answered(
            received: claimed.bodies.count, isPaused: claimed.isPaused, nextDue: claimed.nextDue, now: eventLoop.now)
        if claim.count > 0 { lane.schedule.answered(index, received: claimed.bodies.count, isDry: !hasBacklog) }
        // A drain began while the claim was under way: what it brought is given back with the worker's other claims.
        guard lane.phase == .running else { return lane.schedulePump() }
        lane.counters.claimedJobs += claimed.bodies.count
        lane.metrics[claimsOf: index].claimed += claimed.bodies.count
        // A lane that has nothing to do need not know what the others do.
        if !claimed.bodies.isEmpty { lane.readFleetStateIfDue() }
        for (offset, body) in claimed.bodies.enumerated() { lane.accept(body, claim: claim.first + offset, from: self) }
        if let expired = claimed.expiredWorker, expired != worker { considerReaping(expired) }
        if hasBacklog {
            lane.onBacklog?(index)
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            if let due = claimed.nextDue, due < 1000 { wake(in: .milliseconds(max(1, due))) }
        }
        lane.pump()
    }

    private func wake(in delay: TimeAmount) {
        eventLoop.scheduleTask(in: delay) { [self] in
            window.wake()
            lane.schedulePump()
        }
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

    /// Dead letters had to go; what they said is lost, which somebody should know.
    func tellOfEvictions(_ count: Int) {
        guard count > 0 else { return }
        lane.incident(
            "dead letters had to go because there are too many or they are too old", key: "evicted \(index)",
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
        inboxMayHoldJob = false
        isNewsUrgent = true
        lane.counters.lostClaims += settlement.count + unconfirmedClaims
        settlement = Settlement()
        unconfirmed = [:]
        unconfirmedClaims = 0
        unconfirmedSize = 0
        accepted(.settlements)
        accepted(.reservations)
        forgotten = []
        lane.counters.lostClaims += awaitingReservation.count
        awaitingReservation = []
        // A wait that was still blocked may have put a job into the old inbox.
        let old = connection
        old.release { _ in }
        connection = QueueConnection(
            client: client, keys: keys, worker: name(generation), limits: limits)
        lane.schedulePump()
    }

    /// Gives back what has not been settled, and ends the lease.
    func release() -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        connection.release(endOf: lane.configuration.workerName) { [self] result in
            switch result {
            case .success(let released):
                if released > 0 { logger.info("gave unsent jobs back", metadata: ["jobs": "\(released)"]) }
            case .failure(let error):
                logger.warning(
                    "could not give unsent jobs back; another worker takes them when the lease ends: \(error)")
            }
            done.succeed(())
        }
        return done.futureResult
    }

    // MARK: Workers that are no more

    /// Takes over the claims of a worker whose lease has ended, after a pause of random length: whoever is first does it,
    /// and fifty others need not try.
    private func considerReaping(_ expired: String) {
        let now = eventLoop.now
        guard let after = reapAfter[expired] else {
            if reapAfter.count > 100 { reapAfter.removeAll() }
            reapAfter[expired] = now + .milliseconds(.random(in: 0...1000))
            return
        }
        guard now >= after else { return }
        reapAfter[expired] = nil
        connection.reap(expired) { [self] result in
            switch result {
            case .success(let counts?):
                tellOfEvictions(counts.evicted)
                lane.metrics[claimsOf: index].takenOver += counts.reclaimed
                lane.metrics[claimsOf: index].poisoned += counts.poisoned
                logger.warning(
                    "took over the jobs of a worker that is gone",
                    metadata: [
                        "worker": "\(expired)", "jobs": "\(counts.reclaimed)", "poisoned": "\(counts.poisoned)",
                    ])
                window.wake()
                lane.schedulePump()
            case .success(nil): break
            case .failure(let failure):
                lane.incident(
                    "could not take over the jobs of \(expired): \(failure)", key: "reap \(index)", logger)
            }
        }
    }

    // MARK: The blocking wait

    func waiterChanged(_ state: RedisClient.State) {
        guard case .ready = state, let waiter else { return }
        waiter.send(RedisCommand("CLIENT", "ID")) { [self] result in
            if case .success(let reply) = result { waiterID = reply.root.integer }
        }
    }

    /// Lets the server wake this process as soon as there is a job.
    private func waitForJob() {
        guard let waiter, !isWaiting, lane.phase == .running, !lane.isQuiet, waiter.isReady else { return }
        isWaiting = true
        let connection = connection
        let command = RedisCommand(
            "BLMOVE", keys.jobs, keys.inbox(worker), keys.head.rawValue, "RIGHT", "\(Self.waitSeconds)")
        waiter.send(command, deadline: .seconds(Int64(Self.waitSeconds) + 5)) { [self] result in
            isWaiting = false
            switch result {
            case .success(let reply):
                accepted(.waits)
                if !reply.root.isNull {
                    inboxMayHoldJob = true
                    window.wake()
                }
            case .failure(.server(let error)) where error.prefix == "UNBLOCKED":
                break  // Somebody wanted it to end, or the server became a replica, as the next answer will tell.
            case .failure(let error):
                // The timer finds jobs too, if later; a wait that fails at once must not be asked for again at once.
                if error.isAnswer { refused(.waits, .redis(error)) } else { inboxMayHoldJob = true }
            }
            // A lease was lost meanwhile: what the wait has brought is under the old name.
            if connection !== self.connection { connection.release { _ in } }
            lane.schedulePump()
        }
    }

    /// Ends the wait in such a way that no job can get into the inbox any more.
    func stopWaiting() {
        // In a failover the two may be with different servers, where the number is another client's.
        guard isWaiting, let waiterID, client.isReady, client.server == waiter?.server else { return }
        client.send(RedisCommand("CLIENT", "UNBLOCK", "\(waiterID)")) { _ in }
    }
}
