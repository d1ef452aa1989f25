import NIOCore
import TestSupport
import Testing

@testable import APNS

/// The rules of RFC 9113 and RFC 7541 that a client can check, without sockets.
@Suite("HTTP/2, section by section")
struct HTTP2SessionTests {
    /// Returns a client that has sent three requests.
    private static func client(_ settings: [(UInt16, UInt32)] = [], requests: Int = 3) -> OwnClient {
        let client = OwnClient()
        client.receive(HTTP2Frame.settings(settings).bytes + HTTP2Frame.settingsAcknowledgement.bytes)
        for _ in 0..<requests { client.submit() }
        _ = client.frames()
        return client
    }

    private static func bytes(_ frames: HTTP2Frame...) -> [UInt8] { frames.flatMap(\.bytes) }

    struct Breach: Sendable, CustomTestStringConvertible {
        let section: String
        let code: UInt32
        let bytes: [UInt8]
        var testDescription: String { section }

        init(_ section: String, _ code: UInt32, bytes: [UInt8]) {
            (self.section, self.code, self.bytes) = (section, code, bytes)
        }

        init(_ section: String, _ code: UInt32, _ frames: HTTP2Frame...) {
            self.init(section, code, bytes: frames.flatMap(\.bytes))
        }
    }

    private static let answer = HTTP2Frame.answer(1, status: 400, ends: false)
    private static let (protocolError, flowControl, frameSize) = (UInt32(1), UInt32(3), UInt32(6))
    private static let (compression, calm) = (UInt32(9), UInt32(11))

