import CNghttp2
import NIOCore

/// The server's side of one HTTP/2 connection: bytes in, bytes out, and nothing of sockets.
///
/// nghttp2 keeps a plain pointer to this object and calls back from ``receive(_:)`` and ``write(into:)`` only. The owner
/// must not let go of it inside a callback, and neither method may be called from one.
final class HTTP2ServerSession {
    /// nghttp2 gave up on the connection.
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    private let session: OpaquePointer
    // Unsafe saves the check on every header; the connection owns this session, so it is there as long as we are.
    private unowned(unsafe) let connection: SimulatedConnection
    // Keeps every slot alive as long as the session: nghttp2 only has a plain pointer to those in use.
    private var slots: [RequestSlot] = []
    private var freeSlots: [RequestSlot] = []
    private var openStreams = 0
    private let isRecording: Bool
    /// The slot whose headers are coming in; a header block is never interrupted by another stream's.
    private var headerSlot: RequestSlot?

    private(set) var highestStream: Int32 = 0
    private(set) var highestConcurrentStreams = 0

    /// - Parameter connectionWindow: how many bytes of bodies may be under way; nil grants no window beyond the first.
    init(connection: SimulatedConnection, streamLimit: Int, connectionWindow: Int32?) throws(Failure) {
        self.connection = connection
        isRecording = connection.service.recorder != nil
        var options: OpaquePointer?
        nghttp2_option_new(&options)
        defer { nghttp2_option_del(options) }
        nghttp2_option_set_no_closed_streams(options, 1)
        // A client may give up thousands of streams at once when a rule keeps silent; nghttp2's own limit, meant
        // against rapid resets, would end the connection.
        nghttp2_option_set_stream_reset_rate_limit(options, 1_000_000, 100_000)
        if connectionWindow == nil { nghttp2_option_set_no_auto_window_update(options, 1) }
        var created: OpaquePointer?
        let callbacks = ServerCallbacks.make()
        defer { nghttp2_session_callbacks_del(callbacks) }
        guard nghttp2_session_server_new2(&created, callbacks, nil, options) == 0, let created else {
            throw Failure(description: "nghttp2 has no memory for another session")
        }
        session = created
        // The object has all its parts only now, and nghttp2 asks for this at the first callback.
        nghttp2_session_set_user_data(session, Unmanaged.passUnretained(self).toOpaque())
        setStreamLimit(streamLimit)
        guard let connectionWindow else { return }
        nghttp2_session_set_local_window_size(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, connectionWindow)
    }

    deinit { nghttp2_session_del(session) }

    // MARK: Bytes

