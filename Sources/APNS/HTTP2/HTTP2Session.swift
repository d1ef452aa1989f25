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
        /// True if the server made us queue more answers to its PINGs and SETTINGS than it reads, or sent header blocks
        /// in more pieces than make sense.
        var isFlood: Bool {
            code == NGHTTP2_ERR_FLOODED.rawValue || code == Self.tooManyContinuations
        }
        /// NGHTTP2_ERR_TOO_MANY_CONTINUATIONS, which headers from before CVE-2024-28182 lack.
        private static let tooManyContinuations: Int32 = -905
    }

    /// The connection's events since the owner last emptied it. They come before those of streams:
    /// which of those were processed is told by a GOAWAY.
    var events: [Event] = []
    /// The streams that have ended since the owner last emptied it. Apart from the events, for there is one for every
    /// notification.
    var closedStreams: [ClosedStream] = []
    var slots: RequestSlots
    /// True if answers are read for their `apns-unique-id`.
    var keepsUniqueIDs = false
    /// The server's breach of HTTP/2, in nghttp2's words, if there was one.
    private(set) var complaint: String?

    private var session: OpaquePointer?
    private let headers = RequestHeaders()
    private let authority: HeaderText

    /// Response bodies are kept up to this size, and cut off beyond; APNs' are under 100 bytes.
    private static let maximumBodySize = 16 * 1024
    /// A response's header fields may have this size in all, those of interim responses included.
    static let maximumHeaderSize: Int32 = 16 * 1024

    /// Requests that were cancelled and whose resets have not been taken as output.
    private(set) var pendingCancels = 0

    /// - Parameters:
    ///   - authority: the value of `:authority`.
    ///   - maximumStreams: how many requests this end will have open at once at the most.
    ///   - firstStream: the identifier of the first request.
    init(authority: HeaderText, maximumStreams: Int, firstStream: Int32 = 1) throws(Failure) {
        self.authority = authority
        slots = RequestSlots(capacity: maximumStreams)
        try check(makeSession())
        // We take no pushes; the other values are HTTP/2's defaults. A response's headers are a few short fields.
        var settings = [
            nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
                value: UInt32(Self.maximumHeaderSize)),
        ]
        try check(nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), &settings, settings.count))
        if firstStream > 1 { try check(nghttp2_session_set_next_stream_id(session, firstStream)) }
    }

    deinit {
        nghttp2_session_del(session)
    }

    /// Gives the memory back, for the channel may need a while to close. Nothing may be asked of it any more, and no call
    /// of it may be under way.
    func release() {
        nghttp2_session_del(session)
        session = nil
        slots = RequestSlots(capacity: 0)
        closedStreams = []
    }

    /// Opens a stream for a notification. There must be a free slot.
    /// - Returns: the stream; `nil` where the session takes no requests any more (as after a GOAWAY).
    func submit(_ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?)
        -> Int32?
    {
        guard let index = slots.take() else { return nil }
        let slot = slots.pointer(index)
        slot.pointee.tag = tag
        slot.pointee.notification = notification
        slot.pointee.deadline = deadline
        guard
            let (fields, count) = headers.fill(
                slot, scratch: slots.scratch(index), authority: authority, authorization: authorization)
        else {
            slots.release(index)
            return nil
        }
        var body = nghttp2_data_provider()
        body.source.ptr = UnsafeMutableRawPointer(slot)
        body.read_callback = readRequestBody
        let stream = nghttp2_submit_request(session, nil, fields, count, &body, UnsafeMutableRawPointer(slot))
        guard stream > 0 else {
            slots.release(index)
            return nil
        }
        slot.pointee.stream = stream
        return stream
    }

    /// Takes bytes from the server; what they meant is appended to ``events``.
    func receive(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
        let taken = nghttp2_session_mem_recv(
            session, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), bytes.count)
        try check(Int32(clamping: taken))
    }

    /// Appends what is to be sent.
    /// - Parameter limit: no more is taken once there is this much.
    /// - Returns: whether that was all.
    @discardableResult
    func takeOutput(into buffer: inout ByteBuffer, upTo limit: Int = .max) throws(Failure) -> Bool {
        while buffer.readableBytes < limit {
            var frame: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &frame)
            try check(Int32(clamping: count))
            guard count > 0, let frame else { return true }
            buffer.writeBytes(UnsafeRawBufferPointer(start: frame, count: count))
        }
        return false
    }

    /// True if neither side has more to send: nghttp2's sign that the connection should be closed.
    var isFinished: Bool {
        nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0
    }

    /// A request that a flow-control window keeps from being written.
    struct Blockage: Equatable {
        var stream: Int32
        /// The part of its body that has been written, in bytes.
        var written: Int
    }

    /// The oldest open request of which more could be written if the server granted a window; `nil` if there is none.
    ///
    /// Requests that wait for a free stream are not meant: the answers to others end that.
    /// - Parameter limit: only requests with an earlier deadline are looked at, because younger ones may wait for no more
    ///   than a round trip.
    func blockage(dueBefore limit: NIODeadline) -> Blockage? {
        let isExhausted = nghttp2_session_get_remote_window_size(session) <= 0
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            guard slot.pointee.deadline < limit else { return nil }
            if !slot.pointee.isWritten, slot.pointee.failure == nil {
                // -1 for a stream that has not been opened.
                let window = nghttp2_session_get_stream_remote_window_size(session, slot.pointee.stream)
                if window == 0 || (isExhausted && window > 0) {
                    return Blockage(stream: slot.pointee.stream, written: slot.pointee.bodyOffset)
                }
            }
            index = slot.pointee.next
        }
        return nil
    }

    /// Gives a request up; its `closed` event follows when the reset has been sent.
    func cancel(_ slot: Int32, because failure: RequestFailure) {
        let pointer = slots.pointer(slot)
        // Its reset may still wait to be taken.
        guard pointer.pointee.failure == nil else { return }
        pointer.pointee.failure = failure
        pendingCancels += 1
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
        nghttp2_option_set_no_closed_streams(option, 1)
        HTTP2SessionCallbacks.register(callbacks)
        return nghttp2_session_client_new2(&session, callbacks, Unmanaged.passUnretained(self).toOpaque(), option)
    }

    func slot(of stream: Int32) -> UnsafeMutablePointer<RequestSlot>? {
        nghttp2_session_get_stream_user_data(session, stream)?.assumingMemoryBound(to: RequestSlot.self)
    }

    func noteClosed(_ slot: UnsafeMutablePointer<RequestSlot>, code: UInt32) {
        // A request that was given up before nghttp2 opened its stream is closed by nghttp2 only later.
        guard slot.pointee.stream != 0 else { return }
        if slot.pointee.failure != nil { pendingCancels -= 1 }
        closedStreams.append(ClosedStream(slot: slots.index(of: UnsafeMutableRawPointer(slot)), code: code))
    }

    func noteComplaint(_ text: String) { complaint = complaint ?? text }

    func noteFrame(_ frame: UnsafePointer<nghttp2_frame>) {
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

    func noteBody(_ bytes: UnsafeRawBufferPointer, of slot: UnsafeMutablePointer<RequestSlot>) {
        if slot.pointee.body == nil { slot.pointee.body = ByteBuffer() }
        let room = Self.maximumBodySize - (slot.pointee.body?.readableBytes ?? 0)
        slot.pointee.body?.writeBytes(UnsafeRawBufferPointer(rebasing: bytes.prefix(max(room, 0))))
        guard bytes.count > room, !slot.pointee.isCut, slot.pointee.failure == nil else { return }
        slot.pointee.isCut = true
        nghttp2_submit_rst_stream(
            session, UInt8(NGHTTP2_FLAG_NONE.rawValue), slot.pointee.stream, NGHTTP2_CANCEL.rawValue)
    }
}
