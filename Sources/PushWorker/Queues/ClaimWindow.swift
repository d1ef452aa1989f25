import NIOCore

/// When a lane asks Redis for jobs, and for how many, without any I/O.
///
/// One claim is under way at a time. A claim whose reply was lost is repeated with the same numbers, so that what it may
/// have taken is not forgotten until the lease ends.
struct ClaimWindow {
    struct Claim: Equatable {
        var first: Int
        var count: Int
        var join: Bool
    }

    /// Jobs a claim asks for at the most.
    static let maximumCount = 256
    /// How long a lane that found nothing leaves Redis alone, at the most. Retries that another worker put off, and jobs
    /// for which nobody was woken, are found after this.
    static let idlePoll = TimeAmount.seconds(1)
    /// The same for a queue that is paused: it has to be seen within a second that it is not any more.
    static let pausedPoll = TimeAmount.milliseconds(700)
    /// For how long the room of a claim under way is kept free.
    static let patience = TimeAmount.milliseconds(100)
    /// An answer that takes longer is a trouble.
    static let overdue = TimeAmount.seconds(1)

    private var nextNumber = 1
    /// Whether there is a lease, as far as Redis has said.
    private(set) var hasJoined = false
    private var underWay: Claim?
    private var askedAt = NIODeadline.distantPast
    /// A claim that may have been made, though no answer came. It stays until one has come.
    private var inDoubt: Claim?
    private var notBefore = NIODeadline.distantPast

    /// Whether a claim is under way.
    var isAsking: Bool { underWay != nil }

    /// Whether a claim may have been made whose answer did not come.
    var isInDoubt: Bool { inDoubt != nil }

    /// How many jobs the claim that is under way may bring, for which room has to be kept. One whose answer takes long
    /// keeps none: a Redis that hangs must not hold up the queues of another.
    func reserved(now: NIODeadline) -> Int {
        guard let underWay, now - askedAt < Self.patience else { return 0 }
        return underWay.count
    }

    /// Whether the answer to a claim takes so long that something must be wrong.
    func isOverdue(now: NIODeadline) -> Bool { underWay != nil && now - askedAt >= Self.overdue }

    /// The time before which none is made, but for what ``wake()`` tells.
    var nextClaim: NIODeadline { notBefore }

    /// The claim to make now, if any.
    /// - Parameters:
    ///   - free: how many more notifications could be under way.
    ///   - busy: how many are.
    mutating func next(free: Int, busy: Int, now: NIODeadline) -> Claim? {
        guard underWay == nil else { return nil }
        if let inDoubt {
            askedAt = now
            underWay = inDoubt
            return underWay
        }
        // A claim costs Redis and us the same for one job as for many: while the lane is busy it waits until a third of
        // its streams are free. With 500 streams that keeps five in six of them busy, and 256 jobs take less than three
        // trips to Redis.
        let worthwhile = min(Self.maximumCount, max(1, (free + busy) / 3))
        let isRenewal = now >= notBefore
        guard free >= worthwhile, isRenewal else { return nil }
        let claim = Claim(first: nextNumber, count: min(free, Self.maximumCount), join: !hasJoined)
        askedAt = now
        underWay = claim
        return claim
    }

    /// Only renews the lease: for a lane that has no room for more.
    mutating func renewal(now: NIODeadline) -> Claim? {
        guard underWay == nil, inDoubt == nil else { return nil }
        askedAt = now
        underWay = Claim(first: nextNumber, count: 0, join: !hasJoined)
        return underWay
    }

    /// The claim was answered.
    /// - Parameters:
    ///   - received: how many jobs came.
    ///   - nextDue: in how many milliseconds the next retry is due.
    /// - Returns: whether more jobs are likely to be waiting.
    mutating func answered(received: Int, isPaused: Bool, nextDue: Int64?, now: NIODeadline) -> Bool {
        guard let claim = underWay else { return false }
        underWay = nil
        inDoubt = nil
        hasJoined = true
        nextNumber = claim.first + max(received, claim.count)
        guard claim.count > 0 else { return false }
        if received == claim.count { return true }
        var pause = isPaused ? Self.pausedPoll : Self.idlePoll
        if !isPaused, let nextDue, nextDue < pause.nanoseconds / 1_000_000 {
            // A large job cut the claim short, or a retry is due soon.
            pause = .milliseconds(max(nextDue, received > 0 ? 0 : 1))
        }
        notBefore = now + pause
        return false
    }

    /// No answer came. `mayHaveRun`: the claim may have been made all the same.
    mutating func failed(mayHaveRun: Bool, now: NIODeadline) {
        if mayHaveRun, let underWay, underWay.count > 0 { inDoubt = underWay }
        underWay = nil
        notBefore = now
    }

    /// The server refused the claim (read-only, loading, out of memory): again after a while. One that was in doubt before
    /// still is.
    mutating func refused(now: NIODeadline, pause: TimeAmount) {
        underWay = nil
        notBefore = now + pause
    }

    /// Whether the claim with this number was given to the lane, or was settled since: what is asked for now, or was and
    /// will be asked for again, was not.
    func wasAnswered(_ number: Int) -> Bool {
        let open = [underWay, inDoubt].compactMap { $0 }.filter { $0.count > 0 }.map(\.first).min()
        return number < open ?? nextNumber
    }

    /// A job is there: ask at once.
    mutating func wake() { notBefore = .distantPast }

    /// The lease was lost: what was claimed belongs to others now, and the worker goes on under another name.
    mutating func startAfresh() {
        underWay = nil
        inDoubt = nil
        hasJoined = false
        notBefore = .distantPast
    }
}
