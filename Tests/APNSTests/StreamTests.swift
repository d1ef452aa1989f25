import CNghttp2
import Glibc
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import APNS

/// Answers 200 to every complete request.
let answersAll: ScriptedPeer.Script = { connection, event in
    switch event {
    case .connected: connection.send(.settings(maximumStreams: 100))
    case .frame(let frame):
        if frame.kind == .data, !frame.payload.isEmpty { connection.send(.windowUpdate(by: frame.payload.count)) }
        if frame.endsStream, frame.kind == .data { connection.send(.answer(frame.stream, status: 200)) }
        if frame.kind == .settings, frame.flags == 0 { connection.send(.settingsAcknowledgement) }
    }
}

@Suite("A request's stream", .timeLimit(.minutes(10)))
struct StreamTests {
    @Test("is answered by its status when the body does not end, and the others on the connection by theirs")
    func endlessBody() async throws {
        let script = handling { connection, frame in
            let stream = frame.stream
            guard stream < 5 else { return connection.send(.answer(stream, status: 200)) }
            // Two parts are as much as the connection's window allows.
            let part = HTTP2Frame.data(stream, String(repeating: "x", count: 16_000), ends: false)
            connection.send(.answer(stream, status: stream == 1 ? 400 : 200, ends: false), part, part)
        }
        let seen = try await withPool(against: script) { client, peer in
            try await client.waitForSettings()
            let results = try await client.results(3)
            #expect(results == [.response(Response(status: 400)), .delivered, .delivered])
            try await eventually("two resets") { peer.count(.resetStream) == 2 }
            #expect(try await client.results(20) == .delivered(20))
        }
        let resets = seen.frames(.resetStream)
        #expect(Set(resets.map(\.stream)) == [1, 3])
        #expect(resets.allSatisfy { $0.errorCode == NGHTTP2_CANCEL.rawValue })
        #expect(seen.connections == 1)
    }

    @Test("gives an answer its apns-unique-id where these are kept, and no other answer, also in the same slot")
    func uniqueID() async throws {
        let text = "0A1B2C3D-4E5F-6071-8293-A4B5C6D7E8F9"
        let script = handling(streams: 1) { connection, frame in
            let fields: [(String, String)] =
                switch frame.stream {
                case 1, 3: [("apns-id", text.lowercased()), ("apns-unique-id", text)]
                case 5: [("apns-id", text)]
                case 7: [("apns-unique-id", text + "0")]
                case 9: [("apns-unique-ix", text), ("apns-unique-id", "")]
                default: [("apns-unique-id", text.lowercased())]
                }
            connection.send(.answer(frame.stream, status: frame.stream == 11 ? 410 : 200, fields: fields))
        }
        try await withPool(against: script) { client, _ in
            var ids = try await client.results(1).map(\.uniqueID)
            try await client.keepUniqueIDs(true)
            ids += try await client.results(5).map(\.uniqueID)
            try await client.keepUniqueIDs(false)
            ids += try await client.results(1).map(\.uniqueID)
            let id = APNSID(text.utf8)
            #expect(id != nil && ids == [nil, id, nil, nil, nil, id, nil])
        }
    }

    @Test("carries one of 500 that were submitted together, on one connection")
    func many() async throws {
        let seen = try await withPool(against: answersAll) { client, _ in
            let answers = try await client.results(500)
            #expect(answers == .delivered(500))
            #expect(try await client.ask { [$0.inFlight, $0.capacity] } == [0, 100])
        }
        let paths = seen.frames(.headers).flatMap(\.headers).filter { $0.name == ":path" }.map(\.value)
        #expect(Set(paths).count == 500)
        // Apple asks for no priorities: no PRIORITY frames, and none in HEADERS (RFC 9113 §6.2).
        let hasPriority: UInt8 = 0x20
        #expect(seen.frames(.priority).isEmpty)
        #expect(seen.frames(.headers).allSatisfy { $0.flags & hasPriority == 0 })
    }

    @Test("that is not answered in time is cancelled, and may have been processed")
    func deadline() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame) where frame.endsStream && frame.kind == .data && frame.stream == 3:
                connection.send(.answer(3, status: 200))
            case .frame(let frame) where frame.kind == .resetStream:
                // Too late: the request has no receiver any more.
                connection.send(.answer(frame.stream, status: 200))
            default: break
            }
        }
        let seen = try await withPool(against: script, { $0.requestTimeout = .milliseconds(300) }) { client, peer in
            try await client.waitForSettings()
            let results = try await client.results(3)
            #expect(results == [.uncertain(.timedOut), .delivered, .uncertain(.timedOut)])
            try await eventually("two resets") { peer.count(.resetStream) == 2 }
            #expect(try await client.ask { [$0.inFlight, $0.capacity] } == [0, 10])
        }
        #expect(seen.frames(.resetStream).map(\.stream) == [1, 5])
        #expect(seen.frames(.resetStream).allSatisfy { $0.errorCode == NGHTTP2_CANCEL.rawValue })
        #expect(seen.connections == 1)
    }

    @Test("keeps an answer that arrived before a reset, even if the reset is noticed by sending more")
    func answeredBeforeReset() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try await withPeer(script: handling(streams: 500)) { peer in
            let client = try await PoolClient.start(on: group.next(), port: peer.port)
            try await client.closingAfter { client in
                try await client.waitForSettings(500)
                let requests = client.send((0..<300).map { .example($0) })
                try await eventually("the requests") { peer.count(.data) == 300 }
                let answers = { @Sendable (numbers: Range<Int>) in
                    numbers.flatMap { HTTP2Frame.answer(Int32(2 * $0 + 1), status: 200).bytes }
                }
                // The client's thread is blocked while more answers arrive, so the client must later read the data that it has deferred.
                requests[30].whenComplete { _ in
                    peer.on(1) {
                        $0.send(bytes: answers(31..<130))
                        $0.reset()
                    }
                    while peer.seen.withLockedValue(\.ended) == 0 { usleep(100) }
                    _ = client.send()
                }
                for number in 0...30 {
                    peer.on(1) { $0.send(bytes: answers(number..<number + 1)) }
                    try await expect(requests[number], .delivered)
                }
                var (delivered, lost) = (31, 0)
                for request in requests[31...] {
                    switch try await request.get() {
                    case .response: delivered += 1
                    case .uncertain(.lostWithOthers): lost += 1
                    case let result: Issue.record("\(result)")
                    }
                }
                #expect((delivered, lost) == (130, 170))
            }
        }
        try await group.shutdownGracefully()
    }
}

extension RequestResult {
    fileprivate var uniqueID: APNSID? { if case .response(let response) = self { response.uniqueID } else { nil } }
}