    static let connectionErrors: [Breach] = [
        Breach("9113 §4.2: a frame larger than 16,384 bytes", frameSize, bytes: [0, 0x40, 1, 0, 0, 0, 0, 0, 1]),
        Breach(
            "9113 §4.3: another frame within a header block", protocolError,
            .raw(.headers, 0, 1, [0x88]), .data(1, "x")),
        Breach(
            "9113 §4.3: CONTINUATION of another stream", protocolError,
            .raw(.headers, 0, 1, [0x88]), .raw(.continuation, 4, 3)),
        Breach(
            "9113 §4.3: a block that cannot be decoded", compression,
            .raw(.headers, 5, 1, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])),
        Breach(
            "9113 §4.3: a block that ends within a field", compression, .raw(.headers, 5, 1, [0x88, 0x40, 1, 0x78])),
        Breach(
            "7541 §5.1: a string that is too long, before its end", compression,
            .raw(.headers, 1, 1, [0x88, 0, 0x7F, 0x82, 0xFF, 3])),
        Breach("9113 §5.1: HEADERS on an idle stream", protocolError, .answer(99, status: 200)),
        Breach("9113 §5.1: RST_STREAM on an idle stream", protocolError, .reset(99, code: 8)),
        Breach("9113 §5.1: WINDOW_UPDATE on an idle stream", protocolError, .raw(.windowUpdate, 0, 99, [0, 0, 0, 1])),
        Breach("9113 §5.1.1: a stream that the server opens", protocolError, .answer(2, status: 200)),
        Breach("9113 §6.1: DATA on stream 0", protocolError, .data(0, "x")),
        Breach("9113 §6.1: DATA on an idle stream", protocolError, .data(7, "x")),
        Breach("9113 §6.1: padding that is as long as the payload", protocolError, answer, .raw(.data, 8, 1, [2, 0])),
        Breach("9113 §6.1: a padded frame without the length of its padding", protocolError, answer, .raw(.data, 8, 1)),
        Breach("9113 §6.2: HEADERS on stream 0", protocolError, .answer(0, status: 200)),
        Breach(
            "9113 §6.2: padding that leaves no room for the priority", protocolError,
            .raw(.headers, 0x2D, 1, [2, 0, 0, 0, 0, 3, 0x88])),
        Breach("9113 §6.2: HEADERS too short for their priority", frameSize, .raw(.headers, 0x25, 1, [0, 0, 0])),
        Breach("9113 §6.3: PRIORITY on stream 0", protocolError, .raw(.priority, 0, 0, [0, 0, 0, 0, 3])),
        Breach("9113 §6.4: RST_STREAM on stream 0", protocolError, .reset(0, code: 8)),
        Breach("9113 §6.4: RST_STREAM of three bytes", frameSize, .raw(.resetStream, 0, 1, [0, 0, 8])),
        Breach("9113 §6.5: SETTINGS on a stream", protocolError, .raw(.settings, 0, 1)),
        Breach("9113 §6.5: an acknowledgement with a payload", frameSize, .raw(.settings, 1, 0, [0, 3, 0, 0, 0, 1])),
        Breach("9113 §6.5: SETTINGS of seven bytes", frameSize, .raw(.settings, 0, 0, [0, 3, 0, 0, 0, 1, 0])),
        Breach("9113 §6.5.2: ENABLE_PUSH of a server", protocolError, .settings([(2, 1)])),
        Breach("9113 §6.5.2: a window above 2³¹-1", flowControl, .settings([(4, 1 << 31)])),
        Breach("9113 §6.5.2: a frame size below 16,384", protocolError, .settings([(5, 16_383)])),
        Breach("9113 §6.5.2: a frame size above 2²⁴-1", protocolError, .settings([(5, 1 << 24)])),
        Breach("9113 §6.5.3: an acknowledgement of nothing", protocolError, .settingsAcknowledgement),
        Breach("8441 §3: ENABLE_CONNECT_PROTOCOL of 2", protocolError, .settings([(8, 2)])),
        Breach("9218 §2.1: NO_RFC7540_PRIORITIES of 2", protocolError, .settings([(9, 2)])),
        Breach("9113 §6.6, §8.4: PUSH_PROMISE", protocolError, .raw(.pushPromise, 4, 1, [0, 0, 0, 2, 0x82])),
        Breach("9113 §6.7: PING on a stream", protocolError, .raw(.ping, 0, 1, Array(1...8))),
        Breach("9113 §6.7: PING of seven bytes", frameSize, .raw(.ping, 0, 0, Array(1...7))),
        Breach("9113 §6.8: GOAWAY on a stream", protocolError, .raw(.goAway, 0, 1, [0, 0, 0, 1, 0, 0, 0, 0])),
        Breach("9113 §6.8: GOAWAY of seven bytes", frameSize, .raw(.goAway, 0, 0, [0, 0, 0, 1, 0, 0, 0])),
        Breach(
            "9113 §6.8: a later GOAWAY with a higher stream", protocolError,
            .goAway(lastStream: 1), .goAway(lastStream: 3)),
        Breach(
            "9113 §6.9: WINDOW_UPDATE with an increment of 0 on the connection", protocolError,
            .raw(.windowUpdate, 0, 0, [0, 0, 0, 0])),
        Breach("9113 §6.9: WINDOW_UPDATE of three bytes", frameSize, .raw(.windowUpdate, 0, 0, [0, 0, 1])),
        Breach(
            "9113 §6.9.1: a connection's window above 2³¹-1", flowControl,
            .raw(.windowUpdate, 0, 0, [0x7F, 0xFF, 0xFF, 0xFF])),
        Breach(
            "9113 §6.9.2: a stream's window above 2³¹-1 by SETTINGS", flowControl,
            .raw(.windowUpdate, 0, 1, [0, 1, 0, 0]), .settings([(4, 0x7FFF_FFFF)])),
        Breach("9113 §6.10: CONTINUATION of nothing", protocolError, .raw(.continuation, 4, 1, [0x88])),
        Breach(
            "9113 §6.5.2, §10.5.1: header fields above the limit", calm,
            .raw(.headers, 5, 1, [0x88] + Array(repeating: [0x00, 1, 0x78, 1, 0x79], count: 1000).flatMap { $0 })),
        Breach(
            "7541 §4.2: a table larger than the limit", compression, .raw(.headers, 5, 1, [0x3F, 0xE2, 0x1F, 0x88])),
        Breach("7541 §2.3.3: an index beyond the tables", compression, .raw(.headers, 5, 1, [0xFE])),
    ]

    @Test("a violation ends the connection with the code of its section", arguments: connectionErrors)
    func connectionError(breach: Breach) {
        let client = Self.client()
        client.receive(breach.bytes)
        #expect(client.view.leaves == breach.code, "\(client.session.complaint ?? "no complaint")")
        #expect(client.session.isFinished && client.session.complaint != nil)
        // Nothing more is read or sent.
        let before = client.view
        client.receive(HTTP2Frame.answer(3, status: 200).bytes)
        #expect(client.view == before && client.submit() == nil)
    }

    @Test(
        "9113 §3.4: the server's first frame is SETTINGS, and no acknowledgement",
        arguments: [HTTP2Frame.raw(.ping, 0, 0, Array(1...8)), .settingsAcknowledgement, .goAway(lastStream: 0)])
    func firstFrame(frame: HTTP2Frame) {
        let client = OwnClient()
        client.receive(frame.bytes)
        #expect(client.view.leaves == Self.protocolError)
    }

    private static func refusal(_ fields: [(String, String)], ends: Bool = true) -> HTTP2Frame {
        .headers(1, [(":status", "400")] + fields, ends: ends)
    }

    static let streamErrors: [Breach] = [
        Breach("9113 §5.4.2, §6.3: PRIORITY of four bytes", frameSize, .raw(.priority, 0, 1, [0, 0, 0, 0])),
        Breach(
            "9113 §6.9: WINDOW_UPDATE with an increment of 0", protocolError, .raw(.windowUpdate, 0, 1, [0, 0, 0, 0])),
        Breach("9113 §6.9.1: a window above 2³¹-1", flowControl, .raw(.windowUpdate, 0, 1, [0x7F, 0xFF, 0xFF, 0xFF])),
        Breach("9113 §8.1: DATA before HEADERS", protocolError, .data(1, "x")),
        Breach("9113 §8.1: a second answer instead of trailers", protocolError, answer, answer),
        Breach(
            "9113 §8.1: trailers that do not end the stream", protocolError,
            answer, .headers(1, [("x", "y")], ends: false)),
        Breach("9113 §8.1: an interim answer that ends the stream", protocolError, .answer(1, status: 103)),
        Breach(
            "9113 §8.1.1: a body longer than content-length", protocolError,
            refusal([("content-length", "1")], ends: false), .data(1, "xy", ends: false)),
        Breach(
            "9113 §8.1.1: a body shorter than content-length", protocolError,
            refusal([("content-length", "3")], ends: false), .data(1, "xy")),
        Breach("9113 §8.1.1: no body for a content-length", protocolError, refusal([("content-length", "3")])),
        Breach(
            "9110 §8.6: two values of content-length", protocolError,
            refusal([("content-length", "3"), ("content-length", "4")], ends: false)),
        Breach("9113 §8.2: an upper-case name", protocolError, refusal([("X-Name", "y")])),
        Breach("9113 §8.2.1: a name with a space", protocolError, refusal([("x y", "z")])),
        Breach("9113 §8.2.1: an empty name", protocolError, refusal([("", "z")])),
        Breach("9113 §8.2.1: a line feed in a value", protocolError, refusal([("x", "a\nb")])),
        Breach("9113 §8.2.1: a NUL in a value", protocolError, refusal([("x", "a\0b")])),
        Breach("9113 §8.2.1: a value that ends with a space", protocolError, refusal([("x", "a ")])),
        Breach("9113 §8.2.2: connection", protocolError, refusal([("connection", "close")])),
        Breach("9113 §8.2.2: transfer-encoding", protocolError, refusal([("transfer-encoding", "chunked")])),
        Breach("9113 §8.2.2: keep-alive", protocolError, refusal([("keep-alive", "5")])),
        Breach("9113 §8.2.2: te", protocolError, refusal([("te", "gzip")])),
        Breach(
            "9113 §8.3: a pseudo-header field after another field", protocolError,
            .headers(1, [("x", "y"), (":status", "400")])),
        Breach("9113 §8.3: an unknown pseudo-header field", protocolError, refusal([(":path", "/")])),
        Breach(
            "9113 §8.3: a pseudo-header field in trailers", protocolError,
            answer, .headers(1, [(":status", "400")])),
        Breach("9113 §8.3.2: no status", protocolError, .headers(1, [("x", "y")])),
        Breach("9113 §8.3.2: two", protocolError, refusal([(":status", "400")])),
        Breach("9113 §8.3.2: one of two digits", protocolError, .headers(1, [(":status", "40")])),
        Breach("9113 §8.6: 101", protocolError, .headers(1, [(":status", "101")], ends: false)),
    ]

    @Test("a malformed answer ends its stream only", arguments: streamErrors)
    func streamError(breach: Breach) {
        let client = Self.client()
        client.receive(breach.bytes)
        #expect(client.view.resets == [1: breach.code] && client.view.answers[1]?.code == breach.code)
        #expect(client.view.leaves == nil)
        // The other streams are answered.
        client.receive(Self.bytes(.answer(3, status: 200), .answer(5, status: 200)))
        #expect(
            client.view.answers[3] == .init(status: 200, code: 0)
                && client.view.answers[5] == .init(status: 200, code: 0))
    }

    @Test("9113 §6.9.1: more DATA than the window of a stream or of the connection")
    func receivedTooMuch() {
        // The client grants more after half a window.
        let part = HTTP2Frame.raw(.data, 8, 1, [255] + Array(repeating: 0, count: 16_383))
        let client = Self.client()
        client.receive(Self.bytes(Self.answer))
        for _ in 0..<20 { client.receive(part.bytes) }
        #expect(client.view.leaves == nil)
        let updates = client.frames().filter { $0.kind == .windowUpdate }
        #expect(updates.contains { $0.stream == 0 })
    }

    @Test("9113 §5.5, §6.5.2: unknown frames, flags and settings are ignored")
    func extensions() {
        let client = Self.client()
        client.receive([0, 0, 3, 0x2A, 0xFF, 0x80, 0, 0, 1, 1, 2, 3])
        client.receive(Self.bytes(.settings([(0x4A4A, 7)]), .raw(.ping, 0xFE, 0, Array(1...8))))
        client.receive(Self.bytes(.answer(1, status: 200)))
        #expect(client.view.leaves == nil && client.view.answers[1]?.status == 200)
        let frames = client.frames()
        #expect(frames.contains { $0.kind == .ping && $0.flags == 1 && $0.payload == Array(1...8) })
        #expect(frames.contains { $0.kind == .settings && $0.flags == 1 })
    }

    @Test("9113 §5.1: frames of streams that have ended are ignored, and their header fields decoded")
    func closedStreams() {
        let client = Self.client()
        client.receive(Self.bytes(.answer(1, status: 200), .data(1, "x"), .reset(1, code: 8)))
        client.receive(Self.bytes(.raw(.windowUpdate, 0, 1, [0, 0, 0, 1])))
        // The first block adds a field to HPACK's table, and the next answer uses it.
        client.receive(HTTP2Frame.raw(.headers, 5, 1, [0x88, 0x40, 1, 0x78, 1, 0x79]).bytes)
        client.receive(HTTP2Frame.raw(.headers, 5, 3, [0x88, 0xBE]).bytes)
        #expect(client.view.leaves == nil && client.view.answers[3] == .init(status: 200, code: 0))
    }

    // MARK: Output

    @Test("9113 §3.4: the preface and SETTINGS come first: no pushes, and a limit of header fields")
    func preface() {
        let client = OwnClient()
        let frames = client.frames()
        #expect(frames.map(\.kind) == [.settings])
        #expect(frames.first?.payload == [0, 2, 0, 0, 0, 0, 0, 6, 0, 0, 0x40, 0])
    }

    @Test("9113 §5.1.2: no more streams than the server allows, and the others when some have ended")
    func streamLimit() {
        let client = Self.client([(3, 2)], requests: 0)
        for _ in 0..<5 { client.submit() }
        #expect(client.frames().filter { $0.kind == .headers }.map(\.stream) == [1, 3])
        client.receive(Self.bytes(.answer(1, status: 200)))
        #expect(client.frames().filter { $0.kind == .headers }.map(\.stream) == [5])
        client.receive(Self.bytes(.settings([(3, 100)])))
        #expect(client.frames().filter { $0.kind == .headers }.map(\.stream) == [7, 9])
    }

    @Test(
        "9113 §6.9: DATA waits for the windows of its stream and of the connection, in frames of at most 16,384 bytes")
    func windows() {
        let client = Self.client([(4, 20_000)], requests: 0)
        let body = String(repeating: "x", count: 50_000)
        client.submit(body)
        #expect(client.frames().filter { $0.kind == .data }.map(\.payload.count) == [16_384, 3616])
        // A reduced window becomes negative (§6.9.2).
        client.receive(Self.bytes(.settings([(4, 10_000)])))
        client.receive(HTTP2Frame.raw(.windowUpdate, 0, 1, [0, 0, 0x27, 0x10]).bytes)
        #expect(client.frames().filter { $0.kind == .data }.isEmpty)
        client.receive(HTTP2Frame.raw(.windowUpdate, 0, 1, [0, 0, 0, 1]).bytes)
        #expect(client.frames().filter { $0.kind == .data }.map(\.payload.count) == [1])
        client.receive(HTTP2Frame.raw(.windowUpdate, 0, 1, [0, 1, 0, 0]).bytes)
        let rest = client.frames().filter { $0.kind == .data }
        #expect(rest.map(\.payload.count).reduce(0, +) == 29_999 && rest.last?.endsStream == true)
        // The connection's window of 65,535 bytes has 15,535 left.
        client.receive(Self.bytes(.settings([(4, 100_000)])))
        client.submit(body)
        client.submit("{}")
        #expect(client.frames().filter { $0.kind == .data }.map(\.payload.count) == [15_535])
        client.receive(HTTP2Frame.raw(.windowUpdate, 0, 0, [0, 1, 0, 0]).bytes)
        let last = client.frames().filter { $0.kind == .data }
        #expect(last.filter(\.endsStream).map(\.stream) == [3, 5])
    }

    @Test("9113 §6.9: a stream without a window does not keep the others from being written")
    func starvation() {
        let client = Self.client([(4, 10)], requests: 0)
        client.submit(String(repeating: "x", count: 100))
        client.submit("{}")
        #expect(client.frames().filter { $0.kind == .data && $0.endsStream }.map(\.stream) == [3])
    }

    @Test("9113 §8.1: an answer that comes before the whole request was written resets the rest")
    func earlyAnswer() {
        let client = Self.client([(4, 10)], requests: 0)
        client.submit(String(repeating: "x", count: 100))
        client.receive(Self.bytes(.answer(1, status: 413)))
        #expect(client.view.answers[1]?.status == 413 && client.view.answers[1]?.code == 0)
        #expect(client.view.resets == [1: 8])
    }

    @Test("9113 §6.9: a request that waits for a window is reported, until it is answered")
    func blockage() {
        let client = Self.client([(4, 10)], requests: 0)
        client.submit(String(repeating: "x", count: 100), deadline: .uptimeNanoseconds(1))
        #expect(client.session.blockage(dueBefore: .distantFuture) == .init(stream: 1, written: 10))
        #expect(client.session.blockage(dueBefore: .uptimeNanoseconds(1)) == nil)
        // The slot of the answered request is still in use.
        HTTP2Frame.answer(1, status: 413).bytes.withUnsafeBytes { client.session.receive($0) }
        #expect(client.session.blockage(dueBefore: .distantFuture) == nil && client.session.streams.slots.inUse == 1)
    }

    @Test("9113 §6.8: GOAWAY in two steps ends what is above its stream, and opens nothing more")
    func goAway() {
        let client = Self.client([(3, 4)], requests: 4)
        client.submit()
        client.receive(Self.bytes(.goAway(lastStream: .max)))
        // An unsent request must not be sent any more.
        #expect(client.view.answers[9]?.code != nil && client.submit() == nil)
        client.receive(Self.bytes(.goAway(lastStream: 3, debugData: "bye")))
        #expect(client.view.answers[5]?.code == 7 && client.view.answers[7]?.code == 7)
        #expect(client.view.goAways.count == 2 && !client.session.isFinished)
        client.receive(Self.bytes(.answer(1, status: 200), .answer(3, status: 200)))
        #expect(client.view.answers[1]?.status == 200 && client.view.answers[3]?.status == 200)
        #expect(client.session.isFinished && client.session.complaint == nil)
    }

    @Test("9113 §6.8: nothing follows the client's own GOAWAY, even if a request is cancelled")
    func ownGoAway() {
        let client = Self.client()
        client.session.goAway()
        client.session.cancel(client.session.streams.slots.oldest, because: .timedOut)
        client.session.ping()
        client.takeOutput()
        #expect(client.frames().map(\.kind) == [.goAway])
        #expect(client.view.answers[1]?.code == 8 && client.session.isFinished)
    }

    @Test("9113 §5.1.1: no stream follows the last identifier")
    func lastStream() {
        let client = OwnClient(firstStream: .max - 2)
        client.receive(HTTP2Frame.settings().bytes)
        #expect(client.submit() == .max - 2 && client.submit() == .max && client.submit() == nil)
        client.receive(Self.bytes(.answer(.max - 2, status: 200), .answer(.max, status: 200)))
        #expect(client.view.answers.values.allSatisfy { $0.status == 200 })
    }

    @Test("a stream that stays open while 10,000 others end is still answered")
    func oldStream() {
        let client = Self.client(requests: 1)
        for number in 1...10_000 {
            guard let stream = client.submit() else { return #expect(Bool(false), "no stream at \(number)") }
            client.receive(HTTP2Frame.answer(stream, status: 200).bytes)
            client.receive(HTTP2Frame.raw(.windowUpdate, 0, 0, [0, 0, 0, 2]).bytes)
        }
        client.receive(HTTP2Frame.answer(1, status: 410).bytes)
        #expect(client.view.answers[1] == .init(status: 410, code: 0) && client.view.answers.count == 10_001)
    }

    @Test("answers to PINGs that the server does not read end in a flood, and so do header blocks without end")
    func floods() {
        let client = OwnClient()
        client.receive(HTTP2Frame.settings().bytes)
        client.receive(Array(repeating: HTTP2Frame.raw(.ping, 0, 0, Array(1...8)).bytes, count: 1001).flatMap { $0 })
        #expect(client.session.isFlooded)
        let other = Self.client()
        other.receive(HTTP2Frame.raw(.headers, 1, 1, [0x88]).bytes)
        other.receive(Array(repeating: HTTP2Frame.raw(.continuation, 0, 1).bytes, count: 65).flatMap { $0 })
        #expect(other.session.isFlooded)
    }

    // MARK: HPACK

    @Test("9113 §4.3, §6.10: a block may be cut at any byte, and later blocks use the table that it leaves")
    func cutBlock() {
        // `:status: 200`, and a Huffman-coded field that is added to the table.
        let block: [UInt8] = [
            0x88, 0x40, 0x88, 0x25, 0xA8, 0x49, 0xE9, 0x5B, 0xA9, 0x7D, 0x7F, 0x89, 0x25, 0xA8, 0x49, 0xE9, 0x5B, 0xB8,
            0xE8, 0xB4, 0xBF,
        ]
        for cut in 0...block.count {
            let client = Self.client(requests: 2)
            client.receive(
                Self.bytes(
                    .raw(.headers, 1, 1, Array(block[..<cut])), .raw(.continuation, 4, 1, Array(block[cut...])),
                    .raw(.headers, 5, 3, [0x88, 0xBE])))
            #expect(client.view.answers[1] == .init(status: 200, code: 0), "cut at \(cut)")
            #expect(client.view.answers[3] == .init(status: 200, code: 0) && client.view.leaves == nil)
        }
    }

    private func fields(_ frames: [HTTP2Frame], _ decoder: HeaderDecoder) throws -> [[HeaderField]] {
        var (blocks, block): ([[HeaderField]], [UInt8]) = ([], [])
        for frame in frames where frame.kind == .headers || frame.kind == .continuation {
            block += frame.payload
            guard frame.flags & HTTP2Frame.endHeaders != 0 else { continue }
            blocks.append(try decoder.decode(block))
            block = []
        }
        return blocks
    }

    @Test("9113 §6.2, §6.10: header fields that do not fit into a frame are continued")
    func continuation() throws {
        let client = Self.client(requests: 0)
        let token = String(repeating: "t", count: 40_000)
        client.submit(authorization: HeaderText("bearer \(token)"))
        client.submit(authorization: HeaderText("bearer \(token)"))
        let frames = client.frames()
        #expect(
            frames.map(\.kind) == [
                .headers, .continuation, .continuation, .data, .headers, .continuation, .continuation, .data,
            ])
        #expect(frames.allSatisfy { $0.payload.count <= 16_384 })
        let blocks = try fields(frames, HeaderDecoder())
        #expect(
            blocks.count == 2
                && blocks.allSatisfy { $0.contains { $0.name == "authorization" && $0.value == "bearer \(token)" } })
    }

    @Test(
        "7541 §4.2, 9113 §4.3.1: a change of the size of the table is written before the next fields, the smallest first"
    )
    func tableSize() throws {
        let (client, decoder) = (Self.client(requests: 0), HeaderDecoder())
        client.submit()
        _ = try fields(client.frames(), decoder)
        client.receive(Self.bytes(.settings([(1, 0)]), .settings([(1, 200)])))
        client.submit()
        let block = try #require(client.frames().first { $0.kind == .headers })
        // The block begins with the sizes 0 and 200.
        #expect(block.payload.starts(with: [0x20, 0x3F, 0xA9, 0x01]))
        decoder.limit(200)
        #expect(try decoder.decode(block.payload).first == HeaderField(name: ":method", value: "POST"))
        // Without a table all fields are literals.
        client.receive(Self.bytes(.settings([(1, 0)])))
        client.submit()
        client.submit()
        decoder.limit(0)
        let blocks = try fields(client.frames(), decoder)
        #expect(blocks.count == 2 && blocks[0] == blocks[1])
    }

    @Test(
        "7541: encoded fields are decoded unchanged, with tables of all sizes and values of all lengths",
        arguments: 0..<40)
    func encoder(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        let decoder = HeaderDecoder()
        var encoder = HPACKEncoder()
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 100_000)
        defer { memory.deallocate() }
        for _ in 0..<300 {
            if Int.random(in: 0..<20, using: &generator) == 0 {
                for _ in 0..<Int.random(in: 1...3, using: &generator) {
                    encoder.limit(to: [0, 60, 150, 400, 4096, 65_536].randomElement(using: &generator) ?? 0)
                }
            }
            var writer = ByteWriter(at: memory)
            var expected: [HeaderField] = []
            let from = encoder.capacity
            encoder.begin(&writer)
            for _ in 0..<Int.random(in: 0...8, using: &generator) {
                let name = HeaderName.allCases.randomElement(using: &generator) ?? .topic
                let length = [0, 1, 5, 126, 127, 128, 300, 5000].randomElement(using: &generator) ?? 0
                let value = String(repeating: ["a", "b", "c"].randomElement(using: &generator) ?? "a", count: length)
                let text = HeaderText(value)
                withExtendedLifetime(text) {
                    switch Int.random(in: 0..<3, using: &generator) {
                    case 0: encoder.writeRepeated(name, text.bytes, &writer)
                    case 1: encoder.writeUnindexed(name, text.bytes, &writer)
                    default: encoder.write(name, text.bytes, &writer)
                    }
                }
                expected.append(HeaderField(name: "\(name.text)", value: value))
            }
            decoder.limit(from)
            let decoded = try decoder.decode(Array(UnsafeBufferPointer(start: memory, count: writer.at - memory)))
            #expect(decoded.map(\.name) == expected.map(\.name) && decoded.map(\.value) == expected.map(\.value))
        }
    }
}
