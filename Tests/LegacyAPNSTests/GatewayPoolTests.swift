import Logging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import APNS
@testable import LegacyAPNS

typealias GatewayClient = TransportClient<GatewayPool>

extension TransportClient.Core: GatewayDelegate {
    package func gateway(dropped count: Int, refusing token: ByteBuffer?, with status: GatewayStatus) {
        notes.append("dropped \(count), refused \(token.map { String(buffer: $0) } ?? "none") as \(status.name)")
    }
}

/// Uses a scripted gateway over real TLS. Like a real one, it rejects an item without a token.
@Suite("A pool of connections to the gateway")
struct GatewayPoolTests {
    /// Nothing is confirmed by age, unless a test changes that.
    private func withGateway(
        receiveBuffer: Int? = nil, _ change: @Sendable (inout GatewayPool.Configuration) -> Void = { _ in },
        script: @escaping ScriptedGateway.Script,
        _ body: (GatewayClient, ScriptedGateway) async throws -> Void
    ) async throws {
        let gateway = try await ScriptedGateway.start(receiveBuffer: receiveBuffer, script: script)
        var configuration = GatewayPool.Configuration(
            PoolConfiguration(
                endpoint: APNSEndpoint(host: "127.0.0.1", port: gateway.port), tls: try TestCertificates.client()))
        configuration.options.confirmAfter = 600_000
        configuration.reconnect.first = .milliseconds(20)
        change(&configuration)
        let client = try await GatewayClient.start { [configuration] eventLoop, logger in
            GatewayPool(configuration, eventLoop: eventLoop, logger: logger)
        }
        try await client.closingAfter { try await body($0, gateway) }
        try await gateway.stop()
    }

    /// A gateway that accepts everything.
    private static let takesAll: ScriptedGateway.Script = { peer, event in
        guard case .item(let item) = event, item.token.isEmpty else { return }
        peer.answer(2, item.identifier)
    }

    private func results(_ futures: [EventLoopFuture<RequestResult>]) async throws -> [RequestResult] {
        var results: [RequestResult] = []
        for future in futures { results.append(try await future.get()) }
        return results
    }

    private func expectConfirmed(
        _ futures: [EventLoopFuture<RequestResult>], sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        let others = try await results(futures).filter { $0 != .confirmed }
        #expect(others == [], sourceLocation: sourceLocation)
    }

    /// Resends the notifications that the gateway dropped, as a lane does, until none is dropped.
    private func deliver(_ count: Int, _ client: GatewayClient) async throws -> [Int: RequestResult] {
        var ends: [Int: RequestResult] = [:]
        var left = Array(0..<count)
        while !left.isEmpty {
            let sent = client.send(left.map { .example($0) })
            // Only a barrier confirms the last notifications, and a barrier is useless before there is a connection. The sleep is the
            // interval of a lane's ticks.
            let watch = Task {
                while !Task.isCancelled {
                    try await client.ask { if $0.usableConnections > 0 { $0.flushConfirmations() } }
                    try await Task.sleep(for: .milliseconds(20))
                }
            }
            var again: [Int] = []
            for (number, result) in zip(left, try await results(sent)) {
                if case .notProcessed = result { again.append(number) } else { ends[number] = result }
            }
            watch.cancel()
            left = again
        }
        return ends
    }

    @Test("confirms by age while the connection stays open")
    func confirmsByAge() async throws {
        try await withGateway({ $0.options.confirmAfter = 50 }, script: { _, _ in }) { client, gateway in
            for _ in 0..<3 { try await expectConfirmed(client.send((0..<10).map { .example($0) })) }
            #expect(gateway.seen.withLockedValue { $0.connections } == 1)
        }
    }

    @Test(
        "a full window is confirmed by a bad item, and nothing waits for that",
        arguments: GatewayFrame.allCases.dropFirst())
    func fullWindow(frame: GatewayFrame) async throws {
        try await withGateway(
            {
                $0.options.windowCount = 100
                $0.options.frame = frame
            }, script: Self.takesAll
        ) { client, gateway in
            try await expectConfirmed(client.send((0..<1000).map { .example($0) }))
            #expect(Set(gateway.items.filter { !$0.token.isEmpty }.map(\.number)) == Set(0..<1000))
            #expect(gateway.items.filter { $0.token.isEmpty }.count == 10)
        }
    }

