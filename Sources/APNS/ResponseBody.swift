import FoundationEssentials
import NIOCore

/// The JSON body of an error response, `{"reason":"Unregistered","timestamp":1792800000000}`, or of a GOAWAY frame.
struct ResponseBody: Decodable, Equatable {
    var reason: String
    /// Milliseconds since 1970.
    var timestamp: Int64?

    /// In bytes; larger bodies are not from APNs and are not parsed.
    static let maximumSize = 4096

    private var isWord: Bool {
        (1...64).contains(reason.utf8.count)
            && reason.utf8.allSatisfy { $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26 }
    }

    init(reason: String, timestamp: Int64? = nil) {
        self.reason = reason
        self.timestamp = timestamp
    }

    /// Returns nil unless the reason is one word of letters and digits, as all of APNs' reasons are.
    init?(_ body: ByteBuffer) {
        guard body.readableBytes > 0, body.readableBytes <= Self.maximumSize else { return nil }
        if let exact = body.withUnsafeReadableBytes(Self.exact) {
            self = exact
        } else {
            guard let decoded = try? JSONDecoder().decode(Self.self, from: Data(body.readableBytesView)) else {
                return nil
            }
            self = decoded
        }
        // White space around the word is ignored.
        if !isWord { reason = reason.trimmed }
        guard isWord else { return nil }
    }

    private enum CodingKeys: String, CodingKey {
        case reason, timestamp
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        reason = try members.decode(String.self, forKey: .reason)
        // A timestamp of another type must not discard the reason.
        timestamp = try? members.decodeIfPresent(Int64.self, forKey: .timestamp)
    }

    /// Reads exactly the format that APNs uses, because a JSON decoder costs several times as much as sending the notification. A list of
    /// invalid tokens causes one body per token.
    private static func exact(_ bytes: UnsafeRawBufferPointer) -> ResponseBody? {
        var rest = bytes[...]
        guard take("{\"reason\":\"", from: &rest) else { return nil }
        guard let end = rest.firstIndex(of: 0x22) else { return nil }
        let word = rest[..<end]
        guard word.allSatisfy({ $0 &- 0x41 < 26 || $0 &- 0x61 < 26 }) else { return nil }
        rest = rest[(end + 1)...]
        var timestamp: Int64?
        if take(",\"timestamp\":", from: &rest) {
            var value: Int64 = 0
            var digits = 0
            while let byte = rest.first, byte &- 0x30 < 10, digits < 18 {
                value = value * 10 + Int64(byte - 0x30)
                digits += 1
                rest = rest.dropFirst()
            }
            guard digits > 0 else { return nil }
            timestamp = value
        }
        guard rest.count == 1, rest.first == 0x7D else { return nil }
        return ResponseBody(reason: String(decoding: word, as: UTF8.self), timestamp: timestamp)
    }

    private static func take(_ text: StaticString, from rest: inout Slice<UnsafeRawBufferPointer>) -> Bool {
        let expected = UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        guard rest.starts(with: expected) else { return false }
        rest = rest.dropFirst(expected.count)
        return true
    }
}
