import APNS
import NIOCore
import PushQueue

@testable import PushQueue
@testable import PushWorker
@testable import Redis

/// The checks of the protocol between lanes and Redis, one for each of its rules. They follow the commands that Redis
/// executes and compute which answers of the scripts are allowed, without querying Redis.
final class ProtocolChecks {
    /// The lease in milliseconds.
    static let lease = 10_000
    /// A claim stops at this size, in bytes.
    static let claimSize = 8192
    private unowned let simulation: FleetSimulation
    /// The last claim that returned jobs, by the key of the lane's claims.
    private var granted: [String: (last: Int, stamp: String)] = [:]
    /// The ends of the leases, by the queue's key of leases and the lane.
    private var leases: [String: Int64] = [:]
    /// The claims whose settlement was confirmed to a lane, as the key of the lane's claims and the field.
    private var confirmed: Set<String> = []
    /// The claims whose jobs a lane has received, in the form of ``confirmed``.
    private var received: Set<String> = []
    /// The order of claims of jobs that were never claimed before, by queue.
    private var claimOrder = ClaimOrder()
    private var claimOrderOfSnapshot = ClaimOrder()
    /// The ids of the scheduled jobs with `replaces` that have been due.
    private var wasDue: Set<String> = []
    /// The time when the fleet's provider token was signed, in seconds since 1970.
    private var providerTokenIssuedAt: Int64?
    /// The signing times of the provider tokens that APNs reported as expired.
    private var expiredTokens: Set<Int64> = []

    private struct ClaimOrder {
        var last: [Int: Int] = [:]
        var wasClaimed: [Bool] = []
    }

    init(_ simulation: FleetSimulation) { self.simulation = simulation }

    private var now: Int64 { simulation.time.milliseconds }

    /// Handles a return of Redis to the snapshot, which loses all changes confirmed since.
    func rollBack() {
        granted = [:]
        leases = [:]
        confirmed = []
        received = []
        claimOrder = claimOrderOfSnapshot
        wasDue = []
        providerTokenIssuedAt = nil
    }

    func takeSnapshot() { claimOrderOfSnapshot = claimOrder }

    func executed(_ script: QueueScript, _ arguments: CommandArguments, _ reply: RESPReply) {
        switch script {
        case .claim: claimed(arguments, reply)
        case .reclaim: reclaimed(arguments, reply)
        case .release: released(arguments, reply)
        case .shareProviderToken: shared(arguments, reply)
        case .announceNewest: announced(arguments)
        default: break
        }
    }

    /// Records that Redis refused a script because the memory of Redis is full.
    func refusedForMemory(_ script: QueueScript) {
        guard script != .gauges else { return }
        simulation.fail("Redis refuses the script \(script) because its memory is full")
    }

    // MARK: Claims

    private func claimed(_ arguments: CommandArguments, _ reply: RESPReply) {
        guard let claims = arguments.key(3), let workers = arguments.key(5), let lane = arguments.value(0),
            reply.root[0].integer != 2
        else { return }
        let isIdle = arguments.value(3) == "0" && reply.root[7].integer == 0
        leases["\(workers) \(lane)"] = now + Int64(isIdle ? 30 * Self.lease : Self.lease)
        let count = reply.root.count - 10
        guard count > 0, let first = arguments.value(4).flatMap({ Int($0) }), let stamp = reply.root[6].string else {
            return
        }
        if let last = granted[claims], last.stamp != stamp, first <= last.last {
            simulation.fail("the claim \(first) of \(claims) was given again")
        }
        granted[claims] = (max(first + count - 1, granted[claims]?.last ?? 0), stamp)
        var bytes = 0
        for index in 10..<10 + count {
            if bytes >= Self.claimSize { simulation.fail("a claim brought \(bytes) bytes, and then another job") }
            guard let body = reply.root[index].bytes else { continue }
            bytes += body.readableBytes
            guard let number = body.withUnsafeReadableBytes(SimulationLedger.marker) else { continue }
            checkOrder(of: number)
        }
    }

    /// Checks that jobs are claimed for the first time in the order they were pushed.
    private func checkOrder(of number: Int) {
        guard !simulation.options.faults.contains(.shares), let job = simulation.ledger.job(number) else { return }
        while claimOrder.wasClaimed.count <= number { claimOrder.wasClaimed.append(false) }
        guard !claimOrder.wasClaimed[number] else { return }
        claimOrder.wasClaimed[number] = true
        if let last = claimOrder.last[job.queue], last > number {
            simulation.fail("the job \(number) was claimed after the job \(last), which was pushed later")
        }
        claimOrder.last[job.queue] = number
    }

