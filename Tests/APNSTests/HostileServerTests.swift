import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A server that breaks HTTP/2", .timeLimit(.minutes(2)))
struct HostileServerTests {
    struct Breach: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// The bytes to send when the first request has arrived.
        var bytes: @Sendable () -> [UInt8]
    }

    static let breaches: [Breach] = [
        Breach(testDescription: "HTTP/1.1") { Array("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".utf8) },
        Breach(testDescription: "DATA on stream 0") { HTTP2Frame.data(0, "x").bytes },
        Breach(testDescription: "HEADERS on an even stream") { HTTP2Frame.answer(2, status: 200).bytes },
        Breach(testDescription: "HEADERS on a stream never opened") { HTTP2Frame.answer(99, status: 200).bytes },
        Breach(testDescription: "a block that HPACK cannot read") {
            HTTP2Frame(kind: .headers, flags: 5, stream: 1, payload: [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).bytes
        },
        Breach(testDescription: "a frame larger than allowed") {
            HTTP2Frame(kind: .data, stream: 1, payload: Array(repeating: 0, count: 20_000)).bytes
        },
        Breach(testDescription: "a PUSH_PROMISE") {
            HTTP2Frame(kind: .pushPromise, flags: 4, stream: 1, payload: [0, 0, 0, 2, 0x82]).bytes
        },
        Breach(testDescription: "SETTINGS with an invalid length") {
            HTTP2Frame(kind: .settings, payload: [0, 3, 0]).bytes
        },
        Breach(testDescription: "WINDOW_UPDATE with an increment of 0") {
            HTTP2Frame(kind: .windowUpdate, payload: [0, 0, 0, 0]).bytes
        },
        Breach(testDescription: "CONTINUATION out of nowhere") {
            HTTP2Frame(kind: .continuation, flags: 4, stream: 1, payload: [0x88]).bytes
        },
        Breach(testDescription: "random bytes") {
            var generator = SeededGenerator(seed: 23)
            return (0..<5000).map { _ in UInt8.random(in: 0...255, using: &generator) }
        },
    ]

    @Test("is disconnected with the reason, and the request is sent on another connection", arguments: breaches)
    func breach(breach: Breach) async throws {
        let script: ScriptedPeer.Script = { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                // Server push is disabled once the setting is acknowledged.
                if frame.kind == .settings, frame.flags == 0 { connection.send(.settingsAcknowledgement) }
                if frame.kind == .data { connection.send(bytes: breach.bytes()) }
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port, { $0.requestTimeout = .seconds(5) }) { client in
                guard case .uncertain(.connectionLost(let why)) = try await client.send().get() else {
                    Issue.record("not called uncertain")
                    return
                }
                #expect(why.contains("broke the protocol"), "\(why)")
                try await expect(client.send(), .delivered)
                try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) >= 1 }
            }
        }
    }

    @Test("by answering without a status costs the request only, not the connection")
    func noStatus() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame) where frame.kind == .data && frame.endsStream:
                guard frame.stream == 1 else { return connection.send(.answer(frame.stream, status: 200)) }
                let block: [UInt8] = [0x00, 1] + Array("x".utf8) + [1] + Array("y".utf8)
                connection.send(HTTP2Frame(kind: .headers, flags: 5, stream: frame.stream, payload: block))
            default: break
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                guard case .uncertain(.reset) = try await client.send().get() else {
                    Issue.record("not called uncertain")
                    return
                }
                try await expect(client.send(), .delivered)
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("that sends a few bytes at a time is still understood")
    func bytewise() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.sendBytewise(.settings(maximumStreams: 10))
            case .frame(let frame) where frame.kind == .data:
                connection.sendBytewise(
                    .answer(frame.stream, status: 410, ends: false),
                    .data(frame.stream, #"{"reason":"Unregistered","timestamp":5}"#))
            default: break
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                let gone = RequestResult.response(Response(status: 410, reason: .unregistered, timestamp: 5))
                let results = try await client.results(30)
                #expect(results == Array(repeating: gone, count: 30))
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("with unknown frames, settings and header fields does not violate the protocol")
    func extensions() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected:
                connection.send(.settings([(3, 10), (0xFE, 1), (8, 1)]))
                // A frame of the unknown type 0xBE.
                connection.send(bytes: [0, 0, 3, 0xBE, 0xFF, 0, 0, 0, 0, 1, 2, 3])
                connection.send(HTTP2Frame(kind: .priority, stream: 7, payload: [0, 0, 0, 0, 1]))
            case .frame(let frame): if frame.kind == .data { connection.send(.answer(frame.stream, status: 200)) }
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                let answers = try await client.results(5)
                #expect(answers == .delivered(5))
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }
}
