import NIOCore
import NIOEmbedded
import Testing

@testable import APNS
@testable import TLS

/// An answer counts if it is whole: valid header fields, a body of the announced length, and an end of the stream without
/// an error (RFC 9113 §8.1, §8.1.1). `:status` alone counts for nothing.
@Suite("An answer")
struct WholeAnswerTests {
    /// Sends three requests, on streams 1, 3 and 5. The server answers stream 3, sends these bytes, answers stream 5, and
    /// closes the connection.
    /// - Returns: the results by stream.
    private static func results(_ bytes: [UInt8]) throws -> [UInt64: RequestResult] {
        let owner = RecordingOwner()
        let connection = HTTP2Connection(id: 0, endpoint: .sandbox, limits: .init(), owner: owner)
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandler(connection)
        channel.pipeline.fireUserInboundEventTriggered(
            TLSHandshakeCompleted(
                applicationProtocol: "h2", version: "", serverName: nil, peerCertificate: nil))
        try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.settings(maximumStreams: 1000).bytes))
        for stream in [UInt64(1), 3, 5] {
            _ = connection.submit(
                .example(Int(stream)), tag: stream, deadline: .distantFuture, authorization: HeaderText("bearer x"))
        }
        channel.embeddedEventLoop.run()
        try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.answer(3, status: 200).bytes))
        try channel.writeInbound(ByteBuffer(bytes: bytes))
        if connection.isUsable { try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.answer(5, status: 200).bytes)) }
        channel.pipeline.fireChannelInactive()
        _ = try channel.finish(acceptAlreadyClosed: true)
        return owner.results
    }

    /// - Parameters:
    ///   - ending: the end of the stream.
    private static func answer(
        _ fields: [(String, String)], ends: Bool = true, _ ending: HTTP2Frame...
    ) -> [UInt8] {
        (block(fields, ends: ends) + ending).flatMap(\.bytes)
    }

    private static func block(_ fields: [(String, String)], ends: Bool) -> [HTTP2Frame] {
        [.raw(.headers, ends ? 5 : 4, 1, encoded(fields))]
    }

    private static func encoded(_ fields: [(String, String)]) -> [UInt8] {
        var block: [UInt8] = []
        for (name, value) in fields {
            block += [0, UInt8(name.utf8.count)]
            block += Array(name.utf8)
            block.append(UInt8(value.utf8.count))
            block += Array(value.utf8)
        }
        return block
    }

    struct Malformed: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: [UInt8]
    }

    /// Endings of an answer that begins well with this status.
    static func endings(_ status: String) -> [Malformed] {
        let ok = [(":status", status), ("apns-id", "x")]
        func named(_ name: String, _ bytes: [UInt8]) -> Malformed {
            Malformed(testDescription: "\(status) and \(name)", bytes: bytes)
        }
        let open = HTTP2Frame.raw(.headers, 1, 1, encoded(ok))
        let bad = HTTP2Frame.raw(.headers, 5, 1, encoded([("X", "y")]))
        let second = HTTP2Frame.raw(.headers, 5, 1, encoded([(":status", "500")]))
        let rest = HTTP2Frame.raw(.continuation, 4, 1, encoded([("X", "y")]))
        let undecodable = HTTP2Frame.raw(.headers, 5, 1, encoded(ok) + [0xFF, 0xFF])
        return [
            named("an upper-case name", answer(ok + [("X", "y")])),
            named("connection", answer(ok + [("connection", "close")])),
            named("another status", answer(ok + [(":status", "400")])),
            named("no body for its content-length", answer(ok + [("content-length", "5")])),
            named("half of a body", answer(ok + [("content-length", "5")], ends: false, .data(1, "{}"))),
            named("a body that is too long", answer(ok + [("content-length", "1")], ends: false, .data(1, "{}"))),
            named("trailers with a status", answer(ok, ends: false, second)),
            named("trailers with an upper-case name", answer(ok, ends: false, bad)),
            named("a rest that cannot be decoded", undecodable.bytes),
            named("no END_HEADERS", open.bytes),
            named("GOAWAY within the block", open.bytes + HTTP2Frame.goAway(lastStream: 1).bytes),
            named("a malformed field in CONTINUATION", open.bytes + rest.bytes),
            named("no end", answer(ok, ends: false)),
            named("GOAWAY before its end", answer(ok, ends: false, .goAway(lastStream: 1))),
            named("a reset with an error", answer(ok, ends: false, .reset(1, code: 2))),
            named("a reset with CANCEL", answer(ok, ends: false, .data(1, "{", ends: false), .reset(1, code: 8))),
            named("NO_ERROR before its body", answer(ok + [("content-length", "5")], ends: false, .reset(1, code: 0))),
        ]
    }

    @Test("that is not whole is none, whatever its status", arguments: ["200", "410", "503"].flatMap(endings))
    func malformed(ending: Malformed) throws {
        let results = try Self.results(ending.bytes)
        guard case .uncertain = results[1] else {
            Issue.record("\(String(describing: results[1]))")
            return
        }
        #expect(results[3] == .delivered)
    }

    @Test("that ends well counts, also if NO_ERROR ends it or this side cuts its body")
    func whole() throws {
        let ok = [(":status", "200"), ("apns-id", "x")]
        let long = HTTP2Frame.data(1, String(repeating: "x", count: 16_000), ends: false)
        let trailers = HTTP2Frame.raw(.headers, 5, 1, Self.encoded([("x", "y")]))
        let answers: [[UInt8]] = [
            Self.answer(ok), Self.answer(ok + [("content-length", "0")]), Self.answer(ok, ends: false, .data(1, "")),
            Self.answer(ok, ends: false, .reset(1, code: 0)), Self.answer(ok, .reset(1, code: 0)),
            Self.answer(ok + [("content-length", "2")], ends: false, .data(1, "{}", ends: false), .reset(1, code: 0)),
            Self.answer(ok, ends: false, long, long), Self.answer(ok, .reset(1, code: 2)),
            Self.answer(ok, ends: false, trailers),
        ]
        for bytes in answers {
            let results = try Self.results(bytes)
            #expect(results == [1: .delivered, 3: .delivered, 5: .delivered])
        }
    }

    @Test("with its own fields elsewhere: those of interim responses and trailers are not the answer's")
    func fieldsOfOthers() throws {
        let named = [("apns-id", "x"), ("retry-after", "7"), ("content-length", "9")]
        let interim = HTTP2Frame.raw(.headers, 4, 1, Self.encoded([(":status", "103")] + named.prefix(2)))
        let trailers = HTTP2Frame.raw(.headers, 5, 1, Self.encoded(named))
        let bytes =
            interim.bytes + Self.answer([(":status", "429")], ends: false, .data(1, "{}", ends: false), trailers)
        #expect(try Self.results(bytes)[1] == .response(Response(status: 429)))
    }

    /// A rule of RFC 9113 §8 beside those in `HeaderBlockReader`: the fields that may follow `:status: 200`.
    private static func isValid(_ name: [UInt8], _ value: [UInt8]) -> Bool {
        let text = String(decoding: name, as: UTF8.self)
        let symbols = "!#$%&'*+-.^_`|~"
        let isName =
            !name.isEmpty && text.utf8.elementsEqual(name)
            && text.allSatisfy { $0.isASCII && ($0.isLowercase || $0.isNumber || symbols.contains($0)) }
        let spaces: [UInt8?] = [0x20, 0x09]
        let isValue =
            !value.contains { [0, 0x0A, 0x0D].contains($0) }
            && (value.isEmpty || !spaces.contains(value.first) && !spaces.contains(value.last))
        let ofHTTP1 = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
        let isAllowed =
            switch text {
            case "content-length": value == Array("0".utf8)
            case "te": value == Array("trailers".utf8)
            default: !ofHTTP1.contains(text)
            }
        return isName && isValue && isAllowed
    }

    /// Returns the validity of a block's rest that follows `:status: 200` in an answer without a body.
    private static func isValid(_ rest: [UInt8]) -> Bool {
        var decoder = HPACKDecoder()
        return rest.withUnsafeBufferPointer { bytes in
            var bytes = bytes
            do throws(HPACKViolation) {
                while let field = try decoder.next(&bytes) {
                    guard isValid(Array(field.name), Array(field.value)) else { return false }
                }
                try decoder.end(bytes)
                return true
            } catch {
                return false
            }
        }
    }

    @Test("with a block that is cut or changed after :status counts only if what is left is valid")
    func mutations() throws {
        let rest = Self.encoded([
            ("apns-id", "f1c2"), ("content-length", "0"), ("te", "trailers"), ("date", "Sun, 1"), ("via", "1.1 x"),
        ])
        var counts = [true: 0, false: 0]
        func check(_ rest: [UInt8], isComplete: Bool, _ what: String) throws {
            let isValid = isComplete && Self.isValid(rest)
            counts[isValid, default: 0] += 1
            let results = try Self.results(HTTP2Frame.raw(.headers, isComplete ? 5 : 1, 1, [0x88] + rest).bytes)
            let isAnswer = if case .response(let response) = results[1] { response.status == 200 } else { false }
            #expect(isAnswer == isValid && results[3] == .delivered, "\(what): \(results)")
            if !isValid, case .uncertain = results[1] { return }
            #expect(isValid, "\(what): \(results)")
        }
        for count in 0...rest.count {
            try check(Array(rest.prefix(count)), isComplete: true, "\(count) bytes")
            try check(Array(rest.prefix(count)), isComplete: false, "\(count) bytes, and no END_HEADERS")
        }
        for place in rest.indices {
            for byte in (0..<8).map({ rest[place] ^ (1 << $0) }) + [0, 0x09, 0x20, 0x3A, 0x41, 0x88, 0xFF] {
                var changed = rest
                changed[place] = byte
                try check(changed, isComplete: true, "byte \(place) is \(byte)")
            }
        }
        #expect((counts[true] ?? 0) > 50 && (counts[false] ?? 0) > 200, "\(counts)")
    }
}
