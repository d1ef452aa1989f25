import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A server that reads nothing more", .serialized, .timeLimit(.minutes(2)))
struct StalledServerTests {
    /// By far more than sockets and buffers hold.
    private static let payload = #"{"aps":{"alert":""# + String(repeating: "x", count: 4000) + #""}}"#
    private static let count = 4000

    /// The first connection grants windows for everything, and reads nothing after the first request. If `isAlive`, it
    /// continues to send, a little at a time, as fast as `ticks` are requested.
    private func script(_ connections: NIOLockedValueBox<[NIOLoopBound<PeerConnection>]>) -> ScriptedPeer.Script {
        { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            switch event {
            case .connected:
                // Many streams, and windows of 1 GiB: flow control should not block anything.
                connection.send(
                    .settings([(3, UInt32(Self.count)), (4, 1 << 30)]),
                    HTTP2Frame(kind: .windowUpdate, payload: [0x3F, 0, 0, 0]))
            case .frame(let frame):
                guard frame.kind == .headers else { return }
                connection.stopReading()
                connections.withLockedValue { $0 += connection.bound().map { [$0] } ?? [] }
            }
        }
    }

    @Test("is disconnected although it keeps sending, and requests that it cannot have received were not processed")
    func stalled() async throws {
        let connections = NIOLockedValueBox<[NIOLoopBound<PeerConnection>]>([])
        try await withPeer(script: script(connections)) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.maximumStreams = Self.count
                configuration.stallTimeout = .milliseconds(500)
                configuration.pingAfter = .milliseconds(200)
                configuration.requestTimeout = .hours(1)
            }
            try await withPool(port: peer.port, limits) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == Self.count }
                let futures = client.send((0..<Self.count).map { .example($0, payload: Self.payload) })
                let ended = NIOLockedValueBox(false)
                EventLoopFuture.andAllComplete(futures, on: client.eventLoop).whenComplete { _ in
                    ended.withLockedValue { $0 = true }
                }
                try await eventually("the end of all") {
                    for connection in connections.withLockedValue({ $0 }) {
                        // Bytes other than the PING's answer.
                        connection.eventLoop.execute {
                            connection.value.send(HTTP2Frame(kind: .windowUpdate, payload: [0, 0, 0, 1]))
                        }
                    }
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
                // In total 32 MB: bytes that could not be written do not count as written.
                #expect(uncertain > 0)
                #expect(unprocessed > 0)
                try await expect(client.send(), .delivered)
            }
        }
    }

    @Test("ends its requests at the first deadline, each with the right result")
    func deadline() async throws {
        let connections = NIOLockedValueBox<[NIOLoopBound<PeerConnection>]>([])
        try await withPeer(script: script(connections)) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.maximumStreams = Self.count
                configuration.stallTimeout = .hours(1)
                configuration.pingAfter = .hours(1)
                configuration.requestTimeout = .milliseconds(500)
            }
            try await withPool(port: peer.port, limits) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == Self.count }
                var (uncertain, unprocessed) = (0, 0)
                for future in client.send((0..<Self.count).map({ .example($0, payload: Self.payload) })) {
                    switch try await future.get() {
                    case .uncertain(.timedOut): uncertain += 1
                    case .notProcessed(.timedOut), .notProcessed(.unresponsive): unprocessed += 1
                    case let other: Issue.record("\(other)")
                    }
                }
                #expect(uncertain > 0)
                #expect(unprocessed > 0)
                #expect(try await client.ask { $0.inFlight } == 0)
                #expect(try await client.ask { $0.connections.all.allSatisfy { $0.session.pendingCancels == 0 } })
                // Nothing more is sent on a connection whose peer reads nothing.
                try await expect(client.send(), .delivered)
                #expect(peer.seen.withLockedValue(\.connections) == 2)
            }
        }
    }

    @Test("and reads again later gets everything, in order")
    func resumes() async throws {
        let connections = NIOLockedValueBox<[NIOLoopBound<PeerConnection>]>([])
        let stalls = script(connections)
        let script: ScriptedPeer.Script = { connection, event in
            // Stops reading only once, at the first request.
            if case .frame(let frame) = event, frame.stream != 1 || frame.kind == .data {
                return answersAll(connection, event)
            }
            stalls(connection, event)
        }
        try await withPeer(script: script) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.maximumStreams = Self.count
                configuration.stallTimeout = .hours(1)
                configuration.pingAfter = .hours(1)
                configuration.requestTimeout = .hours(1)
            }
            try await withPool(port: peer.port, limits) { client in
                try await eventually("the settings") { try await client.ask { $0.capacity } == Self.count }
                let futures = client.send((0..<Self.count).map { .example($0, payload: Self.payload) })
                try await eventually("nothing more can be written") {
                    try await client.ask { $0.connections.all[0].context?.channel.isWritable == false }
                }
                try await eventually("nothing more is read") { !connections.withLockedValue(\.isEmpty) }
                let connection = try #require(connections.withLockedValue { $0 }.first)
                connection.eventLoop.execute { connection.value.goOnReading() }
                for future in futures { try await expect(future, .delivered) }
                #expect(try await client.ask { $0.capacity } == Self.count)
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }
}
