import CNghttp2
import NIOCore

/// One HTTP/2 request with any method and its whole answer, without a socket: bytes in, bytes out.
///
/// For rare requests. ``HTTP2Session``, which sends notifications, is made for millions of them: it keeps no header
/// fields, and only the part of a body that an error needs.
///
/// nghttp2 keeps an unretained pointer to this object, and calls back only from ``receive(_:)`` and ``output()``. Not
/// thread-safe: it belongs to one event loop.
final class ControlExchange {
    struct Request: Sendable {
        var method: String
        var authority: String
        var path: String
        var headers: [(name: String, value: String)] = []
        var body: [UInt8] = []
    }

    struct Response: Equatable, Sendable {
        var status = 0
        /// The last value of each field.
        var headers: [String: String] = [:]
        var body = ByteBuffer()
    }

    /// The reason why there is no answer.
    struct Failure: Error, Equatable, CustomStringConvertible {
        var description: String
    }

    /// In bytes; more than the longest list of channels, which has 10,000.
    static let maximumBodySize = 4 << 20
    /// The maximum size in bytes of all header fields together, each counted with 32 bytes of overhead (RFC 9113
    /// §6.5.2).
    static let maximumHeaderSize = 16 << 10

    /// The result; `nil` while the exchange is in progress.
    private(set) var result: Result<Response, Failure>?

    private var session: OpaquePointer?
    private let body: [UInt8]
    private var bodyOffset = 0
    private var response = Response()
    private var headerSize = 0
    private var goAwayReason: String?

