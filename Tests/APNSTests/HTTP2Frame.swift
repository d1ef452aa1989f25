import NIOCore

/// An HTTP/2 frame (RFC 9113 §4.1), for a peer without an HTTP/2 library.
struct HTTP2Frame: Sendable {
    enum Kind: UInt8, Sendable {
        case data, headers, priority, resetStream, settings, pushPromise, ping, goAway, windowUpdate, continuation
    }

    static let endStream: UInt8 = 0x1
    static let acknowledgement: UInt8 = 0x1
    static let endHeaders: UInt8 = 0x4

    var kind: Kind
    var flags: UInt8 = 0
    var stream: Int32 = 0
    var payload: [UInt8] = []
    /// The fields that the peer read from a HEADERS frame.
    var headers: [HeaderField] = []
    /// The number of the connection that received the frame, from 1.
    var connection = 0

    var endsStream: Bool { flags & Self.endStream != 0 }
    /// The error code of a reset.
    var errorCode: UInt32 { payload.suffix(4).reduce(0) { $0 << 8 | UInt32($1) } }

    static func raw(_ kind: Kind, _ flags: UInt8, _ stream: Int32, _ payload: [UInt8] = []) -> HTTP2Frame {
        HTTP2Frame(kind: kind, flags: flags, stream: stream, payload: payload)
    }

    static func settings(_ values: [(UInt16, UInt32)] = []) -> HTTP2Frame {
        HTTP2Frame(kind: .settings, payload: values.flatMap { bytes($0.0) + bytes($0.1) })
    }

    static let settingsAcknowledgement = HTTP2Frame(kind: .settings, flags: acknowledgement)

    /// SETTINGS with SETTINGS_MAX_CONCURRENT_STREAMS.
    static func settings(maximumStreams: UInt32) -> HTTP2Frame { settings([(3, maximumStreams)]) }

    static func answer(
        _ stream: Int32, hasID: Bool = true, status: Int, fields: [(String, String)] = [], ends: Bool = true
    ) -> HTTP2Frame {
        // APNs answers each request with its ID.
        let id = hasID ? [("apns-id", "00000000-0000-0000-0000-000000000000")] : []
        return headers(stream, [(":status", "\(status)")] + fields + id, ends: ends)
    }

    static func headers(_ stream: Int32, _ fields: [(String, String)], ends: Bool = true) -> HTTP2Frame {
        .raw(.headers, endHeaders | (ends ? endStream : 0), stream, block(fields))
    }

    /// Returns literals without indexing (RFC 7541 §6.2.2), whose names and values have fewer than 127 bytes.
    static func block(_ fields: [(String, String)]) -> [UInt8] {
        fields.flatMap { [0] + string($0.0) + string($0.1) }
    }

    private static func string(_ text: String) -> [UInt8] { [UInt8(text.utf8.count)] + Array(text.utf8) }

    static func data(_ stream: Int32, _ text: String, ends: Bool = true) -> HTTP2Frame {
        HTTP2Frame(kind: .data, flags: ends ? endStream : 0, stream: stream, payload: Array(text.utf8))
    }

    static func reset(_ stream: Int32, code: UInt32) -> HTTP2Frame {
        HTTP2Frame(kind: .resetStream, stream: stream, payload: bytes(code))
    }

    static func windowUpdate(_ stream: Int32 = 0, by increment: Int) -> HTTP2Frame {
        HTTP2Frame(kind: .windowUpdate, stream: stream, payload: bytes(UInt32(increment)))
    }

    static func goAway(lastStream: Int32, code: UInt32 = 0, debugData: String = "") -> HTTP2Frame {
        HTTP2Frame(kind: .goAway, payload: bytes(lastStream) + bytes(code) + Array(debugData.utf8))
    }

    var bytes: [UInt8] {
        let count = UInt32(payload.count)
        return [UInt8(truncatingIfNeeded: count >> 16), UInt8(truncatingIfNeeded: count >> 8)]
            + [UInt8(truncatingIfNeeded: count), kind.rawValue, flags] + Self.bytes(stream) + payload
    }

    private static func bytes(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0) }
    }

    /// Removes a frame from the buffer; `nil` if it is incomplete. Clients send no unknown kinds.
    static func read(from buffer: inout ByteBuffer) -> HTTP2Frame? {
        guard let head: [UInt8] = buffer.getBytes(at: buffer.readerIndex, length: 9) else { return nil }
        let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
        guard buffer.readableBytes >= 9 + length, let kind = Kind(rawValue: head[3]) else { return nil }
        buffer.moveReaderIndex(forwardBy: 9)
        let stream = head[5..<9].reduce(Int32(0)) { $0 << 8 | Int32($1) }
        return HTTP2Frame(
            kind: kind, flags: head[4], stream: stream, payload: buffer.readBytes(length: length) ?? [])
    }
}

struct HeaderField: Equatable, Sendable, CustomStringConvertible {
    var name: String
    var value: String
    /// True if the sender excludes the field from header tables.
    var isNeverIndexed = false

    var description: String { "\(name): \(value)" }
}
