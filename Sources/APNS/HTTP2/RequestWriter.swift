import NIOCore

/// Writes the frames of requests: HEADERS, compressed with the session's own table, and DATA.
struct RequestWriter: ~Copyable {
    var encoder = HPACKEncoder()
    /// The only request of a session that sends no notifications.
    var request: HTTP2Request?

    private let authority: HeaderText
    /// Every authorization so far. New requests use the last one.
    private var authorizations: [HeaderText] = []

    init(authority: HeaderText) { self.authority = authority }

    /// Returns the place of an authorization in ``authorizations``, and adds it if it is new; -1 for no authorization.
    mutating func place(of authorization: HeaderText?) -> Int {
        guard let authorization else { return -1 }
        if authorization !== authorizations.last { authorizations.append(authorization) }
        return authorizations.count - 1
    }

    /// Writes HEADERS, and CONTINUATION if they do not fit in one frame (RFC 9113 §6.2, §6.10).
    mutating func writeHeaders(of slot: UnsafeMutablePointer<RequestSlot>, into buffer: inout ByteBuffer) {
        let stream = slot.pointee.stream
        let place = slot.pointee.authorization
        let authorization = place >= 0 ? authorizations[place].bytes : nil
        let bound =
            request?.bound ?? RequestHeaders.bound(slot, authority: authority.bytes, authorization: authorization)
        slot.pointee.isWritten = request?.body.isEmpty ?? false
        let end = slot.pointee.isWritten ? HTTP2Flag.endStream : 0
        let start = buffer.writerIndex
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: HTTP2FrameHeader.size + bound) { bytes in
            guard let base = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            var writer = ByteWriter(at: base + HTTP2FrameHeader.size)
            encoder.begin(&writer)
            if let request {
                request.write(encoder, &writer)
            } else {
                RequestHeaders.write(
                    slot, authority: authority.bytes, authorization: authorization, &encoder, &writer)
            }
            let length = writer.at - base - HTTP2FrameHeader.size
            let flags = HTTP2Flag.endHeaders | end
            HTTP2FrameHeader(HTTP2FrameKind.headers, length: length, flags: flags, stream: stream).write(to: base)
            return HTTP2FrameHeader.size + length
        }
        if buffer.writerIndex - start - HTTP2FrameHeader.size > HTTP2FrameHeader.maximumLength {
            splitHeaders(stream, from: start, end: end, &buffer)
        }
    }

    /// - Parameter end: the flag END_STREAM, or 0.
    private func splitHeaders(_ stream: Int32, from start: Int, end: UInt8, _ buffer: inout ByteBuffer) {
        let from = start + HTTP2FrameHeader.size
        guard var block = buffer.getSlice(at: from, length: buffer.writerIndex - from) else { return }
        buffer.moveWriterIndex(to: start)
        var (kind, flags) = (HTTP2FrameKind.headers, end)
        while let part = block.readSlice(length: min(block.readableBytes, HTTP2FrameHeader.maximumLength)),
            part.readableBytes > 0
        {
            let header = HTTP2FrameHeader(
                kind, length: part.readableBytes,
                flags: block.readableBytes == 0 ? flags | HTTP2Flag.endHeaders : flags, stream: stream)
            write(header, into: &buffer)
            buffer.writeImmutableBuffer(part)
            (kind, flags) = (HTTP2FrameKind.continuation, 0)
        }
    }

    private func write(
        _ header: HTTP2FrameHeader, _ payload: UnsafeRawBufferPointer = .init(start: nil, count: 0),
        into buffer: inout ByteBuffer
    ) {
        let size = HTTP2FrameHeader.size + payload.count
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: size) { bytes in
            if let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) { header.write(to: start) }
            UnsafeMutableRawBufferPointer(rebasing: bytes[HTTP2FrameHeader.size...]).copyMemory(from: payload)
            return size
        }
    }

    /// Writes DATA as far as both windows allow (RFC 9113 §6.1, §6.9).
    /// - Parameter window: the connection's window.
    /// - Returns: true if the request is completely written.
    func writeBody(
        of slot: UnsafeMutablePointer<RequestSlot>, window: inout Int, into buffer: inout ByteBuffer
    ) -> Bool {
        if let request {
            return request.body.withUnsafeBytes { writeBody($0, of: slot, &window, &buffer) }
        }
        return slot.pointee.notification?.payload.withUnsafeReadableBytes {
            writeBody($0, of: slot, &window, &buffer)
        } ?? true
    }

    private func writeBody(
        _ body: UnsafeRawBufferPointer, of slot: UnsafeMutablePointer<RequestSlot>, _ window: inout Int,
        _ buffer: inout ByteBuffer
    ) -> Bool {
        while !slot.pointee.isWritten {
            let offset = slot.pointee.bodyOffset
            let rest = body.count - offset
            let count = max(0, min(rest, slot.pointee.window, window, HTTP2FrameHeader.maximumLength))
            guard count > 0 || rest == 0 else { return false }
            let isEnd = count == rest
            let header = HTTP2FrameHeader(
                HTTP2FrameKind.data, length: count, flags: isEnd ? HTTP2Flag.endStream : 0, stream: slot.pointee.stream)
            write(header, UnsafeRawBufferPointer(rebasing: body[offset..<offset + count]), into: &buffer)
            slot.pointee.bodyOffset = offset + count
            slot.pointee.window -= count
            window -= count
            slot.pointee.isWritten = isEnd
        }
        return true
    }
}