    private func reclaimed(_ arguments: CommandArguments, _ reply: RESPReply) {
        guard let reclaimed = reply.root[0].integer, reclaimed >= 0, let workers = arguments.key(0),
            let lane = arguments.value(0)
        else { return }
        if let end = leases["\(workers) \(lane)"], end >= now {
            simulation.fail("the lane \(lane) was reclaimed although its lease lasts for \(end - now) ms more")
        }
        if reply.root[3].integer == 0 { leases["\(workers) \(lane)"] = nil }
    }

    private func released(_ arguments: CommandArguments, _ reply: RESPReply) {
        guard let workers = arguments.key(0), let lane = arguments.value(0), reply.root[1].integer == 0 else { return }
        leases["\(workers) \(lane)"] = nil
    }

    /// Records that scheduled jobs were due. A job that was due for the first time became the newest of its key.
    private func announced(_ arguments: CommandArguments) {
        var place = 0
        while let id = arguments.value(place) {
            if wasDue.insert(id).inserted, let number = Int(id.dropFirst()) { simulation.ledger.isNewest(number) }
            place += 2
        }
    }

    /// True while a lane may rely on its lease.
    func hasLease(_ queue: Int, _ lane: String) -> Bool {
        leases["\(simulation.redis.queues[queue].workers) \(lane)"].map { $0 >= now } ?? false
    }

    /// Records that a lane received the confirmation of a settlement.
    func confirm(_ settlement: Settlement, of lane: String) {
        for claim in settlement.claims { confirmed.insert("\(lane) \(claim)") }
    }

    /// True if the settlement of a claim was confirmed.
    /// - Parameter field: the key of the lane's claims, a space, and the field.
    func isSettled(_ field: String) -> Bool { confirmed.contains(field) }

    /// Records that a lane received the job of a claim, which must happen only once.
    func receive(_ claim: ClaimID, of lane: String) {
        guard received.insert("\(lane) \(claim)").inserted else {
            return simulation.fail("the lane has taken the claim \(claim) of \(lane) twice")
        }
    }

    // MARK: Provider tokens

    /// Records that Redis has a provider token from the start.
    func providerTokenExists(issuedAt: Int64) { providerTokenIssuedAt = issuedAt }

    /// Records that APNs reported a provider token as expired, so that the fleet may have another.
    func providerTokenExpired(issuedAt: Int64) { expiredTokens.insert(issuedAt) }

    private func shared(_ arguments: CommandArguments, _ reply: RESPReply) {
        guard reply.root[0].integer == 1, let issuedAt = arguments.value(0).flatMap({ Int64($0) }),
            let token = arguments.value(1)
        else { return }
        simulation.apns.adopt(providerToken: token)
        if let last = providerTokenIssuedAt, issuedAt - last < ProviderTokenSchedule.minimumAge,
            !expiredTokens.contains(last)
        {
            simulation.fail("the fleet's provider token was renewed after \(issuedAt - last) s")
        }
        providerTokenIssuedAt = issuedAt
    }
}

/// Checks that an ending lane has written all answers older than ``patience``, so that no lane sends their notifications again.
final class AnswerChecks {
    /// The time after which a lane must have written an answer: a second, and two slow round trips each for the invalid tokens of this part
    /// and of an earlier part of the job, which are written first.
    private static let patience = TimeAmount.seconds(10)

    private struct Answer {
        let at: NIODeadline
        let job: SimulatedJob
        /// The name under which the lane held its lease.
        let holder: String
        let losses: Int
    }

    private unowned let simulation: FleetSimulation
    /// The answers that accept a notification, by lane and notification.
    private var answers: [String: [Int: Answer]] = [:]
    private var written: [Int: (lane: String, at: NIODeadline, until: NIODeadline)] = [:]

    init(_ simulation: FleetSimulation) { self.simulation = simulation }

    private var now: NIODeadline { simulation.time.now }

    func received(_ number: Int, of job: SimulatedJob, by lane: SimulatedLane) {
        answers[lane.name, default: [:]][number] = Answer(
            at: now, job: job, holder: lane.holders[job.queue], losses: lane.sender.losses)
    }

