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
            let sidekiq = try SidekiqReader.find(in: body, envelope)
            let (body, document) = try sidekiq.place(in: body)
            job = Job(body: body, envelope: envelope)
            job.argument = JobField(document)
            identify(document, &job)
            if job.id == nil { job.id = body.withUnsafeReadableBytes { JobField(id: sidekiq.id, in: $0) } }
        } catch {
            // Not in Sidekiq's format: it may have the members of a native job.
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
}
