import NIOCore

/// The wrapper that Sidekiq or Resque writes around a job, and the job's place in it.
///
/// Sources: Sidekiq's wiki, "Job Format", and `Sidekiq::Client#push` and `JobUtil#normalize_item` of 5.2 to 8.0;
/// Resque's `Resque::Job.create`; Rails' `ActiveJob::Core#serialize` and the queue adapters for both. Times are seconds
/// with a fraction up to Sidekiq 7 and whole milliseconds from 8.0.
struct SidekiqJob {
    /// The class that performs the job.
    var className: JSONString
    /// The job's own class, if `class` is only ActiveJob's wrapper.
    var wrappedClass: JSONString?
    /// Sidekiq's `jid`, or ActiveJob's `job_id`.
    var id: JSONString?
    /// The time at which the job was enqueued or, if that is missing, created, in milliseconds since 1970.
    var enqueuedAt: Int64?
    /// The number of attempts that Sidekiq's `retry` allows, one more than its retries; `nil` for `true`.
    var maxAttempts: Int?
    /// The range of the job: the first argument, an object or a string.
    var argument: Range<Int>
    /// True if ActiveJob has written the argument, with additional members in each object.
    var isActiveJob = false

    /// Returns true if the job is of one of these classes, or if there are no classes.
    func isOf(_ classes: [String], in bytes: UnsafeRawBufferPointer) -> Bool {
        classes.isEmpty
            || [className, wrappedClass].contains { name in
                guard let name else { return false }
                return classes.contains(JSONText.string(name, in: bytes))
            }
    }

    /// Returns the name of the class, if it looks like one: any other text must not reach a log.
    func printableClass(in bytes: UnsafeRawBufferPointer) -> String? {
        let text = JSONText.string(wrappedClass ?? className, in: bytes)
        let isName = text.utf8.allSatisfy { byte in
            byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: ":") || byte == UInt8(ascii: "_")
                || byte == UInt8(ascii: ".")
        }
        return isName && (1...100).contains(text.utf8.count) ? text : nil
    }

    /// Returns the range of the job in the claimed bytes. A job that is a string, or has ActiveJob's additions, can't be read there: it is
    /// rewritten, and appended to a copy of the bytes, because all fields must be places in one buffer.
    func place(in body: ByteBuffer) throws(JobError) -> (body: ByteBuffer, document: Range<Int>) {
        guard let text = try text(in: body) else { return (body, argument) }
        let start = body.readableBytes
        guard start + text.readableBytes <= JobField.maximumLength else { throw .tooLarge(bytes: start) }
        var both = ByteBuffer()
        both.reserveCapacity(start + text.readableBytes)
        both.writeImmutableBuffer(body)
        both.writeImmutableBuffer(text)
        return (both, start..<both.readableBytes)
    }

    private func text(in body: ByteBuffer) throws(JobError) -> ByteBuffer? {
        try body.withUnsafeReadableBytes { bytes throws(JobError) -> ByteBuffer? in
            if bytes[argument.lowerBound] == UInt8(ascii: "\"") {
                let text = JobField(argument.lowerBound + 1..<argument.upperBound - 1, hasEscapes: true).text(in: body)
                let first = text.readableBytesView.first { $0 > 0x20 }
                guard first == UInt8(ascii: "{") else {
                    throw .notSidekiq(first == UInt8(ascii: "\"") ? .encodedTwice : .notAJob)
                }
                return text
            }
            guard isActiveJob else { return nil }
            do throws(JSONError) {
                return try ActiveJobArgument.plain(bytes, in: argument)
            } catch {
                throw .malformedJSON(error)
            }
        }
    }
}
