import Logging
import NIOCore
import PushQueue

/// Claims that Redis says are this lane's and the lane knows nothing of.
///
/// After a failover, or a crash of a server that does not write each command to disk, Redis can be a moment older than it
/// was: settlements that it had confirmed are gone, and their claims are back. Nobody else takes them over, for their owner
/// lives and renews its lease. So whenever Redis comes back, and once in a while, the lane asks what it holds, and works on
/// what it does not know as if it had just been claimed. The notifications may be sent twice, and are counted as that.
extension QueueLane {
    /// How many bodies are asked for at once.
    private static let recoveryBatch = 256

    /// Asks what Redis holds. To be called when Redis is back, and now and then.
    func lookForForgotten() {
        guard window.hasJoined else { return }
        lastLook = eventLoop.now
        let generation = generation
        connection.claimNumbers { [self] result in
            // Without an answer the connection is gone, and the next one asks again.
            guard generation == self.generation, lane.phase == .running, case .success(let numbers) = result else {
                return
            }
            let known = knownClaims
            // The answers to a settlement and to this come in the order in which they were asked for.
            forgotten = numbers.filter { window.wasAnswered($0) && !known.contains($0) }.sorted()
            guard !forgotten.isEmpty else { return }
            logger.warning(
                "Redis has lost settlements that it had confirmed; their jobs are done again",
                metadata: ["jobs": "\(forgotten.count)"])
            takeForgotten()
        }
    }

    func lookForForgottenIfDue() {
        let interval = TimeAmount.milliseconds(Int64(limits.lease) / 3)
        guard client.isReady, forgotten.isEmpty, !isTakingForgotten, eventLoop.now - lastLook > interval else { return }
        lookForForgotten()
    }

    /// Takes some of them, as far as there is room.
    func takeForgotten() {
        guard !forgotten.isEmpty, !isTakingForgotten, client.isReady, lane.phase == .running else { return }
        let batch = Array(forgotten.prefix(min(Self.recoveryBatch, lane.room)))
        guard !batch.isEmpty else { return }
        isTakingForgotten = true
        let generation = generation
        connection.bodies(of: batch) { [self] result in
            isTakingForgotten = false
            guard generation == self.generation, lane.phase == .running, case .success(let bodies) = result else {
                return
            }
            forgotten.removeFirst(min(batch.count, forgotten.count))
            for (claim, body) in zip(batch, bodies) {
                if let body { lane.accept(body, claim: claim, from: self, isRecovered: true) }
            }
            lane.schedulePump()
        }
    }

    /// The claims that the lane is working on, or has settled and had no confirmation for.
    private var knownClaims: Set<Int> {
        var known = Set(settlement.claims)
        for settlement in unconfirmed.values { known.formUnion(settlement.claims) }
        known.formUnion(awaitingReservation.map(\.reservation.claim))
        known.formUnion(lane.claims(of: self))
        return known
    }
}
