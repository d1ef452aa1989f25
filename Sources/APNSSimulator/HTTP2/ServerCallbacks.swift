import CNghttp2

/// The C callbacks of nghttp2, which find their session and forward to it.
enum ServerCallbacks {
    // Called about ten times per request. The session outlives the call into nghttp2, so it need not be retained.
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
        let slot = Unmanaged<RequestSlot>.fromOpaque(pointer).takeUnretainedValue()
        guard let answer = slot.heldAnswer else { return 0 }
        let count = min(capacity, answer.step, answer.body.count - slot.answerOffset)
        for index in 0..<count { buffer[index] = answer.body[slot.answerOffset + index] }
        slot.answerOffset += count
        if slot.answerOffset == answer.body.count { flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
        return count
    }
}
