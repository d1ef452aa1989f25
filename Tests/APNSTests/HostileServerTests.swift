import NIOCore
import TestSupport
import Testing

@testable import APNS

/// ``HTTP2SessionTests`` has the rules of HTTP/2 that a server can break.
@Suite("A server that breaks HTTP/2", .timeLimit(.minutes(10)))
struct HostileServerTests {
    @Test(
        "is disconnected with the reason, and the request is sent on another connection",
        arguments: ["HTTP/1.1", "a frame larger than allowed", "a PUSH_PROMISE", "random bytes"])
    func breach(name: String) async throws {
        let bytes: [UInt8]
        switch name {
        case "HTTP/1.1": bytes = Array("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".utf8)
        case "a PUSH_PROMISE":
            bytes = HTTP2Frame(kind: .pushPromise, flags: 4, stream: 1, payload: [0, 0, 0, 2, 0x82]).bytes
        case "random bytes":
            var generator = SeededGenerator(seed: 23)
            bytes = (0..<5000).map { _ in UInt8.random(in: 0...255, using: &generator) }
        default: bytes = HTTP2Frame(kind: .data, stream: 1, payload: Array(repeating: 0, count: 20_000)).bytes
        }
        let script: ScriptedPeer.Script = { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                // Server push is disabled once the setting is acknowledged.
                if frame.kind == .settings, frame.flags == 0 { connection.send(.settingsAcknowledgement) }
                if frame.kind == .data { connection.send(bytes: bytes) }
            }
        }
        try await withPool(against: script, { $0.requestTimeout = .seconds(5) }) { client, peer in
            let result = try await client.send().get()
            guard case .uncertain(.connectionLost(let why)) = result else { throw Unexpected(result) }
            #expect(why.contains("broke the protocol"), "\(why)")
            try await expect(client.send(), .delivered)
            try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) >= 1 }
        }
    }

    @Test("by answering without a status costs the request only, not the connection")
    func noStatus() async throws {
        let script = handling { connection, frame in
            guard frame.stream == 1 else { return connection.send(.answer(frame.stream, status: 200)) }
            connection.send(HTTP2Frame(kind: .headers, flags: 5, stream: 1, payload: [0x00, 1, 0x78, 1, 0x79]))
        }
        let seen = try await withPool(against: script) { client, _ in
            let result = try await client.send().get()
            #expect(result == .uncertain(.malformed))
            try await expect(client.send(), .delivered)
        }
        #expect(seen.connections == 1)
    }
}
