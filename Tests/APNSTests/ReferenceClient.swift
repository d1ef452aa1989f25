import CNghttp2
import NIOCore

@testable import APNS

/// A client's view of a server's bytes.
struct ClientView: Equatable {
    struct Answer: Equatable {
        var status: Int32 = 0
        var body: [UInt8] = []
        /// The error code of the stream's end; `nil` while it is open.
        var code: UInt32?
    }

    var answers: [Int32: Answer] = [:]
    /// The last stream, the code and the data of each GOAWAY.
    var goAways: [String] = []
    /// The stream limit after each SETTINGS; -1 for none.
    var limits: [Int] = []
    /// The code of the client's own GOAWAY.
    var leaves: UInt32?
    /// The codes of the client's resets.
    var resets: [Int32: UInt32] = [:]

    func differences(from other: ClientView) -> [String] {
        var found: [String] = []
        for stream in Set(answers.keys).union(other.answers.keys).sorted()
        where (answers[stream] ?? .init()) != (other.answers[stream] ?? .init()) {
            found.append("stream \(stream): \(answers[stream] ?? .init()), not \(other.answers[stream] ?? .init())")
        }
        if goAways != other.goAways { found.append("GOAWAY \(goAways), not \(other.goAways)") }
        if limits != other.limits { found.append("limits \(limits), not \(other.limits)") }
        if leaves != other.leaves { found.append("leaves \(leaves as Any), not \(other.leaves as Any)") }
        if resets != other.resets { found.append("resets \(resets), not \(other.resets)") }
        return found
    }

    /// Reads the client's output.
    mutating func sent(_ output: ByteBuffer) {
        var output = output
        while let frame = HTTP2Frame.read(from: &output) {
            if frame.kind == .resetStream { resets[frame.stream] = frame.errorCode }
            if frame.kind == .goAway { leaves = frame.payload[4..<8].reduce(0) { $0 << 8 | UInt32($1) } }
        }
    }
}

/// nghttp2's client, for comparison with ours.
final class ReferenceClient {
    private(set) var view = ClientView()
    private var session: OpaquePointer?
    /// True if the client reads nothing more.
    private(set) var hasStopped = false

    init() {
        var callbacks: OpaquePointer?
        nghttp2_session_callbacks_new(&callbacks)
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameLength, value, valueLength, _, context in
            guard let client = client(context), let frame, let name, let value, nameLength == 7, name[0] == 0x3A else {
                return 0
            }
            let text = String(decoding: UnsafeBufferPointer(start: value, count: valueLength), as: UTF8.self)
            let status = Int32(text) ?? 0
            if status >= 200 { client.view.answers[frame.pointee.hd.stream_id, default: .init()].status = status }
            return 0
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, stream, bytes, count, context in
            client(context)?.view.answers[stream, default: .init()].body += UnsafeBufferPointer(
                start: bytes, count: count)
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, stream, code, context in
            client(context)?.view.answers[stream, default: .init()].code = code
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { session, frame, context in
            guard let client = client(context), let frame else { return 0 }
            client.received(frame)
            return 0
        }
        var option: OpaquePointer?
        nghttp2_option_new(&option)
        nghttp2_option_set_no_closed_streams(option, 1)
        nghttp2_session_client_new2(&session, callbacks, Unmanaged.passUnretained(self).toOpaque(), option)
        nghttp2_session_callbacks_del(callbacks)
        nghttp2_option_del(option)
        var setting = nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0)
        nghttp2_submit_settings(session, 0, &setting, 1)
    }

    deinit { nghttp2_session_del(session) }

    private func received(_ frame: UnsafePointer<nghttp2_frame>) {
        switch nghttp2_frame_type(UInt32(frame.pointee.hd.type)) {
        case NGHTTP2_SETTINGS where frame.pointee.hd.flags & 1 == 0:
            let limit = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
            view.limits.append(limit > Int32.max ? -1 : Int(limit))
        case NGHTTP2_GOAWAY:
            let goAway = frame.pointee.goaway
            let data = UnsafeRawBufferPointer(start: goAway.opaque_data, count: goAway.opaque_data_len)
            view.goAways.append("\(goAway.last_stream_id) \(goAway.error_code) \(Array(data))")
        default: break
        }
    }

    /// Sends a complete request without a body.
    func submit() {
        var fields = [(":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/")].map {
            name, value in
            let text = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: name.utf8.count + value.utf8.count)
            _ = text.initialize(from: Array((name + value).utf8))
            return nghttp2_nv(
                name: text.baseAddress, value: text.baseAddress.map { $0 + name.utf8.count }, namelen: name.utf8.count,
                valuelen: value.utf8.count, flags: 0)
        }
        nghttp2_submit_request(session, nil, &fields, fields.count, nil, nil)
        for field in fields { field.name.deallocate() }
        takeOutput()
    }

    func receive(_ bytes: some Sequence<UInt8>) {
        guard !hasStopped else { return }
        let bytes = Array(bytes)
        let taken = nghttp2_session_mem_recv(session, bytes, bytes.count)
        takeOutput()
        hasStopped = taken < 0 || nghttp2_session_want_read(session) == 0
    }

    private func takeOutput() {
        var output = ByteBuffer()
        while true {
            var frame: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &frame)
            guard count > 0, let frame else { break }
            let piece = UnsafeRawBufferPointer(start: frame, count: count)
            // The preface is not a frame.
            if piece.starts(with: "PRI".utf8) {
                output.writeBytes(piece.dropFirst(24))
            } else {
                output.writeBytes(piece)
            }
        }
        view.sent(output)
    }
}

