import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A silent server", .timeLimit(.minutes(2)))
struct LivenessTests {
    @Test("that answers PINGs keeps its connection")
    func answers() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            answersAll(connection, event)
            if case .frame(let frame) = event, frame.kind == .ping, frame.flags == 0 {
                var pong = frame
                pong.flags = HTTP2Frame.acknowledgement
                connection.send(pong)
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port, { $0.idlePingAfter = .milliseconds(50) }) { client in
                try await eventually("five PINGs") { peer.count(.ping) >= 5 }
                try await expect(client.send(), .delivered)
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("is not concluded from a time in which the process stood still: what has arrived is read first")
    func standstill() async throws {
        // The connection, and the requests that it answers later.
        let held = NIOLockedValueBox<(connection: NIOLoopBound<PeerConnection>?, requests: [HTTP2Frame])>((nil, []))
        let script: ScriptedPeer.Script = { connection, event in
            guard case .frame(let frame) = event, frame.kind == .data else { return answersAll(connection, event) }
            held.withLockedValue {
                $0.connection = connection.bound()
                $0.requests.append(frame)
            }
        }
        try await withPeer(script: script) { peer in
            let client = try await PoolClient.start(port: peer.port, ticks: false) {
                $0.requestTimeout = .seconds(5)
            }
            try await client.closingAfter { client in
                try await eventually("the settings") {
                    try await client.ask { pool in
                        pool.check(now: .now())
                        return pool.capacity > 0
                    }
                }
                let futures = client.send((0..<80).map { .example($0) })
                try await eventually("the requests") { held.withLockedValue { $0.requests.count } == 80 }
                // A minute in which nothing was read: PINGs, windows and deadlines are overdue.
                let inFlight = try await client.ask { pool in
                    let later = NIODeadline.now() + .minutes(1)
                    pool.check(now: .now())
                    pool.stoodStill(for: .minutes(1), now: later)
                    pool.check(now: later)
                    pool.check(now: later + .milliseconds(100))
                    return pool.answerState == .answered ? pool.statistics.streamsInUse : -1
                }
                #expect(inFlight == 80)
                let known = held.withLockedValue(\.connection)
                let connection = try #require(known)
                connection.eventLoop.execute {
                    for request in held.withLockedValue(\.requests) { answersAll(connection.value, .frame(request)) }
                }
                for future in futures { try await expect(future, .delivered) }
                #expect(peer.seen.withLockedValue(\.connections) == 1)
            }
        }
    }

    @Test("that does not answer a PING loses its connection, and its requests may have been processed")
    func doesNotAnswer() async throws {
        // The connection that gets the first request stops answering then.
        let silent = NIOLockedValueBox<Int?>(nil)
        let script: ScriptedPeer.Script = { connection, event in
            if case .frame(let frame) = event, frame.kind == .headers {
                silent.withLockedValue { $0 = $0 ?? connection.number }
            }
            guard silent.withLockedValue({ $0 }) != connection.number else { return }
            answersAll(connection, event)
            if case .frame(let frame) = event, frame.kind == .ping, frame.flags == 0 {
                var pong = frame
                pong.flags = HTTP2Frame.acknowledgement
                connection.send(pong)
            }
        }
        try await withPeer(script: script) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.pingAfter = .milliseconds(100)
                configuration.pingTimeout = .milliseconds(1500)
            }
            try await withPool(port: peer.port, limits) { client in
                guard case .uncertain(.connectionLost(let why)) = try await client.send().get() else {
                    Issue.record("not called uncertain")
                    return
                }
                #expect(why.contains("did not answer a PING within 1500 ms"))
                try await expect(client.send(), .delivered)
            }
            #expect(peer.seen.withLockedValue { $0.frames.filter { $0.kind == .ping }.count } >= 1)
        }
    }

    @Test(
        "that a NAT has forgotten while the connection was idle is left after a moment, and its requests are returned")
    func stale() async throws {
        // Connections that were idle get no bytes through; new ones work.
        let isForgotten = NIOLockedValueBox(false)
        let script: ScriptedPeer.Script = { connection, event in
            if connection.number <= 2, isForgotten.withLockedValue({ $0 }) { return }
            answersAll(connection, event)
        }
        try await withPeer(script: script) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.minimumConnections = 2
                configuration.wakeAfter = .milliseconds(300)
                configuration.wakeTimeout = .milliseconds(300)
            }
            try await withPool(port: peer.port, limits) { client in
                try await expect(client.send(), .delivered)
                try await eventually("two connections") { try await client.ask { $0.usableConnections } == 2 }
                isForgotten.withLockedValue { $0 = true }
                try await Task.sleep(for: .milliseconds(500))
                for request in client.send([.example(1), .example(2)]) {
                    guard case .uncertain(.stale(let why)) = try await request.get() else {
                        Issue.record("not called stale")
                        return
                    }
                    #expect(why.contains("PING"))
                }
                // Both idle connections are closed, so this needs a new one.
                try await eventually("a connection") { try await client.ask { $0.capacity } > 0 }
                try await expect(client.send(), .delivered)
                #expect(try await client.ask { $0.answerState } == .answered)
                #expect(client.log.lines(of: "apns_connection_failed").isEmpty)
            }
            #expect(peer.seen.withLockedValue(\.connections) > 2)
        }
    }

    @Test("that reads nothing more is detected even during writes")
    func onlyWriting() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            if case .connected = event { connection.send(.settings(maximumStreams: 1000)) }
        }
        try await withPeer(script: script) { peer in
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.pingAfter = .milliseconds(200)
                configuration.pingTimeout = .milliseconds(200)
            }
            try await withPool(port: peer.port, limits) { client in
                try await eventually("the end of the first connection") {
                    // Each of these causes a write; none counts as a sign of life.
                    _ = client.send()
                    return peer.seen.withLockedValue(\.connections) > 1
                }
            }
        }
    }

    @Test("that never sends its SETTINGS gets no request, and is replaced by another connection")
    func noSettings() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            if connection.number > 2 { answersAll(connection, event) }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port, { $0.settingsTimeout = .milliseconds(200) }) { client in
                let future = client.send()
                try await eventually("a failure") { try await client.ask { $0.lastFailure != nil } }
                let failure = try await client.ask { "\($0.lastFailure, default: "none")" }
                #expect(failure.contains("sent no HTTP/2 SETTINGS within 200 ms"), "\(failure)")
                #expect(try await client.ask { $0.usableConnections } == 0)
                #expect(peer.count(.headers) == 0)
                try await expect(future, .delivered)
                #expect(try await client.ask { $0.failureCounts } == ["Unresponsive": 2])
                #expect(client.log.lines(of: "apns_connection_failed").count == 1)
            }
        }
    }

    @Test("gets no PING while it keeps sending")
    func busy() async throws {
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame) where frame.kind == .ping && frame.flags == 1:
                // The peer itself sends PINGs, as fast as the answers arrive, two hundred times.
                connection.streams.append(0)
                if connection.streams.count < 200 { connection.send(HTTP2Frame(kind: .ping, payload: frame.payload)) }
                if connection.streams.count == 200 { connection.send(.answer(1, status: 200)) }
            case .frame(let frame) where frame.kind == .data:
                connection.send(HTTP2Frame(kind: .ping, payload: Array(repeating: 9, count: 8)))
            default: break
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(port: peer.port) { client in
                try await expect(client.send(), .delivered)
            }
            let pings = peer.seen.withLockedValue { $0.frames(.ping) }
            #expect(pings.count == 200)
            #expect(pings.allSatisfy { $0.flags == HTTP2Frame.acknowledgement })
            #expect(Set(pings.map(\.payload)) == [Array(repeating: 9, count: 8)])
        }
    }
}
