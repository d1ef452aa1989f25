import CNghttp2
import NIOCore

/// The reader's state between two reads.
struct HTTP2Reader: ~Copyable {
    /// The beginning of an incomplete frame.
    var partial: [UInt8] = []
    /// True once the server's SETTINGS, which are its preface, have arrived (RFC 9113 §3.4).
    var hasSettings = false
    /// True until the server has acknowledged this side's SETTINGS.
    var awaitsAcknowledgement = true
    /// A header block that CONTINUATION frames will complete.
    var block: HeaderBlock?
    /// The bytes of DATA received since the last WINDOW_UPDATE of the connection.
    var unacknowledged = 0
    /// The last stream named by the last GOAWAY.
    var lastStream = Int32.max
    /// The HPACK table of the peer's header fields. This is nghttp2's decoder, because it is proven, and Huffman
    /// decoding is most of the work.
    let inflater: OpaquePointer?

    init() {
        var inflater: OpaquePointer?
        nghttp2_hd_inflate_new(&inflater)
        self.inflater = inflater
    }

    deinit { nghttp2_hd_inflate_del(inflater) }
}

/// A header block while it is read (RFC 9113 §4.3, §8.1).
struct HeaderBlock {
    var stream: Int32
    var endsStream: Bool
    /// True for fields that follow the answer's body.
    var isTrailer = false
    var hasStatus = false
    /// True for an interim response (RFC 9110 §15.2), which is not the answer yet.
    var isInterim = false
    var hasOtherFields = false
    /// True if the block is malformed (RFC 9113 §8.1.1).
    var isMalformed = false
    var continuations = 0
    /// The size of the block's fields in bytes. Streams that have ended have no slot to count them in.
    var size: Int32 = 0

    /// No server needs this many for 16 KiB of fields.
    static let maximumContinuations = 64
}