private func client(_ context: UnsafeMutableRawPointer?) -> ReferenceClient? {
    context.map { Unmanaged<ReferenceClient>.fromOpaque($0).takeUnretainedValue() }
}

/// Our client, with the interface of ``ReferenceClient``.
final class OwnClient {
    let session: HTTP2Session
    private(set) var view = ClientView()
    /// The frames that the client has sent, after its preface.
    private(set) var output = ByteBuffer()

    init(maximumStreams: Int = 20, firstStream: Int32 = 1) {
        session = HTTP2Session(authority: HeaderText("x"), maximumStreams: maximumStreams, firstStream: firstStream)
        session.takeOutput(into: &output)
        output.moveReaderIndex(forwardBy: 24)
    }

    @discardableResult
    func submit(
        _ payload: String = "{}", deadline: NIODeadline = .distantFuture, authorization: HeaderText? = nil
    ) -> Int32? {
        var notification = Notification.example(1)
        notification.payload = ByteBuffer(string: payload)
        let stream = session.submit(notification, tag: 0, deadline: deadline, authorization: authorization)
        if let stream { view.answers[stream] = .init() }
        takeOutput()
        return stream
    }

    func takeOutput() {
        let start = output.writerIndex
        session.takeOutput(into: &output)
        if let new = output.getSlice(at: start, length: output.writerIndex - start) { view.sent(new) }
        collect()
    }

    func receive(_ bytes: some Sequence<UInt8>) {
        Array(bytes).withUnsafeBytes { session.receive($0) }
        takeOutput()
    }

    private func collect() {
        for event in session.events {
            switch event {
            case .settings(let limit): view.limits.append(limit ?? -1)
            case .goAway(let last, let code, let data):
                view.goAways.append("\(last) \(code) \(Array(data.readableBytesView))")
            }
        }
        session.events = []
        // Includes open streams.
        var index = session.streams.slots.oldest
        while index >= 0 {
            let slot = session.streams.slots.pointer(index)
            if slot.pointee.stream != 0 {
                view.answers[slot.pointee.stream]?.status = slot.pointee.status
                view.answers[slot.pointee.stream]?.body = slot.pointee.body.map { Array($0.readableBytesView) } ?? []
            }
            index = slot.pointee.next
        }
        for closed in session.streams.closed {
            view.answers[session.streams.slots.pointer(closed.slot).pointee.stream]?.code = closed.code
            session.streams.release(closed.slot)
        }
        session.streams.closed = []
    }

    /// Returns the frames that were sent since the last call.
    func frames() -> [HTTP2Frame] {
        var frames: [HTTP2Frame] = []
        while let frame = HTTP2Frame.read(from: &output) { frames.append(frame) }
        return frames
    }
}
