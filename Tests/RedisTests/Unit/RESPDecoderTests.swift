import CHiredis
import NIOCore
import TestSupport
import Testing

@testable import Redis

@Suite("The reader of replies")
struct RESPDecoderTests {
    static let samples: [(String, RedisValue)] = [
        ("+OK\r\n", .status("OK")),
        ("-NOSCRIPT No matching script.\r\n", .error("NOSCRIPT No matching script.")),
        (":-9223372036854775808\r\n", .integer(.min)),
        (":9223372036854775807\r\n", .integer(.max)),
        ("$-1\r\n", .null),
        ("*-1\r\n", .null),
        ("$0\r\n\r\n", .string("")),
        ("$5\r\na\r\n$b\r\n", .string("a\r\n$b")),
        ("*0\r\n", .array([])),
        ("*3\r\n*0\r\n$-1\r\n*2\r\n:1\r\n*0\r\n", .array([.array([]), .null, .array([.integer(1), .array([])])])),
        (
            "*4\r\n*2\r\n*1\r\n:1\r\n$1\r\nx\r\n-ERR inside\r\n+fine\r\n*1\r\n*1\r\n*-1\r\n",
            .array([
                .array([.array([.integer(1)]), .string("x")]), .error("ERR inside"), .status("fine"),
                .array([.array([.null])]),
            ])
        ),
    ]

    @Test("reads every reply however it is split", arguments: samples)
    func splits(text: String, expected: RedisValue) throws {
        let bytes = Array((text + "+next\r\n").utf8)
        for first in 0...bytes.count {
            for second in first...bytes.count {
                let decoder = RESPDecoder()
                let replies = try decode([bytes[..<first], bytes[first..<second], bytes[second...]], by: decoder)
                #expect(replies == [expected, .status("next")])
            }
        }
        #expect(try decode(bytes.indices.map { bytes[$0...$0] }, by: RESPDecoder()) == [expected, .status("next")])
    }

