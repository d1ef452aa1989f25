import NIOCore
import PushQueue

/// Decides when a lane asks Redis for jobs, and for how many. No I/O.
///
/// One claim is in flight at a time. A claim whose reply was lost is repeated with the same numbers, so that the jobs it may
/// have taken are known before their lease expires.
///
/// One lane of a process polls: with hundreds of workers, idle lanes that poll would cost Redis more than the jobs. The other
/// lanes claim when they are woken: by a lane that has found more jobs than it can take, by a renewal of their lease that
/// sees jobs, or by the polling lane when it can't claim itself.
struct ClaimWindow {
    struct Claim: Equatable {
        var first: Int
        var count: Int
        var join: Bool
    }

    /// The most jobs that a claim asks for.
    static let maximumCount = 256
    /// The time between polls of an idle lane whose blocking wait brings new jobs. Retries that another worker deferred are
    /// found after this. A poll also renews the lease, and comes before a separate renewal of the default lease is due (10 s).
    static let idlePoll = TimeAmount.seconds(9)
    /// The same while no blocking wait watches the list.
    static let unwatchedPoll = TimeAmount.seconds(1)
    /// The same while the queue is paused: it resumes within a second.
    static let pausedPoll = TimeAmount.milliseconds(700)
    /// The pause after a claim that brought nothing although jobs wait.
    private static let emptyPause = TimeAmount.milliseconds(10)
    /// The time for which capacity is kept free for a claim in flight.
    static let patience = TimeAmount.milliseconds(100)
    /// An answer that takes longer is a problem.
    static let overdue = TimeAmount.seconds(1)

    /// True for the lane of a process that polls.
    let polls: Bool
    private var nextNumber = 1
    /// True once Redis has granted a lease.
    private(set) var hasJoined = false
    private var underWay: Claim?
    private var askedAt = NIODeadline.distantPast
    /// A claim that may have been executed although no answer came. It stays until an answer has come.
    private var inDoubt: Claim?
    private var notBefore = NIODeadline.distantPast

    init(polls: Bool = true) { self.polls = polls }

    /// True while a claim or a renewal is in flight.
    var isAsking: Bool { underWay != nil }

    /// True when a claim without an answer may have been executed.
    var isInDoubt: Bool { inDoubt != nil }

    /// The number of jobs that the claim in flight may bring, for which capacity is kept free. None for a claim whose answer
    /// takes long: a Redis that hangs must not hold up the queues of another.
    func reserved(now: NIODeadline) -> Int {
        guard let underWay, now - askedAt < Self.patience else { return 0 }
        return underWay.count
    }

    /// True when the answer to a claim takes so long that something must be wrong.
    func isOverdue(now: NIODeadline) -> Bool { underWay != nil && now - askedAt >= Self.overdue }

    /// The time before which no claim is made, unless ``wake()`` is called.
    var nextClaim: NIODeadline { notBefore }

    /// The claim to make now, if any.
    /// - Parameters:
    ///   - free: how many more notifications the lane could take.
    ///   - busy: how many are in flight.
    mutating func next(free: Int, busy: Int, now: NIODeadline) -> Claim? {
        guard underWay == nil else { return nil }
        if let inDoubt {
            askedAt = now
            underWay = inDoubt
            return underWay
        }
        // A claim costs Redis and us the same for one job as for many: while the lane is busy it waits until there is
        // capacity for a third of what it can have at once.
        let worthwhile = min(Self.maximumCount, max(1, (free + busy) / 3))
        guard free >= worthwhile, now >= notBefore else { return nil }
        let claim = Claim(first: nextNumber, count: min(free, Self.maximumCount), join: !hasJoined)
        askedAt = now
        underWay = claim
        return claim
    }

    /// A claim of no jobs, which only renews the lease. Also made while a claim is in doubt that can't be repeated yet.
    mutating func renewal(now: NIODeadline) -> Claim? {
        guard underWay == nil else { return nil }
        askedAt = now
        underWay = Claim(first: nextNumber, count: 0, join: !hasJoined)
        return underWay
    }

