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

/// How the jobs on a queue's list are written.
public enum JobFormat: Sendable, Equatable {
    /// As this project's own documentation has it: the job's members at the top.
    case native
    /// As Sidekiq and Resque write theirs, `{"class":…,"args":[the job],"jid":…}`, and ActiveJob through either. Only the
    /// classes named are taken; all, if none is.
    case sidekiq(classes: [String])

    /// The same format, with all classes taken: for a job that was taken before.
    public var withoutClasses: JobFormat {
        switch self {
        case .native: .native
        case .sidekiq: .sidekiq(classes: [])
        }
    }
}

/// The JSON Schema (draft 2020-12) of a job as producers write it.
public enum JobSchema {
    /// The schema's text, which ends with a line feed.
    public static var text: String { String(decoding: PackageResources.job_schema_json, as: UTF8.self) }
}
