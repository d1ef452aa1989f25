import NIOCore
import NIOEmbedded
import Testing

@testable import APNS

/// An answer counts if it is complete: valid header fields, a body of the announced length, and an end of the stream without an error (RFC
/// 9113 §8.1, §8.1.1). `:status` alone counts for nothing.
@Suite("An answer")
struct WholeAnswerTests {
    /// Sends three requests, on streams 1, 3 and 5. The server answers stream 3, sends these bytes, answers stream 5, and closes the
    /// connection.
    /// - Returns: the results by stream.
    private static func results(_ bytes: [UInt8], bytewise: Bool = false) throws -> [UInt64: RequestResult] {
        let owner = RecordingOwner()
        let (connection, channel) = try HTTP2Connection.embedded(owner)
        for stream in [UInt64(1), 3, 5] {
            _ = connection.submit(
                .example(Int(stream)), tag: stream, deadline: .distantFuture, authorization: HeaderText("bearer x"))
        }
        channel.embeddedEventLoop.run()
        try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.answer(3, status: 200).bytes))
        for piece in bytewise ? bytes.map({ [$0] }) : [bytes] { try channel.writeInbound(ByteBuffer(bytes: piece)) }
        if connection.isUsable { try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.answer(5, status: 200).bytes)) }
        channel.pipeline.fireChannelInactive()
        _ = try channel.finish(acceptAlreadyClosed: true)
        return owner.results
    }

    private static func answer(
        _ fields: [(String, String)], ends: Bool = true, _ ending: HTTP2Frame...
    ) -> [UInt8] {
        ([.headers(1, fields, ends: ends)] + ending).flatMap(\.bytes)
    }

    struct Malformed: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: [UInt8]
        /// The failure of the request; `nil` if the connection is lost first.
        let failure: RequestFailure?
    }

    /// Incomplete or malformed answers that begin with this status. ``HTTP2SessionTests`` tests the other malformed ones.
    static func endings(_ status: String) -> [Malformed] {
        let ok = [(":status", status), ("apns-id", "x")]
        func named(_ name: String, _ bytes: [UInt8], _ failure: RequestFailure? = nil) -> Malformed {
            Malformed(testDescription: "\(status) and \(name)", bytes: bytes, failure: failure)
        }
        let open = HTTP2Frame.raw(.headers, 1, 1, HTTP2Frame.block(ok))
        let bad = HTTP2Frame.headers(1, [("X", "y")])
        let rest = HTTP2Frame.raw(.continuation, 4, 1, HTTP2Frame.block([("X", "y")]))
        let undecodable = HTTP2Frame.raw(.headers, 5, 1, HTTP2Frame.block(ok) + [0xFF, 0xFF])
        let unanswered = HTTP2Frame.headers(1, [("apns-id", "x")])
        return [
            named("an upper-case name", answer(ok + [("X", "y")]), .malformed),
            named("half of a body", answer(ok + [("content-length", "5")], ends: false, .data(1, "{}")), .malformed),
            named("trailers with an upper-case name", answer(ok, ends: false, bad), .malformed),
            named("a rest that cannot be decoded", undecodable.bytes),
            named("no END_HEADERS", open.bytes),
            named("GOAWAY within the block", open.bytes + HTTP2Frame.goAway(lastStream: 1).bytes),
            named("a malformed field in CONTINUATION", open.bytes + rest.bytes, .malformed),
            named("no end", answer(ok, ends: false)),
            named("GOAWAY before its end", answer(ok, ends: false, .goAway(lastStream: 1))),
            named("a reset with an error", answer(ok, ends: false, .reset(1, code: 2)), .reset(code: 2)),
            named(
                "a reset with CANCEL", answer(ok, ends: false, .data(1, "{", ends: false), .reset(1, code: 8)),
                .reset(code: 8)),
            named(
                "NO_ERROR before its body", answer(ok + [("content-length", "5")], ends: false, .reset(1, code: 0)),
                .reset(code: 0)),
            named("an earlier answer without a status", unanswered.bytes + answer(ok), .malformed),
            named("NO_ERROR before it", HTTP2Frame.reset(1, code: 0).bytes + answer(ok), .reset(code: 0)),
            named(
                "only an interim answer before NO_ERROR", answer([(":status", "103")], ends: false, .reset(1, code: 0)),
                .reset(code: 0)),
        ]
    }

    @Test("that is not whole is none, whatever its status", arguments: ["200", "410", "503"].flatMap(endings))
    func malformed(ending: Malformed) throws {
        let results = try Self.results(ending.bytes)
        #expect(results[3] == .delivered)
        guard let failure = ending.failure else {
            switch results[1] {
            case .uncertain(.connectionLost), .uncertain(.lostWithOthers): return
            default: throw Unexpected(results[1])
            }
        }
        #expect(results[1] == .uncertain(failure))
        // Only the stream ends, not the connection.
        #expect(results[5] == .delivered)
    }

    /// Complete answers, and how they are read.
    static let wholes: [(bytes: [UInt8], response: Response)] = {
        let ok = [(":status", "200"), ("apns-id", "x")]
        let long = HTTP2Frame.data(1, String(repeating: "x", count: 16_000), ends: false)
        let trailers = HTTP2Frame.headers(1, [("x", "y")])
        let interim = HTTP2Frame.headers(1, [(":status", "103"), ("apns-id", "x"), ("retry-after", "9")], ends: false)
        let foreign = HTTP2Frame.headers(1, [("apns-id", "x"), ("retry-after", "9"), ("content-length", "9")])
        let reason = #"{"reason":"Unregistered","timestamp":5}"#.map { HTTP2Frame.data(1, "\($0)", ends: false) }
        func refusal(_ status: Int, _ fields: [(String, String)] = [], ends: Bool = false) -> HTTP2Frame {
            .headers(1, [(":status", "\(status)")] + fields, ends: ends)
        }
        let delivered: [[HTTP2Frame]] = [
            [.headers(1, ok)], [.headers(1, ok + [("content-length", "0")])],
            [.headers(1, ok, ends: false), .data(1, "")], [.headers(1, ok, ends: false), .reset(1, code: 0)],
            [.headers(1, ok), .reset(1, code: 0)],
            [
                .headers(1, ok + [("content-length", "2")], ends: false), .data(1, "{}", ends: false),
                .reset(1, code: 0),
            ],
            [.headers(1, ok, ends: false), long, long], [.headers(1, ok), .reset(1, code: 2)],
            [.headers(1, ok, ends: false), trailers],
        ]
        let refused: [([HTTP2Frame], Response)] = [
            ([refusal(400, ends: true)], Response(status: 400)),
            ([refusal(400), .data(1, "")], Response(status: 400)),
            ([refusal(410), .reset(1, code: 0)], Response(status: 410)),
            ([refusal(410)] + reason + [.data(1, "")], Response(status: 410, reason: .unregistered, timestamp: 5)),
            (
                [refusal(502), .data(1, "<html>", ends: false), .data(1, "Bad gateway</html>")],
                Response(status: 502)
            ),
            ([refusal(503, [("retry-after", "17")]), long, long, long], Response(status: 503, retryAfter: 17)),
            (
                [interim, refusal(429), .data(1, #"{"reason":"TooManyRequests"}"#, ends: false), trailers],
                Response(status: 429, reason: .tooManyRequests)
            ),
            // The fields of interim responses and trailers are not the answer's.
            ([interim, refusal(429), .data(1, "{}", ends: false), foreign], Response(status: 429)),
        ]
        return (delivered.map { ($0, Response(status: 200)) } + refused).map { ($0.flatMap(\.bytes), $1) }
    }()

    @Test(
        "that ends well counts, in any pieces, also if NO_ERROR ends it or this side cuts its body",
        arguments: wholes.indices, [true, false])
    func whole(index: Int, bytewise: Bool) throws {
        let (bytes, response) = Self.wholes[index]
        let results = try Self.results(bytes, bytewise: bytewise)
        #expect(results == [1: .response(response), 3: .delivered, 5: .delivered])
    }

    /// A second implementation of `HeaderBlockReader`'s rules (RFC 9113 §8): the fields that may follow `:status: 200`.
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

    /// Returns true if the rest of a block is valid after `:status: 200`, in an answer without a body.
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
        let rest = HTTP2Frame.block([
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
