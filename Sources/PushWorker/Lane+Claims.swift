import Logging
import NIOCore
import PushQueue
import Redis

/// Getting jobs: claims, the blocking wait, the lease, and the claims of workers that are no more.
extension Lane {
    /// How long the server may hold the blocking wait, in seconds. Less than any lease: when a lease has ended, no wait of
    /// its owner can still put a job into the inbox.
    private static let waitSeconds = 5
    /// Settlements that Redis has not confirmed: beyond this the lane claims no more.
    private static let maximumUnconfirmed = 10_000

    func redisChanged(_ state: RedisClient.State) {
        switch state {
        case .ready:
            resendUnconfirmed()
            window.wake()
            schedulePump()
        case .disconnected, .closed:
            break
        }
    }

    func claimIfWorthwhile() {
        let unsettled = unconfirmedClaims + settlement.count + awaitingInvalidTokens.count
        guard phase == .running, client.isReady, unsettled < Self.maximumUnconfirmed else { return }
        guard let claim = window.next(free: room, busy: flights.count, now: eventLoop.now) else { return }
        // What is settled leaves in the same write as the claim.
        flushSettlement()
        send(claim)
    }

    func renewLease() {
        lastRenewal = eventLoop.now
        guard phase == .running || phase == .draining, client.isReady, let claim = window.renewal() else { return }
        send(claim)
    }

    private func send(_ claim: ClaimWindow.Claim) {
        lastRenewal = eventLoop.now
        let generation = generation
        queue.claim(count: claim.count, first: claim.first, join: claim.join) { [self] result in
            guard generation == self.generation, phase != .stopped else { return }
            switch result {
            case .success(let claimed): claimAnswered(claim, claimed)
            case .failure(let failure): claimFailed(failure)
            }
        }
    }

    private func claimAnswered(_ claim: ClaimWindow.Claim, _ claimed: QueueConnection.Claimed) {
        clock = (eventLoop.now, claimed.now)
        if claimed.leaseLost { return startAfresh() }
        if claim.join { logger.debug("joined the queue", metadata: ["worker": "\(queue.worker)"]) }
        hasBacklog = window.answered(
            received: claimed.bodies.count, isPaused: claimed.isPaused, nextDue: claimed.nextDue, now: eventLoop.now)
        // A drain began while the claim was under way: what it brought is given back with the worker's other claims.
        guard phase == .running else { return schedulePump() }
        counters.claimedJobs += claimed.bodies.count
        for (offset, body) in claimed.bodies.enumerated() { accept(body, claim: claim.first + offset) }
        if let expired = claimed.expiredWorker, expired != queue.worker { considerReaping(expired) }
        if hasBacklog {
            onBacklog?()
        } else if claim.count > 0, !claimed.isPaused {
            waitForJob()
            if let due = claimed.nextDue, due < 1000 {
                eventLoop.scheduleTask(in: .milliseconds(max(1, due))) { [self] in
                    window.wake()
                    schedulePump()
                }
            }
        }
        pump()
    }

    private func claimFailed(_ failure: QueueConnection.Failure) {
        if case .redis(let error) = failure, !error.isAnswer {
            window.failed(mayHaveRun: error.mayHaveBeenExecuted, now: eventLoop.now)
        } else {
            // Read-only, loading, out of memory: the server is there, and will come round.
            window.refused(now: eventLoop.now, pause: .milliseconds(.random(in: 500...1500)))
            incident("Redis refused a claim: \(failure)", key: "claim")
        }
    }

    /// The lease ended while this process was not looking (it was stopped, or the machine was). Others have the claims
    /// now; what is still under way is no longer this worker's to settle.
    private func startAfresh() {
        logger.warning(
            "the lease was lost; going on under another name",
            metadata: ["worker": "\(queue.worker)", "in_flight": "\(flights.count)"])
        generation += 1
        window.startAfresh()
        counters.lostClaims += settlement.count + unconfirmedClaims
        settlement = Settlement()
        unconfirmed = [:]
        unconfirmedClaims = 0
        // A wait that was still blocked may have put a job into the old inbox.
        let old = queue
        old.release { _ in }
        queue = QueueConnection(
            client: client, keys: configuration.queueKeys, sharedKeys: configuration.sharedKeys,
            worker: "\(configuration.workerName).\(index).\(generation)", limits: configuration.queueLimits)
        schedulePump()
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
        queue.reap(expired) { [self] result in
            switch result {
            case .success(let counts?):
                logger.warning(
                    "took over the jobs of a worker that is gone",
                    metadata: [
                        "worker": "\(expired)", "jobs": "\(counts.reclaimed)", "poisoned": "\(counts.poisoned)",
                    ])
                window.wake()
                schedulePump()
            case .success(nil): break
            case .failure(let failure):
                incident("could not take over the jobs of \(expired): \(failure)", key: "reap")
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
        guard let waiter, !isWaiting, phase == .running, waiter.isReady else { return }
        isWaiting = true
        let keys = queue.keys
        let command = RedisCommand(
            "BLMOVE", keys.jobs, keys.inbox(queue.worker), "LEFT", "RIGHT", "\(Self.waitSeconds)")
        waiter.send(command, deadline: .seconds(Int64(Self.waitSeconds) + 5)) { [self] result in
            isWaiting = false
            switch result {
            case .success(let reply):
                if !reply.root.isNull { window.wake() }
            case .failure(let error):
                // The timer finds jobs too, if later; a wait that fails at once must not be asked for again at once.
                if error.isAnswer { incident("Redis refused the wait for jobs: \(error)", key: "wait") }
            }
            schedulePump()
        }
    }

    /// Ends the wait in such a way that no job can get into the inbox any more.
    func stopWaiting() {
        guard isWaiting, let waiterID, client.isReady else { return }
        client.send(RedisCommand("CLIENT", "UNBLOCK", "\(waiterID)")) { _ in }
    }
}

extension RedisError {
    /// Whether the server answered, and refused.
    var isAnswer: Bool {
        if case .server = self { true } else { false }
    }
}
