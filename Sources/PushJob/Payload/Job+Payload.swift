import NIOCore

extension Job {
    /// Whether ``payload(limit:)`` must make the payload that is to be sent; if not, it is ``payload``, byte for byte.
    public var makesPayload: Bool { !traits.isDisjoint(with: [.shortForms, .truncate]) }

    /// The payload that is to be sent: a slice of the job as it was written or, for a job of short forms and where the
    /// alert's body must be shortened, a new buffer. It is made anew each time.
    ///
    /// - Parameter limit: how many bytes APNs takes. It matters only to a job with `truncate`: whatever another has is
    ///   given out, however long it is.
    /// - Throws: ``JobError/payloadTooLong(excess:limit:)`` for a job with `truncate` that cannot be made to fit.
    public func payload(limit: Int) throws(JobError) -> ByteBuffer {
        guard makesPayload else { return bytes(payload) }
        let whole = traits.contains(.shortForms) ? try composed() : bytes(payload)
        guard traits.contains(.truncate), whole.readableBytes > limit else { return whole }
        return try PayloadShortener.shorten(whole, to: limit)
    }

    private func composed() throws(JobError) -> ByteBuffer {
        do throws(JSONError) {
            return try body.withUnsafeReadableBytes { bytes throws(JSONError) in
                try PayloadComposer.compose(bytes, in: document)
            }
        } catch {
            throw .malformedJSON(error)
        }
    }
}
