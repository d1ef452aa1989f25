import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import APNS

@Suite("Connecting to APNs", .timeLimit(.minutes(2)))
struct ReconnectTests {
    @Test("is repeated while no server listens, one attempt at a time, and then works")
    func refused() async throws {
        // A port that was free a moment ago.
        let closed = try await ScriptedPeer.start(script: answersAll)
        let port = closed.port
        try await closed.stop()
        try await withPool(port: port) { client in
            let future = client.send()
            try await eventually("three failures") { try await client.ask { $0.connections.state.failures } >= 3 }
            #expect(try await client.ask { $0.connections.state.connecting } <= 1)
            #expect(try await client.ask { "\($0.lastFailure, default: "none")" }.contains("127.0.0.1:\(port)"))
            #expect(client.log.lines(of: "apns_connection_failed").count == 1)
            let peer = try await ScriptedPeer.start(port: port, script: answersAll)
            try await expect(future, .delivered)
            #expect(try await client.ask { $0.lastFailure == nil })
            #expect(peer.seen.withLockedValue(\.connections) == 1)
            #expect(client.log.lines(of: "apns_connection_restored").count == 1)
            try await peer.stop()
        }
    }

    @Test("counts each attempt that fails once")
    func countedOnce() async throws {
        let closed = try await ScriptedPeer.start(script: answersAll)
        try await closed.stop()
        try await withPool(port: closed.port) { client in
            for _ in 0..<3 {
                try await eventually("no attempt under way") {
                    try await client.ask { $0.connections.state.connecting } == 0
                }
                let before = try await client.ask { $0.connections.state.failures }
                try await eventually("a failure") { try await client.ask { $0.connections.state.failures } > before }
                #expect(try await client.ask { $0.connections.state.failures } == before + 1)
                #expect(try await client.ask { $0.connections.state.connecting } >= 0)
            }
        }
    }

    @Test("uses the host's next address when the first does not answer")
    func nextAddress() async throws {
        try await withPeer(script: answersAll) { peer in
            // The server has no IPv6 address; the name has both, IPv6 first.
            try await withPool(host: "localhost", port: peer.port, { $0.resolver = BothAddresses() }) { client in
                let answers = try await client.results(3)
                #expect(answers == .delivered(3))
                #expect(try await client.ask { $0.connections.state.failures } == 0)
                #expect(try await client.ask { $0.connections.state.connecting } == 0)
                #expect(try await client.ask { $0.usableConnections } == 1)
            }
        }
    }

    @Test(
        "does not hammer a server that accepts and closes at once",
        arguments: [ScriptedPeer.Transport.tls, .hangsUp])
    func acceptsAndCloses(transport: ScriptedPeer.Transport) async throws {
        let script: ScriptedPeer.Script = { connection, event in
            if case .connected = event { connection.close() }
        }
        try await withPeer(transport: transport, script: script) { peer in
            try await withPool(port: peer.port, { $0.minimumConnections = 2 }) { client in
                let start = ContinuousClock.now
                try await eventually("four failures") { try await client.ask { $0.connections.state.failures } >= 4 }
                let connections = peer.seen.withLockedValue(\.connections)
                // The pauses before the third, fourth and fifth attempts are at least 50, 100 and 200 ms; the two
                // initial connections are opened together.
                #expect(ContinuousClock.now - start > .milliseconds(50))
                #expect(connections <= 5)
                #expect(try await client.ask { $0.connections.state.connecting } <= 1)
            }
        }
    }

