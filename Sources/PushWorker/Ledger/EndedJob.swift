import NIOCore
import PushJob
import PushQueue

/// A job of which nothing has been sent: it ends, is postponed, or waits for an answer from Redis.
struct UnsentJob {
    var claimed: ClaimedJob
    let queue: QueueContext
    /// The decoded job. If its body is not a valid job, only the fields that identify it; see
    /// `JobDecoder.identify(_:as:)`.
    var job: Job
    /// The job's app and its name; `nil` if no app of the worker accepts the job.
    var app: AppID?
    var appName: String?
    /// The configurations by which workers refuse it, if it goes back for one of another configuration.
    var refusedBy: Set<ConfigurationDigest> = []

    var claim: ClaimID { claimed.claim }

    var envelope: Envelope { job.envelope }

    /// The bytes of which the job was decoded.
    var body: ByteBuffer { job.body }

    var notifications: Int { job.tokenCount }

    /// The time at which the job was first seen, in milliseconds.
    var firstSeen: Int64 { envelope.enqueued ?? queue.now }

    /// Records that the job has its reservation: the claimed job is now another one, which says so.
    mutating func recordReservation(_ reservation: Reservation) {
        claimed.claim = reservation.reservedClaim
        claimed.body = reservation.body
        claimed.shift = reservation.shift
        job.recordReservation()
    }
}

/// The way in which an ``UnsentJob`` leaves the lane.
enum UnsentEnd {
    case dead(Reason)
    case expired
    /// Cancelled by an operator.
    case cancelled(JobCommands.Target, JobCommands.Command)
    /// Returns after a delay in milliseconds; spends no attempt.
    case deferred(Reason, delay: Int64)
    /// Waits among the retries until a time in milliseconds of Redis' clock.
    case scheduled(until: Int64)
    /// Replaced by pieces with this many tokens each.
    case split(size: Int)
}

/// A job on its way to a settlement: all of its notifications have ended or were postponed, or some of them.
struct EndedJob {
    /// What replaces the claim.
    enum Replacement {
        /// Nothing but what the tally says.
        case none
        /// A claim of the notifications that have not ended, whose wrapper has this head.
        case rest(ClaimID, head: ByteBuffer)
        /// The whole job, which waits until a time in milliseconds of Redis' clock.
        case scheduled(until: Int64)
        /// Pieces with this many tokens each.
        case pieces(size: Int)
    }

    let job: Job
    let claim: ClaimID
    /// The claim under which it was accepted.
    let firstClaim: ClaimID
    /// The generation of the queue's lease under which it was claimed.
    let generation: Int
    /// The name of its app, if it is known.
    let app: String?
    /// The time at which it was first seen, in milliseconds of Redis' clock.
    let firstSeen: Int64
    /// The number of attempts to send it.
    let attempts: Int
    /// The range of the producer's bytes in the claimed job.
    let original: Range<Int>
    /// The configurations by which workers refuse it, if it goes back for one of another configuration.
    let refusedBy: Set<ConfigurationDigest>
    /// The further state of a job with many tokens that has been sent.
    let fanOut: FanOut?
    /// What became of its notifications.
    let tally: JobTally
    var replacement = Replacement.none

    /// A job that was accepted.
    /// - Parameter app: the name of its app.
    /// - Returns: `nil` if its body can't be decoded. It was when it was claimed; should it fail now, the claim is left to
    ///   be recovered.
    init?(_ active: ActiveJob, app: String) {
        guard let job = active.job, let tally = active.tally else { return nil }
        self.job = job
        self.tally = tally
        self.app = app
        claim = active.claim
        firstClaim = active.firstClaim
        generation = active.generation
        firstSeen = active.firstSeen
        attempts = job.envelope.attempt
        original = active.fanOut?.original ?? job.original
        refusedBy = []
        fanOut = active.fanOut
    }

    /// A job of which nothing is sent.
    init(_ unsent: UnsentJob, _ tally: JobTally) {
        job = unsent.job
        self.tally = tally
        app = unsent.appName
        claim = unsent.claim
        firstClaim = unsent.claim
        generation = unsent.queue.generation
        firstSeen = unsent.firstSeen
        attempts = unsent.envelope.attempt - 1
        original = unsent.claimed.place(unsent.job.original)
        refusedBy = unsent.refusedBy
        fanOut = nil
    }

    /// The fate of the whole job; `nil` if some of its notifications have not ended.
    var fate: Fate? {
        switch replacement {
        case .none: tally.fate
        case .rest: nil
        case .scheduled: .postponed(.scheduled)
        case .pieces: .split
        }
    }

    /// Returns the range in the claimed job of a range of the decoded bytes.
    func place(_ range: Range<Int>) -> Range<Int> {
        let shift = original.lowerBound - job.original.lowerBound
        return range.lowerBound + shift..<range.upperBound + shift
    }
}
