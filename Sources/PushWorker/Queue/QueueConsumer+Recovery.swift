import Logging
import NIOCore
import PushQueue

/// Jobs that need a reply from Redis before they are accepted, and claims that the lane has forgotten.
extension QueueConsumer {
    /// Jobs that wait for their turn within the rate of their campaign.
    struct PendingTurns {
        /// The maximum number of jobs per call.
        private static let batch = 1000

        struct Entry {
            let claimed: ClaimedJob
            let job: UnsentJob
            let campaign: String
            let command: JobCommands.Command
        }

        private(set) var entries: [Entry] = []
        var isAsking = false

        /// The first jobs that share a campaign and its limit.
        var next: [Entry] {
            guard let first = entries.first else { return [] }
            return Array(
                entries.prefix(Self.batch).prefix { $0.campaign == first.campaign && $0.command == first.command })
        }

        mutating func append(_ entry: Entry) { entries.append(entry) }

        mutating func removeFirst(_ count: Int) { entries.removeFirst(count) }
    }

    /// Jobs that wait for their reservation, in the order of their claims.
    struct PendingReservations {
        /// The maximum number of reservations per call.
        private static let batch = 256
        /// The maximum bytes of jobs that a call copies, unless the first job alone is larger.
        private static let batchBytes = 1 << 20

        struct Entry {
            let reservation: Reservation
            let isRecovered: Bool
        }

        private(set) var entries: [Entry] = []
        var isAsking = false
        /// Jobs that wait for their turn instead.
        var turns = PendingTurns()
        let ask: SoonTask

        var isEmpty: Bool { entries.isEmpty && turns.entries.isEmpty }
        var count: Int { entries.count + turns.entries.count }

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