    @Test("does not hammer a server that sends GOAWAY at once")
    func goAwayAtOnce() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            guard case .connected = event else { return }
            connection.send(.settings(), .goAway(lastStream: 0, debugData: #"{"reason":"BadCertificate"}"#))
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                try await eventually("three failures") { try await client.ask { $0.connections.state.failures } >= 3 }
                #expect(peer.seen.withLockedValue(\.connections) <= 5)
                #expect(try await client.ask { "\($0.lastFailure, default: "none")" }.contains("BadCertificate"))
            }
        }
    }

    @Test("opens a new connection at once when a working one ends")
    func workedAndEnded() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.kind == .data else { return }
                // Each connection answers one request. In one write, so that no second request can arrive in between.
                connection.send(.answer(frame.stream, status: 200), .goAway(lastStream: frame.stream))
                connection.close()
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                for number in 0..<10 { try await expect(client.send(.example(number)), .delivered) }
                #expect(try await client.ask { $0.connections.state.failures } == 0)
            }
            #expect(peer.seen.withLockedValue { $0.frames(.headers).map(\.stream) } == Array(repeating: 1, count: 10))
        }
    }

    @Test("fails with advice when the server does not support HTTP/2")
    func noHTTP2() async throws {
        try await withPeer(protocols: []) { peer in
            try await withPool(port: peer.port) { client in
                try await eventually("a failure") { try await client.ask { $0.lastFailure != nil } }
                let failure = try await client.ask { "\($0.lastFailure, default: "none")" }
                #expect(failure.contains("did not agree to HTTP/2"))
                #expect(failure.contains("127.0.0.1:\(peer.port)"))
            }
        }
    }

    @Test("fails when the server's certificate is not to be trusted")
    func untrusted() async throws {
        try await withPeer(script: answersAll) { peer in
            try await withPool(port: peer.port, trusted: "other-ca.pem") { client in
                try await eventually("two failures") { try await client.ask { $0.connections.state.failures } >= 2 }
                let failure = try await client.ask { "\($0.lastFailure, default: "none")" }
                #expect(failure.contains("certificate"), "\(failure)")
                #expect(try await client.ask { $0.usableConnections } == 0)
            }
            #expect(peer.count(.headers) == 0)
        }
    }

    @Test("gives up on a server that accepts and never answers TLS")
    func silentTLS() async throws {
        try await withPeer(transport: .staysSilent) { peer in
            try await withPool(port: peer.port, { $0.connectTimeout = .milliseconds(200) }) { client in
                try await eventually("a failure") { try await client.ask { $0.connections.state.failures } >= 1 }
                let failure = try await client.ask { "\($0.lastFailure, default: "none")" }
                #expect(failure.contains("TLS was not set up within 200 ms"), "\(failure)")
            }
        }
    }

    @Test("ends when the pool is closed", arguments: [true, false])
    func closedWhileConnecting(atOnce: Bool) async throws {
        try await withPeer(transport: .staysSilent) { peer in
            let client = try await PoolClient.start(port: peer.port)
            try await eventually("an attempt") { try await client.ask { $0.connections.state.connecting } == 1 }
            if atOnce { try await client.closeNow() } else { try await client.close() }
            #expect(try await client.ask { $0.connections.state.connecting } == 0)
            try await eventually("the end") { peer.seen.withLockedValue { $0.connections == $0.ended } }
        }
    }

    @Test("ends when the pool is closed in the same turn of the event loop", arguments: [true, false])
    func closedWhileConnectingTCP(atOnce: Bool) async throws {
        try await withPeer(script: answersAll) { peer in
            let client = try await PoolClient.start(port: peer.port, ticks: false)
            _ = try await client.ask { pool in
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
        let script: ScriptedPeer.Script = { connection, event in
            if case .connected = event { connection.send(.settings(maximumStreams: 2)) }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port, { $0.maximumConnections = 3 }) { client in
                _ = client.send((0..<7).map { .example($0) })
                try await eventually("six requests") { peer.count(.headers) == 6 }
                #expect(try await client.ask { $0.usableConnections } == 3)
                #expect(try await client.ask { $0.inFlight } == 6)
                #expect(try await client.ask { $0.capacity } == 0)
                #expect(peer.seen.withLockedValue(\.connections) == 3)
            }
        }
    }
}

/// A name with an IPv6 and an IPv4 address.
private final class BothAddresses: Resolver, Sendable {
    private let eventLoop = MultiThreadedEventLoopGroup.singleton.next()

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeCompletedFuture { [try SocketAddress(ipAddress: "::1", port: port)] }
    }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeCompletedFuture { [try SocketAddress(ipAddress: "127.0.0.1", port: port)] }
    }

    func cancelQueries() {}
}