    /// Records that a process ends, with or without warning.
    func ended(_ worker: SimulatedWorker) {
        let couldWrite = max(simulation.redis.lastRefusal, worker.loop.lastStop)
        for lane in worker.lanes {
            for (number, answer) in answers.removeValue(forKey: lane.name) ?? [:]
            where lane.sender.lastContact - answer.at > Self.patience && answer.at > couldWrite
                && lane.sender.losses == answer.losses
                && lane.holders[answer.job.queue] == answer.holder && lane.checks.hasLease(of: answer.job)
            {
                written[number] = (lane.name, answer.at, now)
            }
        }
    }

    func submitted(_ number: Int, by lane: SimulatedLane) {
        guard let other = written[number], !simulation.redis.hasRolledBack else { return }
        simulation.fail(
            "\(lane.name) sends the notification \(number) again, whose answer reached \(other.lane) "
                + "\((other.until - other.at).formatted) before its end")
    }
}

/// The checks of one lane's requests against the information that the lane has.
final class LaneChecks {
    private struct Throttle {
        /// Nothing may be sent to the token before this time, in milliseconds since 1970.
        var until: Int64
        /// The time when the lane was informed.
        var since: NIODeadline
        /// True once the lane has sent to the token again, after `until`.
        var wasTried = false
        /// The time set by another lane, read after `until`: the lane may keep it when APNs refuses the token again.
        var othersUntil: Int64?
    }

    /// The reception of a job. A lane that loses its lease may receive a job again while it is still sending it.
    private struct Reception {
        /// The time when the lane first received the job.
        let since: NIODeadline
        /// The names under which the lane has claimed the job.
        var holders: [String]
    }

    /// Slightly less than the time for which a lane waits for the fleet's provider token.
    private static let patience = TimeAmount.milliseconds(1900)

    private unowned let simulation: FleetSimulation
    private var throttles: [String: Throttle] = [:]
    /// The claim times of jobs that had already been cancelled, by the job's number.
    private var cancelled: [Int: Int64] = [:]
    /// The tokens that had been invalid for a second when their jobs were claimed, by the job's number.
    private var invalid: [Int: Set<String>] = [:]
    /// The tokens that the lane has asked Redis to take out of the set.
    private var removals: Set<String> = []
    private var failedLookUp = NIODeadline.distantPast
    /// The last answer of Redis about each job with `replaces`, by the job's id.
    private var words: [String: (isNewest: Bool, at: NIODeadline)] = [:]
    private var receptions: [Int: Reception] = [:]
    /// True if the lane could not get the fleet's provider token.
    private var lacksFleetToken = false
    /// The times of the lane's unanswered requests for the token.
    private var tokenRequests: [NIODeadline] = []

    init(_ simulation: FleetSimulation) { self.simulation = simulation }

    private var now: NIODeadline { simulation.time.now }
    private var milliseconds: Int64 { simulation.time.milliseconds }

    /// Records that the lane has received a job.
    /// - Parameters:
    ///   - holder: the name under which the lane claimed the job.
    ///   - claimedAt: the time when Redis executed the claim, in milliseconds since 1970; `nil` for a job that the lane had claimed before.
    func receive(_ body: ByteBuffer, under holder: String, at claimedAt: Int64? = nil) {
        guard let number = body.withUnsafeReadableBytes(SimulationLedger.marker) else { return }
        if let claimedAt, let job = simulation.ledger.job(number) {
            cancelled[number] = simulation.forbids(job, claimedAt: claimedAt) ? claimedAt : nil
            let known = job.tokens.filter { claimedAt - (simulation.fleet.markedInvalid[$0] ?? .max) > 1000 }
            invalid[number] = known.isEmpty ? nil : Set(known)
        }
        guard let known = receptions[number] else {
            receptions[number] = Reception(since: now, holders: [holder])
            return
        }
        if !known.holders.contains(holder) { receptions[number]?.holders.append(holder) }
    }

    /// True if the lane has the leases of all its claims of a job. A request does not show its claim.
    func hasLease(of job: SimulatedJob) -> Bool {
        receptions[job.number]?.holders.allSatisfy { simulation.checks.hasLease(job.queue, $0) } ?? true
    }

