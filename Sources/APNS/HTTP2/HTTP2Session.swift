import CNghttp2
import NIOCore

/// HTTP/2 framing for the client's side of one connection: bytes in, bytes out, requests submitted, events taken.
///
/// nghttp2 does the work. Its callbacks only note what happened; the owner takes the ``events`` when `receive` has
/// returned, for nghttp2 must not be entered again from within. Not thread-safe: it belongs to one event loop.
final class HTTP2Session {
    enum Event: Equatable {
        /// The server's settings, or new ones; `nil` means that it sets no limit.
        case settings(maximumStreams: Int?)
        case goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer)
        case pingAnswered
    }

    /// A stream that has ended; its slot holds what came.
    struct ClosedStream: Equatable {
        var slot: Int32
        /// The HTTP/2 error code; 0 is NO_ERROR.
        var code: UInt32
    }

    struct Failure: Error, Equatable, CustomStringConvertible {
        var code: Int32
        var description: String { "HTTP/2 error: \(String(cString: nghttp2_strerror(code)))" }
    }

    /// What has happened to the connection since the owner last emptied it. It comes before what has happened to streams:
    /// which of those were processed is told by a GOAWAY.
    var events: [Event] = []
    /// The streams that have ended since the owner last emptied it. Apart from the events, for there is one for every
    /// notification.
    var closedStreams: [ClosedStream] = []
    var slots: RequestSlots
    /// What the server did that HTTP/2 forbids, in nghttp2's words, once it has done so.
    private(set) var complaint: String?

    private var session: OpaquePointer?
    private let headers = RequestHeaders()
    private let authority: HeaderText

    /// Response bodies are kept up to this size; APNs' are under 100 bytes.
    private static let maximumBodySize = 16 * 1024

    /// - Parameters:
    ///   - authority: the value of `:authority`.
    ///   - maximumStreams: how many requests this end will have open at once at the most.
    init(authority: HeaderText, maximumStreams: Int) throws(Failure) {
        self.authority = authority
        slots = RequestSlots(capacity: maximumStreams)
        try check(makeSession())
        // We take no pushes; the other values are HTTP/2's defaults. A response's headers are a few short fields.
        var settings = [
            nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
            nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue), value: 16384),
        ]
        try check(nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), &settings, settings.count))
    }

    deinit {
        nghttp2_session_del(session)
    }

    /// Opens a stream for a notification. There must be a free slot.
    /// - Returns: whether the session still takes requests (it does not after a GOAWAY).
    func submit(_ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?)
        -> Bool
    {
        guard let index = slots.take() else { return false }
        let slot = slots.pointer(index)
        slot.pointee.tag = tag
        slot.pointee.notification = notification
        slot.pointee.deadline = deadline
        guard
            let (fields, count) = headers.fill(
                slot, scratch: slots.scratch(index), authority: authority, authorization: authorization)
        else {
            slots.release(index)
            return false
        }
        var body = nghttp2_data_provider()
        body.source.ptr = UnsafeMutableRawPointer(slot)
        body.read_callback = readBody
        let stream = nghttp2_submit_request(session, nil, fields, count, &body, UnsafeMutableRawPointer(slot))
        guard stream > 0 else {
            slots.release(index)
            return false
        }
        slot.pointee.stream = stream
        return true
    }

    /// Takes bytes from the server; what they meant is appended to ``events``.
    func receive(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
        let taken = nghttp2_session_mem_recv(
            session, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), bytes.count)
        try check(Int32(clamping: taken))
    }

    /// Appends what is to be sent.
    func takeOutput(into buffer: inout ByteBuffer) throws(Failure) {
        while true {
            var frame: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &frame)
            try check(Int32(clamping: count))
            guard count > 0, let frame else { return }
            buffer.writeBytes(UnsafeRawBufferPointer(start: frame, count: count))
        }
    }

    /// Whether neither side has anything more to say, which is how nghttp2 tells that a connection is to be closed.
    var isFinished: Bool {
        nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0
    }

    /// Gives a request up; its `closed` event follows when the reset has been sent.
    func cancel(_ slot: Int32, because failure: RequestFailure) {
        let pointer = slots.pointer(slot)
        pointer.pointee.failure = failure
        nghttp2_submit_rst_stream(
            session, UInt8(NGHTTP2_FLAG_NONE.rawValue), pointer.pointee.stream, NGHTTP2_CANCEL.rawValue)
    }

    func ping() {
        nghttp2_submit_ping(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), nil)
    }

    /// Tells the server that this end opens no more streams and is leaving.
    func goAway() {
        nghttp2_session_terminate_session(session, NGHTTP2_NO_ERROR.rawValue)
    }

    private func check(_ code: Int32) throws(Failure) {
        if code < 0 { throw Failure(code: code) }
    }

    private func makeSession() -> Int32 {
        var callbacks: OpaquePointer?
        var option: OpaquePointer?
        guard nghttp2_session_callbacks_new(&callbacks) == 0, nghttp2_option_new(&option) == 0 else {
            return Int32(NGHTTP2_ERR_NOMEM.rawValue)
        }
        defer {
            nghttp2_session_callbacks_del(callbacks)
            nghttp2_option_del(option)
        }
        // Until the server's SETTINGS arrive, a second stream might be one too many.
        nghttp2_option_set_peer_max_concurrent_streams(option, 1)
        nghttp2_option_set_no_closed_streams(option, 1)
        nghttp2_session_callbacks_set_on_header_callback(callbacks, onHeader)
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, onData)
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, onStreamClose)
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, onFrame)
        nghttp2_session_callbacks_set_error_callback2(callbacks, onError)
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, onInvalidFrame)
        return nghttp2_session_client_new2(&session, callbacks, Unmanaged.passUnretained(self).toOpaque(), option)
    }

    fileprivate func slot(of stream: Int32) -> UnsafeMutablePointer<RequestSlot>? {
        nghttp2_session_get_stream_user_data(session, stream)?.assumingMemoryBound(to: RequestSlot.self)
    }

    fileprivate func noteClosed(_ slot: UnsafeMutablePointer<RequestSlot>, code: UInt32) {
        // A request that was given up before nghttp2 opened its stream is closed by nghttp2 only later.
        guard slot.pointee.stream != 0 else { return }
        closedStreams.append(ClosedStream(slot: slots.index(of: UnsafeMutableRawPointer(slot)), code: code))
    }

    fileprivate func noteComplaint(_ text: String) { complaint = complaint ?? text }

    fileprivate func noteFrame(_ frame: UnsafePointer<nghttp2_frame>) {
        let header = frame.pointee.hd
        switch nghttp2_frame_type(UInt32(header.type)) {
        case NGHTTP2_SETTINGS where header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) == 0:
            let limit = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
            events.append(.settings(maximumStreams: limit > Int32.max ? nil : Int(limit)))
        case NGHTTP2_GOAWAY:
            let goAway = frame.pointee.goaway
            let debugData = UnsafeRawBufferPointer(start: goAway.opaque_data, count: goAway.opaque_data_len)
            events.append(
                .goAway(
                    lastStream: goAway.last_stream_id, code: goAway.error_code,
                    debugData: ByteBuffer(bytes: debugData.prefix(ResponseBody.maximumSize))))
        case NGHTTP2_PING where header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) != 0:
            events.append(.pingAnswered)
        default:
            break
        }
    }

    fileprivate func noteBody(_ bytes: UnsafeRawBufferPointer, of slot: UnsafeMutablePointer<RequestSlot>) {
        if slot.pointee.body == nil { slot.pointee.body = ByteBuffer() }
        let room = Self.maximumBodySize - (slot.pointee.body?.readableBytes ?? 0)
        slot.pointee.body?.writeBytes(UnsafeRawBufferPointer(rebasing: bytes.prefix(max(room, 0))))
    }
}

