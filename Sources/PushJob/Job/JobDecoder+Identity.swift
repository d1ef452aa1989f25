import NIOCore

extension JobDecoder {
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
            try identify(try SidekiqReader.find(in: body, envelope), &job)
        } catch {
            // Not in Sidekiq's format: it may have the members of a native job.
            identify(envelope.original, &job)
            if job.id == nil { job.id = body.withUnsafeReadableBytes { sidekiqID($0, in: envelope.original) } }
        }
        return job
    }

    private static func identify(_ sidekiq: SidekiqJob, _ job: inout Job) throws(JobError) {
        var document = sidekiq.argument
        if let text = try sidekiq.text(in: job.body) {
            // All fields are places in one buffer, as in a job that can be sent.
            var both = job.body
            document = both.readableBytes..<both.readableBytes + text.readableBytes
            both.writeImmutableBuffer(text)
            guard both.readableBytes <= JobField.maximumLength else { return }
            job = Job(body: both, envelope: job.envelope)
        }
        job.argument = JobField(document)
        identify(document, &job)
        guard job.id == nil, let id = sidekiq.id else { return }
        job.body.withUnsafeReadableBytes { bytes in
            if MemberRules.isIdentifier(id, in: bytes) { job.id = JobField(id) }
        }
    }

    private static func sidekiqID(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) -> JobField? {
        do throws(JSONError) {
            guard let id = try SidekiqReader.id(bytes, in: range), MemberRules.isIdentifier(id, in: bytes) else {
                return nil
            }
            return JobField(id)
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
}