    @Test("with at most one connection, the order is kept, however often the window is full")
    func order() async throws {
        try await withGateway(
            {
                $0.options.windowCount = 50
                $0.maximumConnections = 1
            }, script: Self.takesAll
        ) { client, gateway in
            try await expectConfirmed(client.send((0..<1000).map { .example($0) }))
            #expect(gateway.items.filter { !$0.token.isEmpty }.map(\.number) == Array(0..<1000))
        }
    }

    @Test("the window is bounded by bytes too")
    func windowBytes() async throws {
        let payload = #"{"aps":{"alert":""# + String(repeating: "x", count: 1000) + #""}}"#
        try await withGateway({ $0.options.windowBytes = 20_000 }, script: Self.takesAll) { client, gateway in
            let notifications = (0..<200).map { Notification.example($0, payload: payload) }
            let futures = client.send(notifications)
            // The last notifications are too few to fill a window.
            try await eventually("the items") { gateway.items.filter { !$0.token.isEmpty }.count == 200 }
            try await client.ask { $0.flushConfirmations() }
            try await expectConfirmed(futures)
            let connections = Dictionary(grouping: gateway.items.filter { !$0.token.isEmpty }, by: \.connection)
            // The last accepted notification may exceed the window, because its size is known only when it is written.
            #expect(connections.values.allSatisfy { $0.count <= 20 })
        }
    }

    @Test("after a bad one, those behind it are sent again first, in order, on a new connection")
    func resendsInOrder() async throws {
        let script: ScriptedGateway.Script = { peer, event in
            guard case .item(let item) = event else { return }
            if item.token.isEmpty { return peer.answer(2, item.identifier) }
            // Each seventh notification is bad. The packet arrives late and in six pieces, while more is being written.
            if item.number % 7 == 3 { peer.answer(8, item.identifier, after: .milliseconds(5)) }
        }
        try await withGateway(script: script) { client, gateway in
            let ends = try await deliver(50, client)
            for number in 0..<50 {
                #expect(ends[number] == (number % 7 == 3 ? .refused(.invalidToken) : .confirmed), "\(number)")
            }
            // The accepted and the refused notifications, in the order in which the gateway read them.
            #expect(gateway.items.filter { !$0.token.isEmpty }.map(\.number) == Array(0..<50))
        }
    }

    @Test("a connection accepts nothing more once an error packet has arrived, although it is not closed yet")
    func answered() {
        var state = GatewayConnectionState()
        state.opened(now: .now())
        for tag in 1...3 { state.send(tag: UInt64(tag), size: 100) }
        #expect(state.capacity(limit: .max) == 4997)
        let findings = state.answered(GatewayPacket(status: .invalidToken, identifier: 2))
        #expect(findings.confirmed == [1] && findings.discarded == [3])
        #expect(state.window.count == 0 && state.capacity(limit: .max) == 0)
    }

    @Test("a notification whose bytes never reach the socket ends the connection, and is not confirmed")
    func neverWritten() {
        var state = GatewayConnectionState()
        var now = NIODeadline.now()
        state.opened(now: now)
        state.send(tag: 1, size: 100)
        state.left(position: 130, now: now)
        #expect(state.check(acknowledged: 130, now: now) == .init())
        now = now + .seconds(2)
        #expect(state.check(acknowledged: 130, now: now) == .init(confirmed: [1]))
        // If TLS refuses a write, the bytes that can be acknowledged stay the same.
        state.send(tag: 2, size: 100)
        state.left(position: 130, now: now)
        for _ in 1..<20 {
            now = now + .seconds(1)
            #expect(state.check(acknowledged: 130, now: now) == .init())
        }
        let check = state.check(acknowledged: 130, now: now + .seconds(1))
        #expect(check.confirmed.isEmpty && check.unresponsive?.contains("20 s") == true)
    }

