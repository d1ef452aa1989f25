import NIOCore

extension JobDecoder {
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

    /// Returns the JSON text of the job's own members, valid or not; `nil` if it is not found.
    public static func document(of body: ByteBuffer, as format: JobFormat) -> ByteBuffer? {
        let envelope = Envelope.read(body)
        guard format != .native else {
            return body.getSlice(at: body.readerIndex + envelope.original.lowerBound, length: envelope.original.count)
        }
        do throws(JobError) {
            let sidekiq = try findJob(body, envelope, [])
            if let text = try sidekiq.text(in: body) { return text }
            return body.getSlice(at: body.readerIndex + sidekiq.argument.lowerBound, length: sidekiq.argument.count)
        } catch {
            return nil
        }
    }

    @inline(never)
    private static func decodeSidekiq(
        _ body: ByteBuffer, _ classes: [String], _ memory: PayloadMemory?
    ) throws(JobError) -> Job {
        guard body.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: body.readableBytes) }
        let envelope = body.withUnsafeReadableBytes { Envelope.read($0) }
        let sidekiq = try findJob(body, envelope, classes)
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

    static func findJob(
        _ body: ByteBuffer, _ envelope: Envelope, _ classes: [String]
    ) throws(JobError) -> SidekiqJob {
        let found = body.withUnsafeReadableBytes { find(in: $0, envelope, classes) }
        return try found.get()
    }

    private static func find(
        in bytes: UnsafeRawBufferPointer, _ envelope: Envelope, _ classes: [String]
    ) -> Result<SidekiqJob, JobError> {
        do throws(JSONError) {
            switch try SidekiqReader.read(bytes, in: envelope.original) {
            case .failure(let mistaken):
                if let version = Envelope.newerVersion(of: bytes) { return .failure(.newerWrapper(version: version)) }
                return .failure(.notSidekiq(mistaken.mistake))
            case .success(let job):
                guard !job.isOf(classes, in: bytes) else { return .success(job) }
                return .failure(.otherClass(job.printableClass(in: bytes), accepted: classes))
            }
        } catch {
            let foreign = ForeignText.recognize(bytes, in: envelope.original, isJSON: false)
            return .failure(.malformedJSON(error, foreign).offset(by: envelope.original.lowerBound))
        }
    }

    private static func read(
        _ sidekiq: SidekiqJob, _ document: Range<Int>, in body: ByteBuffer, _ envelope: Envelope, errorsFrom start: Int,
        _ memory: PayloadMemory?
    ) throws(JobError) -> Job {
        try body.withUnsafeReadableBytes { bytes throws(JobError) in
            var job = Job(body: body, envelope: envelope)
            job.argument = JobField(document)
            job.enqueuedAt = sidekiq.enqueuedAt ?? envelope.enqueued
            if let error = read(bytes, in: document, into: &job, memory) { throw error.offset(by: start) }
            if job.id == nil, let id = sidekiq.id, MemberRules.isIdentifier(id, in: bytes) { job.id = JobField(id) }
            if job.maxAttempts == nil { job.maxAttempts = sidekiq.maxAttempts }
            return job
        }
    }
}
