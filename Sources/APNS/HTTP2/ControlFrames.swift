import NIOCore

/// The frames that are written before requests: RST_STREAM, WINDOW_UPDATE, and the frames about the connection.
struct ControlFrames {
    private(set) var bytes = ByteBuffer()
    /// The number of answers to PINGs and SETTINGS in ``bytes``.
    private var answers = 0

    /// The maximum number of answers to PINGs and SETTINGS that wait to be written.
    static let maximumAnswers = 1000

    /// Writes the client's preface and SETTINGS (RFC 9113 §3.4): no pushes, and a limit on header fields.
    mutating func writePreface() {
        bytes.writeStaticString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        let settings = [
            (HTTP2Setting.enablePush, UInt32(0)), (HTTP2Setting.maximumHeaderListSize, UInt32(HeaderBlock.maximumSize)),
        ]
        write(HTTP2FrameKind.settings, length: 6 * settings.count) { bytes in
            for (place, setting) in settings.enumerated() {
                let target = UnsafeMutableRawPointer(bytes + 6 * place)
                target.storeBytes(of: setting.0.bigEndian, as: UInt16.self)
                target.storeBytes(of: setting.1.bigEndian, toByteOffset: 2, as: UInt32.self)
            }
        }
    }

    /// Writes a PING (RFC 9113 §6.7).
    mutating func ping() { write(HTTP2FrameKind.ping, length: 8) { $0.update(repeating: 0, count: 8) } }

    /// Writes a GOAWAY (RFC 9113 §6.8). Its last stream is 0, because this side has accepted no streams.
    mutating func goAway(_ code: HTTP2ErrorCode) {
        write(HTTP2FrameKind.goAway, length: 8) { bytes in
            bytes.update(repeating: 0, count: 4)
            UnsafeMutableRawPointer(bytes + 4).storeBytes(of: code.rawValue.bigEndian, as: UInt32.self)
        }
    }

    /// Writes RST_STREAM (RFC 9113 §6.4).
    mutating func reset(_ stream: Int32, _ code: HTTP2ErrorCode) {
        write(HTTP2FrameKind.resetStream, stream: stream, length: 4) { bytes in
            UnsafeMutableRawPointer(bytes).storeBytes(of: code.rawValue.bigEndian, as: UInt32.self)
        }
    }

    /// Writes WINDOW_UPDATE, which grants the server more DATA (RFC 9113 §6.9).
    mutating func allow(_ bytes: Int, on stream: Int32) {
        write(HTTP2FrameKind.windowUpdate, stream: stream, length: 4) { target in
            UnsafeMutableRawPointer(target).storeBytes(of: UInt32(bytes).bigEndian, as: UInt32.self)
        }
    }

    /// Acknowledges SETTINGS (RFC 9113 §6.5.3), or answers a PING (§6.7).
    mutating func answer(_ kind: UInt8, payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        answers += 1
        guard answers <= Self.maximumAnswers else {
            throw .flood("it does not read the answers to its PINGs and SETTINGS")
        }
        write(kind, flags: HTTP2Flag.acknowledgement, length: payload.count) { target in
            if let source = payload.baseAddress { target.update(from: source, count: payload.count) }
        }
    }

    private mutating func write(
        _ kind: UInt8, flags: UInt8 = 0, stream: Int32 = 0, length: Int,
        _ fill: (UnsafeMutablePointer<UInt8>) -> Void
    ) {
        bytes.writeWithUnsafeMutableBytes(minimumWritableBytes: HTTP2FrameHeader.size + length) { room in
            guard let start = room.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            HTTP2FrameHeader(kind, length: length, flags: flags, stream: stream).write(to: start)
            fill(start + HTTP2FrameHeader.size)
            return HTTP2FrameHeader.size + length
        }
    }

    /// Moves the frames to the end of a buffer.
    mutating func take(into buffer: inout ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        buffer.writeBuffer(&bytes)
        bytes.clear()
        answers = 0
    }
}