    @Test("status 10 confirms the named one, and is not an error")
    func shutdown() async throws {
        let script: ScriptedGateway.Script = { peer, event in
            guard case .item(let item) = event else { return }
            if item.token.isEmpty { return peer.answer(2, item.identifier) }
            if item.place == 4 { peer.answer(10, item.identifier) }
        }
        try await withGateway(script: script) { client, gateway in
            let ends = try await deliver(10, client)
            #expect(ends.values.allSatisfy { $0 == .confirmed } && ends.count == 10)
            #expect(gateway.items.filter { !$0.token.isEmpty }.map(\.number) == Array(0..<10))
            #expect(client.log.lines.filter { $0.level >= .error }.isEmpty)
        }
    }

    @Test(
        "a close without a whole packet, and bytes that are not a packet, leave the rest uncertain",
        arguments: [([], 5, 3), ([8, 8, 0], 1, 1), (Array("HTTP/1.1 400 Bad Request\r\n".utf8), 1, 1)]
            as [([UInt8], Int, Int)])
    func noPacket(bytes: [UInt8], sent: Int, place: Int) async throws {
        let isGarbage = bytes.count > 5
        let script: ScriptedGateway.Script = { peer, event in
            guard case .item(let item) = event, item.place == place else { return }
            if !bytes.isEmpty { peer.send(bytes) }
            if !isGarbage { peer.close() }
        }
        try await withGateway(script: script) { client, _ in
            for result in try await client.results(sent) {
                guard case .uncertain = result else {
                    Issue.record("\(result)")
                    continue
                }
            }
            guard isGarbage else { return }
            let failure = try await client.ask { "\($0.lastFailure.map { "\($0)" } ?? "none")" }
            #expect(failure.contains("an error packet must begin with 8, not 72"))
        }
    }

    @Test("a gateway that drops new connections gets one notification at a time, until the certificate is reported")
    func acceptsAndDrops() async throws {
        let script: ScriptedGateway.Script = { peer, event in if case .item = event { peer.close() } }
        try await withGateway(script: script) { client, gateway in
            let first = try await results(client.send((0..<20).map { .example($0) }))
            #expect(first.contains(.uncertain(.lostWithOthers("it was closed without an error packet"))))
            for _ in 0..<3 { _ = try await client.send().get() }
            #expect(try await client.send().get() == .uncertain(.hungUp))
            let perConnection = Dictionary(grouping: gateway.items, by: \.connection).values.map(\.count)
            #expect(perConnection.dropFirst().allSatisfy { $0 <= 20 })
            try await eventually("the failure is logged") { !client.log.lines(of: "apns_connection_failed").isEmpty }
        }
    }

    @Test("a gateway that does not read is detected, and no unread notification counts as delivered")
    func hangs() async throws {
        let payload = #"{"aps":{"alert":""# + String(repeating: "x", count: 2000) + #""}}"#
        let script: ScriptedGateway.Script = { peer, event in if case .connected = event { peer.stopReading() } }
        try await withGateway(
            receiveBuffer: 4096,
            {
                $0.options.confirmAfter = 300
                $0.stallTimeout = .milliseconds(1500)
            }, script: script
        ) { client, _ in
            let ends = try await results(client.send((0..<5000).map { .example($0, payload: payload) }))
            // Bytes in the two kernels' buffers may count as read.
            let uncertain = ends.filter { if case .uncertain = $0 { true } else { false } }.count
            #expect(uncertain > 0)
            #expect(ends.filter { $0 == .confirmed }.count < 3000)
            try await eventually("the failure is logged") { !client.log.lines(of: "apns_connection_failed").isEmpty }
        }
    }