private func session(_ context: UnsafeMutableRawPointer?) -> HTTP2Session? {
    context.map { Unmanaged<HTTP2Session>.fromOpaque($0).takeUnretainedValue() }
}

private func readBody(
    _: OpaquePointer?, _: Int32, target: UnsafeMutablePointer<UInt8>?, capacity: Int,
    flags: UnsafeMutablePointer<UInt32>?, source: UnsafeMutablePointer<nghttp2_data_source>?,
    _: UnsafeMutableRawPointer?
) -> Int {
    guard let slot = source?.pointee.ptr?.assumingMemoryBound(to: RequestSlot.self), let target, let flags else {
        return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
    }
    let offset = slot.pointee.bodyOffset
    let copied =
        slot.pointee.notification?.payload.withUnsafeReadableBytes { payload in
            let count = min(payload.count - offset, capacity)
            if count > 0, let base = payload.baseAddress {
                UnsafeMutableRawPointer(target).copyMemory(from: base + offset, byteCount: count)
            }
            if offset + count == payload.count {
                flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
                slot.pointee.isWritten = true
            }
            return count
        } ?? Int(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue)
    slot.pointee.bodyOffset = offset + max(copied, 0)
    return copied
}

private func onHeader(
    nghttp2: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, name: UnsafePointer<UInt8>?, nameLength: Int,
    value: UnsafePointer<UInt8>?, valueLength: Int, _: UInt8, _: UnsafeMutableRawPointer?
) -> Int32 {
    guard let frame, let name, let value,
        let slot = nghttp2_session_get_stream_user_data(nghttp2, frame.pointee.hd.stream_id)?
            .assumingMemoryBound(to: RequestSlot.self)
    else { return 0 }
    if nameLength == 7, name[0] == UInt8(ascii: ":") {
        // An interim response (RFC 9110 §15.2) is not the answer yet.
        let status = number(value, valueLength) ?? 0
        if status >= 200 { slot.pointee.status = status }
    } else if nameLength == 11, matches(name, "retry-after") {
        slot.pointee.retryAfter = number(value, valueLength) ?? -1
    }
    return 0
}

