import CNghttp2
import NIOCore

/// The callbacks of nghttp2: each records an event in the session, which is the callbacks' context.
enum HTTP2SessionCallbacks {
    /// Sets all of them but the one that reads a request's body, which nghttp2 takes with the request.
    static func register(_ callbacks: OpaquePointer?) {
        nghttp2_session_callbacks_set_on_header_callback(callbacks, onHeader)
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, onData)
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, onStreamClose)
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, onFrame)
        nghttp2_session_callbacks_set_error_callback2(callbacks, onError)
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, onInvalidFrame)
    }
}

/// Copies as much of a request's payload as has room.
func readRequestBody(
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

private func session(_ context: UnsafeMutableRawPointer?) -> HTTP2Session? {
    context.map { Unmanaged<HTTP2Session>.fromOpaque($0).takeUnretainedValue() }
}

private func onHeader(
    nghttp2: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, name: UnsafePointer<UInt8>?, nameLength: Int,
    value: UnsafePointer<UInt8>?, valueLength: Int, _: UInt8, context: UnsafeMutableRawPointer?
) -> Int32 {
    guard let frame, let name, let value,
        let slot = nghttp2_session_get_stream_user_data(nghttp2, frame.pointee.hd.stream_id)?
            .assumingMemoryBound(to: RequestSlot.self)
    else { return 0 }
    // nghttp2 tells the server our limit, and does not keep it. The overhead is RFC 9113 §6.5.2's.
    slot.pointee.headerSize += Int32(clamping: nameLength + valueLength + 32)
    guard slot.pointee.headerSize <= HTTP2Session.maximumHeaderSize else {
        session(context)?.noteComplaint(
            "an answer's header fields are larger than \(HTTP2Session.maximumHeaderSize) bytes")
        return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
    }
    if nameLength == 7, name[0] == UInt8(ascii: ":") {
        // An interim response (RFC 9110 §15.2) is not the answer yet.
        let status = number(value, valueLength) ?? 0
        if status >= 200 { slot.pointee.status = status }
    } else if nameLength == 11, matches(name, "retry-after") {
        slot.pointee.retryAfter = RetryAfter.seconds(UnsafeBufferPointer(start: value, count: valueLength)) ?? -1
    }
    if nameLength == 14, matches(name, "apns-unique-id"), session(context)?.keepsUniqueIDs ?? false {
        slot.pointee.uniqueID = APNSID(UnsafeBufferPointer(start: value, count: valueLength))
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