    @Test("reads random replies as hiredis does", arguments: 0..<200 as Range<UInt64>)
    func differential(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var bytes: [UInt8] = []
        for _ in 0..<20 { bytes += randomReply(depth: 0, &random) }
        var cuts: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            let piece = rest.prefix(Int.random(in: 1...400, using: &random))
            cuts.append(piece)
            rest = rest.dropFirst(piece.count)
        }
        #expect(try decode(cuts, by: RESPDecoder()) == reference(bytes))
    }

    @Test("finds a child by its position and by walking, with and without children of its own")
    func children() throws {
        let reply = try one("*3\r\n*2\r\n:1\r\n:2\r\n$1\r\nx\r\n*1\r\n:3\r\n").root
        #expect(reply.count == 3)
        #expect(reply[0][1].integer == 2)
        #expect(reply[1].string == "x")
        #expect(reply[2][0].integer == 3)
        #expect(reply.children.map(\.kind) == [.array, .string, .array])
        #expect(reply[1].count == 0 && reply[1].children.map(\.kind).isEmpty)
        #expect(reply[1].integer == nil && reply[0].bytes == nil && reply[0].string == nil)
    }

    @Test("returns strings that share the reply's storage")
    func sharing() throws {
        let reply = try one("*2\r\n$3\r\nabc\r\n$3\r\ndef\r\n").root
        let addresses = try reply.children.map { element in
            let bytes = try #require(element.bytes)
            return bytes.withUnsafeReadableBytes { UInt(bitPattern: $0.baseAddress) }
        }
        #expect(addresses[1] == addresses[0] + 3)
        #expect(reply[1].bytes == ByteBuffer(string: "def"))
    }

    @Test("reads a 16 MiB string in small pieces and frees the memory")
    func large() throws {
        let decoder = RESPDecoder()
        let size = 16 << 20
        let bytes = Array("*2\r\n$\(size)\r\n".utf8) + [UInt8](repeating: 0x61, count: size) + Array("\r\n:7\r\n".utf8)
        var replies: [RESPReply] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            try feed(rest.prefix(RESPDecoder.portion), to: decoder) { replies.append($0) }
            rest = rest.dropFirst(RESPDecoder.portion)
        }
        #expect(replies.count == 1)
        let root = try #require(replies.first).root
        #expect(root[0].bytes?.readableBytes == size)
        #expect(root[0].bytes?.readableBytesView.allSatisfy { $0 == 0x61 } == true)
        #expect(root[1].integer == 7)
        #expect(decoder.peak == 0)
        #expect(try decode([Array("+OK\r\n".utf8)[...]], by: decoder) == [.status("OK")])
    }

    @Test(
        "refuses bytes that are not a reply",
        arguments: [
            "HTTP/1.1 400 Bad Request\r\n", "\u{16}\u{3}", "$x\r\n", ":12a\r\n", "*99999999999999999999\r\n", "$-2\r\n",
        ])
    func violations(text: String) {
        #expect(throws: RESPDecoder.Violation.self) {
            try decode([Array(text.utf8)[...]], by: RESPDecoder())
        }
    }

    @Test("does not trust an array's count before its elements arrive")
    func hugeCount() throws {
        #expect(try decode([Array("*2147483647\r\n:1\r\n".utf8)[...]], by: RESPDecoder()).isEmpty)
    }

    @Test("returns an error's prefix, and omits the arguments that Redis repeats")
    func errors() throws {
        #expect(try one("-MOVED 3999 127.0.0.1:6381\r\n").error?.prefix == "MOVED")
        #expect(try one("-something odd\r\n").error?.prefix == "")
        let unknown = try #require(
            try one("-ERR unknown command 'AUTHX', with args beginning with: 'hunter2' \r\n").error)
        #expect(unknown.message == "ERR unknown command 'AUTHX'")
        let reply = try one("*1\r\n$7\r\nhunter2\r\n")
        for text in try shownTexts(of: reply) + shownTexts(of: reply.root[0]) { #expect(!text.contains("hunter2")) }
    }

    private func one(_ text: String) throws -> RESPReply {
        var replies: [RESPReply] = []
        try feed(Array(text.utf8)[...], to: RESPDecoder()) { replies.append($0) }
        return try #require(replies.first)
    }

    private func decode(_ pieces: [ArraySlice<UInt8>], by decoder: RESPDecoder) throws -> [RedisValue] {
        var values: [RedisValue] = []
        for piece in pieces { try feed(piece, to: decoder) { values.append(RedisValue($0.root)) } }
        return values
    }

    private func feed(_ bytes: ArraySlice<UInt8>, to decoder: RESPDecoder, _ take: (RESPReply) -> Void) throws {
        try bytes.withUnsafeBytes { try decoder.feed($0) }
        while let reply = try decoder.next() { take(reply) }
    }

    /// Decodes with hiredis' own reader, which gets all bytes at once.
    private func reference(_ bytes: [UInt8]) -> [RedisValue] {
        let reader = redisReaderCreate()
        defer { redisReaderFree(reader) }
        _ = bytes.withUnsafeBytes { redisReaderFeed(reader, $0.bindMemory(to: CChar.self).baseAddress, $0.count) }
        var values: [RedisValue] = []
        var object: UnsafeMutableRawPointer?
        while redisReaderGetReply(reader, &object) == REDIS_OK, let reply = object {
            values.append(RedisValue(reply.assumingMemoryBound(to: redisReply.self).pointee))
            freeReplyObject(reply)
        }
        return values
    }

    private func randomReply(depth: Int, _ random: inout SeededGenerator) -> [UInt8] {
        switch Int.random(in: 0..<(depth < 5 ? 8 : 6), using: &random) {
        case 0: return Array("+status \(random.next() % 100)\r\n".utf8)
        case 1: return Array("-ERR \(random.next() % 100)\r\n".utf8)
        case 2: return Array(":\(Int64(bitPattern: random.next()))\r\n".utf8)
        case 3: return Array((random.next() % 2 == 0 ? "$-1\r\n" : "*-1\r\n").utf8)
        case 4, 5:
            let content = (0..<Int.random(in: 0...300, using: &random)).map { _ in
                UInt8(truncatingIfNeeded: random.next())
            }
            return Array("$\(content.count)\r\n".utf8) + content + Array("\r\n".utf8)
        default:
            let count = Int.random(in: 0...6, using: &random)
            return (0..<count).reduce(Array("*\(count)\r\n".utf8)) { bytes, _ in
                bytes + randomReply(depth: depth + 1, &random)
            }
        }
    }
}

extension RedisValue {
    init(_ element: RESPReply.Element) {
        switch element.kind {
        case .status: self = .status(element.string ?? "")
        case .error: self = .error(element.string ?? "")
        case .integer: self = .integer(element.integer ?? 0)
        case .null: self = .null
        case .array: self = .array(element.children.map { RedisValue($0) })
        case .string:
            let bytes = element.bytes.map { Array($0.readableBytesView) } ?? []
            self = String(validating: bytes, as: UTF8.self).map { .string($0) } ?? .bytes(bytes)
        }
    }
}
