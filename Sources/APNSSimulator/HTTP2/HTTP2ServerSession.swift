import APNS
import CNghttp2
import NIOCore

/// The announced stream limits, and the limit that binds the client.
///
/// nghttp2 refuses streams as soon as it knows a lower limit. But the limit binds the client only once the client has acknowledged the
/// SETTINGS (RFC 9113, section 6.5.3). So the limit is kept here and hidden from nghttp2.
private struct AnnouncedLimits {
    /// nghttp2 sends the limit with this identifier, which it does not know.
    static let placeholder: UInt16 = 0xF003
    private var unacknowledged: [Int] = []
    private var inForce: Int

    init(_ first: Int) { inForce = first }

    mutating func announced(_ limit: Int) { unacknowledged.append(limit) }

    mutating func acknowledged() {
        if !unacknowledged.isEmpty { inForce = unacknowledged.removeFirst() }
    }

    func allows(_ openStreams: Int) -> Bool { openStreams < inForce }

    /// Replaces the placeholder in a SETTINGS frame with the real identifier.
    static func correct(_ frame: UnsafeMutableBufferPointer<UInt8>) {
        for entry in stride(from: 9, to: frame.count - 5, by: 6)
        where UInt16(frame[entry]) << 8 | UInt16(frame[entry + 1]) == placeholder {
            frame[entry] = 0
            frame[entry + 1] = UInt8(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS.rawValue)
        }
    }
}

/// The streams that the client has opened and nghttp2 has forgotten. nghttp2 would ignore HEADERS and DATA on them.
private struct ClosedStreams {
    private var highest: Int32 = -1
    /// Streams that the client has skipped. Skipping a stream closes it (RFC 9113, section 5.1.1).
    private var skipped: [ClosedRange<Int32>] = []
    /// Streams that this side has reset. Frames in flight on them are ignored (section 5.1).
    private var reset: Set<Int32> = []

    mutating func wasReset(_ stream: Int32) { reset.insert(stream) }

    /// Checks a frame before nghttp2 reads it.
    /// - Parameter isOpen: returns true if nghttp2 knows the stream, and so checks the frame itself.
    /// - Returns: the code of the connection error (sections 5.1 and 5.1.1); `nil` if the frame is valid.
    mutating func violation(of frame: FrameHeader, isOpen: () -> Bool) -> nghttp2_error_code? {
        let isRequest = frame.kind == NGHTTP2_HEADERS.rawValue
        guard isRequest || frame.kind == NGHTTP2_DATA.rawValue, frame.stream & 1 == 1 else { return nil }
        guard frame.stream <= highest else {
            if isRequest, frame.stream > highest + 2 { skipped.append(highest + 2...frame.stream - 2) }
            if isRequest { highest = frame.stream }
            return nil
        }
        guard !isOpen(), !reset.contains(frame.stream) else { return nil }
        let isSkipped = skipped.contains { $0.contains(frame.stream) }
        return isSkipped ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_STREAM_CLOSED
    }
}

private struct FrameHeader {
    var kind: UInt8
    var stream: Int32
}

/// Finds the frames in the bytes of a client.
private struct FrameScanner {
    /// The number of bytes to skip before the next frame header; at first the preface (section 3.4).
    private var rest = 24
    private var header: [UInt8] = []

    /// - Parameter found: called with each header, and the number of bytes before its frame.
    mutating func scan<E: Error>(
        _ bytes: UnsafeRawBufferPointer, _ found: (FrameHeader, _ start: Int) throws(E) -> Void
    ) throws(E) {
        var offset = 0
        while offset < bytes.count {
            let skipped = min(rest, bytes.count - offset)
            rest -= skipped
            offset += skipped
            let missing = min(9 - header.count, bytes.count - offset)
            guard rest == 0, missing > 0 else { return }
            header += bytes[offset..<offset + missing]
            offset += missing
            guard header.count == 9 else { return }
            rest = Int(header[0]) << 16 | Int(header[1]) << 8 | Int(header[2])
            let stream = header[5...].reduce(0) { $0 << 8 | UInt32($1) } & UInt32(Int32.max)
            let frame = FrameHeader(kind: header[3], stream: Int32(stream))
            header.removeAll(keepingCapacity: true)
            try found(frame, max(0, offset - 9))
        }
    }
}

