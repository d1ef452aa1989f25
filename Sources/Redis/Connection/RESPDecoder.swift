import CHiredis
import NIOCore

/// Decodes replies from bytes with hiredis' reader.
///
/// The strings are copied once out of hiredis' buffer into the reply's.
final class RESPDecoder {
    /// The reason why the stream cannot be read further.
    struct Violation: Error {
        let reason: String
    }

    /// hiredis moves what is left to the front of its buffer after each reply of 1 KiB or more; small portions keep
    /// that from being a square of the bytes read.
    static let portion = 16 * 1024

    /// The capacity that the reader keeps; more is freed after use: 100 KB replies are the normal case and do
    /// not come near it (a reply takes buffer only until its strings are whole), 16 MiB strings are the exception.
    private static let keptCapacity = 1 << 20

    /// hiredis' callbacks are given this, by way of `visit`; both must outlive the reader.
    private let builder: UnsafeMutablePointer<RESPReplyBuilder>
    private let visit: UnsafeMutablePointer<CHiredisVisit>
    private var current: UnsafeMutablePointer<redisReader>?
    /// The most bytes that the reader has held, which its buffer has still room for; 0 once that is given back.
    private(set) var peak = 0

    init() {
        builder = .allocate(capacity: 1)
        builder.initialize(to: RESPReplyBuilder())
        visit = .allocate(capacity: 1)
        visit.initialize(to: CHiredisVisit(visitor: Self.visitor, context: UnsafeMutableRawPointer(builder)))
    }

    deinit {
        redisReaderFree(current)
        builder.deinitialize(count: 1)
        builder.deallocate()
        visit.deallocate()
    }

    /// Accepts bytes, at best no more than `portion`; then `next` returns the replies that they complete.
    func feed(_ bytes: UnsafeRawBufferPointer) throws(Violation) {
        let reader = try self.reader()
        guard reader.pointee.len + bytes.count <= RESPReplyBuilder.maximumSize else {
            throw Violation(reason: "a string longer than \(RESPReplyBuilder.maximumSize) bytes")
        }
        guard redisReaderFeed(reader, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count) == REDIS_OK
        else { throw violation(of: reader) }
        peak = max(peak, reader.pointee.len)
    }

    /// The next reply that is whole.
    func next() throws(Violation) -> RESPReply? {
        let reader = try self.reader()
        var object: UnsafeMutableRawPointer?
        guard redisReaderGetReply(reader, &object) == REDIS_OK else { throw violation(of: reader) }
        guard !builder.pointee.isTooLarge else {
            throw Violation(reason: "a reply of more than \(RESPReplyBuilder.maximumSize) bytes")
        }
        guard object != nil else {
            release(reader)
            return nil
        }
        return builder.pointee.finish()
    }

    private func reader() throws(Violation) -> UnsafeMutablePointer<redisReader> {
        if let reader = current { return reader }
        guard let reader = chiredis_reader_create(visit) else { throw Violation(reason: "out of memory") }
        // 0: never free the buffer. By default hiredis frees it after each reply of over 16 KiB and allocates it again.
        reader.pointee.maxbuf = 0
        current = reader
        return reader
    }

    private func release(_ reader: UnsafeMutablePointer<redisReader>) {
        guard peak > Self.keptCapacity, reader.pointee.ridx == -1, reader.pointee.pos == reader.pointee.len else {
            return
        }
        redisReaderFree(reader)
        current = nil
        peak = 0
    }

    private func violation(of reader: UnsafeMutablePointer<redisReader>) -> Violation {
        Violation(reason: String(cString: chiredis_reader_error(reader)))
    }

    private static var visitor: CHiredisVisitor {
        CHiredisVisitor(
            string: { context, type, bytes, length in
                let kind: RESPReply.Kind =
                    switch type {
                    case REDIS_REPLY_STATUS: .status
                    case REDIS_REPLY_ERROR: .error
                    default: .string
                    }
                context?.assumingMemoryBound(to: RESPReplyBuilder.self).pointee
                    .add(kind, bytes: UnsafeRawBufferPointer(start: bytes, count: length))
            },
            array: { context, count in
                context?.assumingMemoryBound(to: RESPReplyBuilder.self).pointee.addArray(count: count)
            },
            integer: { context, value in
                context?.assumingMemoryBound(to: RESPReplyBuilder.self).pointee.add(integer: Int(value))
            },
            nil: { context in
                context?.assumingMemoryBound(to: RESPReplyBuilder.self).pointee.addNull()
            })
    }
}
