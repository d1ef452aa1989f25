import NIOCore
import PushJob
import PushQueue

/// A job on its way to a settlement: all of its notifications have ended or were postponed, or some of them.
struct EndedJob {
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
    let app: String?
    /// The group with which its failures are judged if it has no campaign.
    let group: DeliveryGroup
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
    let tally: JobTally
    var replacement = Replacement.none

    /// A job that was accepted.
    /// - Parameters:
    ///   - app: the name of its app.
    ///   - pushType: the push type of its notifications.
    /// - Returns: `nil` if its body can't be decoded. It was when it was claimed; should it fail now, the claim is left to
    ///   be recovered.
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

    /// A job of which nothing is sent.
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

    /// Returns the range in the claimed job of a range of the decoded bytes.
    func place(_ range: Range<Int>) -> Range<Int> {
        let shift = original.lowerBound - job.original.lowerBound
        return range.lowerBound + shift..<range.upperBound + shift
    }
}