private func matches(_ bytes: UnsafePointer<UInt8>, _ text: StaticString) -> Bool {
    UnsafeBufferPointer(start: bytes, count: text.utf8CodeUnitCount)
        .elementsEqual(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
}

/// A decimal number of at most nine digits.
private func number(_ digits: UnsafePointer<UInt8>, _ count: Int) -> Int32? {
    guard count > 0, count <= 9 else { return nil }
    var value: Int32 = 0
    for index in 0..<count {
        let digit = digits[index] &- 0x30
        guard digit < 10 else { return nil }
        value = value * 10 + Int32(digit)
    }
    return value
}

private func onData(
    _: OpaquePointer?, _: UInt8, stream: Int32, bytes: UnsafePointer<UInt8>?, count: Int,
    context: UnsafeMutableRawPointer?
) -> Int32 {
    if let session = session(context), let slot = session.slot(of: stream) {
        session.noteBody(UnsafeRawBufferPointer(start: bytes, count: count), of: slot)
    }
    return 0
}

private func onStreamClose(
    _: OpaquePointer?, stream: Int32, code: UInt32, context: UnsafeMutableRawPointer?
) -> Int32 {
    if let session = session(context), let slot = session.slot(of: stream) { session.noteClosed(slot, code: code) }
    return 0
}

private func onFrame(
    _: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, context: UnsafeMutableRawPointer?
) -> Int32 {
    if let session = session(context), let frame { session.noteFrame(frame) }
    return 0
}

private func onError(
    _: OpaquePointer?, code: Int32, text: UnsafePointer<CChar>?, count: Int, context: UnsafeMutableRawPointer?
) -> Int32 {
    // What it says of header fields quotes them.
    guard code != NGHTTP2_ERR_HTTP_HEADER.rawValue else { return 0 }
    session(context)?.noteComplaint(
        String(decoding: UnsafeRawBufferPointer(start: text, count: count), as: UTF8.self))
    return 0
}

private func onInvalidFrame(
    _: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, code: Int32, context: UnsafeMutableRawPointer?
) -> Int32 {
    session(context)?.noteComplaint(String(cString: nghttp2_strerror(code)))
    return 0
}