/// Reading the server's frames, section by section of RFC 9113. A violation of HTTP/2 by the server ends the session or
/// the stream with the error that the RFC names.
extension HTTP2Session {
    /// Reads bytes from the server. The results are in ``events``, ``closedStreams`` and the slots.
    func receive(_ bytes: UnsafeRawBufferPointer) throws(Flood) {
        guard phase != .ended, let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return }
        guard !reader.partial.isEmpty else {
            let used = try readFrames(start, bytes.count)
            if used < bytes.count, phase != .ended {
                reader.partial.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[used...]))
            }
            return
        }
        var partial: [UInt8] = []
        swap(&partial, &reader.partial)
        partial.append(contentsOf: bytes)
        let used: Result<Int, Flood> = partial.withUnsafeBufferPointer { all in
            guard let start = all.baseAddress else { return .success(0) }
            do throws(Flood) { return .success(try readFrames(start, all.count)) } catch { return .failure(error) }
        }
        partial.removeFirst(try used.get())
        if phase != .ended { reader.partial = partial }
    }

    /// Reads complete frames.
    /// - Returns: the number of bytes read.
    private func readFrames(_ start: UnsafePointer<UInt8>, _ count: Int) throws(Flood) -> Int {
        var offset = 0
        while count - offset >= HTTP2FrameHeader.size {
            let header = HTTP2FrameHeader(start + offset)
            guard isAllowed(header) else { return count }
            let payload = offset + HTTP2FrameHeader.size
            guard payload + header.length <= count else { break }
            try read(header, UnsafeBufferPointer(start: start + payload, count: header.length))
            guard phase != .ended else { return count }
            offset = payload + header.length
        }
        return offset
    }

    /// Checks a frame's header (§3.4, §4.2, §4.3, §6.10). Ends the session if it is not allowed.
    private func isAllowed(_ header: HTTP2FrameHeader) -> Bool {
        if !reader.hasSettings,
            header.kind != HTTP2FrameKind.settings || header.has(HTTP2Flag.acknowledgement)
        {
            breach(.protocolError, "its first frame is not SETTINGS")
        } else if header.length > Self.maximumFrameSize {
            breach(.frameSizeError, "it sent a frame of \(header.length) bytes, more than \(Self.maximumFrameSize)")
        } else if let block = reader.block, header.kind != HTTP2FrameKind.continuation || header.stream != block.stream
        {
            breach(.protocolError, "it sent another frame between HEADERS and CONTINUATION")
        } else {
            return true
        }
        return false
    }

    private func read(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(Flood) {
        switch header.kind {
        case HTTP2FrameKind.data: readData(header, payload)
        case HTTP2FrameKind.headers: readHeaders(header, payload)
        case HTTP2FrameKind.priority: readPriority(header)
        case HTTP2FrameKind.resetStream: readReset(header, payload)
        case HTTP2FrameKind.settings: try readSettings(header, payload)
        // §8.4: this side has disabled pushes.
        case HTTP2FrameKind.pushPromise: breach(.protocolError, "it sent PUSH_PROMISE")
        case HTTP2FrameKind.ping: try readPing(header, payload)
        case HTTP2FrameKind.goAway: readGoAway(header, payload)
        case HTTP2FrameKind.windowUpdate: readWindowUpdate(header, payload)
        case HTTP2FrameKind.continuation: try readContinuation(header, payload)
        // §5.5: unknown frames are ignored.
        default: break
        }
    }

    /// Ends the session (§5.4.1).
    private func breach(_ code: HTTP2ErrorCode, _ text: String) {
        complaint = complaint ?? text
        leave(code)
    }

    /// Ends a stream (§5.4.2).
    private func breach(_ code: HTTP2ErrorCode, on index: Int32) {
        reset(slots.pointer(index).pointee.stream, code)
        close(index, code: code)
    }

    /// §5.1: true if no stream with this identifier has been opened.
    private func isIdle(_ stream: Int32) -> Bool { stream > streams.lastOpened || stream & 1 == 0 }

    /// Returns the content without padding (§6.1); `nil` if there is more padding than the frame can have.
    /// - Parameter fields: the number of bytes that the content must have.
    private func content(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>, fields: Int = 0
    ) -> UnsafeBufferPointer<UInt8>? {
        guard header.has(HTTP2Flag.padded) else { return payload }
        guard let padding = payload.first, Int(padding) + fields < payload.count else {
            breach(.protocolError, "it sent more padding than its frame has room for")
            return nil
        }
        return UnsafeBufferPointer(rebasing: payload[1..<payload.count - Int(padding)])
    }

    // MARK: DATA (§6.1)

    private func readData(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) {
        let stream = header.stream
        guard !isIdle(stream) else {
            return breach(.protocolError, "it sent DATA on stream \(stream), which is not open")
        }
        // §6.9.1: padding counts, and so does the DATA of streams that have ended.
        reader.unacknowledged += header.length
        guard reader.unacknowledged <= Self.defaultWindow else {
            return breach(.flowControlError, "it sent more DATA than the connection's window allows")
        }
        if reader.unacknowledged > Self.defaultWindow / 2 {
            allow(reader.unacknowledged, on: 0)
            reader.unacknowledged = 0
        }
        let index = streams.slot(of: stream, slots)
        guard index >= 0 else { return }
        let slot = slots.pointer(index)
        guard let content = content(header, payload) else { return }
        // §8.1: header fields come first.
        guard slot.pointee.status > 0 else { return breach(.protocolError, on: index) }
        slot.pointee.unacknowledged += header.length
        guard slot.pointee.unacknowledged <= Self.defaultWindow else { return breach(.flowControlError, on: index) }
        slot.pointee.bodySize += Int64(content.count)
        guard slot.pointee.contentLength < 0 || slot.pointee.bodySize <= slot.pointee.contentLength else {
            return breach(.protocolError, on: index)
        }
        keepBody(content, of: slot)
        if header.has(HTTP2Flag.endStream) {
            finish(index)
        } else if slot.pointee.isCut {
            breach(.cancel, on: index)
        } else if slot.pointee.unacknowledged > Self.defaultWindow / 2 {
            allow(slot.pointee.unacknowledged, on: stream)
            slot.pointee.unacknowledged = 0
        }
    }

    private func keepBody(_ content: UnsafeBufferPointer<UInt8>, of slot: UnsafeMutablePointer<RequestSlot>) {
        if slot.pointee.body == nil { slot.pointee.body = ByteBuffer() }
        let room = max(0, Self.maximumBodySize - (slot.pointee.body?.readableBytes ?? 0))
        slot.pointee.body?.writeBytes(UnsafeRawBufferPointer(content).prefix(room))
        if content.count > room { slot.pointee.isCut = true }
    }

    /// Completes an answer.
    private func finish(_ index: Int32) {
        let slot = slots.pointer(index)
        let (length, status) = (slot.pointee.contentLength, slot.pointee.status)
        // §8.1.1: content-length must be the length of the body, unless the status has no body.
        guard length < 0 || length == slot.pointee.bodySize || status == 204 || status == 304 else {
            return breach(.protocolError, on: index)
        }
        // §8.1: the server needs no more of the request.
        if !slot.pointee.isWritten { reset(slot.pointee.stream, .cancel) }
        close(index, code: .noError)
    }

    // MARK: HEADERS (§6.2) and CONTINUATION (§6.10)

    private func readHeaders(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) {
        let stream = header.stream
        guard !isIdle(stream) else {
            return breach(.protocolError, "it sent HEADERS on stream \(stream), which is not open")
        }
        let hasPriority = header.has(HTTP2Flag.priority)
        guard var fragment = content(header, payload, fields: hasPriority ? 5 : 0) else { return }
        if hasPriority {
            guard fragment.count >= 5 else { return breach(.frameSizeError, "it sent HEADERS without their priority") }
            fragment = UnsafeBufferPointer(rebasing: fragment[5...])
        }
        var block = HeaderBlock(stream: stream, endsStream: header.has(HTTP2Flag.endStream))
        let index = streams.slot(of: stream, slots)
        block.isTrailer = index >= 0 && slots.pointer(index).pointee.status >= 200
        read(fragment, isLast: header.has(HTTP2Flag.endHeaders), &block)
    }

    private func readContinuation(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(Flood) {
        guard var block = reader.block else {
            return breach(.protocolError, "it sent CONTINUATION without HEADERS")
        }
        block.continuations += 1
        guard block.continuations <= HeaderBlock.maximumContinuations else {
            complaint = complaint ?? "it sent header fields in more than \(HeaderBlock.maximumContinuations) frames"
            throw Flood()
        }
        read(payload, isLast: header.has(HTTP2Flag.endHeaders), &block)
    }

    /// Reads a part of a block. Blocks of streams that have ended are read too, because they change HPACK's table
    /// (§4.3).
    private func read(_ fragment: UnsafeBufferPointer<UInt8>, isLast: Bool, _ block: inout HeaderBlock) {
        // The owner may have released the slot since the previous part.
        let index = streams.slot(of: block.stream, slots)
        let slot = index >= 0 ? slots.pointer(index) : nil
        var (next, rest) = (fragment.baseAddress, fragment.count)
        while true {
            var field = nghttp2_nv()
            var flags: Int32 = 0
            let taken = nghttp2_hd_inflate_hd2(reader.inflater, &field, &flags, next, rest, isLast ? 1 : 0)
            guard taken >= 0 else { return breach(.compressionError, "its header fields cannot be decoded") }
            next = next.map { $0 + taken }
            rest -= taken
            let isField = flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0
            if isField, !take(field, of: slot, &block) { return }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
                nghttp2_hd_inflate_end_headers(reader.inflater)
                break
            }
            if !isField, rest == 0 || taken == 0 { break }
        }
        reader.block = isLast ? nil : block
        if isLast, index >= 0 { end(block, of: index) }
    }

    /// - Returns: false if the session has ended.
    private func take(
        _ field: nghttp2_nv, of slot: UnsafeMutablePointer<RequestSlot>?, _ block: inout HeaderBlock
    ) -> Bool {
        // The overhead is that of §6.5.2. The server knows the limit from SETTINGS, but need not respect it.
        let size = Int32(clamping: field.namelen + field.valuelen + 32)
        block.size += size
        slot?.pointee.headerSize += size
        guard max(block.size, slot?.pointee.headerSize ?? 0) <= Self.maximumHeaderSize else {
            breach(.enhanceYourCalm, "an answer's header fields are larger than \(Self.maximumHeaderSize) bytes")
            return false
        }
        guard let slot, !block.isMalformed else { return true }
        let name = UnsafeBufferPointer<UInt8>(start: field.name, count: field.namelen)
        let value = UnsafeBufferPointer<UInt8>(start: field.value, count: field.valuelen)
        block.isMalformed =
            name.first == UInt8(ascii: ":")
            ? !takeStatus(name, value, of: slot, &block) : !takeField(name, value, of: slot, &block)
        return true
    }

    /// Reads `:status`, the only pseudo-header field of answers: once, and before all other fields (§8.3, §8.3.2).
    /// - Returns: false if it is malformed.
    private func takeStatus(
        _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>,
        of slot: UnsafeMutablePointer<RequestSlot>, _ block: inout HeaderBlock
    ) -> Bool {
        guard name.equals(":status"), !block.hasStatus, !block.hasOtherFields, !block.isTrailer,
            value.count == 3, let status = value.decimal, status >= 100, status != 101
        else { return false }
        block.hasStatus = true
        block.isInterim = status < 200
        if !block.isInterim { slot.pointee.status = Int32(status) }
        return true
    }

    /// - Returns: false if it is malformed (§8.2).
    private func takeField(
        _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>,
        of slot: UnsafeMutablePointer<RequestSlot>, _ block: inout HeaderBlock
    ) -> Bool {
        block.hasOtherFields = true
        guard block.hasStatus || block.isTrailer, name.isFieldName, value.isFieldValue else { return false }
        switch name.count {
        case 2 where name.equals("te"): return value.equals("trailers")
        // §8.2.2: fields about an HTTP/1 connection.
        case 7 where name.equals("apns-id"): slot.pointee.hasID = true
        case 7 where name.equals("upgrade"), 10 where name.equals("connection"),
            10 where name.equals("keep-alive"), 16 where name.equals("proxy-connection"),
            17 where name.equals("transfer-encoding"):
            return false
        case 11 where name.equals("retry-after"):
            slot.pointee.retryAfter = RetryAfter.seconds(value) ?? -1
        case 14 where name.equals("content-length"):
            guard let length = value.decimal, slot.pointee.contentLength < 0 || slot.pointee.contentLength == length
            else {
                return false
            }
            if !block.isInterim { slot.pointee.contentLength = length }
        case 14 where keepsUniqueIDs && name.equals("apns-unique-id"):
            slot.pointee.uniqueID = APNSID(value)
        default: break
        }
        return true
    }

    /// Ends a block. §8.1: an answer is interim responses, one final response, a body, and trailers.
    private func end(_ block: HeaderBlock, of index: Int32) {
        if block.isMalformed || !(block.hasStatus || block.isTrailer)
            || (block.isTrailer && !block.endsStream) || (block.isInterim && block.endsStream)
        {
            return breach(.protocolError, on: index)
        }
        if block.endsStream { finish(index) }
    }

    // MARK: PRIORITY (§6.3) and RST_STREAM (§6.4)

    private func readPriority(_ header: HTTP2FrameHeader) {
        guard header.length == 5 else {
            let index = isIdle(header.stream) ? -1 : streams.slot(of: header.stream, slots)
            guard index >= 0 else { return breach(.frameSizeError, "it sent PRIORITY with an invalid length") }
            return breach(.frameSizeError, on: index)
        }
        if header.stream == 0 { breach(.protocolError, "it sent PRIORITY on stream 0") }
    }

    private func readReset(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) {
        guard let code = payload.number(0), payload.count == 4 else {
            return breach(.frameSizeError, "it sent RST_STREAM with an invalid length")
        }
        guard !isIdle(header.stream) else {
            return breach(.protocolError, "it sent RST_STREAM on stream \(header.stream), which is not open")
        }
        let index = streams.slot(of: header.stream, slots)
        if index >= 0 { close(index, code: HTTP2ErrorCode(rawValue: code)) }
    }

    // MARK: SETTINGS (§6.5)

    private func readSettings(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(Flood) {
        let isAcknowledgement = header.has(HTTP2Flag.acknowledgement)
        guard isAcknowledgement ? header.length == 0 : header.length % 6 == 0 else {
            return breach(.frameSizeError, "it sent SETTINGS with an invalid length")
        }
        guard header.stream == 0 else { return breach(.protocolError, "it sent SETTINGS on stream \(header.stream)") }
        guard !isAcknowledgement else {
            if !reader.awaitsAcknowledgement { breach(.protocolError, "it acknowledged SETTINGS that were not sent") }
            reader.awaitsAcknowledgement = false
            return
        }
        reader.hasSettings = true
        for offset in stride(from: 0, to: payload.count, by: 6) {
            let setting = UInt16(payload[offset]) << 8 | UInt16(payload[offset + 1])
            guard let value = payload.number(offset + 2), apply(setting, value) else { return }
        }
        try answer(HTTP2FrameKind.settings, payload: UnsafeBufferPointer(start: nil, count: 0))
        let limit = peer.maximumStreams
        events.append(.settings(maximumStreams: limit > Int(Int32.max) ? nil : limit))
    }

    /// Applies a setting (§6.5.2).
    /// - Returns: false if the session has ended.
    private func apply(_ setting: UInt16, _ value: UInt32) -> Bool {
        switch setting {
        case HTTP2Setting.headerTableSize: encoder.limit(to: Int(value))
        case HTTP2Setting.enablePush where value != 0: breach(.protocolError, "it sent ENABLE_PUSH other than 0")
        case HTTP2Setting.maximumConcurrentStreams: peer.maximumStreams = Int(value)
        case HTTP2Setting.initialWindowSize: setWindow(Int(value))
        case HTTP2Setting.maximumFrameSize:
            // Not used: larger frames would only need larger buffers.
            if value < 16_384 || value > 16_777_215 { breach(.protocolError, "it set a frame size of \(value)") }
        case HTTP2Setting.enableConnectProtocol where value > 1, HTTP2Setting.noPriorities where value > 1:
            breach(.protocolError, "it set the setting \(setting) to \(value)")
        // §6.5.2: unknown settings are ignored.
        default: break
        }
        return phase != .ended
    }

    /// §6.9.2: changes the windows of all open streams by the change of their initial size.
    private func setWindow(_ size: Int) {
        guard size <= HTTP2FrameHeader.maximum31Bits else {
            return breach(.flowControlError, "it set a window of \(size) bytes")
        }
        let change = size - peer.streamWindow
        peer.streamWindow = size
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            if slot.pointee.isOpen, !slot.pointee.hasEnded {
                slot.pointee.window += change
                guard slot.pointee.window <= HTTP2FrameHeader.maximum31Bits else {
                    return breach(.flowControlError, "it made the window of a stream larger than 2³¹-1")
                }
            }
            index = slot.pointee.next
        }
    }

    /// Acknowledges SETTINGS (§6.5.3), or answers a PING (§6.7).
    private func answer(_ kind: UInt8, payload: UnsafeBufferPointer<UInt8>) throws(Flood) {
        control.answers += 1
        guard control.answers <= Self.maximumAnswers else {
            complaint = complaint ?? "it does not read the answers to its PINGs and SETTINGS"
            throw Flood()
        }
        control.write(kind, flags: HTTP2Flag.acknowledgement, length: payload.count) { target in
            if let source = payload.baseAddress { target.update(from: source, count: payload.count) }
        }
    }

    // MARK: PING (§6.7), GOAWAY (§6.8) and WINDOW_UPDATE (§6.9)

    private func readPing(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(Flood) {
        guard header.length == 8 else { return breach(.frameSizeError, "it sent PING with an invalid length") }
        guard header.stream == 0 else { return breach(.protocolError, "it sent PING on stream \(header.stream)") }
        if header.has(HTTP2Flag.acknowledgement) {
            events.append(.pingAnswered)
        } else {
            try answer(HTTP2FrameKind.ping, payload: payload)
        }
    }

    private func readGoAway(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) {
        guard let number = payload.number(0), let code = payload.number(4) else {
            return breach(.frameSizeError, "it sent GOAWAY with an invalid length")
        }
        guard header.stream == 0 else { return breach(.protocolError, "it sent GOAWAY on stream \(header.stream)") }
        let last = Int32(truncatingIfNeeded: number & UInt32(HTTP2FrameHeader.maximum31Bits))
        guard last <= reader.lastStream else {
            return breach(.protocolError, "it sent GOAWAY with a higher last stream than before")
        }
        guard last == 0 || last & 1 == 1 else {
            return breach(.protocolError, "it sent GOAWAY with the stream \(last), which no client opens")
        }
        reader.lastStream = last
        if phase == .open { phase = .leaving }
        let debugData = UnsafeRawBufferPointer(payload).dropFirst(8).prefix(ResponseBody.maximumSize)
        events.append(.goAway(lastStream: last, code: code, debugData: ByteBuffer(bytes: debugData)))
        closeUnprocessed(above: last)
    }

    private func readWindowUpdate(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) {
        guard let number = payload.number(0), payload.count == 4 else {
            return breach(.frameSizeError, "it sent WINDOW_UPDATE with an invalid length")
        }
        let increment = Int(number) & HTTP2FrameHeader.maximum31Bits
        guard header.stream != 0 else {
            guard increment > 0 else { return breach(.protocolError, "it sent WINDOW_UPDATE with an increment of 0") }
            peer.window += increment
            guard peer.window <= HTTP2FrameHeader.maximum31Bits else {
                return breach(.flowControlError, "it made the connection's window larger than 2³¹-1")
            }
            return
        }
        guard !isIdle(header.stream) else {
            return breach(.protocolError, "it sent WINDOW_UPDATE on stream \(header.stream), which is not open")
        }
        let index = streams.slot(of: header.stream, slots)
        guard index >= 0 else { return }
        guard increment > 0 else { return breach(.protocolError, on: index) }
        let slot = slots.pointer(index)
        slot.pointee.window += increment
        if slot.pointee.window > HTTP2FrameHeader.maximum31Bits { breach(.flowControlError, on: index) }
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Returns four bytes in network order as a number; `nil` if there are fewer.
    fileprivate func number(_ offset: Int) -> UInt32? {
        guard let baseAddress, count >= offset + 4 else { return nil }
        return HTTP2FrameHeader.number(baseAddress + offset)
    }

    /// The value of a decimal number of at most 18 digits; `nil` for other text.
    fileprivate var decimal: Int64? {
        guard count > 0, count <= 18 else { return nil }
        var value: Int64 = 0
        for byte in self {
            let digit = byte &- 0x30
            guard digit < 10 else { return nil }
            value = value * 10 + Int64(digit)
        }
        return value
    }

    /// True for a token without upper-case letters (§8.2.1, RFC 9110 §5.6.2).
    fileprivate var isFieldName: Bool {
        count > 0
            && allSatisfy { byte in
                switch byte {
                case 0x61...0x7A, 0x30...0x39, 0x2D: true
                case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2E, 0x5E...0x60, 0x7C, 0x7E: true
                default: false
                }
            }
    }

    /// True without NUL, line feed or carriage return, and without white space at either end (§8.2.1).
    fileprivate var isFieldValue: Bool {
        guard let first, let last else { return true }
        func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
        return !isSpace(first) && !isSpace(last) && allSatisfy { $0 != 0 && $0 != 0x0A && $0 != 0x0D }
    }
}
