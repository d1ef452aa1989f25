import COpenSSL
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// A job as it is stored in Redis, for operators.
package struct StoredJob: Sendable {
    /// The state of a job. The raw value is its spelling in commands.
    package enum State: String, CaseIterable, Sendable, Comparable {
        /// The job is in the list, among the sorted jobs or in the inbox.
        case waiting
        /// The job failed and is tried again. It may have been deferred since then.
        case retrying
        /// The job waits for its `send_at`.
        case scheduled
        /// The job could not be sent, and has not failed.
        case deferred
        case claimed

        /// The states of jobs that have a due time.
        package static let postponed: Set<Self> = [.retrying, .scheduled, .deferred]

        package static func < (one: Self, other: Self) -> Bool { one.index < other.index }

        private var index: Int { Self.allCases.firstIndex(of: self) ?? 0 }
    }

    package let state: State
    /// The job as it is stored, with its wrapper. For a job larger than 16 MiB, only the beginning.
    package let body: ByteBuffer
    /// The size of the stored job in bytes.
    package let size: Int
    /// The member of a sorted job; `nil` for other jobs.
    private let sorted: SortedMember?
    /// The time of the job's next attempt, in milliseconds since 1970; `nil` if the job is not postponed.
    package let due: Int64?
    package let lane: String?
    package let envelope: Envelope
    /// The job; `nil` if it was not decoded. If it is not valid, it has only the members that identify it.
    package let job: Job?
    /// True if the job is valid, or was not decoded.
    package let isValid: Bool

    /// True if the job's reservation outlives it.
    var keepsReservation: Bool { envelope.keepsReservation || envelope.reclaims > 0 }

    /// The reservation that ends if the job is cancelled; `nil` without a reservation.
    var endingReservation: Reservation? {
        guard let job, let origin = job.envelope.origin, !keepsReservation else { return nil }
        return Reservation(of: job, claim: .none, origin: job.text(origin))
    }

    /// - Parameters:
    ///   - due: the due time of a postponed job; `nil` for other jobs.
    ///   - hasFailed: true for a postponed job that failed.
    ///   - format: the format of the job; `nil` to leave the job undecoded.
    package init(
        _ body: ByteBuffer, size: Int, due: Int64? = nil, hasFailed: Bool = false, lane: String? = nil,
        format: JobFormat?
    ) {
        self.init(body, size: size, due: due, hasFailed: hasFailed, lane: lane, member: nil, format: format)
    }

    /// Makes a sorted job from a member of the set, without the wrapper that only sorted jobs have.
    /// - Parameters:
    ///   - size: the size of the member in bytes.
    ///   - format: the format of the job; `nil` to leave the job undecoded.
    init(sorted member: ByteBuffer, size: Int, format: JobFormat?) {
        let parts = SortedMember(member, isWhole: size == member.readableBytes)
        let wrapper = parts.lead.readableBytes > 0 ? parts.lead.readableBytes + 1 : 0
        self.init(parts.job, size: size - wrapper, member: parts, format: format)
    }

    private init(
        _ body: ByteBuffer, size: Int, due: Int64? = nil, hasFailed: Bool = false, lane: String? = nil,
        member: SortedMember?, format: JobFormat?
    ) {
        self.body = body
        self.size = size
        sorted = member
        self.due = due
        self.lane = lane
        envelope = Envelope.read(body)
        do throws(JobError) {
            job = try format.map { format throws(JobError) in try JobDecoder.decode(body, as: format) }
            isValid = true
        } catch {
            // Tries Sidekiq's format, so that operators need not specify it.
            let sidekiq = try? JobDecoder.decode(body, as: .sidekiq(classes: []))
            job = sidekiq ?? format.map { JobDecoder.identify(body, as: $0) }
            isValid = sidekiq != nil
        }
        if lane != nil {
            state = .claimed
        } else if due == nil {
            state = .waiting
        } else {
            state = hasFailed ? .retrying : envelope.wait != nil ? .deferred : .scheduled
        }
    }

    /// The job's bytes in Redis.
    var stored: ByteBuffer { sorted?.replacing(by: body) ?? body }
    /// The offset of the producer's bytes in ``stored``.
    var start: Int { envelope.original.lowerBound + (sorted?.lead.readableBytes ?? 0) }

    /// True if all bytes of the job were read.
    package var isWhole: Bool { size == body.readableBytes }

    /// The producer's bytes, without a worker's wrapper.
    package var original: ByteBuffer { envelope.originalBytes(in: body) }

    /// The key by which operators name the job.
    package var key: String { JobKey.of(original) }

    /// The job's ID from its producer or, without one, from a worker's wrapper.
    package var id: ByteBuffer? { job.flatMap { job in job.id.map(job.text) } ?? envelope.id.map(text) }
    package var app: ByteBuffer? { job.flatMap { job in job.app.map(job.text) } }
    package var topic: ByteBuffer? { job.flatMap { job in job.topic.map(job.text) } }
    package var campaign: ByteBuffer? { job?.campaignName }
    package var fair: ByteBuffer? { job.flatMap { job in job.fair.map(job.text) } }
    package var labels: [String: String] { job?.labelsText.map(JobLabels.read) ?? [:] }
    /// Of the jobs with this key, only the newest is sent.
    package var replaces: ByteBuffer? { job.flatMap { job in job.replaces.map(job.text) } }
    /// The device tokens that have no outcome yet, or the job's channel.
    package var tokens: [ByteBuffer] {
        guard let job else { return envelope.tokens(in: body) }
        return job.tokens.map { $0.map(job.text) } ?? [job.token ?? job.channel].compactMap { $0.map(job.text) }
    }
    /// The number of notifications that have no outcome yet.
    package var notifications: Int { job?.tokenCount ?? max(1, envelope.tokens(in: body).count) }
    package var failure: Envelope.Cause? { envelope.failure(in: body) }
    package var deferral: Envelope.Cause? { envelope.deferral(in: body) }
    /// The time when the job was enqueued or first claimed, in milliseconds since 1970.
    package var enqueuedAt: Int64? { job?.enqueuedAt ?? envelope.enqueued }

    private func text(_ field: JobField) -> ByteBuffer { Job(body: body, envelope: envelope).text(field) }

    /// The job in a wrapper that makes it due regardless of its `send_at`. A job that is due anyway is unchanged.
    var madeDue: ByteBuffer {
        guard state == .scheduled, !envelope.isDue else { return body }
        var wrapped = ByteBuffer()
        wrapped.reserveCapacity(body.readableBytes + 64)
        wrapped.writeStaticString(Envelope.prefix)
        wrapped.writeStaticString(#""due":true,"#)
        guard envelope.isWrapped else {
            wrapped.writeStaticString(#""job":"#)
            wrapped.writeImmutableBuffer(body)
            wrapped.writeInteger(UInt8(ascii: "}"))
            return wrapped
        }
        wrapped.writeBytes(body.readableBytesView.dropFirst(Envelope.prefix.utf8CodeUnitCount))
        return wrapped
    }
}

/// A member of the set of sorted jobs: `{"apns_worker":1,"claim":"sorted:<number>","job":<the bytes of the list>}`.
struct SortedMember {
    private static let (prefix, name) = (Array(#"{"apns_worker":1,"claim":"sorted:"#.utf8), Array(#"","job":"#.utf8))

    /// The bytes before the job. Empty if the member is a job itself, which no worker has written.
    let lead: ByteBuffer
    /// The job as it was in the list, where it may have had another wrapper.
    let job: ByteBuffer

    /// - Parameter isWhole: false if only the beginning of the member was read.
    init(_ member: ByteBuffer, isWhole: Bool = true) {
        let bytes = member.readableBytesView
        let number = bytes.dropFirst(Self.prefix.count).prefix { $0 &- 0x30 < 10 }
        let start = number.endIndex + Self.name.count
        guard bytes.starts(with: Self.prefix), !number.isEmpty, bytes[number.endIndex...].starts(with: Self.name),
            !isWhole || bytes.last == UInt8(ascii: "}") && start < bytes.endIndex
        else {
            (lead, job) = (ByteBuffer(), member)
            return
        }
        lead = ByteBuffer(bytes[..<start])
        job = ByteBuffer(isWhole ? bytes[start...].dropLast() : bytes[start...])
    }

    /// Returns the member with another job in its place.
    func replacing(by job: ByteBuffer) -> ByteBuffer {
        guard lead.readableBytes > 0 else { return job }
        var member = lead
        member.writeImmutableBuffer(job)
        member.writeInteger(UInt8(ascii: "}"))
        return member
    }
}

/// The key by which operators name a job: the first ten hex digits of the SHA-1 of the producer's bytes.
///
/// It stays the same while the job waits, is claimed and is tried again. Equal jobs have equal keys.
package enum JobKey {
    /// - Parameter original: the producer's bytes.
    package static func of(_ original: ByteBuffer) -> String {
        var digest = [UInt8](repeating: 0, count: Int(SHA_DIGEST_LENGTH))
        _ = original.withUnsafeReadableBytes { SHA1($0.baseAddress, $0.count, &digest) }
        return digest.prefix(5).hex
    }
}
