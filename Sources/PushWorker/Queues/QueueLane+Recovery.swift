import Logging
import NIOCore
import PushQueue

/// Recovery of claims that the lane has forgotten, see ``ForgottenClaims``.
extension QueueLane {
    /// Asks for the lane's claims. To be called when Redis is back, and now and then.
    func lookForForgotten() {
        guard window.hasJoined else { return }
        lastLook = eventLoop.now
        let generation = generation
        connection.claims { [self] result in
            // Without an answer the connection is lost, and the next one asks again.
            guard generation == self.generation, lane.phase == .running, case .success(let listed) = result else {
                return
            }
            // The answers to a settlement and to this come in the order in which they were asked for.
            forgotten = ForgottenClaims(listed: listed, window: window, known: knownClaims)
            guard !forgotten.isEmpty else { return }
            window.adopted(forgotten.largestNumber)
            logger.warning(
                "Redis has lost settlements that it had confirmed; their jobs are done again",
                metadata: ["jobs": "\(forgotten.count)"])
            takeForgotten()
        }
    }

    func lookForForgottenIfDue() {
        let interval = TimeAmount.milliseconds(Int64(limits.lease) / 3)
        guard !holdsNothing, client.isReady, forgotten.isEmpty, !isTakingForgotten, eventLoop.now - lastLook > interval
        else { return }
        lookForForgotten()
    }

    /// Reads some of them, as far as there is capacity.
    func takeForgotten() {
        guard !forgotten.isEmpty, !isTakingForgotten, client.isReady, lane.phase == .running else { return }
        let batch = forgotten.next(room: lane.room)
        guard !batch.isEmpty else { return }
        isTakingForgotten = true
        let generation = generation
        connection.bodies(of: batch) { [self] result in
            isTakingForgotten = false
            guard generation == self.generation, lane.phase == .running, case .success(let bodies) = result else {
                return
            }
            forgotten.read(batch.count, bytes: bodies.reduce(0) { $0 + ($1?.readableBytes ?? 0) })
            for (claim, body) in zip(batch, bodies) {
                if let body { lane.accept(body, claim: claim, from: self, isRecovered: true) }
            }
            lane.schedulePump()
        }
    }

    /// The claims that the lane is working on, or has settled and had no confirmation for.
    private var knownClaims: Set<ClaimID> {
        var known = Set(settlement.claims)
        known.formUnion(unconfirmed.claims)
        for (reservation, _) in awaitingReservation {
            known.insert(reservation.claim)
            known.insert(reservation.reservedClaim)
        }
        known.formUnion(lane.claims(of: self))
        return known
    }
}
