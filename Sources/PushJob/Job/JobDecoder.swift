import NIOCore

/// Reads a job from the claimed bytes (docs/jobs.md).
///
/// One pass over the bytes checks that all of them are JSON, records the places of the known members, and validates
/// these. Unknown members need only be JSON.
public struct JobDecoder {
    /// Reads a job. Allocates nothing if it succeeds and need not rewrite the job.
    /// - Parameters:
    ///   - body: the claimed bytes: a producer's, perhaps in a wrapper.
    ///   - format: the format of the producer's bytes.
    ///   - memory: the payload of the previous job, which is not read again if this job repeats it; nil for a single job.
    /// - Throws: ``JobError/malformedJSON(_:_:)`` for a body that is not JSON, else the first rule that is broken.
    ///   ``Envelope/read(_:)`` still finds the wrapper and the original.
    public static func decode(
        _ body: ByteBuffer, as format: JobFormat = .native, _ memory: PayloadMemory? = nil
    ) throws(JobError) -> Job {
        var job = Job(body: body, envelope: Envelope.read(body))
        if let error = read(&job, as: format, memory) { throw error }
        return job
    }

    /// Reads the members of a job that so far has only its body and its wrapper. It works in place, because returning the job would copy
    /// it, which costs a tenth of reading it.
    /// - Returns: the error of ``decode(_:as:_:)``.
    @inline(__always)
    public static func read(_ job: inout Job, as format: JobFormat, _ memory: PayloadMemory?) -> JobError? {
        guard job.body.readableBytes <= JobField.maximumLength else { return .tooLarge(bytes: job.body.readableBytes) }
        guard case .sidekiq(let classes) = format else { return read(&job, memory) }
        do throws(JobError) {
            try readSidekiq(&job, classes, memory)
            return nil
        } catch {
            return error
        }
    }

    private static func read(_ job: inout Job, _ memory: PayloadMemory?) -> JobError? {
        let body = job.body
        return body.withUnsafeReadableBytes { bytes in
            guard let error = read(bytes, in: job.original, into: &job, memory) else { return nil }
            if let version = Envelope.newerVersion(of: bytes) { return .newerWrapper(version: version) }
            return error.offset(by: job.original.lowerBound)
        }
    }

    @inline(never)
    private static func readSidekiq(
        _ job: inout Job, _ classes: [String], _ memory: PayloadMemory?
    ) throws(JobError) {
        let sidekiq = try SidekiqReader.find(in: job.body, job.envelope, classes)
        let (body, document) = try sidekiq.place(in: job.body)
        job = Job(body: body, envelope: job.envelope)
        job.argument = JobField(document)
        job.enqueuedAt = sidekiq.enqueuedAt ?? job.envelope.enqueued
        try body.withUnsafeReadableBytes { bytes throws(JobError) in
            let id = JobField(id: sidekiq.id, in: bytes)
            if let error = read(bytes, in: document, into: &job, hasOtherID: id != nil, memory) {
                throw error.offset(by: job.isRewritten ? document.lowerBound : job.original.lowerBound)
            }
            if job.id == nil { job.id = id }
            if job.maxAttempts == nil { job.maxAttempts = sidekiq.maxAttempts }
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
            // The reader stopped at the broken rule. If the text is not JSON, the error in the JSON must be reported, wherever it is.
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

    // MARK: The identity of an invalid job

    /// Reads the members that identify a job from a body that ``decode(_:as:_:)`` refuses: `id`, `token` or `channel`,
    /// `app`, `topic`, `campaign`, `labels` and `traceparent`.
    ///
    /// It steps over all other members, valid or not. At a byte that is not JSON it stops, and keeps the members before
    /// it. The job can be used for dead letters, results and logs, but must not be sent.
    public static func identify(_ body: ByteBuffer, as format: JobFormat) -> Job {
        let envelope = Envelope.read(body)
        var job = Job(body: body, envelope: envelope)
        guard body.readableBytes <= JobField.maximumLength else { return job }
        guard format != .native else {
            identify(envelope.original, &job)
            return job
        }
        do throws(JobError) {
            let sidekiq = try SidekiqReader.find(in: body, envelope)
            let (body, document) = try sidekiq.place(in: body)
            job = Job(body: body, envelope: envelope)
            job.argument = JobField(document)
            identify(document, &job)
            if job.id == nil { job.id = body.withUnsafeReadableBytes { JobField(id: sidekiq.id, in: $0) } }
        } catch {
            // A job that is not in Sidekiq's format may have the members of a native job.
            identify(envelope.original, &job)
            if job.id == nil { job.id = body.withUnsafeReadableBytes { sidekiqID($0, in: envelope.original) } }
        }
        return job
    }

    private static func sidekiqID(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) -> JobField? {
        do throws(JSONError) {
            return JobField(id: try SidekiqReader.id(bytes, in: range), in: bytes)
        } catch {
            // The decoder has reported the error.
            return nil
        }
    }

    private static func identify(_ document: Range<Int>, _ job: inout Job) {
        let body = job.body
        body.withUnsafeReadableBytes { bytes in
            var reader = JobReader(JSONScanner(bytes, in: document), ignoresTokens: job.envelope.overridesTokens)
            do throws(JSONError) {
                try reader.readIdentity(into: &job)
            } catch {
                // The decoder has reported the error; the members before it are kept.
            }
        }
    }

    // MARK: The members

    /// Returns the JSON text of the job's own members, valid or not; `nil` if it is not found.
    public static func document(of body: ByteBuffer, as format: JobFormat) -> ByteBuffer? {
        let envelope = Envelope.read(body)
        guard format != .native else { return envelope.originalBytes(in: body) }
        do throws(JobError) {
            let (body, document) = try SidekiqReader.find(in: body, envelope).place(in: body)
            return JobField(document).bytes(in: body)
        } catch {
            return nil
        }
    }

    /// Names in a job that no worker reads.
    public struct ForeignNames {
        /// The first ``MemberName/maximumCompared`` members that the worker does not know, sorted by name. Many are the producer's own.
        public fileprivate(set) var members: [(name: String, isObject: Bool)] = []
        /// Settings of a push in objects of other systems, such as `apns.headers.apns-priority`, and the job's member for each.
        public fileprivate(set) var settings: [(path: String, member: JobMember)] = []
    }

    /// Returns the names in a job that no worker reads; empty for a text that is not JSON.
    public static func foreignNames(of body: ByteBuffer, as format: JobFormat) -> ForeignNames {
        var names = ForeignNames()
        document(of: body, as: format)?.withUnsafeReadableBytes { bytes in
            let members = try? ForeignJob.members(bytes, in: 0..<bytes.count) { name, first in
                // A member such as `"sandbox":true`, which the reader understands.
                var text = name
                let isEnvironment =
                    first == UInt8(ascii: "t") && text.withUTF8 { JobTraits(environment: .init($0)) } != nil
                return !MemberName.isJobMember(name) && !isEnvironment
            }
            names.members = (members ?? []).map { ($0.name, $0.kind == .object) }.sorted { $0.0 < $1.0 }
            names.settings = (try? ForeignJob.settings(bytes, in: 0..<bytes.count)) ?? []
        }
        return names
    }
}

/// The format of a queue's jobs.
public enum JobFormat: Sendable, Equatable {
    /// This project's own format: the job's members at the top level.
    case native
    /// The format of Sidekiq and Resque, `{"class":…,"args":[the job],"jid":…}`, and of ActiveJob on either. Only jobs of these classes are
    /// accepted; if `classes` is empty, jobs of all classes.
    case sidekiq(classes: [String])

    /// The same format with all classes accepted: for a job that was accepted before.
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
