import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A connection that ends with GOAWAY", .timeLimit(.minutes(2)))
struct GoAwayTests {
    /// Waits for ten requests on the first connection, then sends GOAWAY; later connections answer all requests.
    private func goingAway(
        lastStream: Int32, debugData: String = "", closes: Bool = false
    ) -> ScriptedPeer.Script {
        { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.endsStream, frame.kind == .data else { return }
                connection.streams.append(frame.stream)
                guard connection.streams.count == 10 else { return }
                connection.send(.goAway(lastStream: lastStream, debugData: debugData))
                if closes { return connection.close() }
                for stream in connection.streams where stream <= lastStream {
                    connection.send(.answer(stream, status: 200))
                }
            }
        }
    }

    private func results(_ script: @escaping ScriptedPeer.Script) async throws -> [RequestResult] {
        var results: [RequestResult] = []
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == 10 }
                results = try await client.results(10)
                // The first connection has closed, another takes over.
                let answers = try await client.results(5)
                #expect(answers == .delivered(5))
                try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) == 1 }
                #expect(try await client.ask { $0.usableConnections } == 1)
            }
            #expect(peer.seen.withLockedValue(\.connections) == 2)
        }
        return results
    }

    @Test("finishes the streams up to the last one, and those above were not processed")
    func lastStream() async throws {
        let results = try await results(goingAway(lastStream: 9, debugData: #"{"reason":"Shutdown"}"#))
        let expected: [RequestResult] =
            Array(repeating: .delivered, count: 5)
            + Array(repeating: .notProcessed(.goingAway(reason: "Shutdown")), count: 5)
        #expect(results == expected)
    }

    @Test("loses nothing when all its streams lie below the last one")
    func allProcessed() async throws {
        let answers = try await results(goingAway(lastStream: .max))
        #expect(answers == .delivered(10))
    }

    @Test("has processed none when the last stream is 0")
    func noneProcessed() async throws {
        let results = try await results(goingAway(lastStream: 0, debugData: "<html>"))
        #expect(results.allSatisfy { $0 == .notProcessed(.goingAway(reason: nil)) })
    }

    @Test("and then closes leaves those up to the last stream uncertain")
    func hangsUp() async throws {
        let results = try await results(goingAway(lastStream: 9, closes: true))
        for (number, result) in results.enumerated() {
            switch result {
            case .uncertain(.lostWithOthers): #expect(number < 5)
            case .notProcessed(.goingAway(reason: nil)): #expect(number >= 5)
            default: Issue.record("\(number): \(result)")
            }
        }
    }

    @Test("by being closed leaves what was written uncertain, and what is answered answered")
    func lostAfterWriting() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.endsStream, frame.kind == .data else { return }
                connection.streams.append(frame.stream)
                guard connection.streams.count == 3 else { return }
                // The second request has its status, but its body is missing.
                connection.send(.answer(1, status: 200), .answer(3, status: 200, ends: false))
                connection.close()
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == 10 }
                let results = try await client.results(3)
                #expect(Array(results[..<2]) == [.delivered, .delivered])
                guard case .uncertain(.connectionLost(let why)) = results[2] else {
                    Issue.record("\(results[2])")
                    return
                }
                #expect(why.contains("127.0.0.1:\(peer.port)"))
            }
        }
    }

    @Test("before the body could be written has not processed the request")
    func lostBeforeWriting() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings([(3, 10), (4, 0)]))
            case .frame(let frame): if frame.kind == .headers { connection.close() }
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == 10 }
                guard case .notProcessed(.connectionLost) = try await client.send().get() else {
                    Issue.record("not called unprocessed")
                    return
                }
            }
        }
    }

    @Test("because the pool closes finishes requests in flight, and accepts no more")
    func drain() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.endsStream, frame.kind == .data else { return }
                connection.streams.append(frame.stream)
                // The answers wait for a sign that the client is closing: the third request, sent just before.
                guard connection.streams.count == 3 else { return }
                for stream in connection.streams { connection.send(.answer(stream, status: 200)) }
            }
        }
        try await withPeer(script: script) { peer in
            let client = try await PoolClient.start(port: peer.port)
            try await eventually("the settings") { try await client.ask { $0.capacity } == 10 }
            let first = client.send([.example(1), .example(2)])
            try await eventually("two requests") { peer.count(.data) == 2 }
            let last = client.send(.example(3))
            try await client.close()
            for future in first + [last] { try await expect(future, .delivered) }
            try await eventually("a GOAWAY") { peer.count(.goAway) == 1 }
            #expect(try await client.ask { $0.capacity } == 0)
            #expect(try await client.ask { $0.submit(.example(), tag: 99, in: .shared) } == false)
        }
    }

    @Test("because the pool closes at once leaves requests in flight uncertain")
    func closeNow() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            if case .connected = event { connection.send(.settings(maximumStreams: 10)) }
        }
        try await withPeer(script: script) { peer in
            let client = try await PoolClient.start(port: peer.port)
            let future = client.send()
            try await eventually("the request") { peer.count(.data) == 1 }
            try await client.closeNow()
            guard case .uncertain(.connectionLost) = try await future.get() else {
                Issue.record("not called uncertain")
                return
            }
            try await eventually("the end") { peer.seen.withLockedValue(\.ended) == 1 }
        }
    }
}