    @Test("an error packet that arrives after the confirmation time is reported with the number of lost notifications")
    func tooLate() async throws {
        let script: ScriptedGateway.Script = { peer, event in
            guard case .item(let item) = event, item.number == 2 else { return }
            peer.answer(8, item.identifier, after: .milliseconds(400))
        }
        try await withGateway({ $0.options.confirmAfter = 50 }, script: script) { client, _ in
            try await expectConfirmed(client.send((0..<5).map { .example($0) }))
            try await eventually("the complaint") {
                client.log.lines(of: "gateway_packet_late").map { $0["count"] } == ["3"]
            }
            let notes = try await client.notes()
            #expect(
                notes == [
                    "dropped 3, refused \(String(buffer: Notification.example(2).deviceToken.hex)) as InvalidToken"
                ])
            // The confirmation time is now at least a second, so this packet arrives in time.
            let results = try await client.results(5)
            #expect(results.count { $0 == .refused(.invalidToken) } == 1)
            #expect(try await client.notes() == notes)
        }
    }

    @Test("close waits for pending writes, and determines what was accepted")
    func closeWaits() async throws {
        try await withGateway({ $0.options.batchTime = 5000 }, script: Self.takesAll) { client, gateway in
            try await eventually("a connection") { try await client.ask { $0.usableConnections } == 1 }
            let futures = client.send((0..<30).map { .example($0) })
            try await client.ask { _ = $0.close() }
            try await expectConfirmed(futures)
            #expect(gateway.items.count == 31)
        }
    }

    @Test("a gateway that closes at once is not connected to again until the reconnect delay is over")
    func reconnectDelay() async throws {
        let script: ScriptedGateway.Script = { peer, event in if case .connected = event { peer.close() } }
        try await withGateway({ $0.reconnect.first = .minutes(60) }, script: script) { client, gateway in
            try await eventually("a failure") { try await client.ask { $0.statistics.failures } == 1 }
            // Each call would make an attempt if one were due.
            for _ in 0..<100 { try await client.ask { $0.check(now: .now()) } }
            #expect(try await client.ask { $0.statistics.connecting } == 0)
            #expect(gateway.seen.withLockedValue { $0.connections } == 1)
        }
    }

    @Test(
        "a connection that never had anything to send is closed after the idle time, and opened again when it is needed"
    )
    func idle() async throws {
        try await withGateway(
            {
                $0.minimumConnections = 0
                $0.idleTimeout = .milliseconds(200)
                $0.options.confirmAfter = 20
            }, script: Self.takesAll
        ) { client, gateway in
            // Without a connection there is no capacity; the sender must request some.
            let (before, connecting) = try await client.requestFirstConnection()
            #expect(before == (0, 0, true, false))
            #expect(connecting == (1, 0, false, false))
            #expect(try await client.send().get() == .confirmed)
            try await eventually("no connection") { try await client.ask { $0.usableConnections } == 0 }
            #expect(try await client.send().get() == .confirmed)
            #expect(gateway.seen.withLockedValue { $0.connections } == 2)
        }
    }

    @Test("a batch fills at most one TLS record, and no frame is split for that")
    func records() async throws {
        try await withGateway({ $0.options.confirmAfter = 50 }, script: Self.takesAll) { client, gateway in
            let notifications = (0..<1000).map { number in
                let alert = String(repeating: "y", count: 20 + number)
                return Notification.example(number, payload: #"{"aps":{"alert":"\#(alert)"}}"#)
            }
            try await expectConfirmed(client.send(notifications))
            // TLS 1.3 adds the type and a tag of 16 bytes, and the first record ends the handshake.
            let records: [Int] = gateway.seen.withLockedValue { $0.records }.dropFirst().map { $0 - 17 }
            let sizes = gateway.items.map(\.size)
            #expect(records.allSatisfy { $0 <= 16_384 })
            #expect(records.reduce(0, +) == sizes.reduce(0, +))
            #expect(ends(of: records).isSubset(of: ends(of: sizes)))
            // Each record is as full as the next notification allows.
            #expect(records.dropLast().allSatisfy { $0 > 16_384 - 2000 })
        }
    }

    /// Returns the end positions of consecutive pieces with these lengths.
    private func ends(of lengths: [Int]) -> Set<Int> {
        var end = 0
        return Set(
            lengths.map { length in
                end += length
                return end
            })
    }
}
