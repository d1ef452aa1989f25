import NIOCore
import PushJob

/// A request to reserve the id of a claimed job with `unique_for`, so that only one job with this id is sent.
///
/// The reservation belongs to the job's origin, which is its first claim. Each wrapper of the job has this origin, so a job that asks again
/// still has its reservation.
public struct Reservation: Sendable {
    public let claim: ClaimID
    public let id: ByteBuffer
    /// The job's first claim, as `<lane>:<number>.<stamp>`.
    public let origin: ByteBuffer
    let milliseconds: Int64

    /// - Parameter origin: the job's first claim.
    /// - Returns: `nil` for a job without `unique_for`.
    public init?(of job: Job, claim: ClaimID, origin: ByteBuffer) {
        guard let milliseconds = job.uniqueFor, let id = job.id else { return nil }
        self.init(claim: claim, id: job.text(id), origin: origin, milliseconds: milliseconds)
    }

    public init(claim: ClaimID, id: ByteBuffer, origin: ByteBuffer, milliseconds: Int64) {
        (self.claim, self.id, self.origin, self.milliseconds) = (claim, id, origin, milliseconds)
    }
}

public enum ReservationResult: Int, Sendable {
    /// The job can be sent.
    case granted = 1
    /// Another job has reserved the id first.
    case duplicate = 0
    /// The claim is no longer the lane's own.
    case lost = -1
}
