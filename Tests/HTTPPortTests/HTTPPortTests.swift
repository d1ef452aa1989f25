import Hummingbird
import Logging
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import HTTPPort

@Suite("A port for HTTP", .timeLimit(.minutes(10)))
struct HTTPPortTests {
    /// The logged events.
    private final class Lines: LogHandler, @unchecked Sendable {
        static let all = Mutex<[String]>([])
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.info

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) { Self.all.withLock { $0.append("\(event.metadata?["event"], default: "")") } }
    }

    /// Holds requests until ``open()``.
    private actor Gate {
        private var isOpen = false
        private(set) var waiting = 0
        private var continuations: [CheckedContinuation<Void, Never>] = []

        func wait() async {
            waiting += 1
            guard !isOpen else { return }
            await withCheckedContinuation { continuations.append($0) }
        }

        func open() {
            isOpen = true
            for continuation in continuations { continuation.resume() }
            continuations = []
        }
    }

    private static let largePage = String(repeating: "x", count: 16 << 20)

    private func withPort(
        _ limits: PortLimits = PortLimits(), gate: Gate = Gate(), logger: Logger? = nil,
        _ body: (HTTPPort) async throws -> Void
    ) async throws {
        let router = Router()
        router.get("/") { _, _ in "here\n" }
        router.get("/large") { _, _ in Self.largePage }
        router.get("/held") { _, _ in
            await gate.wait()
            return "held\n"
        }
        let port = try await HTTPPort.listen(
            "test port", host: "127.0.0.1", port: 0, limits: limits, on: MultiThreadedEventLoopGroup.singleton.next(),
            router: router, logger: logger)
        try await running(
            { try await body(port) },
            thenAlways: {
                await gate.open()
                try await port.stop()
            })
    }

    private static func limits(
        connections: Int = 64, request: TimeAmount = .minutes(1), idle: TimeAmount = .minutes(1),
        stall: TimeAmount = .minutes(1)
    ) -> PortLimits {
        var limits = PortLimits()
        limits.connections = connections
        limits.request = request
        limits.idle = idle
        limits.stall = stall
        return limits
    }

    /// Sends a request on a connection of its own, with curl as an independent client.
    private static func probe(_ port: HTTPPort, _ path: String = "/") async throws -> String {
        let curl = try ChildProcess(
            "curl", ["-sS", "-m", "10", "--noproxy", "*", "http://127.0.0.1:\(port.port)\(path)"])
        let ending = try await curl.wait()
        try #require(ending == .exited(0), "\(curl.errors)")
        return curl.output
    }

    /// Returns a connection that has sent an incomplete head.
    private static func dripper(_ port: HTTPPort) throws -> RawConnection {
        let connection = try RawConnection(port: port.port)
        connection.send("GET / HTTP/1.1\r\nHo")
        return connection
    }

    private static func ask(_ connection: RawConnection, _ path: String = "/") {
        connection.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    @Test(
        "closes an HTTP/1.0 connection after the answer, unless the client asks to keep it",
        arguments: [
            ("GET / HTTP/1.0\r\n\r\n", true), ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", true),
        ])
    func oldClients(_ request: String, _ closes: Bool) async throws {
        try await withPort(Self.limits()) { port in
            let connection = try RawConnection(port: port.port)
            connection.send(request)
            if closes {
                try await eventually("it is closed") { connection.hasEnded() }
                #expect(connection.received.hasSuffix("here\n"))
            } else {
                try await eventually("it is answered") {
                    !connection.hasEnded() && connection.received.hasSuffix("here\n")
                }
                connection.send(request)
                try await eventually("it is answered again") {
                    !connection.hasEnded() && connection.received.matches(of: #/here\n/#).count == 2
                }
            }
        }
    }

    @Test("closes a connection that is silent, whose head or body arrives byte by byte, or is idle after an answer")
    func silent() async throws {
        try await withPort(Self.limits(request: .seconds(1), idle: .seconds(1))) { port in
            let began = ContinuousClock.now
            let silent = try RawConnection(port: port.port)
            let head = try Self.dripper(port)
            let idle = try RawConnection(port: port.port)
            Self.ask(idle)
            let body = try RawConnection(port: port.port)
            body.send("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx")
            try await eventually("all are closed") {
                head.send("x")
                body.send("x")
                let ended = [silent, head, idle, body].map { $0.hasEnded() }
                #expect(!ended.contains(true) || ContinuousClock.now - began >= .seconds(1))
                return ended == [true, true, true, true]
            }
            #expect(silent.received.isEmpty && head.received.isEmpty)
            #expect(idle.received.hasSuffix("here\n") && body.received.hasSuffix("here\n"))
        }
    }

    @Test("keeps a connection with one request after another")
    func keptAlive() async throws {
        try await withPort(Self.limits(request: .seconds(1), idle: .seconds(2))) { port in
            let connection = try RawConnection(port: port.port)
            let began = ContinuousClock.now
            var count = 0
            // The loop lasts longer than both timeouts: of a request, and between requests.
            while ContinuousClock.now - began < .seconds(3) {
                Self.ask(connection)
                count += 1
                try await eventually("an answer comes") {
                    connection.read()
                    return connection.received.components(separatedBy: "here\n").count > count
                }
                try #require(!connection.isClosed)
            }
        }
    }

    @Test("answers a head that is too large, and closes")
    func largeHead() async throws {
        try await withPort { port in
            let connection = try RawConnection(port: port.port)
            connection.send("GET / HTTP/1.1\r\nX: ")
            var sent = 0
            let piece = String(repeating: "a", count: 65_536)
            try await eventually("the connection is closed, and what is sent on is not read for long") {
                connection.read()
                sent += connection.send(piece)
                return connection.isReset
            }
            #expect(connection.received.hasPrefix("HTTP/1.1 400 "), "\(connection.received)")
            #expect(connection.received.lowercased().contains("connection: close"))
            #expect(sent > 16 * 1024)
        }
    }

    @Test("closes after bytes that are not HTTP, and after a client that should close itself and does not")
    func lingering() async throws {
        try await withPort { port in
            let garbage = try RawConnection(port: port.port)
            garbage.send("\u{16}\u{3}\u{1}garbage\r\n\r\n")
            let polite = try RawConnection(port: port.port)
            polite.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            try await eventually("both are closed") { [garbage, polite].map { $0.isRefused() } == [true, true] }
            #expect(garbage.received.hasPrefix("HTTP/1.1 400 "))
            #expect(polite.received.hasSuffix("here\n"))
        }
    }

    @Test("answers all of several requests that arrive at once, also if the client then closes its side")
    func pipelined() async throws {
        try await withPort { port in
            let connection = try RawConnection(port: port.port)
            let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.send(String(repeating: request, count: 20))
            connection.closeOutput()
            try await eventually("the port has answered and closed") { connection.hasEnded() }
            #expect(connection.received.components(separatedBy: "here\n").count == 21)
        }
    }

    @Test("closes a connection whose client does not read its answer, and not one that reads slowly")
    func stalled() async throws {
        try await withPort(Self.limits(stall: .seconds(5))) { port in
            let deaf = try RawConnection(port: port.port)
            Self.ask(deaf, "/large")
            // At 2 MB/s, the transfer takes longer than the timeout.
            let slow = try ChildProcess(
                "curl",
                [
                    "-sS", "-m", "60", "--noproxy", "*", "--limit-rate", "2M", "-o", "/dev/null", "-w",
                    "%{size_download}", "http://127.0.0.1:\(port.port)/large",
                ])
            try await eventually("the port hangs up on the deaf one") { deaf.send("x") == 0 && deaf.isReset }
            deaf.read()
            #expect(deaf.received.utf8.count < Self.largePage.utf8.count)
            #expect(try await slow.wait() == .exited(0), "\(slow.errors)")
            #expect(slow.output == "\(Self.largePage.utf8.count)")
        }
    }

    @Test("full of slow connections, it answers probes, and closes the one that has been slow longest")
    func full() async throws {
        let logger = Logger(label: "port") { _ in Lines() }
        try await withPort(Self.limits(connections: 8), logger: logger) { port in
            var drippers = try (0..<8).map { _ in try Self.dripper(port) }
            for closed in 1...4 {
                #expect(try await Self.probe(port) == "here\n")
                try await eventually("the oldest are closed, and no others") {
                    drippers.map { $0.hasEnded() } == drippers.indices.map { $0 < closed }
                }
                // The probe's connection has closed, so one more connection fits.
                drippers.append(try Self.dripper(port))
            }
            let warnings = Lines.all.withLock { $0.filter { $0 == "port_full" } }
            #expect(warnings.count == 1)
        }
    }

    @Test("a thousand slow connections leave capacity for probes at any time")
    func flood() async throws {
        try await withPort(Self.limits(connections: 16)) { port in
            var held: [RawConnection] = []
            for number in 0..<1000 {
                held.append(try Self.dripper(port))
                if number % 100 == 99 { #expect(try await Self.probe(port) == "here\n") }
            }
            try await eventually("all but a few are closed") { held.count { !$0.hasEnded() } <= 16 }
        }
    }

    @Test("a connection whose request is being answered is never closed in favor of another")
    func answering() async throws {
        let gate = Gate()
        try await withPort(Self.limits(connections: 4, request: .seconds(1)), gate: gate) { port in
            let held = try (0..<4).map { _ in try RawConnection(port: port.port) }
            for connection in held { Self.ask(connection, "/held") }
            try await eventually("all are at work") { await gate.waiting == 4 }
            let other = try RawConnection(port: port.port)
            try await eventually("one more is refused") { other.hasEnded() }
            #expect(held.allSatisfy { !$0.hasEnded() })
            await gate.open()
            try await eventually("all are answered") {
                for connection in held { connection.read() }
                return held.allSatisfy { $0.received.hasSuffix("held\n") }
            }
            #expect(try await Self.probe(port) == "here\n")
        }
    }

    @Test("stops despite slow connections")
    func stops() async throws {
        var dripper: RawConnection?
        try await withPort(Self.limits(request: .hours(1))) { port in
            dripper = try Self.dripper(port)
            #expect(try await Self.probe(port) == "here\n")
        }
        #expect(try #require(dripper).hasEnded())
    }

    @Test("answers a request in flight when it stops, and says that the connection ends")
    func lastAnswer() async throws {
        let gate = Gate()
        try await withPort(gate: gate) { port in
            let connection = try RawConnection(port: port.port)
            Self.ask(connection, "/held")
            try await eventually("the request is held") { await gate.waiting == 1 }
            let stopping = Task { try await port.stop() }
            try await eventually("no other connection is accepted") {
                (try? RawConnection(port: port.port))?.hasEnded() ?? true
            }
            await gate.open()
            try await eventually("the connection ends") { connection.hasEnded() }
            #expect(connection.received.lowercased().contains("connection: close"), "\(connection.received)")
            #expect(connection.received.hasSuffix("held\n") && !connection.isReset)
            try await stopping.value
        }
    }
}