/// The server's side of one HTTP/2 connection: bytes in and bytes out, no I/O.
///
/// nghttp2 keeps an unretained pointer to this object, and calls back only from ``receive(_:)`` and ``write(into:)``. Inside a callback,
/// the owner must not release this object or call these two methods.
final class HTTP2ServerSession {
    private let session: OpaquePointer
    // Unsafe, to save a check on every frame. The owner retains this session, so it outlives the session.
    private unowned(unsafe) let owner: SimulatedConnection
    private let credentials: ClientCredentials
    private var limits: AnnouncedLimits
    private var closed = ClosedStreams()
    private var scanner = FrameScanner()
    /// True once this side has sent a GOAWAY: later streams are ignored.
    private var isLeaving = false
    // Keeps every slot alive as long as the session, because nghttp2 has unretained pointers to them.
    private var slots: [StreamSlot] = []
    private var freeSlots: [StreamSlot] = []
    private var openStreams = 0
    private let records: Bool
    /// True while a stream is closed because the client has reset it.
    private var isResetting = false
    /// The slot whose headers are arriving. A header block is never interleaved with another stream's.
    private var headerSlot: StreamSlot?

    private(set) var highestStream: Int32 = 0
    private(set) var highestConcurrentStreams = 0

    /// - Parameters:
    ///   - records: true to keep headers as received.
    ///   - connectionWindow: the connection's window in bytes; nil to grant nothing beyond the initial window.
    init(
        owner: SimulatedConnection, credentials: ClientCredentials, records: Bool, streamLimit: Int,
        connectionWindow: Int32?
    ) throws(SimulatorError) {
        self.owner = owner
        self.credentials = credentials
        self.records = records
        limits = AnnouncedLimits(streamLimit)
        var options: OpaquePointer?
        nghttp2_option_new(&options)
        defer { nghttp2_option_del(options) }
        nghttp2_option_set_no_closed_streams(options, 1)
        // A client can cancel thousands of streams at once if a rule keeps silent. nghttp2's default limit against rapid resets would then
        // end the connection.
        nghttp2_option_set_stream_reset_rate_limit(options, 1_000_000, 100_000)
        if connectionWindow == nil { nghttp2_option_set_no_auto_window_update(options, 1) }
        var created: OpaquePointer?
        let callbacks = ServerCallbacks.make()
        defer { nghttp2_session_callbacks_del(callbacks) }
        guard nghttp2_session_server_new2(&created, callbacks, nil, options) == 0, let created else {
            throw SimulatorError("nghttp2 could not allocate a session")
        }
        session = created
        // The object is initialized only now. nghttp2 does not use the pointer before the first callback.
        nghttp2_session_set_user_data(session, Unmanaged.passUnretained(self).toOpaque())
        // Source: the SETTINGS that APNs was seen to send (pushy, issue 878).
        submit([
            (Int32(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE.rawValue), 4096),
            (Int32(AnnouncedLimits.placeholder), UInt32(clamping: streamLimit)),
            (Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), 65_535),
            (Int32(NGHTTP2_SETTINGS_MAX_FRAME_SIZE.rawValue), 16_384),
            (Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue), 8000),
        ])
        limits.announced(streamLimit)
        guard let connectionWindow else { return }
        nghttp2_session_set_local_window_size(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, connectionWindow)
    }

    deinit { nghttp2_session_del(session) }

    // MARK: Bytes

    func receive(_ bytes: UnsafeRawBufferPointer) throws(SimulatorError) {
        var taken = 0
        try scanner.scan(bytes) { (frame, start) throws(SimulatorError) in
            func isOpen() -> Bool { nghttp2_session_find_stream(session, frame.stream) != nil }
            guard !isLeaving, closed.violation(of: frame, isOpen: isOpen) != nil else { return }
            // The frames before this frame may open its stream.
            try take(UnsafeRawBufferPointer(rebasing: bytes[taken..<max(taken, start)]))
            taken = max(taken, start)
            guard !isLeaving, let code = closed.violation(of: frame, isOpen: isOpen) else { return }
            nghttp2_session_terminate_session(session, code.rawValue)
            throw SimulatorError("a frame on the closed stream \(frame.stream)")
        }
        try take(UnsafeRawBufferPointer(rebasing: bytes[taken...]))
    }

    private func take(_ bytes: UnsafeRawBufferPointer) throws(SimulatorError) {
        guard let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), !bytes.isEmpty else { return }
        let result = nghttp2_session_mem_recv(session, start, bytes.count)
        guard result >= 0 else {
            throw SimulatorError(String(cString: nghttp2_strerror(Int32(result))))
        }
    }

    func write(into buffer: inout ByteBuffer) throws(SimulatorError) {
        while true {
            var bytes: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &bytes)
            if count == 0 { return }
            guard count > 0 else { throw SimulatorError(String(cString: nghttp2_strerror(Int32(count)))) }
            buffer.reserveCapacity(16 * 1024)
            // nghttp2 returns one frame at a time.
            if let bytes, count > 9, bytes[3] == NGHTTP2_SETTINGS.rawValue {
                var frame = Array(UnsafeBufferPointer(start: bytes, count: count))
                frame.withUnsafeMutableBufferPointer { AnnouncedLimits.correct($0) }
                buffer.writeBytes(frame)
            } else {
                buffer.writeBytes(UnsafeRawBufferPointer(start: bytes, count: count))
            }
        }
    }

    /// True if the session has ended: there is nothing left to read or to write.
    var isFinished: Bool { nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0 }

    // MARK: Answers

    /// Returns the slot of a stream that is still open.
    func slot(of stream: Int32) -> StreamSlot? {
        guard let pointer = nghttp2_session_get_stream_user_data(session, stream) else { return nil }
        return Unmanaged<StreamSlot>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Answers 200 with the slot's ids and without a body.
    func succeed(_ slot: StreamSlot) {
        // Nothing is copied: names and status are literals, and the ids stay in the slot until the stream closes.
        withUnsafeTemporaryAllocation(of: nghttp2_nv.self, capacity: 3) { fields in
            fields[0] = Self.field(":status", "200")
            fields[1] = Self.idField(slot)
            if let uniqueID = slot.uniqueID { fields[2] = Self.idField("apns-unique-id", uniqueID) }
            _ = nghttp2_submit_response(session, slot.stream, fields.baseAddress, slot.uniqueID == nil ? 2 : 3, nil)
        }
    }

    /// Sends an answer other than a plain 200.
    func answer(_ slot: StreamSlot, _ answer: PreparedAnswer) {
        slot.answerOffset = 0
        var status = Array(String(answer.status).utf8)
        var retryAfter = Array((answer.retryAfter.map(String.init) ?? "").utf8)
        var channelID = answer.channelID
        let hasBody = !answer.body.isEmpty
        status.withUnsafeMutableBufferPointer { status in
            retryAfter.withUnsafeMutableBufferPointer { retryAfter in
                channelID.withUnsafeMutableBufferPointer { channelID in
                    var fields = [Self.copiedField(":status", status), Self.idField(slot)]
                    if let uniqueID = slot.uniqueID { fields.append(Self.idField("apns-unique-id", uniqueID)) }
                    if hasBody { fields.append(Self.field("content-type", answer.contentType)) }
                    if answer.retryAfter != nil { fields.append(Self.copiedField("retry-after", retryAfter)) }
                    if !channelID.isEmpty { fields.append(Self.copiedField("apns-channel-id", channelID)) }
                    submit(fields, of: slot, hasBody: hasBody)
                }
            }
        }
    }

    private func submit(_ fields: [nghttp2_nv], of slot: StreamSlot, hasBody: Bool) {
        guard hasBody else {
            _ = nghttp2_submit_response(session, slot.stream, fields, fields.count, nil)
            return
        }
        var provider = nghttp2_data_provider(
            source: nghttp2_data_source(ptr: Unmanaged.passUnretained(slot).toOpaque()),
            read_callback: ServerCallbacks.readBody)
        _ = nghttp2_submit_response(session, slot.stream, fields, fields.count, &provider)
    }

    func reset(_ stream: Int32, code: UInt32) {
        nghttp2_submit_rst_stream(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, code)
    }

    /// Ends the connection when the streams up to `lastStream` have ended. Later streams are closed at once.
    /// - Parameter reason: the reason in the debug data, as JSON; nil for no debug data.
    func goAway(lastStream: Int32, reason: String?) {
        isLeaving = true
        let data = reason.map { Array("{\"reason\":\"\($0)\"}".utf8) } ?? []
        nghttp2_submit_goaway(
            session, UInt8(NGHTTP2_FLAG_NONE.rawValue), lastStream, NGHTTP2_NO_ERROR.rawValue, data, data.count)
    }

    func setStreamLimit(_ limit: Int) {
        submit([(Int32(AnnouncedLimits.placeholder), UInt32(clamping: limit))])
        limits.announced(limit)
    }

    private func submit(_ settings: [(id: Int32, value: UInt32)]) {
        let entries = settings.map { nghttp2_settings_entry(settings_id: $0.id, value: $0.value) }
        nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), entries, entries.count)
    }

    // MARK: What nghttp2 calls

    fileprivate func beginHeaders(_ frame: UnsafePointer<nghttp2_frame>) {
        guard frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST else {
            // Trailers: APNs ignores all headers in them.
            headerSlot = nil
            return
        }
        highestStream = max(highestStream, frame.pointee.hd.stream_id)
        guard limits.allows(openStreams) else {
            headerSlot = nil
            return reset(frame.pointee.hd.stream_id, code: NGHTTP2_REFUSED_STREAM.rawValue)
        }
        let slot = takeSlot()
        slot.begin(stream: frame.pointee.hd.stream_id)
        slot.recorded = records ? [:] : nil
        nghttp2_session_set_stream_user_data(session, slot.stream, Unmanaged.passUnretained(slot).toOpaque())
        headerSlot = slot
        openStreams += 1
        highestConcurrentStreams = max(highestConcurrentStreams, openStreams)
    }

    fileprivate func header(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        guard let slot = headerSlot else { return }
        slot.request.take(name: name, value: value, of: credentials, idText: slot.idText)
        slot.record(name: name, value: value)
    }

    fileprivate func frameReceived(_ frame: UnsafePointer<nghttp2_frame>) {
        let header = frame.pointee.hd
        if header.type == NGHTTP2_RST_STREAM.rawValue {
            // nghttp2 closes the stream next, if it is open.
            isResetting = nghttp2_session_find_stream(session, header.stream_id) != nil
            owner.resetReceived()
        }
        if header.type == NGHTTP2_GOAWAY.rawValue { owner.goAwayReceived() }
        if header.type == NGHTTP2_SETTINGS.rawValue, header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) != 0 {
            limits.acknowledged()
        }
        guard header.type == NGHTTP2_DATA.rawValue || header.type == NGHTTP2_HEADERS.rawValue,
            header.flags & UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) != 0, let slot = slot(of: header.stream_id)
        else { return }
        owner.requestArrived(slot)
    }

    fileprivate func data(stream: Int32, _ bytes: UnsafePointer<UInt8>, count: Int) {
        slot(of: stream)?.append(bytes, count: count)
    }

    fileprivate func streamClosed(_ stream: Int32, errorCode: UInt32) {
        if errorCode != 0, !isResetting { closed.wasReset(stream) }
        isResetting = false
        guard let slot = slot(of: stream) else { return }
        openStreams -= 1
        owner.streamClosed(slot, errorCode: errorCode)
        if headerSlot === slot { headerSlot = nil }
        slot.stream = 0
        freeSlots.append(slot)
    }

    /// The open streams. Used when the connection has closed.
    var openSlots: some Sequence<StreamSlot> { slots.lazy.filter { $0.stream != 0 } }

    private func takeSlot() -> StreamSlot {
        if let slot = freeSlots.popLast() { return slot }
        let slot = StreamSlot()
        slots.append(slot)
        return slot
    }

    // MARK: Header fields

    private static func field(_ name: StaticString, _ value: StaticString) -> nghttp2_nv {
        nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start),
            value: UnsafeMutablePointer(mutating: value.utf8Start), namelen: name.utf8CodeUnitCount,
            valuelen: value.utf8CodeUnitCount,
            flags: UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue))
    }

    private static func copiedField(
        _ name: StaticString, _ value: UnsafeMutableBufferPointer<UInt8>
    ) -> nghttp2_nv {
        nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start), value: value.baseAddress,
            namelen: name.utf8CodeUnitCount, valuelen: value.count,
            flags: UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue))
    }

    // Not indexed: each id occurs once, and would only evict repeated fields from the header table.
    private static func idField(_ slot: StreamSlot) -> nghttp2_nv {
        idField(slot.request.isAboutChannels ? "apns-request-id" : "apns-id", slot.idText)
    }

    private static func idField(_ name: StaticString, _ text: UnsafeMutablePointer<UInt8>) -> nghttp2_nv {
        nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start), value: text,
            namelen: name.utf8CodeUnitCount, valuelen: APNSID.textLength,
            flags: UInt8(
                NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue
                    | NGHTTP2_NV_FLAG_NO_INDEX.rawValue))
    }
}

