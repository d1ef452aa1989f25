import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("Connecting to APNs", .timeLimit(.minutes(10)))
struct ReconnectTests {
    @Test("is repeated while no server listens, one attempt at a time, each counted once, and then works")
    func refused() async throws {
        // A port that was free a moment ago.
        let closed = try await ScriptedPeer.start(script: answersAll)
        let port = closed.port
        try await closed.stop()
        try await withPool(port: port) { client in
            let future = client.send()
            for _ in 0..<3 {
                try await eventually("no attempt under way") {
                    try await client.ask { $0.connections.state.connecting } == 0
                }
                let before = try await client.failures()
                try await eventually("a failure") { try await client.failures() > before }
                #expect(try await client.failures() == before + 1)
                #expect((0...1).contains(try await client.ask { $0.connections.state.connecting }))
            }
            #expect(try await client.lastFailure().contains("127.0.0.1:\(port)"))
            #expect(client.log.lines(of: "apns_connection_failed").count == 1)
            let peer = try await ScriptedPeer.start(port: port, script: answersAll)
            try await expect(future, .delivered)
            #expect(try await client.ask { $0.lastFailure == nil })
            #expect(peer.seen.withLockedValue(\.connections) == 1)
            #expect(client.log.lines(of: "apns_connection_restored").count == 1)
            try await peer.stop()
        }
    }

    @Test(
        "is repeated with one connection after two that were opened together were closed at once",
        arguments: [ScriptedPeer.Transport.tls, .hangsUp])
    func acceptsAndCloses(transport: ScriptedPeer.Transport) async throws {
        let script: ScriptedPeer.Script = { connection, event in if case .connected = event { connection.close() } }
        try await withPool(against: script, transport: transport, { $0.minimumConnections = 2 }) { client, peer in
            let start = ContinuousClock.now
            try await eventually("four failures") { try await client.failures() >= 4 }
            let connections = peer.seen.withLockedValue(\.connections)
            // The pauses before the third, fourth and fifth attempts are at least 50, 100 and 200 ms.
            #expect(ContinuousClock.now - start > .milliseconds(50))
            #expect(connections <= 5)
            #expect(try await client.ask { $0.connections.state.connecting } <= 1)
        }
    }

    @Test("opens a new connection at once when a working one ends")
    func workedAndEnded() async throws {
        let script = handling { connection, frame in
            // Each connection answers one request, in one write with the GOAWAY, so that no second request can arrive in between.
            connection.send(.answer(frame.stream, status: 200), .goAway(lastStream: frame.stream))
            connection.close()
        }
        let seen = try await withPool(against: script) { client, _ in
            for number in 0..<10 { try await expect(client.send(.example(number)), .delivered) }
            #expect(try await client.failures() == 0)
        }
        #expect(seen.frames(.headers).map(\.stream) == Array(repeating: 1, count: 10))
    }

    enum Obstacle { case noHTTP2, untrustedCertificate, silentTLS }

    @Test(
        "fails with the reason, and sends no request",
        arguments: [
            (Obstacle.noHTTP2, "did not agree to HTTP/2"), (.untrustedCertificate, "certificate"),
            (.silentTLS, "TLS was not set up within 200 ms"),
        ])
    func fails(obstacle: Obstacle, says: String) async throws {
        let seen = try await withPool(
            against: answersAll, protocols: obstacle == .noHTTP2 ? [] : ["h2"],
            transport: obstacle == .silentTLS ? .staysSilent : .tls,
            trusted: obstacle == .untrustedCertificate ? "other-ca.pem" : "ca.pem",
            { if obstacle == .silentTLS { $0.connectTimeout = .milliseconds(200) } }
        ) { client, peer in
            try await eventually("two failures") { try await client.failures() >= 2 }
            let failure = try await client.lastFailure()
            #expect(failure.contains(says), "\(failure)")
            #expect(obstacle != .noHTTP2 || failure.contains("127.0.0.1:\(peer.port)"), "\(failure)")
            #expect(try await client.ask { $0.usableConnections } == 0)
        }
        #expect(seen.frames(.headers).isEmpty)
    }

    @Test("ends when the pool is closed", arguments: [true, false])
    func closedWhileConnecting(atOnce: Bool) async throws {
        try await withPool(against: answersAll, transport: .staysSilent) { client, peer in
            try await eventually("an attempt") { try await client.ask { $0.connections.state.connecting } == 1 }
            if atOnce { try await client.closeNow() } else { try await client.close() }
            #expect(try await client.ask { $0.connections.state.connecting } == 0)
            try await eventually("the end") { peer.seen.withLockedValue { $0.connections == $0.ended } }
        }
    }

    @Test("ends when the pool is closed in the same turn of the event loop", arguments: [true, false])
    func closedWhileConnectingTCP(atOnce: Bool) async throws {
        try await withPool(against: answersAll, ticks: false) { client, peer in
            try await client.ask { pool in
                pool.check(now: .now())
                _ = pool.close()
                if atOnce { pool.closeNow() }
            }
            try await client.close()
            #expect(try await client.ask { $0.connections.state.connecting } == 0)
            try await eventually("the end") { peer.seen.withLockedValue { $0.connections == $0.ended } }
        }
    }

    @Test("opens further connections while streams are wanted, up to the maximum, and shares among them")
    func furtherConnections() async throws {
        let seen = try await withPool(against: handling(streams: 2), { $0.maximumConnections = 3 }) { client, peer in
            _ = client.send((0..<7).map { .example($0) })
            try await eventually("six requests") { peer.count(.headers) == 6 }
            #expect(try await client.ask { [$0.usableConnections, $0.inFlight, $0.capacity] } == [3, 6, 0])
        }
        #expect(seen.connections == 3)
    }
}
