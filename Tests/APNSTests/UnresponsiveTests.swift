import CNghttp2
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A connection that is alive but unusable", .timeLimit(.minutes(10)))
struct UnresponsiveTests {
    /// The first connection answers SETTINGS and PINGs, but no request.
    private static let wedgedFirst: ScriptedPeer.Script = { connection, event in
        guard connection.number == 1 else { return answersAll(connection, event) }
        switch event {
        case .connected: connection.send(.settings(maximumStreams: 100))
        case .frame(var frame) where frame.kind == .ping && frame.flags == 0:
            frame.flags = HTTP2Frame.acknowledgement
            connection.send(frame)
        default: break
        }
    }

    private func impatient(_ configuration: inout ConnectionPool.Configuration) {
        configuration.requestTimeout = .milliseconds(500)
        configuration.pingAfter = .milliseconds(50)
    }

    @Test("because it answers PINGs and no request is retired at the first deadline, and counts as a failure")
    func wedge() async throws {
        let seen = try await withPool(against: Self.wedgedFirst, impatient) { client, peer in
            let results = try await client.results(5)
            #expect(results == Array(repeating: .uncertain(.timedOut), count: 5))
            #expect(try await client.ask { $0.failureCounts } == ["Unresponsive": 1])
            #expect(try await client.ask { $0.answerState } == .unanswered)
            #expect(try await client.results(5) == .delivered(5))
            #expect(try await client.ask { $0.lastFailure == nil && $0.connections.state.failures == 0 })
            try await eventually("it is noticed") { try await client.ask { $0.answerState } == .answered }
            try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) == 1 }
        }
        #expect(seen.connections == 2)
        #expect(!seen.frames(.ping).isEmpty)
    }

    @Test("leaves its requests in flight until their deadline, because they may still be answered")
    func lateAnswers() async throws {
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.requestTimeout = .seconds(20)
            configuration.pingAfter = .hours(1)
        }
        try await withPool(against: Self.wedgedFirst, ticks: false, limits) { client, peer in
            try await client.check()
            let first = client.send(.example(1))
            try await eventually("the first request") { peer.count(.data) == 1 }
            let firstEnd = NIODeadline.now() + .seconds(20)
            // The second request has a slightly later deadline.
            try await eventually("a later time") { .now() > firstEnd - .seconds(20) + .milliseconds(50) }
            let second = client.send(.example(2))
            try await eventually("the second request") { peer.count(.data) == 2 }
            try await client.check(firstEnd)
            try await expect(first, .uncertain(.timedOut))
            #expect(try await client.ask { $0.usableConnections } == 0)
            peer.on(1) { $0.send(.answer(3, status: 200)) }
            try await expect(second, .delivered)
        }
    }

    @Test("gets no further requests after five seconds without any answer, because another connection is less busy")
    func another() async throws {
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            // The clock of this test is ahead of the connections' clocks.
            configuration.requestTimeout = .hours(1)
            configuration.pingAfter = .hours(1)
            configuration.settingsTimeout = .hours(1)
            configuration.maximumConnections = 2
        }
        let seen = try await withPool(against: Self.wedgedFirst, ticks: false, limits) { client, peer in
            var now = NIODeadline.now()
            try await client.check(now)
            _ = client.send()
            try await eventually("the first request") { peer.count(.data) == 1 }
            for tenth in 0..<51 {
                #expect(try await client.ask { $0.answerState } == (tenth >= 50 ? .unanswered : .answered))
                now = now + .milliseconds(100)
                try await client.check(now)
            }
            try await eventually("a second connection") { try await client.ask { $0.usableConnections } == 2 }
            #expect(try await client.results(50) == .delivered(50))
            try await client.check(now + .milliseconds(100))
            #expect(try await client.ask { $0.answerState == .answered && $0.inFlight == 1 })
        }
        #expect(seen.connections == 2)
    }

    @Test(
        "because it grants no window is retired, and unwritten requests are resent elsewhere at once",
        arguments: [
            // Either 16 bodies of 4,000 bytes fit into the connection's initial window of 65,535 bytes, or streams have no window.
            ([(3, 100)], 4000, 16), ([(3, 100), (4, 0)], 100, 0),
        ] as [([(UInt16, UInt32)], Int, Int)])
    func withoutWindow(settings: [(UInt16, UInt32)], payload: Int, written: Int) async throws {
        let script: ScriptedPeer.Script = { connection, event in
            guard connection.number == 1 else { return answersAll(connection, event) }
            if case .connected = event { return connection.send(.settings(settings)) }
            guard case .frame(let frame) = event, frame.kind == .data, frame.endsStream else { return }
            connection.send(.answer(frame.stream, status: 200))
        }
        let seen = try await withPool(against: script, { $0.windowTimeout = .milliseconds(500) }) { client, _ in
            try await client.waitForSettings(100)
            let text = #"{"aps":{"alert":""# + String(repeating: "x", count: payload - 20) + #""}}"#
            var results: [RequestResult] = []
            for future in client.send((0..<20).map({ .example($0, payload: text) })) {
                results.append(try await future.get())
            }
            #expect(Array(results.prefix(written)) == .delivered(written))
            #expect(results.dropFirst(written).allSatisfy { $0 == .notProcessed(.unresponsive) }, "\(results)")
            #expect(try await client.ask { $0.failureCounts } == ["Unresponsive": 1])
            #expect(try await client.results(5) == .delivered(5))
        }
        #expect(seen.connections == 2)
    }

    @Test("does not include one that waits for a stream limit of one")
    func lowStreamLimit() async throws {
        let script = handling { connection, frame in
            if frame.stream == 1 { connection.send(.settings(maximumStreams: 1)) }
            // All answers together take longer than the timeout of a window.
            connection.eventLoop?.assumeIsolated().scheduleTask(in: .milliseconds(150)) {
                connection.send(.answer(frame.stream, status: 200))
            }
        }
        let seen = try await withPool(against: script, { $0.windowTimeout = .milliseconds(300) }) { client, _ in
            try await client.waitForSettings()
            #expect(try await client.results(12) == .delivered(12))
        }
        #expect(seen.connections == 1)
    }

    /// Returns the request that the first connection never answers.
    private static func poison() -> Notification {
        var notification = Notification.example(0xDEAD)
        notification.apnsID = APNSID(high: 1, low: 2)
        return notification
    }

    private static func isPoison(_ headers: HTTP2Frame) -> Bool {
        headers.headers.contains { $0.name == ":path" && $0.value.hasSuffix("dead") }
    }

    /// Answers all requests, except the poison on connections for which `ignores` returns true.
    private static func ignoring(
        _ ignores: @escaping @Sendable (Int) -> Bool, refuses: Bool = false
    ) -> ScriptedPeer.Script {
        { connection, event in
            if case .frame(let frame) = event, frame.kind == .headers, ignores(connection.number), isPoison(frame) {
                connection.streams.append(frame.stream)
            }
            if case .frame(let frame) = event, frame.kind == .data, connection.streams.contains(frame.stream) {
                if refuses { connection.send(.reset(frame.stream, code: NGHTTP2_REFUSED_STREAM.rawValue)) }
                return
            }
            answersAll(connection, event)
        }
    }

    /// Sends the poison, and other requests until the poison has ended. So its connection stays useful.
    private func sendPoison(_ client: PoolClient) async throws -> RequestResult {
        let future = client.send(Self.poison())
        let result = NIOLockedValueBox<RequestResult?>(nil)
        future.whenSuccess { value in result.withLockedValue { $0 = value } }
        while result.withLockedValue({ $0 }) == nil { try await expect(client.send(), .delivered) }
        return try await future.get()
    }

    @Test(
        "for one request never gets that request again: another connection is opened, or replaces it",
        arguments: [4, 1])
    func resend(maximumConnections: Int) async throws {
        let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.requestTimeout = .milliseconds(500)
            configuration.maximumConnections = maximumConnections
        }
        let seen = try await withPool(against: Self.ignoring { $0 == 1 }, limits) { client, peer in
            #expect(try await sendPoison(client) == .uncertain(.timedOut))
            #expect(try await client.ask { $0.usableConnections } == 1)
            // The request is returned without being sent until there is another connection.
            var result = try await sendPoison(client)
            #expect(result == .notProcessed(.noOtherConnection))
            while result == .notProcessed(.noOtherConnection) { result = try await sendPoison(client) }
            #expect(result == .delivered)
            #expect(try await client.failures() == 0)
            if maximumConnections == 1 {
                try await eventually("the end of the first") { peer.seen.withLockedValue(\.ended) == 1 }
                try await eventually("the pool knows it") { try await client.ask { !$0.health.hasUnanswered } }
            }
        }
        #expect(seen.connections == 2)
        #expect(seen.frames(.headers).count(where: Self.isPoison) == 2)
    }

    @Test("for a request that no connection answers is not replaced constantly")
    func neverAnswered() async throws {
        let script = Self.ignoring { _ in true }
        let seen = try await withPool(against: script, { $0.requestTimeout = .milliseconds(200) }) { client, _ in
            let start = ContinuousClock.now
            while ContinuousClock.now - start < .seconds(3) { _ = try await sendPoison(client) }
        }
        // Replacements are made after 0, 1, 3 … seconds.
        #expect((2...5).contains(seen.connections))
        #expect(seen.frames(.headers).count(where: Self.isPoison) <= seen.connections)
    }

    @Test("that refuses a request gets it again only if there is no other")
    func refused() async throws {
        let script = Self.ignoring({ $0 == 1 }, refuses: true)
        let seen = try await withPool(against: script, { $0.maximumConnections = 2 }) { client, _ in
            for _ in 0..<3 { try await expect(client.send(Self.poison()), .notProcessed(.refusedStream)) }
            try await client.ask { $0.requestCapacity() }
            try await eventually("a second connection") { try await client.ask { $0.usableConnections } == 2 }
            for _ in 0..<3 { try await expect(client.send(Self.poison()), .delivered) }
        }
        #expect(seen.connections == 2)
    }

    @Test("returns its requests when the pool is closed in the same turn")
    func closedMeanwhile() async throws {
        let script = Self.ignoring { $0 == 1 }
        try await withPool(against: script, { $0.requestTimeout = .milliseconds(300) }) { client, _ in
            #expect(try await sendPoison(client) == .uncertain(.timedOut))
            let collector = try await client.ask { pool -> NIOLoopBound<Collector> in
                let collector = Collector()
                pool.delegate = collector
                #expect(pool.submit(Self.poison(), tag: 4711, in: .shared))
                pool.closeNow()
                return NIOLoopBound(collector, eventLoop: pool.eventLoop)
            }
            let results = try await client.eventLoop.flatSubmit { () -> EventLoopFuture<[UInt64: RequestResult]> in
                collector.eventLoop.makeSucceededFuture(collector.value.results)
            }.get()
            #expect(results == [4711: .notProcessed(.noOtherConnection)])
        }
    }

    private final class Collector: TransportDelegate {
        var results: [UInt64: RequestResult] = [:]

        func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) { results[tag] = result }
        func transportChanged(_: any Transport) {}
    }
}
