import NIOCore
import PushJob
import PushQueue

/// A job that is settled: all of its notifications, or some of them, have ended or were postponed.
struct EndedJob {
    enum Replacement {
        /// The tally has all notifications.
        case none
        /// The rest of the job keeps the notifications that have not ended, under another claim and with this head of its wrapper.
        case rest(ClaimID, head: ByteBuffer)
        /// The whole job waits until a time in milliseconds of Redis' clock.
        case scheduled(until: Int64)
        /// The job is replaced by pieces with this number of tokens each.
        case pieces(size: Int)
    }

    let job: Job
    let claim: ClaimID
    /// The job's first claim on this lane.
    let firstClaim: ClaimID
    /// The generation of the queue's lease when the job was claimed.
    let generation: Int
    let app: String?
    /// The group that the job's failures are compared with if the job has no campaign.
    let group: DeliveryGroup
    /// The time of the job's first sighting, in milliseconds of Redis' clock.
    let firstSeen: Int64
    /// The number of attempts to send the job.
    let attempts: Int
    /// The range of the producer's bytes in the claimed job.
    let original: Range<Int>
    /// The configurations that refuse the job. Not empty if the job returns to Redis for a worker with another configuration.
    let refusedBy: Set<ConfigurationDigest>
    /// The state of a job with many tokens; `nil` for a job with one token, or if nothing of the job was sent.
    let fanOut: FanOut?
    let tally: JobTally
    var replacement = Replacement.none

    /// A job that was accepted.
    /// - Parameters:
    ///   - app: the name of its app.
    ///   - pushType: the push type of its notifications.
    /// - Returns: `nil` if the job can't be decoded, although it was decoded when it was claimed. The claim is then left to be recovered.
    init?(_ active: ActiveJob, app: String, pushType: String) {
        guard let job = active.job, let tally = active.tally else { return nil }
        self.job = job
        self.tally = tally
        self.app = app
        group = DeliveryGroup(app: app, pushType: pushType)
        claim = active.claim
        firstClaim = active.firstClaim
        generation = active.generation
        firstSeen = active.firstSeen
        attempts = job.envelope.attempt
        original = active.fanOut?.original ?? job.original
        refusedBy = []
        fanOut = active.fanOut
    }

    /// A job that ends before anything of it is sent.
    init(_ unsent: UnsentJob, _ tally: JobTally) {
        job = unsent.job
        self.tally = tally
        app = unsent.appName
        group = DeliveryGroup(app: unsent.appName ?? "", pushType: "")
        claim = unsent.claim
        firstClaim = unsent.claim
        generation = unsent.queue.generation
        firstSeen = unsent.firstSeen
        attempts = unsent.envelope.attempt - 1
        original = unsent.job.original
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

    /// Converts a range of the decoded bytes to a range of the claimed job.
    func place(_ range: Range<Int>) -> Range<Int> {
        let shift = original.lowerBound - job.original.lowerBound
        return range.lowerBound + shift..<range.upperBound + shift
    }
}
