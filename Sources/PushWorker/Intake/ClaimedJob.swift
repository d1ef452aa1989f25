import NIOCore
import PushJob
import PushQueue

struct ClaimedJob {
    /// The claimed bytes.
    var body: ByteBuffer
    var claim: ClaimID
    /// True if the lane may have sent the job before under the same claim.
    var isRecovered = false
    /// True if the job had its turn within its campaign's rate.
    var hasTurn = false
    /// True if the job had its turn within the rate of its `fair`.
    var hasFairTurn = false
    /// True if the job has the reservation that its `unique_for` requires.
    var hasReservation = false
    /// The time of Redis' answer that no newer job has its `replaces`.
    var confirmedAt: NIODeadline?
}

/// A job before anything of it is sent: it ends, is postponed, or waits for an answer from Redis.
struct UnsentJob {
    var claimed: ClaimedJob
    let queue: QueueContext
    /// The decoded job. If the body is not a valid job, it has only the fields that identify it; see `JobDecoder.identify(_:as:)`.
    var job: Job
    /// The job's app and its name; `nil` if no app of the worker accepts the job.
    var app: AppID?
    var appName: String?
    /// The configurations that refuse the job. Not empty if the job returns to Redis for a worker with another configuration.
    var refusedBy: Set<ConfigurationDigest> = []

    var claim: ClaimID { claimed.claim }

    var envelope: Envelope { job.envelope }

    var body: ByteBuffer { job.body }

    var notifications: Int { job.tokenCount }

    /// The time of the job's first sighting, in milliseconds of Redis' clock.
    var firstSeen: Int64 { envelope.enqueued ?? queue.now }

    /// The reservation of the job's id; `nil` if the job need not be unique.
    var reservation: Reservation? { queue.reservation(of: job, claim: claim) }
}

/// The end of an ``UnsentJob`` on the lane.
enum UnsentEnd {
    case dead(Reason)
    case expired
    case cancelled(JobCommands.Target, JobCommands.Command)
    /// The job returns to Redis for a delay in milliseconds, and spends no attempt.
    case deferred(Reason, delay: Int64)
    /// The job waits until a time in milliseconds of Redis' clock.
    case scheduled(until: Int64)
    /// The job is replaced by pieces with this number of tokens each.
    case split(size: Int)
    /// The job is dropped, because another job has reserved its id.
    case duplicate
    /// The job is dropped, because a job with this id, or a campaign with this name, has replaced it.
    case replaced(by: ByteBuffer)
}

/// A step before a decoded job can be accepted.
///
/// Indirect, so that a `nil` is small: nearly all jobs need no step.
indirect enum Prerequisite {
    /// Redis must reserve the job's id, so that no other job with this id is sent.
    case reservation(Reservation, of: UnsentJob)
    /// The job must be the newest job of its key.
    case newest(NewestJob, of: UnsentJob)
    /// The job needs a turn within a rate.
    case turn(TurnQuestion, of: UnsentJob)
}

/// A question to Redis: may a job be sent now within a rate?
struct TurnQuestion {
    let limit: SharedRates.Limit
    let turn: SharedRates.Turn
}
