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
        var job = Job(body: body, envelope: Envelope.read(body))
        if let error = read(&job, memory) { throw error }
        return job
    }

    /// Reads the members of a job whose body and wrapper are known. In place, because the copies of a returned job cost as much as a
    /// tenth of its reading.
    /// - Returns: the error of ``decode(_:_:)``.
    private static func read(_ job: inout Job, _ memory: PayloadMemory?) -> JobError? {
        let body = job.body
        guard body.readableBytes <= JobField.maximumLength else { return .tooLarge(bytes: body.readableBytes) }
        return body.withUnsafeReadableBytes { bytes in
            guard let error = read(bytes, in: job.original, into: &job, memory) else { return nil }
            if let version = Envelope.newerVersion(of: bytes) { return .newerWrapper(version: version) }
            return error.offset(by: job.original.lowerBound)
        }
    }

    @inline(__always)
    static func read(
        _ bytes: UnsafeRawBufferPointer, in document: Range<Int>, into job: inout Job, hasOtherID: Bool = false,
        _ memory: PayloadMemory?
    ) -> JobError? {
        do throws(JSONError) {
            var reader = JobReader(
                JSONScanner(bytes, in: document), ignoresTokens: job.envelope.overridesTokens, hasOtherID: hasOtherID)
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

    // MARK: Formats

    /// Reads a job in a format, into a job of which only the body and the wrapper are known.
    /// - Returns: the error of ``decode(_:as:_:)``.
    @inline(__always)
    public static func read(_ job: inout Job, as format: JobFormat, _ memory: PayloadMemory?) -> JobError? {
        guard case .sidekiq(let classes) = format else { return read(&job, memory) }
        do throws(JobError) {
            job = try decodeSidekiq(job.body, classes, memory)
            return nil
        } catch {
            return error
        }
    }

    /// Reads a job in a format.
    /// - Parameters:
    ///   - body: the claimed bytes: a producer's, perhaps in a wrapper.
    ///   - format: the format of the producer's bytes.
    ///   - memory: the payload of the job before, which need not be read again; nil for a single job.
    /// - Throws: like ``decode(_:_:)``, and ``JobError/notSidekiq(_:)`` and ``JobError/otherClass(_:accepted:)`` for
    ///   Sidekiq's format.
    @inline(__always)
    public static func decode(
        _ body: ByteBuffer, as format: JobFormat, _ memory: PayloadMemory? = nil
    ) throws(JobError) -> Job {
        switch format {
        case .native: try decode(body, memory)
        case .sidekiq(let classes): try decodeSidekiq(body, classes, memory)
        }
    }

    @inline(never)
    private static func decodeSidekiq(
        _ body: ByteBuffer, _ classes: [String], _ memory: PayloadMemory?
    ) throws(JobError) -> Job {
        guard body.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: body.readableBytes) }
        let envelope = body.withUnsafeReadableBytes { Envelope.read($0) }
        let sidekiq = try SidekiqReader.find(in: body, envelope, classes)
        guard let text = try sidekiq.text(in: body) else {
            return try read(
                sidekiq, sidekiq.argument, in: body, envelope, errorsFrom: envelope.original.lowerBound, memory)
        }
        // All fields are places in one buffer: the rewritten text follows the claimed bytes.
        var both = ByteBuffer()
        both.reserveCapacity(body.readableBytes + text.readableBytes)
        both.writeImmutableBuffer(body)
        both.writeImmutableBuffer(text)
        guard both.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: body.readableBytes) }
        let start = body.readableBytes
        return try read(sidekiq, start..<both.readableBytes, in: both, envelope, errorsFrom: start, memory)
    }

    private static func read(
        _ sidekiq: SidekiqJob, _ document: Range<Int>, in body: ByteBuffer, _ envelope: Envelope, errorsFrom start: Int,
        _ memory: PayloadMemory?
    ) throws(JobError) -> Job {
        try body.withUnsafeReadableBytes { bytes throws(JobError) in
            var job = Job(body: body, envelope: envelope)
            job.argument = JobField(document)
            job.enqueuedAt = sidekiq.enqueuedAt ?? envelope.enqueued
            let id = sidekiq.id.flatMap { MemberRules.isIdentifier($0, in: bytes) ? JobField($0) : nil }
            if let error = read(bytes, in: document, into: &job, hasOtherID: id != nil, memory) {
                throw error.offset(by: start)
            }
            if job.id == nil { job.id = id }
            if job.maxAttempts == nil { job.maxAttempts = sidekiq.maxAttempts }
            return job
        }
    }

    // MARK: The members

    /// Returns the JSON text of the job's own members, valid or not; `nil` if it is not found.
    public static func document(of body: ByteBuffer, as format: JobFormat) -> ByteBuffer? {
        let envelope = Envelope.read(body)
        guard format != .native else {
            return body.getSlice(at: body.readerIndex + envelope.original.lowerBound, length: envelope.original.count)
        }
        do throws(JobError) {
            let sidekiq = try SidekiqReader.find(in: body, envelope)
            if let text = try sidekiq.text(in: body) { return text }
            return body.getSlice(at: body.readerIndex + sidekiq.argument.lowerBound, length: sidekiq.argument.count)
        } catch {
            return nil
        }
    }

    /// Names in a job that no worker reads.
    public struct ForeignNames {
        /// The members that are not the worker's, sorted by name: the first ``MemberName/maximumCompared``. Many are the
        /// producer's own.
        public fileprivate(set) var members: [(name: String, isObject: Bool)] = []
        /// The members in the objects of other systems that choose where or how a push goes, such as
        /// `apns.headers.apns-priority`, with the job's own members for them.
        public fileprivate(set) var settings: [(path: String, member: JobMember)] = []
    }

    /// Returns the names in a job that no worker reads; none of a text that is not JSON, which is another mistake.
    public static func foreignNames(of body: ByteBuffer, as format: JobFormat) -> ForeignNames {
        var names = ForeignNames()
        document(of: body, as: format)?.withUnsafeReadableBytes { bytes in
            let members = try? ForeignJob.members(bytes, in: 0..<bytes.count) { name, first in
                // Such as `"sandbox":true`, which the reader understands.
                var text = name
                let isEnvironment =
                    first == UInt8(ascii: "t") && text.withUTF8 { JobTraits(environment: .init($0)) } != nil
                return !memberNames.contains(name) && !isEnvironment
            }
            names.members = (members ?? []).map { ($0.name, $0.kind == .object) }.sorted { $0.0 < $1.0 }
            names.settings = (try? ForeignJob.settings(bytes, in: 0..<bytes.count)) ?? []
        }
        return names
    }

    private static let memberNames = Set(JobMember.allCases.map { "\($0.name)" })
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