    /// Notes the answer to the claim in flight.
    /// - Parameters:
    ///   - received: how many jobs came.
    ///   - nextDue: milliseconds until more jobs can be claimed: 0 when some wait, `nil` when none do.
    ///   - isWatched: whether a blocking wait brings new jobs.
    /// - Returns: whether more jobs wait.
    mutating func answered(
        received: Int, isPaused: Bool, nextDue: Int64?, isWatched: Bool = true, now: NIODeadline
    ) -> Bool {
        guard let claim = underWay else { return false }
        underWay = nil
        hasJoined = true
        let jobsWait = nextDue == 0 && !isPaused
        guard claim.count > 0 else {
            if jobsWait { wake(at: now) }
            return false
        }
        inDoubt = nil
        if received > 0 {
            nextNumber = max(nextNumber, claim.first + received)
        } else if jobsWait {
            // Redis may know of a later claim of this name, and gives none of the numbers before it any more.
            nextNumber = max(nextNumber, claim.first + claim.count)
        }
        notBefore = now
        if jobsWait {
            if received == 0 { notBefore = now + Self.emptyPause }
            return true
        }
        guard polls else {
            notBefore = .distantFuture
            return false
        }
        notBefore = now + (isPaused ? Self.pausedPoll : isWatched ? Self.idlePoll : Self.unwatchedPoll)
        if !isPaused, let nextDue { notBefore = min(notBefore, now + .milliseconds(max(1, nextDue))) }
        return false
    }

    /// Notes that no answer came.
    /// - Parameter mayHaveRun: whether the claim may have been executed.
    mutating func failed(mayHaveRun: Bool, now: NIODeadline) {
        if mayHaveRun, let underWay, underWay.count > 0 { inDoubt = underWay }
        underWay = nil
        notBefore = now
    }

    /// Notes that the server refused the claim (read-only, loading, out of memory): the next one is made after a pause. A
    /// claim that was in doubt before still is.
    mutating func refused(now: NIODeadline, pause: TimeAmount) {
        underWay = nil
        notBefore = now + pause
    }

    /// True for a claim that Redis lists and that no answer in flight can still bring.
    func wasAnswered(_ number: Int) -> Bool {
        guard let open = [underWay, inDoubt].compactMap({ $0 }).filter({ $0.count > 0 }).map(\.first).min() else {
            return true
        }
        return number < open
    }

    /// Notes that the lane works on a claim that Redis listed: its number is not asked for any more.
    mutating func adopted(_ number: Int) { nextNumber = max(nextNumber, number + 1) }

    /// Allows a claim at once.
    mutating func wake() { notBefore = .distantPast }

    /// Allows a claim at a time, if none is allowed before.
    mutating func wake(at time: NIODeadline) { notBefore = min(notBefore, time) }

    /// True for the polling lane when a poll has been due for longer than a full lane may take for one.
    func cannotPoll(now: NIODeadline) -> Bool {
        polls && now >= notBefore && now - max(notBefore, askedAt) >= Self.unwatchedPoll
    }

    /// Notes that the lease was lost: the claims belong to other lanes now, and the lane goes on under another name.
    mutating func startAfresh() {
        underWay = nil
        inDoubt = nil
        hasJoined = false
        notBefore = .distantPast
    }
}

/// Decides whether a lane may reclaim the claims of others. No I/O.
///
/// After an outage longer than the lease, all leases have expired, and lanes come back one after the other. The first must
/// not reclaim the others, which are alive. So a lane reclaims only after its own lease has been renewed without a gap for
/// longer than the others need to come back: a reconnect pause of up to 5 s, and the login.
struct LeaseContinuity {
    /// A longer time between renewals is a gap. Less than the lease: after an outage longer than that, others may have
    /// lost theirs.
    var longestGap = TimeAmount.seconds(10)
    /// How long the lease must have been renewed without a gap.
    static let steadyTime = TimeAmount.seconds(15)

    private var steadySince: NIODeadline?
    private var renewedAt = NIODeadline.distantPast

    /// Notes that Redis has answered a claim or a renewal.
    mutating func renewed(now: NIODeadline) {
        if steadySince == nil || now - renewedAt > longestGap { steadySince = now }
        renewedAt = now
    }

    /// Notes that the lease was lost.
    mutating func lost() { steadySince = nil }

