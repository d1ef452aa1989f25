import NIOCore
import PushQueue
import Sockets

/// Decides when a lane claims jobs from Redis, and how many. No I/O.
///
/// One claim is in flight at a time. If its answer is lost, the claim is repeated with the same numbers. So the lane learns which jobs it
/// claimed before their lease expires.
///
/// Only one lane of a process polls, because with hundreds of workers polling by all idle lanes would cost Redis more than the jobs. The
/// other lanes claim when they are woken: by a lane that found more jobs than it can handle, by a renewal of their lease that reports jobs,
/// or by the polling lane when it can't claim.
struct ClaimWindow {
    struct Claim: Equatable {
        var first: Int
        var count: Int
        var join: Bool
    }

    /// The maximum number of jobs per claim.
    static let maximumCount = 256
    /// The poll interval of an idle lane with a blocking wait for new jobs. Polls find retries that other workers have deferred. They also
    /// renew the lease, just before a separate renewal would be due with the default lease (10 s).
    static let idlePoll = TimeAmount.seconds(9)
    /// The poll interval while no blocking wait watches the list.
    static let unwatchedPoll = TimeAmount.seconds(1)
    /// The poll interval while the queue is paused. Below a second, so that the queue resumes within a second.
    static let pausedPoll = TimeAmount.milliseconds(700)
    /// The delay of claims of due retries after a job was given back, so that other workers get that job first.
    static let givenBackDelay = TimeAmount.seconds(2)
    /// Claims of due retries are delayed for this time after a job was given back. Other workers have polled by then.
    private static let givenBackTime = TimeAmount.seconds(30)
    /// Claims are smaller for this time after answers were lost.
    private static let loweredTime = TimeAmount.minutes(10)
    /// The pause after a claim that returned nothing although jobs wait.
    private static let emptyPause = TimeAmount.milliseconds(10)
    /// Capacity is kept free for a claim in flight for this time.
    static let patience = TimeAmount.milliseconds(100)
    /// The answer to a claim is overdue after this time.
    static let overdue = TimeAmount.seconds(1)

    /// True for the lane that polls on behalf of the process.
    let polls: Bool
    private var nextNumber = 1
    /// True once Redis has granted a lease.
    private(set) var hasJoined = false
    private var inFlight: Claim?
    private var askedAt = NIODeadline.distantPast
    /// A claim that Redis may have executed although its answer was lost. It is kept until all of it is answered.
    private struct Doubt {
        /// The part of the claim that is repeated next.
        var claim: Claim
        /// The number after the last job of the whole claim.
        let end: Int
        /// The number of times in a row that the answer to the part was lost.
        var losses = 1
    }

    private var inDoubt: Doubt?
    /// The maximum number of jobs per claim while larger answers are lost.
    private var lowered = (count: maximumCount, until: NIODeadline.distantPast)
    private var notBefore = NIODeadline.distantPast
    private var delaysRetriesUntil = NIODeadline.distantPast

    init(polls: Bool = true) { self.polls = polls }

    /// True while a claim or a renewal is in flight.
    var isAsking: Bool { inFlight != nil }

    /// True while Redis may have executed a claim without an answer.
    var isInDoubt: Bool { inDoubt != nil }

    /// The claim whose answer was lost several times in a row, and the number of times.
    var lost: (claim: Claim, times: Int)? {
        inDoubt.flatMap { $0.losses > 1 ? ($0.claim, $0.losses) : nil }
    }

    /// Returns the number of jobs that the claim in flight may return. Capacity is kept free for them. It is 0 once the answer is slow,
    /// because a Redis that hangs must not delay the queues of another Redis.
    func reserved(now: NIODeadline) -> Int {
        guard let inFlight, now - askedAt < Self.patience else { return 0 }
        return inFlight.count
    }

    /// True if the answer to a claim is so slow that something must be wrong.
    func isOverdue(now: NIODeadline) -> Bool { inFlight != nil && now - askedAt >= Self.overdue }

    /// Records that the process did not run for some time. The answer to a claim may have arrived, and not be read yet.
    mutating func recordStandstill(of time: TimeAmount, now: NIODeadline) {
        askedAt = askedAt.moved(by: time, now: now)
    }

    /// The earliest time of the next claim, unless ``wake()`` is called.
    var nextClaim: NIODeadline { notBefore }

    /// Returns the claim to make now, if any.
    /// - Parameters:
    ///   - free: the number of further notifications that the lane could accept.
    ///   - busy: the number of notifications in flight.
    mutating func next(free: Int, busy: Int, now: NIODeadline) -> Claim? {
        guard inFlight == nil else { return nil }
        if let inDoubt {
            askedAt = now
            inFlight = inDoubt.claim
            return inFlight
        }
        // A claim costs the same for one job as for many, so a busy lane waits until it has capacity for a third of its maximum.
        let maximum = now < lowered.until ? lowered.count : Self.maximumCount
        let worthwhile = min(maximum, max(1, (free + busy) / 3))
        guard free >= worthwhile, now >= notBefore else { return nil }
        let claim = Claim(first: nextNumber, count: min(free, maximum), join: !hasJoined)
        askedAt = now
        inFlight = claim
        return claim
    }

