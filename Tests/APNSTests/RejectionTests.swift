import NIOCore
import TestSupport
import Testing

@testable import APNS

/// The pool's clock does not run by itself: the test decides when the next attempt is due.
@Suite("A server that accepts and closes", .timeLimit(.minutes(10)))
struct RejectionTests {
    struct Manner: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var transport = ScriptedPeer.Transport.tls
        var script: ScriptedPeer.Script = { _, _ in }
        var says: String
    }

    private static func onConnect(_ body: @escaping @Sendable (PeerConnection) -> Void) -> ScriptedPeer.Script {
        { connection, event in if case .connected = event { body(connection) } }
    }

    private static let noHTTP2 =
        "set up TLS and closed the connection before any HTTP/2; it may not accept the client certificate"
    private static let noAnswer = "closed the connection at the first request, without an answer"

    static let manners = [
        Manner(testDescription: "TCP", transport: .hangsUp, says: "during the handshake"),
        Manner(testDescription: "TLS", script: onConnect { $0.close() }, says: noHTTP2),
        Manner(testDescription: "TLS, and TCP without goodbye", script: onConnect { $0.hangUp() }, says: noHTTP2),
        Manner(
            testDescription: "the first request, without goodbye",
            script: handling { connection, _ in connection.hangUp() },
            says: noAnswer),
        Manner(
            testDescription: "the first request", script: handling { connection, _ in connection.close() },
            says: noAnswer),
        Manner(
            testDescription: "TLS with a GOAWAY",
            script: onConnect {
                $0.send(.settings(), .goAway(lastStream: 0, debugData: #"{"reason":"BadCertificate"}"#))
            }, says: "closed the connection (BadCertificate)"),
        Manner(
            testDescription: "TLS with a GOAWAY without a reason",
            script: onConnect { $0.send(.settings(), .goAway(lastStream: 0)) }, says: "closed the connection (GOAWAY)"),
        Manner(
            testDescription: "the first request with a GOAWAY",
            script: handling { connection, _ in
                connection.send(.goAway(lastStream: 0, debugData: #"{"reason":"BadEnvironment"}"#))
                connection.close()
            }, says: "closed the connection (BadEnvironment)"),
    ]

    @Test("is reported as such, retried after growing pauses, and treated normally once it works", arguments: manners)
    func rejected(manner: Manner) async throws {
        let failures = 12
        let script: ScriptedPeer.Script = { connection, event in
            if connection.number <= failures { manner.script(connection, event) } else { answersAll(connection, event) }
        }
        // A peer that closes before TLS has no script. A good server replaces it afterwards.
        let isPlain = manner.transport == .hangsUp
        let peer = try await ScriptedPeer.start(transport: manner.transport, script: script)
        let client = try await PoolClient.start(port: peer.port, ticks: false) {
            $0.pingAfter = .hours(1000)
            $0.idlePingAfter = .hours(1000)
            $0.requestTimeout = .hours(1000)
            // The pauses are so long that the real clock does not matter.
            $0.reconnect.first = .hours(1)
            $0.reconnect.longest = .hours(100)
        }
        let now = NIODeadline.now()
        try await client.check(now)
        for count in 1...failures {
            // A notification for peers that close only after the first request.
            let sent = client.send()
            sent.whenComplete { _ in }
            try await eventually("failure \(count)") { try await client.failures() == count }
            let ceiling = TimeAmount.hours(Int64(min(1 << (count - 1), 100)))
            let (pause, notBefore) = try await client.ask {
                ($0.connections.state.pause, $0.connections.state.notBefore)
            }
            #expect(pause.nanoseconds >= ceiling.nanoseconds / 10 && pause <= ceiling)
            let failure = try await client.lastFailure()
            #expect(failure.contains(manner.says) && failure.contains("127.0.0.1"), "\(failure)")
            // Before that time, nothing causes an attempt: neither time nor a new request.
            try await client.check(notBefore - .nanoseconds(1))
            #expect(try await client.ask { $0.connections.state.connecting } == 0)
            #expect(peer.seen.withLockedValue(\.connections) == count)
            if isPlain, count == failures { break }
            try await client.check(notBefore)
        }
        #expect(client.log.lines(of: "apns_connection_failed").count == 1)
        var good: ScriptedPeer?
        if isPlain {
            try await peer.stop()
            good = try await ScriptedPeer.start(port: peer.port, script: answersAll)
            _ = try await client.ask { $0.check(now: $0.connections.state.notBefore) }
        }
        try await expect(client.send(), .delivered)
        #expect(try await client.ask { $0.lastFailure == nil && $0.connections.state.failures == 0 })
        try await client.closeNow()
        if let good { try await good.stop() } else { try await peer.stop() }
    }
}
