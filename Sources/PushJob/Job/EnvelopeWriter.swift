import NIOCore

/// Writes what goes around a job's original bytes when it goes back to the queue (see ``Envelope``).
///
/// Write the members that apply, each once, then take the ``head()`` and append the original and `}`; or let
/// ``wrapping(_:)`` do that. What it writes is always read back by ``Envelope/read(_:)`` as long as the id is one that a
/// job may have.
public struct EnvelopeWriter: Sendable {
    private var buffer: ByteBuffer

    /// - Parameters:
    ///   - buffer: what to write behind; empty unless heads are collected in one buffer.
    ///   - attempt: the number of the attempt that is to be made next, from 1.
    public init(into buffer: ByteBuffer = ByteBuffer(), attempt: Int = 1) {
        self.buffer = buffer
        self.buffer.writeStaticString(Envelope.prefix)
        self.buffer.writeStaticString(#""attempt":"#)
        self.buffer.writeJSONInteger(Int64(attempt))
    }

    /// The job's id: decoded text, not longer than 255 bytes.
    public mutating func write(id: ByteBuffer) {
        buffer.writeStaticString(#","id":"#)
        buffer.writeJSONString(id)
    }

    /// The claim that this is made from, as `<worker>:<number>`.
    public mutating func write(origin: ByteBuffer) {
        buffer.writeStaticString(#","origin":"#)
        buffer.writeJSONString(origin)
    }

    /// How often the job was taken back from a worker that died.
    public mutating func write(reclaims: Int) {
        buffer.writeStaticString(#","reclaims":"#)
        buffer.writeJSONInteger(Int64(reclaims))
    }

    /// How often the job came back from the dead letters; where it never did, nothing is written.
    public mutating func write(requeues: Int32) {
        guard requeues > 0 else { return }
        buffer.writeStaticString(#","requeues":"#)
        buffer.writeJSONInteger(Int64(requeues))
    }

    /// When the job came back from the dead letters last, in milliseconds since 1970; where it never did, nothing is written.
    public mutating func write(requeued: Int64?) {
        guard let requeued else { return }
        buffer.writeStaticString(#","requeued":"#)
        buffer.writeJSONInteger(requeued)
    }

    /// The tokens still to be sent to, as decoded text. Without any, nothing is written and the job's own count.
    public mutating func write(tokens: some Sequence<ByteBuffer>) {
        var separator: StaticString = #","tokens":["#
        var isEmpty = true
        for token in tokens {
            buffer.writeStaticString(separator)
            buffer.writeJSONString(token)
            separator = ","
            isEmpty = false
        }
        if !isEmpty { buffer.writeInteger(UInt8(ascii: "]")) }
    }

    /// Writes the last failure.
    /// - Parameters:
    ///   - status: the HTTP status or the gateway's code, if there was an answer.
    ///   - reason: APNs' reason or one of the worker's own.
    ///   - at: when, in milliseconds since 1970.
    public mutating func write(errorStatus status: Int?, reason: String, at: Int64) {
        buffer.writeStaticString(#","error":{"#)
        if let status {
            buffer.writeStaticString(#""status":"#)
            buffer.writeJSONInteger(Int64(status))
            buffer.writeInteger(UInt8(ascii: ","))
        }
        buffer.writeStaticString(#""reason":"#)
        buffer.writeJSONString(reason)
        buffer.writeStaticString(#","at":"#)
        buffer.writeJSONInteger(at)
        buffer.writeInteger(UInt8(ascii: "}"))
    }

    /// An error as a wrapper had it: a JSON object, as it is.
    public mutating func write(error: ByteBuffer) {
        buffer.writeStaticString(#","error":"#)
        buffer.writeImmutableBuffer(error)
    }

    /// The claim that the job was last part of.
    public mutating func write(claim: ByteBuffer) {
        buffer.writeStaticString(#","claim":"#)
        buffer.writeJSONString(claim)
    }

    /// True if the job has its reservation: what is written for a job that has it must say so, or the next claim would
    /// ask for it again and find it taken.
    public mutating func write(reserved: Bool) {
        if reserved { buffer.writeStaticString(#","reserved":true"#) }
    }

    /// Why the job is not due yet, if that is not a failure; `nil` writes nothing.
    public mutating func write(why: Envelope.Why?) {
        guard let why else { return }
        buffer.writeStaticString(#","why":"#)
        buffer.writeJSONString(why.rawValue)
    }

    /// True if an operator has made the job due, whatever its `send_at` says.
    public mutating func write(due: Bool) {
        if due { buffer.writeStaticString(#","due":true"#) }
    }

    /// When the job was first seen, in milliseconds since 1970.
    public mutating func write(enqueued: Int64) {
        buffer.writeStaticString(#","enqueued":"#)
        buffer.writeJSONInteger(enqueued)
    }

    /// The members so far: for whoever writes further ones, and `"job":`, itself.
    public consuming func prefix() -> ByteBuffer { buffer }

    /// The wrapper up to and with `"job":`. The original must follow, and then `}`.
    public consuming func head() -> ByteBuffer {
        buffer.writeStaticString(Self.jobMember)
        return buffer
    }

    /// The whole wrapper.
    /// - Parameter original: the producer's bytes, JSON or not.
    public consuming func wrapping(_ original: ByteBuffer) -> ByteBuffer {
        buffer.writeStaticString(Self.jobMember)
        buffer.writeImmutableBuffer(original)
        buffer.writeInteger(UInt8(ascii: "}"))
        return buffer
    }

    private static let jobMember: StaticString = #","job":"#
}