    /// Returns true if the lane may reclaim.
    func isSteady(now: NIODeadline) -> Bool {
        guard let steadySince, now - renewedAt <= longestGap else { return false }
        return now - steadySince >= Self.steadyTime
    }
}

/// Settlements that were written and that Redis has not confirmed. No I/O.
///
/// They are written again over each new connection until they are confirmed: a settlement that was executed does nothing the
/// second time.
struct UnconfirmedSettlements {
    private var batches: [Int: Settlement] = [:]
    private var nextNumber = 0
    private var refused: Set<Int> = []
    /// The number of claims in them.
    private(set) var count = 0
    /// Roughly how many bytes they take.
    private(set) var size = 0

    var isEmpty: Bool { batches.isEmpty }

    /// The numbers of all batches, in the order in which they were first written.
    var numbers: [Int] { batches.keys.sorted() }

    /// The claims in them.
    var claims: some Sequence<ClaimID> { batches.values.lazy.flatMap(\.claims) }

    /// The invalid tokens that must be in Redis before them, oldest first.
    var invalidTokens: [InvalidToken] { numbers.flatMap { batches[$0]?.invalidTokens ?? [] } }

    /// - Returns: the batch's number.
    mutating func append(_ settlement: Settlement) -> Int {
        defer { nextNumber += 1 }
        batches[nextNumber] = settlement
        count += settlement.count
        size += settlement.size
        return nextNumber
    }

    subscript(number: Int) -> Settlement? { batches[number] }

    /// Removes a batch that Redis has confirmed.
    /// - Returns: `nil` when it was confirmed before: it may have been written twice.
    mutating func confirmed(_ number: Int) -> Settlement? {
        refused.remove(number)
        guard let settlement = batches.removeValue(forKey: number) else { return nil }
        count -= settlement.count
        size -= settlement.size
        return settlement
    }

    /// Notes that Redis refused a batch, which is to be written again after a pause.
    mutating func wasRefused(_ number: Int) { refused.insert(number) }

    /// Returns true if a refused batch is still to be written again, which it then no longer is.
    mutating func takeRefused(_ number: Int) -> Bool { refused.remove(number) != nil }

    /// Notes that all batches are written again, over a new connection.
    mutating func areWrittenAgain() { refused = [] }
}

/// Claims that Redis attributes to a lane and the lane does not know. No I/O.
///
/// After a failover, or a crash of a server that does not write each command to disk, Redis can be a moment older than it
/// was: settlements that it had confirmed are gone, and their claims are back. Other lanes do not reclaim them, because
/// their lane is alive. So whenever Redis comes back, and once in a while, the lane asks for its claims, and works on those it
/// does not know as if it had just claimed them. The notifications may be sent twice, and are counted as that.
struct ForgottenClaims {
    /// The most jobs that are read at once.
    private static let maximumBatch = 256
    /// The most bytes that are read at once, as far as the jobs before tell.
    private static let maximumBytes = 1 << 20

    private var claims: ArraySlice<ClaimID> = []
    private var batch = 4

    var isEmpty: Bool { claims.isEmpty }
    var count: Int { claims.count }

    /// Notes what Redis has listed.
    /// - Parameters:
    ///   - known: the claims that the lane works on, or has settled without a confirmation.
    init(listed: [ClaimID] = [], window: ClaimWindow = ClaimWindow(), known: Set<ClaimID> = []) {
        claims =
            listed.filter { window.wasAnswered($0.number) && !known.contains($0) }
            .sorted { ($0.number, $0.stamp) < ($1.number, $1.stamp) }[...]
    }

    /// The largest number among them; 0 without any.
    var largestNumber: Int { claims.last?.number ?? 0 }

    /// The claims to read next.
    func next(room: Int) -> [ClaimID] { Array(claims.prefix(max(0, min(batch, room)))) }

    /// Notes that the first claims were read.
    /// - Parameter bytes: the size of their jobs.
    mutating func read(_ count: Int, bytes: Int) {
        claims = claims.dropFirst(count)
        let mean = max(1, bytes / max(1, count))
        batch = max(1, min(Self.maximumBatch, 2 * batch, Self.maximumBytes / mean))
    }
}