    /// True if the lane must remove an accepted token from the set of invalid tokens: the token was in the set for a second when the job
    /// was claimed, and was not marked since. So an accepted token stays in the set at most until its next delivery.
    func mustTakeOut(_ token: String, of job: SimulatedJob) -> Bool {
        guard let received = receptions[job.number]?.since, invalid[job.number]?.contains(token) == true else {
            return false
        }
        return received > failedLookUp && received > simulation.fleet.lastMarked[token] ?? .distantPast
            && !removals.contains(token)
    }

    /// Records that the lane asks Redis to remove tokens from the set of invalid tokens.
    func removes(_ tokens: [String]) { removals.formUnion(tokens) }

    /// Records Redis' answer to a removal. Without an answer, the tokens stay in the set until another delivery.
    func removed(_ tokens: [String], _ result: Result<Int, QueueFailure>) {
        removals.subtract(tokens)
        if case .failure = result { couldNotLookUp() }
    }

    /// Records that Redis did not answer a look-up of tokens. The lane then sends their jobs.
    func couldNotLookUp() { failedLookUp = now }

    // MARK: Provider tokens

    func askedForToken() { tokenRequests.append(now) }

    /// Records that the lane received an answer to its oldest request for a provider token.
    func receivedToken(_ isReceived: Bool) {
        if !isReceived || mayLackFleetToken { lacksFleetToken = true }
        tokenRequests.removeFirst()
    }

    /// True if the lane may sign its own provider token, because it could not get the fleet's token in time.
    var mayLackFleetToken: Bool { lacksFleetToken || tokenRequests.first.map { now - $0 > Self.patience } ?? false }

    // MARK: Throttled tokens

    /// Records that APNs has throttled a token in an answer to the lane.
    func throttled(_ token: String, until: Int64) {
        // When APNs refuses a request for a token, other requests can be in flight. Their answers may arrive much later, but the time from
        // the first refusal remains valid.
        if let known = throttles[token], !known.wasTried { return }
        let others = throttles[token]?.othersUntil.flatMap { $0 > milliseconds ? $0 : nil }
        throttles[token] = Throttle(until: min(until, others ?? until), since: now)
    }

    /// Records that a look-up found tokens that other lanes have throttled.
    func learned(_ tokens: [(token: ByteBuffer, until: Int64)]) {
        for (token, until) in tokens where until > milliseconds {
            let token = String(buffer: token)
            guard let known = throttles[token] else {
                throttles[token] = Throttle(until: until, since: now)
                continue
            }
            if milliseconds >= known.until { throttles[token]?.othersUntil = until }
        }
    }

    // MARK: The newest

    /// An answer of Redis is valid for this time.
    private static let wordIsGood = TimeAmount.milliseconds(5)

    /// Records the value of a job's key in Redis.
    func confirmed(_ job: NewestJob, _ value: ByteBuffer?) {
        words[String(buffer: job.id)] = (job.replacement(by: value) == nil, now)
    }

    private func checkNewest(_ job: SimulatedJob) {
        guard job.replaces != nil else { return }
        guard let word = words["j\(job.number)"], word.isNewest, now - word.at <= Self.wordIsGood else {
            return simulation.fail("the job \(job.number) was sent without Redis' word that it is the newest")
        }
    }

    // MARK: Sending

    func submit(_ number: Int, of job: SimulatedJob, to token: String, app: String) {
        // The job may be sent if Redis has lost the cancellation since.
        if let claimedAt = cancelled[job.number], simulation.forbids(job, claimedAt: claimedAt) {
            simulation.fail("the job \(job.number) was sent although it was cancelled before it was claimed")
        }
        // Several apps send to tokens with these prefixes, which may be invalid for only one app.
        if invalid[job.number]?.contains(token) == true, !token.hasPrefix("cc"), !token.hasPrefix("dd"),
            let received = receptions[job.number]?.since,
            received > failedLookUp, simulation.redis.hasInvalid(token)
        {
            simulation.fail("the job \(job.number) was sent to a token that had been invalid for a second")
        }
        checkNewest(job)
        if let throttle = throttles[token], milliseconds < throttle.until,
            let received = receptions[job.number]?.since, received > throttle.since
        {
            simulation.fail(
                "the job \(job.number) was sent to a throttled token \(throttle.until - milliseconds) ms too early")
        }
        if let throttle = throttles[token], milliseconds >= throttle.until { throttles[token]?.wasTried = true }
    }
}
