import NIOCore
import TestSupport
import Testing

@testable import APNS

/// The pool's clock does not run by itself: each test sets the time.
@Suite("A pool's connections", .timeLimit(.minutes(10)))
struct ReplacementTests {
    @discardableResult
    private func withStillPool(
        against script: @escaping ScriptedPeer.Script,
        _ change: @escaping @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
        _ body: (PoolClient, ScriptedPeer) async throws -> Void
    ) async throws -> ScriptedPeer.Seen {
        let configure = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            // The tests advance the pool's clock by minutes, but not the connection's.
            configuration.pingAfter = .hours(1000)
            configuration.idlePingAfter = .hours(1000)
            configuration.requestTimeout = .hours(1000)
            change(&configuration)
        }
        return try await withPool(against: script, ticks: false, configure, body)
    }

    @Test("are replaced after answers after which they accept nothing, and identified by these")
    func turnedAgainst() async throws {
        let script = handling(onlyFirst: true) { connection, frame in
            connection.send(
                .answer(frame.stream, status: 403, ends: false),
                .data(frame.stream, #"{"reason":"UnrelatedKeyIdInToken"}"#))
        }
        try await withStillPool(against: script) { client, peer in
            try await client.check()
            guard case .response(let response) = try await client.send().get() else {
                Issue.record("not answered")
                return
            }
            #expect(response.turnsAgainstConnection)
            #expect(response.connection == .init(number: 0, newest: 0))
            try await expect(client.send(), .delivered)
            // The retirement is logged after the answer was passed on.
            #expect(client.log.lines(of: "connection_retired").count == 1)
            #expect(peer.seen.withLockedValue(\.connections) == 2)
        }
    }

    @Test("beyond the minimum are closed when idle, the longest idle first, one at a time")
    func idle() async throws {
        // The first request of each connection is not answered at once.
        let script = handling(streams: 1) { connection, frame in
            if frame.stream > 1 { connection.send(.answer(frame.stream, status: 200)) }
        }
        let seen = try await withStillPool(against: script, { $0.maximumConnections = 3 }) { client, peer in
            let start = NIODeadline.now()
            try await client.check(start)
            let first = client.send((0..<3).map { .example($0) })
            try await eventually("three requests") { peer.count(.data) == 3 }
            for connection in 1...3 { peer.on(connection) { $0.send(.answer(1, status: 200)) } }
            for request in first { try await expect(request, .delivered) }
            #expect(try await client.ask { $0.usableConnections } == 3)
            try await client.check(start + .seconds(10))
            try await client.check(start + .seconds(100))
            // If all connections are equally free, the first one gets the request.
            try await expect(client.send(), .delivered)
            try await client.check(start + .seconds(110))
            try await client.check(start + .seconds(309))
            #expect(try await client.ask { $0.usableConnections } == 3)
            try await client.check(start + .seconds(310))
            #expect(try await client.ask { $0.usableConnections } == 2)
            try await client.check(start + .seconds(311))
            #expect(try await client.ask { $0.usableConnections } == 1)
            try await client.check(start + .hours(10))
            #expect(try await client.ask { $0.usableConnections } == 1)
            try await eventually("two ends") { peer.count(.goAway) == 2 }
            // The connection that was used last stays, and is enough.
            #expect(peer.seen.withLockedValue { $0.frames(.goAway).allSatisfy { $0.connection > 1 } })
            try await expect(client.send(), .delivered)
            #expect(try await client.failures() == 0)
            #expect(try await client.ask { $0.lastFailure == nil })
        }
        #expect(seen.connections == 3)
    }

    /// Answers all requests, but sends SETTINGS only on the first connection.
    private static let hesitant: ScriptedPeer.Script = { connection, event in
        switch event {
        case .connected: if connection.number == 1 { connection.send(.settings(maximumStreams: 10)) }
        case .frame(let frame): if frame.kind == .data { answersAll(connection, event) }
        }
    }

    private func second(_ peer: ScriptedPeer) async throws {
        try await eventually("a replacement") {
            peer.seen.withLockedValue { $0.frames(.settings).contains { $0.connection == 2 } }
        }
    }

    @Test("are replaced at their maximum age, and the old one is used until the new one is")
    func age() async throws {
        let seen = try await withStillPool(against: Self.hesitant, { $0.maximumAge = .hours(1) }) { client, peer in
            let start = NIODeadline.now()
            try await client.check(start)
            try await expect(client.send(), .delivered)
            try await client.check(start + .minutes(54))
            #expect(try await client.ask { $0.connections.state.outgoing } == 0)
            try await client.check(.now() + .hours(1))
            try await second(peer)
            #expect(try await client.ask { $0.usableConnections } == 1)
            // The new connection gets no request before its SETTINGS.
            #expect(try await client.results(5) == .delivered(5))
            #expect(peer.seen.withLockedValue { $0.frames(.headers).map(\.connection) } == [1, 1, 1, 1, 1, 1])
            peer.on(2) { $0.send(.settings(maximumStreams: 10)) }
            try await eventually("the end of the old one") { peer.seen.withLockedValue(\.ended) == 1 }
            #expect(try await client.results(5) == .delivered(5))
            let sent = peer.seen.withLockedValue { $0.frames(.headers) }
            #expect(sent.suffix(5).map(\.connection) == [2, 2, 2, 2, 2])
            #expect(try await client.failures() == 0)
        }
        #expect(seen.connections == 2)
    }

    @Test("that are all replaced keep their provider token, and the new ones have the new token")
    func anotherKey() async throws {
        try await withStillPool(against: Self.hesitant) { client, peer in
            try await client.check()
            try await expect(client.send(), .delivered)
            _ = try await client.ask { pool in
                pool.replaceConnections(reason: "another key")
                pool.setProviderToken("another")
            }
            try await second(peer)
            #expect(try await client.results(5) == .delivered(5))
            peer.on(2) { $0.send(.settings(maximumStreams: 10)) }
            try await eventually("the end of the old one") { peer.seen.withLockedValue(\.ended) == 1 }
            #expect(try await client.results(5) == .delivered(5))
            let sent = peer.seen.withLockedValue { $0.frames(.headers) }
            #expect(sent.count == 11)
            for request in sent {
                let token = request.connection == 1 ? "e30.e30.c2ln" : "another"
                #expect(request.headers.first { $0.name == "authorization" }?.value == "bearer \(token)")
            }
            #expect(sent.last?.connection == 2)
            #expect(client.log.lines(of: "apns_connections_replaced").count == 1)
        }
    }

    @Test("that are all replaced while one is being opened include that one")
    func replacedWhileConnecting() async throws {
        try await withStillPool(against: answersAll) { client, peer in
            // The first connection has set up TCP, but not TLS.
            try await client.check()
            try await eventually("TCP") { try await client.ask { $0.connections.all.count == 1 } }
            _ = try await client.ask { $0.replaceConnections(reason: "test") }
            try await eventually("the second") { peer.seen.withLockedValue(\.connections) == 2 }
            try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) == 1 }
            try await expect(client.send(), .delivered)
        }
    }

    @Test("that are idle and not needed end when all should be replaced, and none is opened for them")
    func replacedIdle() async throws {
        try await withStillPool(against: answersAll, { $0.minimumConnections = 0 }) { client, peer in
            let start = NIODeadline.now()
            // Without a connection there is no capacity; the sender must request some.
            let (before, connecting) = try await client.requestFirstConnection()
            #expect(before == (0, 0, true, false))
            #expect(connecting == (1, 0, false, false))
            try await expect(client.send(), .delivered)
            try await client.check(start)
            // Replaces a minute later, so that the last request is not recent.
            _ = try await client.ask { $0.replaceConnections(reason: "test", now: .now() + .minutes(1)) }
            try await eventually("the end") { peer.seen.withLockedValue(\.ended) == 1 }
            var expected = PoolStatistics()
            expected.made = 1
            try await eventually("nothing left") { [expected] in
                try await client.ask { $0.statistics } == expected
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
            try await expect(client.send(), .delivered)
            #expect(peer.seen.withLockedValue(\.connections) == 2)
        }
    }

    @Test("are all replaced again and again under load without the loss of a request")
    func underLoad() async throws {
        let seen = try await withPool(against: answersAll, { $0.maximumConnections = 3 }) { client, _ in
            for _ in 0..<20 {
                let futures = client.send((0..<200).map { .example($0) })
                _ = try await client.ask { $0.replaceConnections(reason: "test") }
                for future in futures { try await expect(future, .delivered) }
            }
            #expect(try await client.failures() == 0)
            try await eventually("no outgoing ones") { try await client.ask { $0.connections.state.outgoing } == 0 }
            #expect(try await client.ask { $0.usableConnections } <= 3)
        }
        #expect(seen.connections >= 20)
    }

    @Test("that work remain when TLS is reconfigured, and are kept while the new configuration fails")
    func anotherTLS() async throws {
        let right = try TestCertificates.client(protocols: ["h2"])
        let wrong = try TestCertificates.client(trusting: "other-ca.pem", protocols: ["h2"])
        try await withPool(against: answersAll) { client, peer in
            try await expect(client.send(), .delivered)
            _ = try await client.ask { $0.setTLS(wrong) }
            try await expect(client.send(), .delivered)
            #expect(peer.seen.withLockedValue(\.connections) == 1)
            _ = try await client.ask { $0.replaceConnections(reason: "test") }
            try await eventually("two failures") { try await client.failures() >= 2 }
            #expect(try await client.lastFailure().contains("certificate"))
            #expect(try await client.results(10) == .delivered(10))
            #expect(try await client.ask { $0.usableConnections } == 1)
            _ = try await client.ask { $0.setTLS(right) }
            try await eventually("the replacement") {
                try await client.ask { $0.connections.state.outgoing == 0 && $0.usableConnections == 1 }
            }
            try await expect(client.send(), .delivered)
            #expect(try await client.failures() == 0)
        }
    }

    @Test("that answer 500 five times in a row are replaced, which is logged once")
    func serverErrors() async throws {
        let script = handling(onlyFirst: true) { connection, frame in
            // The fifth answer is different, so the count starts again after it.
            connection.send(.answer(frame.stream, status: frame.stream == 9 ? 503 : 500))
        }
        try await withPool(against: script) { client, peer in
            for number in 0..<10 {
                try await expect(
                    client.send(), .response(Response(status: number == 4 ? 503 : 500)))
            }
            try await expect(client.send(), .delivered)
            #expect(peer.seen.withLockedValue(\.connections) == 2)
            #expect(client.log.lines(of: "apns_connection_recycled").count == 1)
            #expect(try await client.failures() == 0)
        }
    }

    @Test("to a server that only answers 500 are not replaced constantly")
    func nothingButErrors() async throws {
        let script = handling { connection, frame in connection.send(.answer(frame.stream, status: 500)) }
        try await withPool(against: script) { client, peer in
            let start = ContinuousClock.now
            for _ in 0..<300 { try await expect(client.send(), .response(Response(status: 500))) }
            // Connections are replaced after 0, 1, 3, 7 … seconds, not after each five answers.
            let seconds = (ContinuousClock.now - start).components.seconds
            #expect(peer.seen.withLockedValue(\.connections) <= 3 + Int(seconds))
        }
    }

    @Test("whose stream identifiers run out are replaced at once, and nothing is lost", arguments: [0, 2])
    func streamIdentifiers(fromEnd: Int32) async throws {
        // With 0, the identifiers begin near the last one; with 2, near the first one that opens a replacement.
        let first = fromEnd == 0 ? Int32.max - 4 : HTTP2ConnectionState.wornOutStream - 4
        let seen = try await withStillPool(against: answersAll, { $0.firstStream = first }) { client, _ in
            try await client.check()
            try await eventually("a connection") { try await client.ask { $0.capacity } > 1 }
            if fromEnd == 2 {
                // A submission opens the replacement, before any answer.
                let outgoing = try await client.ask { pool in
                    // The test's delegate does not know these requests.
                    pool.delegate = nil
                    return (0..<3).map {
                        pool.submit(.example($0), tag: 1000, in: .shared) ? pool.connections.state.outgoing : -1
                    }
                }
                #expect(outgoing == [0, 0, 1])
                return
            }
            for round in 0..<20 {
                #expect(try await client.results(1 + round % 7) == .delivered(1 + round % 7))
                try await client.check()
            }
            #expect(try await client.failures() == 0)
        }
        let streams = seen.frames(.headers).map(\.stream)
        #expect(streams.allSatisfy { $0 >= first })
        if fromEnd == 0 { #expect(streams.filter { $0 == .max }.count >= 20) }
    }

    @Test("are counted for metrics")
    func statistics() async throws {
        try await withStillPool(against: handling(streams: 7)) { client, peer in
            #expect(try await client.ask { $0.statistics } == PoolStatistics())
            var expected = PoolStatistics()
            expected.connecting = 1
            #expect(
                try await client.ask { pool in
                    pool.check(now: .now())
                    return pool.statistics
                } == expected)
            _ = client.send((0..<3).map { .example($0) })
            try await eventually("three requests") { peer.count(.data) == 3 }
            expected = PoolStatistics()
            (expected.usable, expected.made, expected.streamsInUse, expected.streamLimit) = (1, 1, 3, 7)
            #expect(try await client.ask { $0.statistics } == expected)
            _ = try await client.ask { $0.close() }
            expected = PoolStatistics()
            (expected.made, expected.draining, expected.streamsInUse) = (1, 1, 3)
            #expect(try await client.ask { $0.statistics } == expected)
        }
    }
}
