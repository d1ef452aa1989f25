import NIOCore
import PushJob

/// A dead letter in Redis: a line of JSON about it, a line feed, and the original's bytes, unchanged.
public struct DeadLetter: Sendable, Equatable {
    /// The JSON object about it: `reason`, `at` (ms since 1970), `attempts`, `claim`, `size`, and other known facts.
    public var header: ByteBuffer
    public var original: ByteBuffer

    public init(header: ByteBuffer, original: ByteBuffer) {
        self.header = header
        self.original = original
    }

    /// Parses a member of the set; `nil` if it is not a dead letter.
    public init?(member: ByteBuffer) {
        let bytes = member.readableBytesView
        guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")),
            let header = member.getSlice(at: member.readerIndex, length: end - bytes.startIndex),
            let original = member.getSlice(at: end + 1, length: bytes.endIndex - end - 1)
        else { return nil }
        self.header = header
        self.original = original
    }

    /// Returns the JSON members with a dead letter's details, for ``Settlement/bury(_:as:reason:attempts:members:original:settles:)``.
    /// - Parameters:
    ///   - app: the app that was chosen for the job; `nil` for the app that the job names.
    ///   - firstSeen: the time when the job was first seen, in milliseconds since 1970; `nil` for the time in its wrapper.
    ///   - detail: an explanation for operators.
    ///   - status: APNs' status, or the gateway's.
    ///   - error: the reason of the last attempt.
    ///   - tokens: the tokens that it is about, if these are not all tokens of the job.
    public static func members(
        job: Job? = nil, app: String? = nil, firstSeen: Int64? = nil, detail: String? = nil, status: Int? = nil,
        error: String? = nil, tokens: [ByteBuffer] = [], keepsReservation: Bool = false
    ) -> ByteBuffer {
        var json = ByteBuffer()
        json.writeMember("id", job?.id.flatMap { job?.text($0) })
        if let job, job.id == nil || job.uniqueFor != nil {
            json.writeMember("origin", job.envelope.origin.map(job.text))
        }
        if keepsReservation { json.writeMember("reserved", true) }
        json.writeMember("app", app.map { ByteBuffer(string: $0) } ?? job?.app.flatMap { job?.text($0) })
        json.writeMember("campaign", job?.campaign.flatMap { job?.text($0) })
        json.writeMember("fair", job?.fair.flatMap { job?.text($0) })
        json.writeMember("labels", json: job?.labelsText)
        json.writeMember("enqueued", firstSeen ?? job?.envelope.enqueued)
        if let requeues = job?.envelope.requeues, requeues > 0 { json.writeMember("requeues", requeues) }
        json.writeMember("status", status)
        json.writeMember("error", error)
        json.writeMember("detail", detail)
        if !tokens.isEmpty { json.writeArray("tokens", tokens) { $0.writeJSONString($1) } }
        return json
    }
}
