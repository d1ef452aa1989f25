import NIOCore
import PushJob
import PushQueue

struct ClaimedJob {
    /// Its bytes, as Redis has them.
    var body: ByteBuffer
    var claim: ClaimID
    /// True if the job may have been sent before under the same claim.
    var isRecovered = false
    /// True if the job's turn within its campaign's rate has come.
    var hasTurn = false
    /// True if the job's turn within the rate of its `fair` has come.
    var hasFairTurn = false
    /// True if the job has the reservation that its `unique_for` requires.
    var hasReservation = false
    /// The time at which Redis last said that no newer job has its `replaces`.
    var confirmedAt: NIODeadline?
}

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

    /// The reservation of the job's id; `nil` if the job is not to be unique.
    var reservation: Reservation? { queue.reservation(of: job, claim: claim) }
}

/// The way in which an ``UnsentJob`` leaves the lane.
enum UnsentEnd {
    case dead(Reason)
    case expired
    case cancelled(JobCommands.Target, JobCommands.Command)
    /// Returns after a delay in milliseconds; spends no attempt.
    case deferred(Reason, delay: Int64)
    /// Waits among the retries until a time in milliseconds of Redis' clock.
    case scheduled(until: Int64)
    /// Replaced by pieces with this many tokens each.
    case split(size: Int)
    /// Dropped, because another job has reserved its id.
    case duplicate
    /// Dropped, because a job with this id, or a campaign, has replaced it.
    case replaced(by: ByteBuffer)
}
