import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A connection that ends with GOAWAY", .timeLimit(.minutes(10)))
struct GoAwayTests {
    /// Sends ten requests. The server waits for all of them, and sends GOAWAY on its first connection. Then five requests use the next
    /// connection.
    private func results(
        lastStream: Int32, debugData: String = "", closes: Bool = false
    ) async throws -> [RequestResult] {
        let script = handling(onlyFirst: true) { connection, frame in
            connection.streams.append(frame.stream)
            guard connection.streams.count == 10 else { return }
            connection.send(.goAway(lastStream: lastStream, debugData: debugData))
            if closes { return connection.close() }
            for stream in connection.streams where stream <= lastStream {
                connection.send(.answer(stream, status: 200))
            }
        }
        var results: [RequestResult] = []
        let seen = try await withPool(against: script) { client, peer in
            try await client.waitForSettings()
            results = try await client.results(10)
            #expect(try await client.results(5) == .delivered(5))
            try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) == 1 }
            #expect(try await client.ask { $0.usableConnections } == 1)
        }
        #expect(seen.connections == 2)
        return results
    }

    @Test(
        "finishes the streams up to the last one, and those above were not processed",
        arguments: [(9, #"{"reason":"Shutdown"}"#, 5, "Shutdown"), (.max, "", 10, nil), (0, "<html>", 0, nil)]
            as [(Int32, String, Int, String?)])
    func lastStream(last: Int32, debugData: String, answered: Int, reason: String?) async throws {
        let results = try await results(lastStream: last, debugData: debugData)
        let others = Array(repeating: RequestResult.notProcessed(.goingAway(reason: reason)), count: 10 - answered)
        #expect(results == .delivered(answered) + others)
    }

    @Test("and then closes leaves those up to the last stream uncertain")
    func hangsUp() async throws {
        for (number, result) in try await results(lastStream: 9, closes: true).enumerated() {
            switch result {
            case .uncertain(.lostWithOthers): #expect(number < 5)
            case .notProcessed(.goingAway(reason: nil)): #expect(number >= 5)
            default: Issue.record("\(number): \(result)")
            }
        }
    }

    @Test("because the pool closes finishes requests in flight, and accepts no more")
    func drain() async throws {
        let script = handling { connection, frame in
            connection.streams.append(frame.stream)
            // The server answers only at the third request, which the client sends just before it closes.
            guard connection.streams.count == 3 else { return }
            for stream in connection.streams { connection.send(.answer(stream, status: 200)) }
        }
        try await withPool(against: script) { client, peer in
            try await client.waitForSettings()
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
}
