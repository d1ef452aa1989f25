import NIOCore
import PushJob

/// A request to reserve the id of a claimed job with `unique_for`, so that only one job with this id is sent.
///
/// When it is granted, ``body`` replaces the job in the claim, marked as reserved. From then on, settlements must use
/// offsets into ``body``, not into the job as it was claimed: add ``shift`` to these.
package struct Reservation: Sendable {
    /// The job's claim.
    package let claim: ClaimID
    /// The claim of the reserved job, which takes the place of ``claim``.
    package var reservedClaim: ClaimID { claim.reserved }
    /// The number of bytes by which everything but the beginning of a wrapper moves when the reservation is granted.
    package var shift: Int { head.readableBytes - original.lowerBound }
    /// The results to add if the job turns out to be a duplicate.
    package var results = PackedResults()

    /// The number of notifications that end if the job is a duplicate.
    var notifications = 1
    /// The campaign for which they count.
    var campaign: ByteBuffer?
    let id: ByteBuffer
    let milliseconds: Int64
    let head: ByteBuffer
    /// The range of the original's bytes in the job as it was claimed.
    let original: Range<Int>
    private let claimed: ByteBuffer

    /// - Returns: `nil` for a job that is not to be unique, or already has its reservation.
    package init?(of job: Job, claim: ClaimID) {
        guard let milliseconds = job.uniqueFor, let id = job.id, !job.envelope.isReserved else { return nil }
        self.init(
            claim: claim, id: job.text(id), milliseconds: milliseconds, claimed: job.body, envelope: job.envelope)
        (notifications, campaign) = (job.tokenCount, job.campaignName)
    }

    package init(claim: ClaimID, id: ByteBuffer, milliseconds: Int64, claimed: ByteBuffer, envelope: Envelope) {
        self.claim = claim
        self.id = id
        self.milliseconds = milliseconds
        self.claimed = claimed
        original = envelope.original
        head = Self.head(claimed, envelope)
    }

    /// Makes the reserved job: the contents of the claim once the reservation is granted.
    package var body: ByteBuffer {
        let bytes = claimed.readableBytesView
        var body = ByteBuffer()
        body.reserveCapacity(head.readableBytes + original.count + 1)
        body.writeImmutableBuffer(head)
        body.writeBytes(bytes[bytes.startIndex + original.lowerBound..<bytes.startIndex + original.upperBound])
        body.writeInteger(UInt8(ascii: "}"))
        return body
    }

    /// Returns the head of the reserved job: a wrapper's own head with one more member, or a new head for an unwrapped
    /// job.
    private static func head(_ claimed: ByteBuffer, _ envelope: Envelope) -> ByteBuffer {
        var head = ByteBuffer()
        head.writeStaticString(Envelope.prefix)
        head.writeStaticString(#""reserved":true,"#)
        if envelope.isWrapped {
            let bytes = claimed.readableBytesView
            let start = bytes.startIndex + Envelope.prefix.utf8CodeUnitCount
            head.writeBytes(bytes[start..<bytes.startIndex + envelope.original.lowerBound])
        } else {
            head.writeStaticString(#""job":"#)
        }
        return head
    }
}

/// The answer to a ``Reservation``.
package enum ReservationResult: Int, Sendable {
    /// The job can be sent, as ``Reservation/body``.
    case granted = 1
    /// Another job has reserved the id first: this job has ended, and its claim is settled.
    case duplicate = 0
    /// The claim is no longer the lane's own.
    case lost = -1
}
