import Logging
import NIOCore
import PushQueue

/// Jobs that must be the only ones with their ids before they are sent, and claims that the lane has forgotten.
extension QueueConsumer {
    /// Jobs that wait for their reservation, in the order of their claims.
    struct PendingReservations {
        /// The maximum number of reservations in a call.
        private static let batch = 256
        /// The maximum number of bytes of jobs that a call copies, unless the first alone has more.
        private static let batchBytes = 1 << 20

        struct Entry {
            let reservation: Reservation
            let isRecovered: Bool
        }

        private(set) var entries: [Entry] = []
        var isAsking = false
        let ask: SoonTask

        var isEmpty: Bool { entries.isEmpty }
        var count: Int { entries.count }

        /// The reservations to ask for next.
        var next: [Entry] {
            var bytes = 0
            return Array(
                entries.prefix(Self.batch).prefix { entry in
                    defer { bytes += entry.reservation.body.readableBytes }
                    return bytes < Self.batchBytes
                })
        }

        mutating func append(_ entry: Entry) { entries.append(entry) }

        mutating func removeFirst(_ count: Int) { entries.removeFirst(count) }

        /// Forgets all of them.
        /// - Returns: their number.
        mutating func forget() -> Int {
            defer { entries = [] }
            return entries.count
        }
    }

    /// The recovery of forgotten claims.
    struct Recovery {
        var claims = ForgottenClaims()
        /// True while some of them are being read.
        var isReading = false
        /// The time of the last check for forgotten claims.
        var checkedAt: NIODeadline
    }

    // MARK: Reservations

    /// Keeps a job until it has its reservation. All of a claim are asked for together.
    func reserve(_ reservation: Reservation, isRecovered: Bool) {
        reservations.append(.init(reservation: reservation, isRecovered: isRecovered))
        guard !reservations.isAsking, !reservations.ask.isScheduled else { return }
        reservations.ask.schedule { [self] in reserveNext() }
    }

    /// Asks for reservations, those first that have waited longest.
    func reserveNext() {
        guard !reservations.isEmpty, !reservations.isAsking, store.isReady, lane.isWorking else { return }
        reservations.isAsking = true
        let batch = reservations.next
        let generation = queue.generation
        store.reserve(batch.map(\.reservation)) { [self] result in
            reservations.isAsking = false
            guard generation == queue.generation else { return reserveNext() }
            switch result {
            case .success(let results):
                accepted(.reservations)
                reservations.removeFirst(batch.count)
                for (entry, result) in zip(batch, results) { reserved(entry, result) }
                reserveNext()
                report(.changed)
            case .failure(let failure) where !failure.isAnswer:
                break  // Asked for again when the connection is back; what was granted is granted again.
            case .failure(let failure):
                refused(.reservations, failure)
                lane.afterRefusal { [self] in reserveNext() }
            }
        }
    }

    private func reserved(_ entry: PendingReservations.Entry, _ result: ReservationResult) {
        switch result {
        // In a drain it is given back with the lane's other claims, and keeps its reservation.
        case .granted:
            guard lane.isWorking else { return }
            accept(entry.reservation.body, entry.reservation.reservedClaim, isRecovered: entry.isRecovered)
        case .duplicate: delegate.recordDuplicate(entry.reservation, in: queue)
        case .lost: ledger.recordLostClaims(1)
        }
    }

    // MARK: Forgotten claims

    /// Checks for forgotten claims (see ``ForgottenClaims``). Called when Redis is back, and at intervals.
    func checkClaims() {
        guard window.hasJoined else { return }
        recovery.checkedAt = lane.now
        let generation = queue.generation
        store.claims { [self] result in
            // Without an answer the connection is lost, and the next one asks again.
            guard generation == queue.generation, lane.isWorking, case .success(let listed) = result else { return }
            // The answers to a settlement and to this come in the order in which they were asked for.
            recovery.claims = ForgottenClaims(listed: listed, window: window, known: knownClaims)
            guard !recovery.claims.isEmpty else { return }
            adopted(recovery.claims.largestNumber)
            queue.logger.warning(
                "Redis has lost settlements that it had confirmed; their jobs are worked on again",
                metadata: ["event": "settlements_lost", "jobs": "\(recovery.claims.count)"])
            recoverClaims()
        }
    }

    func checkClaimsIfDue() {
        let interval = TimeAmount.milliseconds(Int64(queue.limits.lease) / 3)
        guard mayHoldClaims, store.isReady, recovery.claims.isEmpty, !recovery.isReading,
            lane.now - recovery.checkedAt > interval
        else { return }
        checkClaims()
    }

    /// Works on forgotten claims, as far as there is capacity.
    func recoverClaims() {
        guard !recovery.claims.isEmpty, !recovery.isReading, store.isReady, lane.isWorking else { return }
        let batch = recovery.claims.next(room: delegate.capacity)
        guard !batch.isEmpty else { return }
        recovery.isReading = true
        let generation = queue.generation
        store.bodies(of: batch) { [self] result in
            recovery.isReading = false
            guard generation == queue.generation, lane.isWorking, case .success(let bodies) = result else { return }
            recovery.claims.read(batch.count, bytes: bodies.reduce(0) { $0 + ($1?.readableBytes ?? 0) })
            for (claim, body) in zip(batch, bodies) {
                if let body { accept(body, claim, isRecovered: true) }
            }
            report(.changed)
        }
    }

    /// The claims that the lane is working on, or has settled without a confirmation.
    private var knownClaims: Set<ClaimID> {
        var known = Set(outbox.settlement.claims)
        known.formUnion(outbox.unconfirmed.claims)
        for entry in reservations.entries {
            known.insert(entry.reservation.claim)
            known.insert(entry.reservation.reservedClaim)
        }
        for job in lane.jobs.entries + outbox.awaitingTokens + outbox.writingTokens
        // Entries that hold nothing have no claim.
        where job.claim.number > 0 && job.queue == queue.id && job.generation == queue.generation {
            known.insert(job.claim)
        }
        return known
    }
}
