import NIOCore

/// Reads a job from what was claimed (design, section 5).
///
/// One pass over the bytes: it checks that all of them are JSON, notes where the known members stand and checks those.
/// Members that it does not know are checked for being JSON and otherwise left alone.
public struct JobDecoder {
    /// Reads a job. When it succeeds it has allocated nothing.
    /// - Parameter body: what was claimed: a producer's bytes, or those in a wrapper.
    /// - Throws: ``JobError``: ``JobError/malformedJSON(_:)`` for everything that is not JSON, else the first rule that is
    ///   broken. ``Envelope/read(_:)`` still finds the wrapper and the original.
    public static func decode(_ body: ByteBuffer) throws(JobError) -> Job {
        guard body.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: body.readableBytes) }
        return try body.withUnsafeReadableBytes { bytes throws(JobError) in
            var job = Job(body: body, envelope: Envelope.read(bytes))
            if let error = read(bytes, in: job.original, into: &job) {
                throw error.offset(by: job.original.lowerBound)
            }
            return job
        }
    }

    @inline(__always)
    static func read(_ bytes: UnsafeRawBufferPointer, in document: Range<Int>, into job: inout Job) -> JobError? {
        do throws(JSONError) {
            var reader = JobReader(JSONScanner(bytes, in: document), ignoresTokens: job.envelope.overridesTokens)
            guard let brokenRule = try reader.readDocument(into: &job) else { return nil }
            // The reader stopped there. What is not JSON at all should be called that, wherever it is not.
            var scanner = JSONScanner(bytes, in: document)
            try scanner.skipDocument()
            return brokenRule
        } catch {
            return .malformedJSON(error)
        }
    }
}
