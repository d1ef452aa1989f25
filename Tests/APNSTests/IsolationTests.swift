import NIOCore
import TestSupport
import Testing

@testable import APNS

/// The server closes the connection when it reads a certain payload, like a proxy with rules.
@Suite("Isolated notifications", .timeLimit(.minutes(10)))
struct IsolationTests {
    private static let poison = Notification.example(payload: String(repeating: "x", count: 666))

    /// Answers each request, and closes the connection at the poison.
    private static let cutting = handling(streams: 100) { connection, frame in
        guard frame.payload.count != 666 else { return connection.close() }
        connection.send(.answer(frame.stream, status: 200))
    }

    @Test(
        "share no connection with the others, and few or none with each other",
        arguments: [(Isolation.withFew, 32), (.alone, 1)])
    func connections(isolation: Isolation, streams: Int) async throws {
        try await withPool(against: handling(streams: 100), { $0.maximumConnections = 2 }) { client, peer in
            try await client.waitForSettings(100)
            #expect(try await client.ask { $0.capacity(in: isolation) } == 0)
            let requests = client.send((0..<100).map { .example($0) }, in: isolation)
            // The app has at most two connections, and so has each isolation.
            try await eventually("requests") { peer.count(.data) == streams * 2 }
            #expect(try await client.ask { [$0.capacity, $0.statistics.streamsInUse] } == [100, streams * 2])
            #expect(peer.seen.withLockedValue(\.connections) == 3)
            try await client.closeNow()
            for request in requests[..<streams] {
                switch (isolation, try await request.get()) {
                case (.alone, .uncertain(.connectionLost)), (.withFew, .uncertain(.lostWithOthers)): break
                case (_, let result): throw Unexpected(result)
                }
            }
            try await eventually("the ends") { peer.seen.withLockedValue(\.ended) == 3 }
        }
    }

    @Test("that cut their connection leave the others undisturbed, and connections are made again at once")
    func cut() async throws {
        try await withPool(against: Self.cutting) { client, _ in
            try await client.waitForSettings(100)
            try await expect(client.send(), .delivered)
            // Only the loss of a connection opens the next one.
            for isolation in Isolation.allCases {
                for _ in 0..<5 {
                    let requests = client.send([.example(1), .example(2), Self.poison], in: isolation)
                    let last = try await requests[2].get()
                    guard case .uncertain(let failure) = last else { throw Unexpected(last) }
                    #expect("\(failure)".contains("connection was lost"))
                    try await expect(client.send(), .delivered)
                }
            }
            #expect(client.log.lines(of: "apns_connection_failed").isEmpty)
        }
    }
}