        /// Discards all entries.
        /// - Returns: their number.
        mutating func forget() -> Int {
            defer {
                entries = []
                turns = PendingTurns()
            }
            return count
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

    // MARK: Reservations and turns

    /// Keeps a job until it can be accepted. All jobs of a claim are prepared in the same call.
    func prepare(_ claimed: ClaimedJob, _ prerequisite: Prerequisite) {
        switch prerequisite {
        case .reservation(let reservation):
            reservations.append(.init(reservation: reservation, isRecovered: claimed.isRecovered))
        case .turn(let job, let campaign, let command):
            reservations.turns.append(.init(claimed: claimed, job: job, campaign: campaign, command: command))
        }
        guard !reservations.ask.isScheduled else { return }
        reservations.ask.schedule { [self] in
            reserveNext()
            askForTurns()
        }
    }

    /// Requests turns within the rates of campaigns. A job whose turn is later is deferred until then.
    func askForTurns() {
        let batch = reservations.turns.next
        guard let first = batch.first, let perSecond = first.command.perSecond, !reservations.turns.isAsking,
            store.isReady, lane.isWorking
        else { return }
        reservations.turns.isAsking = true
        let generation = queue.generation
        store.limit(
            campaign: first.campaign, perSecond: perSecond, since: first.command.limitedAt,
            amounts: batch.map(\.job.notifications)
        ) { [self] result in
            guard generation == queue.generation else { return }
            reservations.turns.isAsking = false
            switch result {
            case .success(let waits):
                refusals.accepted(.turns)
                reservations.turns.removeFirst(batch.count)
                // In a drain the jobs are released with the lane's other claims.
                guard lane.isWorking else { return report(.changed) }
                for (entry, wait) in zip(batch, waits) {
                    if wait > 0 {
                        ledger.record(.deferred(Reason(.campaignLimited), delay: Int64(wait)), of: entry.job)
                    } else {
                        var claimed = entry.claimed
                        claimed.hasTurn = true
                        accept(claimed)
                    }
                }
                askForTurns()
                report(.changed)
            case .failure(let failure) where !failure.isAnswer:
                break  // Requested again when the connection is restored.
            case .failure(let failure):
                refusals.refused(.turns, failure)
                lane.afterRefusal { [self] in askForTurns() }
            }
        }
    }

    /// Requests reservations, longest-waiting jobs first.
    func reserveNext() {
        guard !reservations.entries.isEmpty, !reservations.isAsking, store.isReady, lane.isWorking else { return }
        reservations.isAsking = true
        let batch = reservations.next
        let generation = queue.generation
        store.reserve(batch.map(\.reservation)) { [self] result in
            reservations.isAsking = false
            guard generation == queue.generation else { return reserveNext() }
            switch result {
            case .success(let results):
                refusals.accepted(.reservations)
                reservations.removeFirst(batch.count)
                for (entry, result) in zip(batch, results) { reserved(entry, result) }
                reserveNext()
                report(.changed)
            case .failure(let failure) where !failure.isAnswer:
                break  // Requested again when the connection is restored; a granted reservation is granted again.
            case .failure(let failure):
                refusals.refused(.reservations, failure)
                lane.afterRefusal { [self] in reserveNext() }
            }
        }
    }

    private func reserved(_ entry: PendingReservations.Entry, _ result: ReservationResult) {
        switch result {
        // In a drain the job is released with the lane's other claims and keeps its reservation.
        case .granted:
            guard lane.isWorking else { return }
            accept(
                ClaimedJob(
                    body: entry.reservation.body, claim: entry.reservation.reservedClaim,
                    isRecovered: entry.isRecovered))
        case .duplicate: delegate.recordDuplicate(entry.reservation, in: queue)
        case .lost: ledger.recordLostClaims(1)
        }
    }

    // MARK: Forgotten claims

    /// Checks for forgotten claims (see ``ForgottenClaims``). Called when Redis is reachable again, and at intervals.
    func checkClaims() {
        guard window.hasJoined else { return }
        recovery.checkedAt = lane.now
        let generation = queue.generation
        store.claims { [self] result in
            // No answer means that the connection was lost; the check is repeated when it is restored.
            guard generation == queue.generation, lane.isWorking, case .success(let listed) = result else { return }
            // This answer and those to settlements arrive in the order of their requests.
            recovery.claims = ForgottenClaims(listed: listed, window: window, known: knownClaims)
            guard !recovery.claims.isEmpty else { return }
            adopted(recovery.claims.largestNumber)
            queue.logger.warning(
                "Redis has lost settlements that it had confirmed; processing their jobs again",
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

    /// Resumes work on forgotten claims, as far as there is capacity.
    func recoverClaims() {
        guard !recovery.claims.isEmpty, !recovery.isReading, store.isReady, lane.isWorking else { return }
        let batch = recovery.claims.next(capacity: delegate.capacity)
        guard !batch.isEmpty else { return }
        recovery.isReading = true
        let generation = queue.generation
        store.bodies(of: batch) { [self] result in
            recovery.isReading = false
            guard generation == queue.generation, lane.isWorking, case .success(let bodies) = result else { return }
            recovery.claims.read(batch.count, bytes: bodies.reduce(0) { $0 + ($1?.readableBytes ?? 0) })
            for (claim, body) in zip(batch, bodies) {
                if let body { accept(ClaimedJob(body: body, claim: claim, isRecovered: true)) }
            }
            report(.changed)
        }
    }

    /// The claims that the lane is working on, or has settled without confirmation.
    private var knownClaims: Set<ClaimID> {
        var known = Set(outbox.settlement.claims)
        known.formUnion(outbox.unconfirmed.claims)
        for entry in reservations.entries {
            known.insert(entry.reservation.claim)
            known.insert(entry.reservation.reservedClaim)
        }
        for entry in reservations.turns.entries { known.insert(entry.claimed.claim) }
        for job in lane.jobs.entries + outbox.unwritten.map(\.job)
        // Empty entries have no claim.
        where job.claim.number > 0 && job.queue == queue.id && job.generation == queue.generation {
            known.insert(job.claim)
        }
        return known
    }
}