    init(_ request: Request) throws(Failure) {
        body = request.body
        try Self.check(makeSession())
        var settings = [
            nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
                value: UInt32(Self.maximumHeaderSize)),
        ]
        try Self.check(nghttp2_submit_settings(session, 0, &settings, settings.count))
        try Self.check(submit(request))
    }

    deinit { nghttp2_session_del(session) }

    private static func check(_ code: Int32) throws(Failure) {
        if code < 0 { throw Failure(description: String(cString: nghttp2_strerror(code))) }
    }

    private func submit(_ request: Request) -> Int32 {
        let fields =
            [
                (":method", request.method), (":scheme", "https"), (":authority", request.authority),
                (":path", request.path),
            ] + request.headers
        // All names and values in one block, which keeps its address until nghttp2 has copied them.
        var bytes = fields.flatMap { Array($0.0.utf8) + Array($0.1.utf8) }
        return bytes.withUnsafeMutableBufferPointer { block in
            var offset = 0
            let pairs = fields.map { name, value in
                let start = block.baseAddress.map { $0 + offset }
                offset += name.utf8.count + value.utf8.count
                return nghttp2_nv(
                    name: start, value: start.map { $0 + name.utf8.count }, namelen: name.utf8.count,
                    valuelen: value.utf8.count, flags: UInt8(NGHTTP2_NV_FLAG_NONE.rawValue))
            }
            guard !request.body.isEmpty else {
                return nghttp2_submit_request(session, nil, pairs, pairs.count, nil, nil)
            }
            var provider = nghttp2_data_provider()
            provider.source.ptr = Unmanaged.passUnretained(self).toOpaque()
            provider.read_callback = { _, _, target, capacity, flags, source, _ in
                guard let pointer = source?.pointee.ptr, let target, let flags else {
                    return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
                }
                return Unmanaged<ControlExchange>.fromOpaque(pointer).takeUnretainedValue()
                    .readBody(into: UnsafeMutableBufferPointer(start: target, count: capacity), &flags.pointee)
            }
            return nghttp2_submit_request(session, nil, pairs, pairs.count, &provider, nil)
        }
    }

    private func readBody(into target: UnsafeMutableBufferPointer<UInt8>, _ flags: inout UInt32) -> Int {
        let piece = body[bodyOffset...].prefix(target.count)
        _ = target.update(fromContentsOf: piece)
        bodyOffset += piece.count
        if bodyOffset == body.count { flags |= NGHTTP2_DATA_FLAG_EOF.rawValue }
        return piece.count
    }

    // MARK: Bytes

    /// Processes bytes from the server.
    func receive(_ bytes: UnsafeRawBufferPointer) {
        guard result == nil else { return }
        let taken = nghttp2_session_mem_recv(
            session, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), bytes.count)
        if taken < 0 { fail("broke HTTP/2: \(String(cString: nghttp2_strerror(Int32(clamping: taken))))") }
    }

    /// Returns the bytes to send now.
    func output() -> ByteBuffer {
        var output = ByteBuffer()
        while true {
            var frame: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &frame)
            guard count > 0 else {
                if count < 0 { fail("broke HTTP/2: \(String(cString: nghttp2_strerror(Int32(clamping: count))))") }
                break
            }
            output.writeBytes(UnsafeRawBufferPointer(start: frame, count: count))
        }
        // nghttp2 has ended the session because of a protocol error, perhaps without closing the stream.
        if result == nil, nghttp2_session_want_read(session) == 0, nghttp2_session_want_write(session) == 0 {
            fail(goAwayReason.map { "closed the connection (\($0))" } ?? "broke HTTP/2")
        }
        return output
    }

    /// Ends the session with a GOAWAY, which the next ``output()`` returns.
    func terminate() { nghttp2_session_terminate_session(session, NGHTTP2_NO_ERROR.rawValue) }

    private func fail(_ what: String) { result = result ?? .failure(Failure(description: what)) }

    // MARK: What nghttp2 calls

    private func makeSession() -> Int32 {
        var callbacks: OpaquePointer?
        guard nghttp2_session_callbacks_new(&callbacks) == 0 else { return Int32(NGHTTP2_ERR_NOMEM.rawValue) }
        defer { nghttp2_session_callbacks_del(callbacks) }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameLength, value, valueLength, _, context in
            guard frame?.pointee.hd.type == UInt8(NGHTTP2_HEADERS.rawValue) else { return 0 }
            return ControlExchange.with(context) {
                $0.header(
                    UnsafeBufferPointer(start: name, count: nameLength),
                    UnsafeBufferPointer(start: value, count: valueLength))
            }
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, _, bytes, count, context in
            ControlExchange.with(context) { $0.data(UnsafeRawBufferPointer(start: bytes, count: count)) }
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, context in
            guard let frame, frame.pointee.hd.type == UInt8(NGHTTP2_GOAWAY.rawValue) else { return 0 }
            let goAway = frame.pointee.goaway
            let debugData = ByteBuffer(
                bytes: UnsafeRawBufferPointer(start: goAway.opaque_data, count: goAway.opaque_data_len)
                    .prefix(ResponseBody.maximumSize))
            return ControlExchange.with(context) {
                $0.goAwayReason = ResponseBody(debugData).flatMap { $0.isWord ? $0.reason : nil } ?? "GOAWAY"
                return 0
            }
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, _, code, context in
            ControlExchange.with(context) {
                $0.closed(code)
                return 0
            }
        }
        return nghttp2_session_client_new(&session, callbacks, Unmanaged.passUnretained(self).toOpaque())
    }

    private static func with(_ context: UnsafeMutableRawPointer?, _ body: (ControlExchange) -> Int32) -> Int32 {
        guard let context else { return 0 }
        return body(Unmanaged<ControlExchange>.fromOpaque(context).takeUnretainedValue())
    }

    private func header(_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) -> Int32 {
        headerSize += name.count + value.count + 32
        guard headerSize <= Self.maximumHeaderSize else {
            fail("sent header fields larger than \(Self.maximumHeaderSize) bytes")
            return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
        }
        let text = String(decoding: value, as: UTF8.self)
        if name.elementsEqual(":status".utf8) {
            response.status = Int(text) ?? 0
        } else if response.status >= 200 {
            // Fields of an interim response (RFC 9110 §15.2) are not the answer's.
            response.headers[String(decoding: name, as: UTF8.self)] = text
        }
        return 0
    }

    private func data(_ bytes: UnsafeRawBufferPointer) -> Int32 {
        guard response.body.readableBytes + bytes.count <= Self.maximumBodySize else {
            fail("sent an answer larger than \(Self.maximumBodySize) bytes")
            return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
        }
        response.body.writeBytes(bytes)
        return 0
    }

    private func closed(_ code: UInt32) {
        if code == 0, response.status >= 200 {
            result = result ?? .success(response)
        } else {
            fail(
                goAwayReason.map { "closed the connection (\($0))" }
                    ?? "reset the request with HTTP/2 error code \(code)")
        }
    }
}
