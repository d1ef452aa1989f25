/// The kinds of frames (RFC 9113 §6).
enum HTTP2FrameKind {
    static let data: UInt8 = 0x0
    static let headers: UInt8 = 0x1
    static let priority: UInt8 = 0x2
    static let resetStream: UInt8 = 0x3
    static let settings: UInt8 = 0x4
    static let pushPromise: UInt8 = 0x5
    static let ping: UInt8 = 0x6
    static let goAway: UInt8 = 0x7
    static let windowUpdate: UInt8 = 0x8
    static let continuation: UInt8 = 0x9
}

/// The flags of frames (RFC 9113 §6).
enum HTTP2Flag {
    static let endStream: UInt8 = 0x1
    static let acknowledgement: UInt8 = 0x1
    static let endHeaders: UInt8 = 0x4
    static let padded: UInt8 = 0x8
    static let priority: UInt8 = 0x20
}

/// The identifiers of settings (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
enum HTTP2Setting {
    static let headerTableSize: UInt16 = 0x1
    static let enablePush: UInt16 = 0x2
    static let maximumConcurrentStreams: UInt16 = 0x3
    static let initialWindowSize: UInt16 = 0x4
    static let maximumFrameSize: UInt16 = 0x5
    static let maximumHeaderListSize: UInt16 = 0x6
    static let enableConnectProtocol: UInt16 = 0x8
    static let noPriorities: UInt16 = 0x9
}

/// The reason why a stream or a connection ends (RFC 9113 §7).
struct HTTP2ErrorCode: RawRepresentable, Equatable {
    var rawValue: UInt32

    static let noError = HTTP2ErrorCode(rawValue: 0x0)
    static let protocolError = HTTP2ErrorCode(rawValue: 0x1)
    static let flowControlError = HTTP2ErrorCode(rawValue: 0x3)
    static let frameSizeError = HTTP2ErrorCode(rawValue: 0x6)
    static let refusedStream = HTTP2ErrorCode(rawValue: 0x7)
    static let cancel = HTTP2ErrorCode(rawValue: 0x8)
    static let compressionError = HTTP2ErrorCode(rawValue: 0x9)
    static let enhanceYourCalm = HTTP2ErrorCode(rawValue: 0xB)
}

enum HTTP2Violation: Error {
    /// Ends the session with a GOAWAY (RFC 9113 §5.4.1).
    case connection(HTTP2ErrorCode, String)
    /// Ends the stream of a slot (RFC 9113 §5.4.2).
    case stream(HTTP2ErrorCode, slot: Int32)
    /// The server sends PINGs or SETTINGS faster than it reads their answers, or continues header blocks without end.
    case flood(String)
}

/// The nine bytes before each frame's payload (RFC 9113 §4.1).
struct HTTP2FrameHeader {
    static let size = 9
    /// The maximum length of a payload in both directions: the smallest maximum that SETTINGS can set (RFC 9113 §6.5.2).
    static let maximumLength = 16_384
    /// The largest window, and the largest stream identifier (RFC 9113 §6.9.1, §5.1.1).
    static let maximum31Bits = 0x7FFF_FFFF

    var length: Int
    var kind: UInt8
    var flags: UInt8
    var stream: Int32

    /// - Parameter bytes: at least ``size`` bytes.
    init(_ bytes: UnsafePointer<UInt8>) {
        length = Int(bytes[0]) << 16 | Int(bytes[1]) << 8 | Int(bytes[2])
        kind = bytes[3]
        flags = bytes[4]
        // The reserved bit is ignored.
        stream = Int32(truncatingIfNeeded: Self.number(bytes + 5) & UInt32(Self.maximum31Bits))
    }

    init(_ kind: UInt8, length: Int, flags: UInt8 = 0, stream: Int32 = 0) {
        (self.length, self.kind, self.flags, self.stream) = (length, kind, flags, stream)
    }

    func has(_ flag: UInt8) -> Bool { flags & flag != 0 }

    /// Returns the content without padding (RFC 9113 §6.1).
    /// - Parameter fields: the minimum length of the content in bytes.
    func content(
        of payload: UnsafeBufferPointer<UInt8>, fields: Int = 0
    ) throws(HTTP2Violation) -> UnsafeBufferPointer<UInt8> {
        guard has(HTTP2Flag.padded) else { return payload }
        guard let padding = payload.first, Int(padding) + fields < payload.count else {
            throw .connection(.protocolError, "it sent more padding than its frame has room for")
        }
        return UnsafeBufferPointer(rebasing: payload[1..<payload.count - Int(padding)])
    }

    /// - Parameter bytes: memory for ``size`` bytes.
    func write(to bytes: UnsafeMutablePointer<UInt8>) {
        bytes[0] = UInt8(truncatingIfNeeded: length >> 16)
        bytes[1] = UInt8(truncatingIfNeeded: length >> 8)
        bytes[2] = UInt8(truncatingIfNeeded: length)
        bytes[3] = kind
        bytes[4] = flags
        UnsafeMutableRawPointer(bytes + 5).storeBytes(of: stream.bigEndian, as: Int32.self)
    }

    /// Returns four bytes in network order as a number.
    static func number(_ bytes: UnsafePointer<UInt8>) -> UInt32 {
        UInt32(bigEndian: UnsafeRawPointer(bytes).loadUnaligned(as: UInt32.self))
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Returns four bytes in network order as a number; `nil` if there are fewer.
    func number(_ offset: Int) -> UInt32? {
        guard let baseAddress, count >= offset + 4 else { return nil }
        return HTTP2FrameHeader.number(baseAddress + offset)
    }
}
