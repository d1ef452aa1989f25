import NIOCore
import Testing

@testable import PushWorker

@Suite("MessagePack as JSON")
struct MessagePackTextTests {
    private static func json(_ hex: String) throws(MessagePackText.Malformed) -> String {
        let digits = Array(hex)
        let bytes = stride(from: 0, to: digits.count - 1, by: 2).compactMap {
            UInt8(String(digits[$0...$0 + 1]), radix: 16)
        }
        return String(buffer: try MessagePackText.json(ByteBuffer(bytes: bytes)))
    }

    @Test(
        "has the values that were packed",
        arguments: [
            ("00", "0"), ("7f", "127"), ("cc80", "128"), ("cd0100", "256"), ("ce00010000", "65536"),
            ("cf0000000100000000", "4294967296"), ("cfffffffffffffffff", "18446744073709551615"), ("ff", "-1"),
            ("e0", "-32"), ("d0df", "-33"), ("d1ff7f", "-129"), ("d2ffff7fff", "-32769"),
            ("d3ffffffff7fffffff", "-2147483649"), ("cb3ff8000000000000", "1.5"), ("ca3fc00000", "1.5"),
            ("c0", "null"), ("c2", "false"), ("c3", "true"), ("a2c3a9", #""é""#), ("a3612262", #""a\"b""#),
            ("d90161", #""a""#), ("da000161", #""a""#), ("db0000000161", #""a""#), ("c40161", #""a""#),
            ("9201a178", #"[1,"x"]"#), ("dc000101", "[1]"), ("dd0000000101", "[1]"), ("90", "[]"), ("80", "{}"),
            ("81a16181a16290", #"{"a":{"b":[]}}"#), ("de0001a16101", #"{"a":1}"#), ("df00000001a16101", #"{"a":1}"#),
        ])
    func values(hex: String, json: String) throws { #expect(try Self.json(hex) == json) }

    @Test(
        "is refused if it is not one value that JSON has",
        arguments: [
            ("", .end), ("cd01", .end), ("a261", .end), ("9201", .end), ("ddffffffff", .end), ("81", .end),
            ("0000", .trailingBytes), ("c1", .notJSON), ("d40100", .notJSON), ("c70101ff", .notJSON),
            ("810101", .notJSON), ("cb7ff0000000000000", .notJSON), ("a1ff", .notUTF8),
            (String(repeating: "91", count: 100) + "00", .tooDeep),
        ] as [(String, MessagePackText.Malformed)])
    func malformed(hex: String, error: MessagePackText.Malformed) {
        #expect(throws: error) { try Self.json(hex) }
    }
}