    /// Takes what the client sent.
    func receive(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
        guard let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return }
        let result = nghttp2_session_mem_recv(session, start, bytes.count)
        guard result >= 0 else {
            throw Failure(description: String(cString: nghttp2_strerror(Int32(result))))
        }
    }

    /// Writes all that is ready to be sent.
    func write(into buffer: inout ByteBuffer) throws(Failure) {
        while true {
            var bytes: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &bytes)
            if count == 0 { return }
            guard count > 0 else { throw Failure(description: String(cString: nghttp2_strerror(Int32(count)))) }
            buffer.writeBytes(UnsafeRawBufferPointer(start: bytes, count: count))
        }
    }

    /// Whether there is something to write.
    var hasOutput: Bool { nghttp2_session_want_write(session) != 0 }

    /// Whether both sides have said all they will ever say.
    var isFinished: Bool { nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0 }

    // MARK: Answers

    /// The slot of a stream that is still open.
    func slot(of stream: Int32) -> RequestSlot? {
        guard let pointer = nghttp2_session_get_stream_user_data(session, stream) else { return nil }
        return Unmanaged<RequestSlot>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Answers 200 with the slot's id and no body.
    func succeed(_ slot: RequestSlot) {
        // Nothing is copied: the names and the status are literals, and the id stays in the slot until the stream closes.
        withUnsafeTemporaryAllocation(of: nghttp2_nv.self, capacity: 2) { fields in
            fields[0] = Self.field(":status", "200")
            fields[1] = Self.idField(slot)
            _ = nghttp2_submit_response(session, slot.stream, fields.baseAddress, 2, nil)
        }
    }

    /// Answers with anything else.
    func answer(_ slot: RequestSlot, _ answer: PreparedAnswer) {
        slot.answerBody = answer.body
        slot.answerBodyOffset = 0
        slot.answerBodyStep = answer.step
        var status = Array(String(answer.status).utf8)
        var retryAfter = Array((answer.retryAfter.map(String.init) ?? "").utf8)
        var channelID = answer.channelID
        let hasBody = !answer.body.isEmpty
        status.withUnsafeMutableBufferPointer { status in
            retryAfter.withUnsafeMutableBufferPointer { retryAfter in
                channelID.withUnsafeMutableBufferPointer { channelID in
                    var fields = [Self.copiedField(":status", status), Self.idField(slot)]
                    if hasBody { fields.append(Self.field("content-type", answer.contentType)) }
                    if answer.retryAfter != nil { fields.append(Self.copiedField("retry-after", retryAfter)) }
                    if !channelID.isEmpty { fields.append(Self.copiedField("apns-channel-id", channelID)) }
                    submit(fields, of: slot, hasBody: hasBody)
                }
            }
        }
    }

    private func submit(_ fields: [nghttp2_nv], of slot: RequestSlot, hasBody: Bool) {
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

    /// Ends the connection once the streams up to `lastStream` are over; those above are closed at once.
    /// - Parameter reason: what the debug data says, as JSON; nothing if nil.
    func goAway(lastStream: Int32, reason: String?) {
        let data = reason.map { Array("{\"reason\":\"\($0)\"}".utf8) } ?? []
        nghttp2_submit_goaway(
            session, UInt8(NGHTTP2_FLAG_NONE.rawValue), lastStream, NGHTTP2_NO_ERROR.rawValue, data, data.count)
    }

    func setStreamLimit(_ limit: Int) {
        var entry = nghttp2_settings_entry(
            settings_id: Int32(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS.rawValue), value: UInt32(clamping: limit))
        nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), &entry, 1)
    }

    // MARK: What nghttp2 calls

    func beginHeaders(_ frame: UnsafePointer<nghttp2_frame>) {
        guard frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST else {
            // Trailers: no header in them means anything to APNs.
            headerSlot = nil
            return
        }
        let slot = takeSlot()
        slot.begin(stream: frame.pointee.hd.stream_id)
        if isRecording { slot.recorded = RecordedHeaders() }
        nghttp2_session_set_stream_user_data(session, slot.stream, Unmanaged.passUnretained(slot).toOpaque())
        headerSlot = slot
        highestStream = max(highestStream, slot.stream)
        openStreams += 1
        highestConcurrentStreams = max(highestConcurrentStreams, openStreams)
    }

    func header(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        guard let slot = headerSlot else { return }
        slot.request.take(name: name, value: value, from: connection, idText: slot.idText)
        if isRecording { slot.recorded?.take(name: name, value: value) }
    }

    func frameReceived(_ frame: UnsafePointer<nghttp2_frame>) {
        let header = frame.pointee.hd
        if header.type == NGHTTP2_RST_STREAM.rawValue { connection.resetReceived() }
        if header.type == NGHTTP2_GOAWAY.rawValue { connection.goAwayReceived() }
        guard header.type == NGHTTP2_DATA.rawValue || header.type == NGHTTP2_HEADERS.rawValue,
            header.flags & UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) != 0, let slot = slot(of: header.stream_id)
        else { return }
        connection.requestArrived(slot)
    }

    func data(stream: Int32, _ bytes: UnsafePointer<UInt8>, count: Int) {
        slot(of: stream)?.append(bytes, count: count)
    }

    func streamClosed(_ stream: Int32, errorCode: UInt32) {
        guard let slot = slot(of: stream) else { return }
        openStreams -= 1
        connection.streamClosed(slot, errorCode: errorCode)
        if headerSlot === slot { headerSlot = nil }
        slot.stream = 0
        freeSlots.append(slot)
    }

    /// Every stream that is still open, for when the connection is gone.
    var openSlots: some Sequence<RequestSlot> { slots.lazy.filter { $0.stream != 0 } }

    private func takeSlot() -> RequestSlot {
        if let slot = freeSlots.popLast() { return slot }
        let slot = RequestSlot()
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

    // An id comes once: putting it into the header table would only push out what comes again.
    private static func idField(_ slot: RequestSlot) -> nghttp2_nv {
        let name: StaticString = slot.request.isAboutChannels ? "apns-request-id" : "apns-id"
        return nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start), value: slot.idText,
            namelen: name.utf8CodeUnitCount, valuelen: NotificationID.textLength,
            flags: UInt8(
                NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue
                    | NGHTTP2_NV_FLAG_NO_INDEX.rawValue))
    }
}
