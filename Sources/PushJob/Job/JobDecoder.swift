import NIOCore

/// Reads a job from the claimed bytes (docs/jobs.md).
///
/// One pass over the bytes checks that all of them are JSON, records the places of the known members, and validates
/// these. Unknown members need only be JSON.
public struct JobDecoder {
    /// Reads a job. Allocates nothing if it succeeds.
    /// - Parameters:
    ///   - body: the claimed bytes: a producer's, perhaps in a wrapper.
    ///   - memory: the payload of the job before, which need not be read again; nil for a single job.
    /// - Throws: ``JobError/malformedJSON(_:_:)`` for a body that is not JSON, else the first rule that is broken.
    ///   ``Envelope/read(_:)`` still finds the wrapper and the original.
    public static func decode(_ body: ByteBuffer, _ memory: PayloadMemory? = nil) throws(JobError) -> Job {
        guard body.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: body.readableBytes) }
        return try body.withUnsafeReadableBytes { bytes throws(JobError) in
            var job = Job(body: body, envelope: Envelope.read(bytes))
            if let error = read(bytes, in: job.original, into: &job, memory) {
                if let version = Envelope.newerVersion(of: bytes) { throw .newerWrapper(version: version) }
                throw error.offset(by: job.original.lowerBound)
            }
            return job
        }
    }

    @inline(__always)
    static func read(
        _ bytes: UnsafeRawBufferPointer, in document: Range<Int>, into job: inout Job, _ memory: PayloadMemory?
    ) -> JobError? {
        do throws(JSONError) {
            var reader = JobReader(JSONScanner(bytes, in: document), ignoresTokens: job.envelope.overridesTokens)
            guard let brokenRule = try reader.readDocument(into: &job, memory) else { return nil }
            // The reader stopped at the rule. A text that is not JSON must be reported as such, wherever its error is.
            var scanner = JSONScanner(bytes, in: document)
            try scanner.skipDocument()
            if case .notAnObject(let offset, _) = brokenRule {
                return .notAnObject(offset: offset, ForeignText.recognize(bytes, in: document))
            }
            return brokenRule
        } catch {
            return .malformedJSON(error, ForeignText.recognize(bytes, in: document, isJSON: false))
        }
    }
}

/// The format of a queue's jobs.
public enum JobFormat: Sendable, Equatable {
    /// This project's own format: the job's members at the top level.
    case native
    /// The format of Sidekiq and Resque, `{"class":…,"args":[the job],"jid":…}`, and of ActiveJob on either. Only jobs
    /// of these classes are accepted; if there are none, jobs of all classes.
    case sidekiq(classes: [String])

    /// The same format with all classes accepted, for a job that was accepted before.
    public var withoutClasses: JobFormat {
        switch self {
        case .native: .native
        case .sidekiq: .sidekiq(classes: [])
        }
    }
}

/// The JSON Schema (draft 2020-12) of a job.
public enum JobSchema {
    /// The schema's text, which ends with a line feed.
    public static var text: String { String(decoding: PackageResources.job_schema_json, as: UTF8.self) }
}
