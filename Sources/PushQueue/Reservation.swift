import NIOCore
import PushJob

/// The reservation that a claimed job with `unique_for` needs before it is sent: it must be the only one with its id.
///
/// The claim in Redis is replaced by ``body``, which says that the job is reserved. Everything that is settled with offsets
/// into the job must use those of ``body`` from then on, and no longer those of what was claimed: decode it anew.
public struct Reservation: Sendable {
    /// The job's claim.
    public let claim: ClaimID
    /// The claim of the reserved job, which takes the place of ``claim``.
    public var reservedClaim: ClaimID { claim.reserved }
    /// The reserved job: what the claim holds when the reservation is granted.
    public let body: ByteBuffer
    /// The results to add if the job turns out to be a duplicate.
    public var results = PackedResults()

    /// The number of notifications that end if the job is a duplicate.
    var notifications = 1
    let id: ByteBuffer
    let milliseconds: Int64
    let head: ByteBuffer
    /// Where the original's bytes stand in the job as it was claimed.
    let original: Range<Int>

    /// - Returns: `nil` for a job that does not ask to be unique, or that has its reservation.
    public init?(of job: Job, claim: ClaimID) {
        guard let milliseconds = job.uniqueFor, let id = job.id, !job.envelope.isReserved else { return nil }
        self.init(
            claim: claim, id: job.text(id), milliseconds: milliseconds, claimed: job.body, envelope: job.envelope)
        notifications = job.tokenCount
    }

    init(claim: ClaimID, id: ByteBuffer, milliseconds: Int64, claimed: ByteBuffer, envelope: Envelope) {
        self.claim = claim
        self.id = id
        self.milliseconds = milliseconds
        original = envelope.original
        let head = Self.head(claimed, envelope)
        self.head = head
        let bytes = claimed.readableBytesView
        var body = ByteBuffer()
        body.reserveCapacity(head.readableBytes + original.count + 1)
        body.writeImmutableBuffer(head)
        body.writeBytes(bytes[bytes.startIndex + original.lowerBound..<bytes.startIndex + original.upperBound])
        body.writeInteger(UInt8(ascii: "}"))
        self.body = body
    }

    /// A wrapper's own head with one member more, so that nothing it says is lost; for a bare job a new one.
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
public enum ReservationResult: Sendable, Equatable {
    /// The job may be sent, as ``Reservation/body``.
    case granted
    /// Another job with its id came first: this one has ended, and the claim is settled.
    case duplicate
    /// The claim is not the worker's own any more.
    case lost
}
