import NIOCore

/// Plaintext that waits to be encrypted: until a flush, or the end of the handshake.
struct OutboundQueue {
    private struct Write {
        let plaintext: ByteBuffer
        let promise: EventLoopPromise<Void>?
    }

    private var writes = MarkedCircularBuffer<Write>(initialCapacity: 8)

    var hasFlushed: Bool { writes.hasMark }

    mutating func append(_ plaintext: ByteBuffer, promise: EventLoopPromise<Void>?) {
        writes.append(Write(plaintext: plaintext, promise: promise))
    }

    mutating func flush() {
        writes.mark()
    }

    mutating func fail(_ error: any Error) {
        guard !writes.isEmpty else { return }
        let failed = writes
        writes = MarkedCircularBuffer(initialCapacity: 8)
        for write in failed { write.promise?.fail(error) }
    }

    /// Encrypts all flushed writes, and joins their promises into one.
    mutating func encrypt(with session: TLSSession) -> (promise: EventLoopPromise<Void>?, error: TLSError?) {
        guard writes.hasMark, let first = writes.popFirst() else { return (nil, nil) }
        guard writes.hasMark else {
            session.reserveOutput(forPlaintext: first.plaintext.readableBytes)
            return (first.promise, first.plaintext.withUnsafeReadableBytes(session.encrypt))
        }
        var flushed = [first]
        var promise = first.promise
        var byteCount = first.plaintext.readableBytes
        while writes.hasMark, let write = writes.popFirst() {
            flushed.append(write)
            byteCount += write.plaintext.readableBytes
            if let promise, let another = write.promise {
                promise.futureResult.cascade(to: another)
            } else {
                promise = promise ?? write.promise
            }
        }
        session.reserveOutput(forPlaintext: byteCount)
        return (promise, Self.encryptJoined(flushed, byteCount: byteCount, with: session))
    }

    /// Fills each record: small writes are copied together; writes that fill a record are not copied.
    private static func encryptJoined(_ writes: [Write], byteCount: Int, with session: TLSSession) -> TLSError? {
        let capacity = min(byteCount, TLSSession.largestRecord)
        return withUnsafeTemporaryAllocation(byteCount: capacity, alignment: 16) { joined -> TLSError? in
            var filled = 0
            for write in writes {
                let error = write.plaintext.withUnsafeReadableBytes { bytes -> TLSError? in
                    var rest = bytes[...]
                    while !rest.isEmpty {
                        let whole = rest.count - rest.count % TLSSession.largestRecord
                        if filled == 0, whole > 0 {
                            let direct = UnsafeRawBufferPointer(rebasing: rest.prefix(whole))
                            if let error = session.encrypt(direct) { return error }
                            rest = rest.dropFirst(whole)
                            continue
                        }
                        let part = rest.prefix(capacity - filled)
                        UnsafeMutableRawBufferPointer(rebasing: joined[filled...]).copyMemory(
                            from: UnsafeRawBufferPointer(rebasing: part))
                        filled += part.count
                        rest = rest.dropFirst(part.count)
                        guard filled == capacity else { continue }
                        if let error = session.encrypt(UnsafeRawBufferPointer(joined)) { return error }
                        filled = 0
                    }
                    return nil
                }
                if let error { return error }
            }
            return session.encrypt(UnsafeRawBufferPointer(rebasing: joined[..<filled]))
        }
    }
}
