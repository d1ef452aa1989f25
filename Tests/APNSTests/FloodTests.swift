import NIOCore
import TestSupport
import Testing

@testable import APNS

/// ``HTTP2SessionTests`` tests each rule of HTTP/2 that a server can break.
@Suite("A server that sends too much, or breaks HTTP/2", .serialized, .timeLimit(.minutes(10)))
struct FloodTests {
    struct Flood: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// Sent once, when the first request has arrived.
        var first: [UInt8]
        /// Sent repeatedly after ``first``.
        var more: [UInt8] = []
        var says = "broke the protocol"

        init(_ name: String, bytes: [UInt8]) { (testDescription, first) = (name, bytes) }

        init(
            _ name: String, first: [HTTP2Frame] = [], _ frames: HTTP2Frame..., says: String = "floods the connection"
        ) {
            testDescription = name
            self.first = first.flatMap(\.bytes)
            more = Array(repeating: frames.flatMap(\.bytes), count: 100).flatMap { $0 }
            self.says = says
        }
    }

    private static let ping = Array(repeating: UInt8(1), count: 8)
    private static let started = HTTP2Frame.answer(1, status: 400, ends: false)
    /// HEADERS without END_HEADERS.
    private static let unfinished = HTTP2Frame(kind: .headers, flags: 1, stream: 1, payload: [0x88])

    static let floods = [
        Flood("PING", .raw(.ping, 0, 0, ping)),
        Flood("answers to PINGs that were never sent", .raw(.ping, 1, 0, ping)),
        Flood("SETTINGS", .settings(maximumStreams: 100)),
        Flood("empty SETTINGS", .settings()),
        Flood("RST_STREAM", .reset(1, code: 8)),
        Flood("empty DATA", first: [started], .data(1, "", ends: false)),
        Flood("padding", first: [started], .raw(.data, 8, 1, [255] + Array(repeating: 0, count: 255))),
        Flood("a body that does not end", first: [started], .data(1, String(repeating: "x", count: 500), ends: false)),
        Flood("DATA of a stream that has ended", first: [.answer(1, status: 200)], .data(1, "x", ends: false)),
        Flood("WINDOW_UPDATE", .windowUpdate(by: 1)),
        Flood("WINDOW_UPDATE of a stream", .windowUpdate(1, by: 1)),
        Flood("PRIORITY", .raw(.priority, 0, 1, [0, 0, 0, 0, 3])),
        Flood("GOAWAY", .goAway(lastStream: .max, debugData: "x")),
        Flood("answers to a request that has ended", first: [.answer(1, status: 200)], .answer(1, status: 200)),
        Flood("interim answers", .answer(1, status: 103, ends: false), says: "header fields are larger than 16384"),
        Flood("CONTINUATION", first: [unfinished], .raw(.continuation, 0, 1)),
        Flood("header fields without end", first: [unfinished], .raw(.continuation, 0, 1, [0x00, 1, 0x78, 1, 0x79])),
        Flood(
            "large header fields",
            .raw(.headers, 5, 1, [0x88] + Array(repeating: [0x00, 1, 0x78, 1, 0x79], count: 1000).flatMap { $0 }),
            says: "header fields are larger than 16384"),
        Flood(
            "header fields that are small on the wire",
            // A field of 4,000 bytes is added to the dynamic table, so that one byte represents it afterwards.
            .raw(
                .headers, 5, 1,
                [0x88, 0x40, 1, 0x78, 0x7F, 0xA1, 0x1E] + Array(repeating: 0x79, count: 4000)
                    + Array(repeating: 0xBE, count: 12_000)),
            says: "header fields are larger than 16384"),
        Flood("HTTP/1.1", bytes: Array("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".utf8)),
        // Server push is disabled once the setting is acknowledged.
        Flood("a PUSH_PROMISE", bytes: HTTP2Frame.raw(.pushPromise, 4, 1, [0, 0, 0, 2, 0x82]).bytes),
        Flood("a frame larger than allowed", bytes: HTTP2Frame.data(1, String(repeating: "x", count: 20_000)).bytes),
        Flood(
            "random bytes",
            bytes: {
                var generator = SeededGenerator(seed: 23)
                return (0..<5000).map { _ in UInt8.random(in: 0...255, using: &generator) }
            }()),
    ]

    @Test("is disconnected with the reason, and everything is sent elsewhere", arguments: floods)
    func flood(flood: Flood) async throws {
        let script = handling(onlyFirst: true) { connection, frame in
            guard frame.stream == 1 else { return }
            connection.send(.settingsAcknowledgement)
            connection.send(bytes: flood.first)
            if !flood.more.isEmpty { connection.flood(flood.more) }
        }
        try await withPool(against: script) { client, peer in
            try await client.waitForSettings()
            for (number, result) in try await client.results(5).enumerated() {
                switch result {
                // Only the first request got any answer.
                case .response(Response(status: 200)) where number == 0: break
                case .uncertain(.reset) where number == 0: break
                // The answer's body was cut off.
                case .response(Response(status: 400)) where number == 0 && !flood.first.isEmpty: break
                // The GOAWAY excluded the request, and its reason was incomplete.
                case .notProcessed(.connectionLost) where number == 0 && !flood.first.isEmpty: break
                case .uncertain(.connectionLost(let why)), .uncertain(.lostWithOthers(let why)):
                    #expect(why.contains(flood.says), "\(why)")
                default: Issue.record("\(number): \(result)")
                }
            }
            #expect(try await client.results(5) == .delivered(5))
            let failures = client.log.lines(of: "apns_connection_failed")
            #expect(failures.count == 1 && failures[0].message.contains(flood.says), "\(failures)")
            try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) >= 1 }
        }
    }

    @Test("but answers with it, however large, keeps its connection")
    func largeAnswers() async throws {
        let field: [UInt8] = [0x00, 1, 0x78, 0x7F, 0xA1, 0x1E] + Array(repeating: 0x79, count: 4000)
        let block: [UInt8] = [0x08, 3] + Array("502".utf8) + field + field + field
        let body = String(repeating: "x", count: 16_000)
        let script = handling(streams: 100) { connection, frame in
            connection.streams.append(frame.stream)
            // All heads, then all bodies: no answer ends before all have begun.
            guard connection.streams.count == 100 else { return }
            for stream in connection.streams { connection.send(.raw(.headers, 4, stream, block)) }
            for stream in connection.streams { connection.send(.data(stream, body)) }
            connection.streams = []
        }
        let seen = try await withPool(against: script) { client, _ in
            try await client.waitForSettings(100)
            for _ in 0..<5 {
                let answers = try await client.results(100)
                #expect(answers == Array(repeating: .response(Response(status: 502)), count: 100))
            }
            #expect(try await client.ask { $0.lastFailure == nil })
        }
        #expect(seen.connections == 1)
    }
}
