import NIOCore

/// Writes the wrapper of a job that is put back into the queue (see ``Envelope``).
///
/// Write the members that apply, each once. Then append the original and `}` to the ``head()``. ``Envelope/read(_:)`` can always read the
/// result if the id is valid. ``Envelope`` describes the members.
public struct EnvelopeWriter: Sendable {
    private var buffer = ByteBuffer()

    /// - Parameter attempt: the number of the next attempt, at least 1.
    public init(attempt: Int = 1) {
        buffer.writeStaticString(Envelope.prefix)
        buffer.writeStaticString(#""attempt":"#)
        buffer.writeJSONInteger(Int64(attempt))
    }

    /// - Parameter id: decoded text of at most 255 bytes.
    public mutating func write(id: ByteBuffer) {
        buffer.writeStaticString(#","id":"#)
        buffer.writeJSONString(id)
    }

    public mutating func write(origin: ByteBuffer) {
        buffer.writeStaticString(#","origin":"#)
        buffer.writeJSONString(origin)
    }

    public mutating func write(reclaims: Int) {
        buffer.writeStaticString(#","reclaims":"#)
        buffer.writeJSONInteger(Int64(reclaims))
    }

    /// Writes nothing for 0.
    public mutating func write(requeues: Int32) {
        guard requeues > 0 else { return }
        buffer.writeStaticString(#","requeues":"#)
        buffer.writeJSONInteger(Int64(requeues))
    }

    public mutating func write(requeued: Int64?) {
        guard let requeued else { return }
        buffer.writeStaticString(#","requeued":"#)
        buffer.writeJSONInteger(requeued)
    }

    /// Writes the remaining tokens, which are decoded text. Without tokens it writes nothing, and the job's own tokens apply.
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
    ///   - at: the time of the failure, in milliseconds since 1970.
    public mutating func write(errorStatus status: Int?, reason: String, at: Int64) {
        buffer.writeStaticString(#","error":"#)
        writeCause(status, reason, at)
    }

    /// Writes the reason why the job is deferred.
    /// - Parameters:
    ///   - status: the HTTP status or the gateway's code, if the reason is an answer.
    ///   - reason: APNs' reason or one of the worker's own.
    ///   - at: the time of the deferral, in milliseconds since 1970.
    public mutating func write(waitStatus status: Int?, reason: String, at: Int64) {
        buffer.writeStaticString(#","wait":"#)
        writeCause(status, reason, at)
    }

    private mutating func writeCause(_ status: Int?, _ reason: String, _ at: Int64) {
        buffer.writeInteger(UInt8(ascii: "{"))
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

    /// Writes the last failure as it was in another wrapper: a JSON object; `nil` writes nothing.
    public mutating func write(error: ByteBuffer?) { write(error, as: #","error":"#) }

    /// Writes the reason of a deferral as it was in another wrapper: a JSON object; `nil` writes nothing.
    public mutating func write(wait: ByteBuffer?) { write(wait, as: #","wait":"#) }

    private mutating func write(_ object: ByteBuffer?, as member: StaticString) {
        guard let object else { return }
        buffer.writeStaticString(member)
        buffer.writeImmutableBuffer(object)
    }

    /// Writes nothing for an empty text.
    public mutating func write(refused: String) {
        guard !refused.isEmpty else { return }
        buffer.writeStaticString(#","refused":"#)
        buffer.writeJSONString(refused)
    }

    public mutating func write(claim: ByteBuffer) {
        buffer.writeStaticString(#","claim":"#)
        buffer.writeJSONString(claim)
    }

    public mutating func write(reserved: Bool) {
        if reserved { buffer.writeStaticString(#","reserved":true"#) }
    }

    public mutating func write(due: Bool) {
        if due { buffer.writeStaticString(#","due":true"#) }
    }

    public mutating func write(enqueued: Int64) {
        buffer.writeStaticString(#","enqueued":"#)
        buffer.writeJSONInteger(enqueued)
    }

    /// Returns the members so far, for a caller that appends further ones and `"job":` itself.
    public consuming func prefix() -> ByteBuffer { buffer }

    /// Returns the wrapper up to and including `"job":`. The original must follow, and then `}`.
    public consuming func head() -> ByteBuffer {
        buffer.writeStaticString(#","job":"#)
        return buffer
    }
}