    /// Returns a claim of no jobs, which only renews the lease, for example while a claim in doubt can't be repeated.
    mutating func renewal(now: NIODeadline) -> Claim? {
        guard inFlight == nil else { return nil }
        askedAt = now
        inFlight = Claim(first: nextNumber, count: 0, join: !hasJoined)
        return inFlight
    }

    /// Records the answer to the claim in flight.
    /// - Parameters:
    ///   - received: the number of jobs received.
    ///   - nextDue: the milliseconds until more jobs can be claimed; 0 if jobs wait now, `nil` if there are no more jobs.
    ///   - isWatched: true if a blocking wait reports new jobs.
    /// - Returns: true if more jobs wait.
    mutating func recordAnswer(
        received: Int, isPaused: Bool, nextDue: Int64?, isWatched: Bool = true, now: NIODeadline
    ) -> Bool {
        guard let claim = inFlight else { return false }
        inFlight = nil
        hasJoined = true
        let jobsWait = nextDue == 0 && !isPaused
        guard claim.count > 0 else {
            if jobsWait { wake(at: now) }
            return false
        }
        inDoubt = inDoubt.flatMap { rest(of: $0, received: received) }
        if received > 0 {
            nextNumber = max(nextNumber, claim.first + received)
        } else if jobsWait {
            // Redis may know a claim of this lane with a later number. It then rejects all smaller numbers.
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
        if !isPaused, let nextDue {
            let delay = now < delaysRetriesUntil ? Self.givenBackDelay : .zero
            notBefore = min(notBefore, now + .milliseconds(max(1, nextDue)) + delay)
        }
        return false
    }

    /// Returns the part of a claim in doubt that is still unanswered; `nil` if there is none.
    private func rest(of doubt: Doubt, received: Int) -> Doubt? {
        let first = doubt.claim.first + received
        guard received == doubt.claim.count, first < doubt.end else { return nil }
        let claim = Claim(first: first, count: min(received, doubt.end - first), join: !hasJoined)
        return Doubt(claim: claim, end: doubt.end, losses: 0)
    }

    /// Records that no answer arrived.
    ///
    /// If the answer to the same claim is lost again, it may be too large for the server or for something on the way. So the lane asks for
    /// the claim's jobs in smaller parts.
    /// - Parameter mayHaveRun: true if Redis may have executed the claim.
    mutating func recordFailure(mayHaveRun: Bool, now: NIODeadline) {
        if mayHaveRun, let inFlight, inFlight.count > 0 {
            var doubt = Doubt(claim: inFlight, end: inFlight.first + inFlight.count)
            if let known = inDoubt {
                doubt = known
                doubt.losses += 1
            }
            if doubt.losses > 1 {
                doubt.claim.count = max(1, doubt.claim.count / 4)
                lowered = (doubt.claim.count, now + Self.loweredTime)
            }
            inDoubt = doubt
        }
        inFlight = nil
        notBefore = now
    }

    /// Records that the server refused the claim because it is read-only, loading or out of memory. The next claim is made after a pause. A
    /// claim that was in doubt before remains in doubt.
    mutating func recordRefusal(now: NIODeadline, pause: TimeAmount) {
        inFlight = nil
        notBefore = now + pause
    }

    /// True for a claim listed by Redis that no pending answer can still return.
    func wasAnswered(_ number: Int) -> Bool {
        guard let open = [inFlight, inDoubt?.claim].compactMap({ $0 }).filter({ $0.count > 0 }).map(\.first).min()
        else {
            return true
        }
        return number < open
    }

    /// Records that the lane has adopted a claim that Redis listed. Its number must not be used again.
    mutating func recordAdopted(_ number: Int) { nextNumber = max(nextNumber, number + 1) }

    /// Allows a claim at once.
    mutating func wake() { notBefore = .distantPast }

    /// Allows a claim at a given time, or earlier if one is allowed already.
    mutating func wake(at time: NIODeadline) { notBefore = min(notBefore, time) }

    /// Records that a job was given back for other workers, which may be able to send it.
    mutating func recordReturn(now: NIODeadline) { delaysRetriesUntil = now + Self.givenBackTime }

    /// True for the polling lane if a poll has been due for a second, so that the lane is probably unable to claim.
    func cannotPoll(now: NIODeadline) -> Bool {
        polls && now >= notBefore && now - max(notBefore, askedAt) >= Self.unwatchedPoll
    }

    /// Records that the lease was lost. The claims belong to other lanes now, and this lane continues under another name.
    mutating func recordLostLease() {
        inFlight = nil
        inDoubt = nil
        hasJoined = false
        notBefore = .distantPast
    }
}
