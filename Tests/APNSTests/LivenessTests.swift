import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A silent server", .timeLimit(.minutes(10)))
struct LivenessTests {
    @Test("that answers PINGs keeps its connection")
    func answers() async throws {
        let seen = try await withPool(against: Self.alive, { $0.idlePingAfter = .milliseconds(50) }) { client, peer in
            try await eventually("five PINGs") { peer.count(.ping) >= 5 }
            try await expect(client.send(), .delivered)
        }
        #expect(seen.connections == 1)
    }

    /// Answers all requests and PINGs.
    private static let alive: ScriptedPeer.Script = { connection, event in
        answersAll(connection, event)
        guard case .frame(var frame) = event, frame.kind == .ping, frame.flags == 0 else { return }
        frame.flags = HTTP2Frame.acknowledgement
        connection.send(frame)
    }

    @Test("is not concluded from a time in which the process stood still: what has arrived is read first")
    func standstill() async throws {
        let seen = try await withPool(
            against: handling(streams: 100), ticks: false, { $0.requestTimeout = .seconds(5) }
        ) { client, peer in
            try await client.check()
            try await client.waitForSettings(100)
            let futures = client.send((0..<80).map { .example($0) })
            try await eventually("the requests") { peer.count(.data) == 80 }
            // As if the process had stood still for a minute: the answers to PINGs and requests, and WINDOW_UPDATEs, look late.
            let inFlight = try await client.ask { pool in
                let later = NIODeadline.now() + .minutes(1)
                pool.check(now: .now())
                pool.stoodStill(for: .minutes(1), now: later)
                pool.check(now: later)
                pool.check(now: later + .milliseconds(100))
                return pool.answerState == .answered ? pool.statistics.streamsInUse : -1
            }
            #expect(inFlight == 80)
            let requests = peer.seen.withLockedValue { $0.frames(.data) }
            peer.on(1) { connection in for request in requests { answersAll(connection, .frame(request)) } }
            for future in futures { try await expect(future, .delivered) }
        }
        #expect(seen.connections == 1)
    }

    @Test("that does not answer a PING loses its connection, and its requests may have been processed")
    func doesNotAnswer() async throws {
        // The connection of the first request stops answering.
        let silent = NIOLockedValueBox<Int?>(nil)
        let script: ScriptedPeer.Script = { connection, event in
            if case .frame(let frame) = event, frame.kind == .headers {
                silent.withLockedValue { $0 = $0 ?? connection.number }
            }
            if silent.withLockedValue({ $0 }) != connection.number { Self.alive(connection, event) }
        }
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.pingAfter = .milliseconds(100)
            configuration.pingTimeout = .milliseconds(1500)
        }
        let seen = try await withPool(against: script, limits) { client, _ in
            let result = try await client.send().get()
            guard case .uncertain(.connectionLost(let why)) = result else { throw Unexpected(result) }
            #expect(why.contains("did not answer a PING within 1500 ms"))
            try await expect(client.send(), .delivered)
        }
        #expect(!seen.frames(.ping).isEmpty)
    }

    @Test(
        "that a NAT has forgotten while the connection was idle is left after a moment, and its requests are returned")
    func stale() async throws {
        // Nothing passes through idle connections. New ones work.
        let isForgotten = NIOLockedValueBox(false)
        let script: ScriptedPeer.Script = { connection, event in
            if connection.number <= 2, isForgotten.withLockedValue({ $0 }) { return }
            answersAll(connection, event)
        }
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.minimumConnections = 2
            configuration.wakeAfter = .milliseconds(300)
            configuration.wakeTimeout = .milliseconds(300)
        }
        let seen = try await withPool(against: script, limits) { client, _ in
            try await expect(client.send(), .delivered)
            try await eventually("two connections") { try await client.ask { $0.usableConnections } == 2 }
            isForgotten.withLockedValue { $0 = true }
            try await Task.sleep(for: .milliseconds(500))
            for request in client.send([.example(1), .example(2)]) {
                let result = try await request.get()
                guard case .uncertain(.stale(let why)) = result else { throw Unexpected(result) }
                #expect(why.contains("PING"))
            }
            // Both idle connections are closed, so the request needs a new one.
            try await eventually("a connection") { try await client.ask { $0.capacity } > 0 }
            try await expect(client.send(), .delivered)
            #expect(try await client.ask { $0.answerState } == .answered)
            #expect(client.log.lines(of: "apns_connection_failed").isEmpty)
        }
        #expect(seen.connections > 2)
    }

    @Test("that never sends its SETTINGS gets no request, and is replaced by another connection")
    func noSettings() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            if connection.number > 2 { answersAll(connection, event) }
        }
        try await withPool(against: script, { $0.settingsTimeout = .milliseconds(200) }) { client, peer in
            let future = client.send()
            try await eventually("a failure") { try await client.ask { $0.lastFailure != nil } }
            let failure = try await client.lastFailure()
            #expect(failure.contains("sent no HTTP/2 SETTINGS within 200 ms"), "\(failure)")
            #expect(try await client.ask { $0.usableConnections } == 0)
            #expect(peer.count(.headers) == 0)
            try await expect(future, .delivered)
            #expect(try await client.ask { $0.failureCounts } == ["Unresponsive": 2])
            #expect(client.log.lines(of: "apns_connection_failed").count == 1)
        }
    }
}