/// The C callbacks of nghttp2, which find their session and forward to it.
private enum ServerCallbacks {
    // Called about ten times per request. Not retained, because the session outlives the call into nghttp2.
    @inline(__always)
    private static func session(_ pointer: UnsafeMutableRawPointer?, _ body: (HTTP2ServerSession) -> Void) {
        guard let pointer else { return }
        Unmanaged<HTTP2ServerSession>.fromOpaque(pointer)._withUnsafeGuaranteedRef(body)
    }

    static func make() -> OpaquePointer? {
        var callbacks: OpaquePointer?
        nghttp2_session_callbacks_new(&callbacks)
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, user in
            if let frame { ServerCallbacks.session(user) { $0.beginHeaders(frame) } }
            return 0
        }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, _, name, nameLength, value, valueLength, _, user in
            ServerCallbacks.session(user) {
                $0.header(
                    name: UnsafeBufferPointer(start: name, count: nameLength),
                    value: UnsafeBufferPointer(start: value, count: valueLength))
            }
            return 0
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, stream, bytes, count, user in
            if let bytes { ServerCallbacks.session(user) { $0.data(stream: stream, bytes, count: count) } }
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, user in
            if let frame { ServerCallbacks.session(user) { $0.frameReceived(frame) } }
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, stream, errorCode, user in
            ServerCallbacks.session(user) { $0.streamClosed(stream, errorCode: errorCode) }
            return 0
        }
        return callbacks
    }

    /// Passes nghttp2 the next piece of a slot's answer.
    static let readBody: nghttp2_data_source_read_callback = { _, _, buffer, capacity, flags, source, _ in
        guard let buffer, let pointer = source?.pointee.ptr else { return 0 }
        let slot = Unmanaged<StreamSlot>.fromOpaque(pointer).takeUnretainedValue()
        guard let answer = slot.heldAnswer else { return 0 }
        let count = min(capacity, answer.step, answer.body.count - slot.answerOffset)
        for index in 0..<count { buffer[index] = answer.body[slot.answerOffset + index] }
        slot.answerOffset += count
        if slot.answerOffset == answer.body.count { flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
        return count
    }
}
