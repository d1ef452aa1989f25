import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A server that reads nothing more", .serialized, .timeLimit(.minutes(10)))
struct StalledServerTests {
    /// Together, the payloads are much more than sockets and buffers hold.
    private static let payload = #"{"aps":{"alert":""# + String(repeating: "x", count: 4000) + #""}}"#
    private static let count = 4000

    /// The first connection grants windows for everything, and reads nothing after the first request.
    private static let stalls: ScriptedPeer.Script = { connection, event in
        guard connection.number == 1 else { return answersAll(connection, event) }
        switch event {
        case .connected:
            // Many streams, and windows of 1 GiB, so that flow control blocks nothing.
            connection.send(.settings([(3, UInt32(count)), (4, 1 << 30)]), .windowUpdate(by: 0x3F00_0000))
        case .frame(let frame): if frame.kind == .headers { connection.stopReading() }
        }
    }

    /// Sends the requests with a pool whose timeouts are hours, except those that a test changes.
    @discardableResult
    private func withRequests(
        _ script: @escaping ScriptedPeer.Script,
        _ change: @escaping @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
        _ body: (PoolClient, ScriptedPeer, [EventLoopFuture<RequestResult>]) async throws -> Void
    ) async throws -> ScriptedPeer.Seen {
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.maximumStreams = Self.count
            configuration.stallTimeout = .hours(1)
            configuration.pingAfter = .hours(1)
            configuration.requestTimeout = .hours(1)
            change(&configuration)
        }
        return try await withPool(against: script, limits) { client, peer in
            try await client.waitForSettings(Self.count)
            try await body(client, peer, client.send((0..<Self.count).map { .example($0, payload: Self.payload) }))
        }
    }

    @Test("is disconnected although it keeps sending, and requests that it cannot have received were not processed")
    func stalled() async throws {
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.stallTimeout = .milliseconds(500)
            configuration.pingAfter = .milliseconds(200)
        }
        try await withRequests(Self.stalls, limits) { client, peer, futures in
            let ended = NIOLockedValueBox(false)
            EventLoopFuture.andAllComplete(futures, on: client.eventLoop).whenComplete { _ in
                ended.withLockedValue { $0 = true }
            }
            try await eventually("the end of all") {
                // The server sends something, but does not answer the PING.
                peer.on(1) { $0.send(.windowUpdate(by: 1)) }
                return ended.withLockedValue { $0 }
            }
            var (uncertain, unprocessed) = (0, 0)
            for future in futures {
                switch try await future.get() {
                case .uncertain(.lostWithOthers(let why)):
                    uncertain += 1
                    #expect(why.contains("has read nothing for 500 ms"), "\(why)")
                case .notProcessed(.connectionLost): unprocessed += 1
                case let other: Issue.record("\(other)")
                }
            }
            // Some of the 32 MB could not be written, and must not count as written.
            #expect(uncertain > 0 && unprocessed > 0, "\(uncertain), \(unprocessed)")
            try await expect(client.send(), .delivered)
        }
    }

    @Test("ends its requests at the first deadline, each with the right result")
    func deadline() async throws {
        let seen = try await withRequests(Self.stalls, { $0.requestTimeout = .milliseconds(500) }) {
            client, _, futures in
            var (uncertain, unprocessed) = (0, 0)
            for future in futures {
                switch try await future.get() {
                case .uncertain(.timedOut): uncertain += 1
                case .notProcessed(.timedOut), .notProcessed(.unresponsive): unprocessed += 1
                case let other: Issue.record("\(other)")
                }
            }
            #expect(uncertain > 0 && unprocessed > 0, "\(uncertain), \(unprocessed)")
            #expect(try await client.ask { $0.inFlight } == 0)
            #expect(try await client.ask { $0.connections.all.allSatisfy { $0.session.pendingCancels == 0 } })
            // Nothing more is sent on a connection whose peer reads nothing.
            try await expect(client.send(), .delivered)
        }
        #expect(seen.connections == 2)
    }

    @Test("and reads again later gets everything, in order")
    func resumes() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            // Stops reading only once, at the first request.
            if case .frame(let frame) = event, frame.stream != 1 || frame.kind == .data {
                return answersAll(connection, event)
            }
            Self.stalls(connection, event)
        }
        let seen = try await withRequests(script) { client, peer, futures in
            try await eventually("nothing more can be written") {
                try await client.ask { $0.connections.all[0].context?.channel.isWritable == false }
            }
            try await eventually("nothing more is read") { peer.count(.headers) > 0 }
            peer.on(1) { $0.goOnReading() }
            for future in futures { try await expect(future, .delivered) }
            #expect(try await client.ask { $0.capacity } == Self.count)
        }
        #expect(seen.connections == 1)
    }
}
