import CHiredis
import NIOCore

/// Decodes replies with hiredis' reader.
///
/// Strings are copied once, out of hiredis' buffer into the reply's.
final class RESPDecoder {
    /// The reason why the stream cannot be read further.
    struct Violation: Error {
        let reason: String
    }

    /// The maximum number of bytes to feed at once. After each reply of 1 KiB or more, hiredis moves the rest of its buffer to the front.
    /// With large portions, that cost would grow with the square of the bytes read.
    static let portion = 16 * 1024

    /// The reader keeps a buffer of up to this size, and frees a larger one after use. Replies of 100 KB stay far below it, because the
    /// buffer holds a string only until the string is complete. Only strings of many MiB exceed it.
    private static let keptCapacity = 1 << 20

    /// hiredis passes it to each callback, through `visit`. Both must outlive the reader.
    private let builder: UnsafeMutablePointer<RESPReplyBuilder>
    private let visit: UnsafeMutablePointer<CHiredisVisit>
    private var current: UnsafeMutablePointer<redisReader>?
    /// The most bytes that the reader has held, which is the size of its buffer; 0 after the buffer was freed.
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

    /// Accepts bytes, preferably at most `portion`. Call `next` afterwards, until it returns `nil`.
    func feed(_ bytes: UnsafeRawBufferPointer) throws(Violation) {
        let reader = try self.reader()
        guard reader.pointee.len + bytes.count <= RESPReplyBuilder.maximumSize else {
            throw Violation(reason: "a string longer than \(RESPReplyBuilder.maximumSize) bytes")
        }
        guard redisReaderFeed(reader, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count) == REDIS_OK
        else { throw violation(of: reader) }
        peak = max(peak, reader.pointee.len)
    }

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
        // 0: never free the buffer. By default hiredis frees and reallocates it after each reply of over 16 KiB.
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
