import NIOCore
import PushJob

/// A dead letter in Redis: a line of JSON about it, a line feed, and the original's bytes, unchanged.
public struct DeadLetter: Sendable, Equatable {
    /// The JSON object about it: `reason`, `at` (ms since 1970), `attempts`, `claim`, `size`, and other known facts.
    public var header: ByteBuffer
    /// The producer's bytes.
    public var original: ByteBuffer

    /// Makes a dead letter from its parts.
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

    /// Returns the JSON members with a dead letter's details, for
    /// ``Settlement/bury(_:as:reason:attempts:members:original:settles:)``.
    /// - Parameters:
    ///   - app: the app that was chosen for the job; `nil` for the app that the job names.
    ///   - firstSeen: the time at which the job was first seen, in milliseconds since 1970; `nil` for the time in its
    ///     wrapper.
    ///   - detail: an explanation for operators.
    ///   - status: APNs' status, or the gateway's.
    ///   - error: the reason of the last attempt.
    ///   - tokens: the tokens that it is about, if these are not all tokens of the job.
    public static func members(
        job: Job? = nil, app: String? = nil, firstSeen: Int64? = nil, detail: String? = nil, status: Int? = nil,
        error: String? = nil, tokens: [ByteBuffer] = [], keepsReservation: Bool = false
    ) -> ByteBuffer {
        var json = ByteBuffer()
        if let job, let id = job.id {
            json.writeString(",\"id\":")
            json.writeJSONString(job.text(id))
        }
        if let job, job.id == nil || job.uniqueFor != nil, let origin = job.envelope.origin {
            json.writeString(",\"origin\":")
            json.writeJSONString(job.text(origin))
        }
        if keepsReservation { json.writeString(",\"reserved\":true") }
        if let app = app.map({ ByteBuffer(string: $0) }) ?? job?.app.flatMap({ job?.text($0) }) {
            json.writeString(",\"app\":")
            json.writeJSONString(app)
        }
        for (name, field) in [("campaign", job?.campaign), ("fair", job?.fair)] {
            guard let job, let field else { continue }
            json.writeString(",\"\(name)\":")
            json.writeJSONString(job.text(field))
        }
        if let labels = job?.labelsText {
            json.writeString(",\"labels\":")
            json.writeImmutableBuffer(labels)
        }
        if let enqueued = firstSeen ?? job?.envelope.enqueued { json.writeString(",\"enqueued\":\(enqueued)") }
        if let requeues = job?.envelope.requeues, requeues > 0 { json.writeString(",\"requeues\":\(requeues)") }
        if let status { json.writeString(",\"status\":\(status)") }
        if let error {
            json.writeString(",\"error\":")
            json.writeJSONString(error)
        }
        if let detail {
            json.writeString(",\"detail\":")
            json.writeJSONString(detail)
        }
        var separator = ",\"tokens\":["
        for token in tokens {
            json.writeString(separator)
            json.writeJSONString(token)
            separator = ","
        }
        if !tokens.isEmpty { json.writeString("]") }
        return json
    }
}
