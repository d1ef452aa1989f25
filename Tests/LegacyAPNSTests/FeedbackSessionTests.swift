import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import APNS
@testable import LegacyAPNS

@Suite("A connection to a feedback service", .timeLimit(.minutes(10)))
struct FeedbackSessionTests {
    private static func dialer(
        _ port: Int, certificate: String? = "client", trusting authority: String = "ca.pem", proxy: TestProxy? = nil,
        timeout: TimeAmount = .seconds(10)
    ) throws -> Dialer {
        var dialer = Dialer(
            endpoint: APNSEndpoint(host: "localhost", port: port),
            tls: try TestCertificates.client(
                trusting: authority, identity: certificate.map(TestCertificates.identity)),
            proxy: proxy.map { HTTPProxy(host: "127.0.0.1", port: $0.port) })
        dialer.connectTimeout = timeout
        return dialer
    }

    private static func token(_ number: Int) -> String {
        let hex = String(number, radix: 16)
        return String(repeating: "0", count: 64 - hex.count) + hex
    }

    private static func bytes(_ numbers: Range<Int>) -> [UInt8] {
        numbers.flatMap { FeedbackServer.tuple(UInt32($0), token($0)) }
    }

    private func withServer(
        authority: String? = "ca", setsUpTLS: Bool = true, sendBuffer: Int = 1 << 20,
        script: @escaping FeedbackServer.Script, _ body: (FeedbackServer) async throws -> Void
    ) async throws {
        let server = try await FeedbackServer.start(
            authority: authority, setsUpTLS: setsUpTLS, sendBuffer: sendBuffer, script: script)
        try await running({ try await body(server) }, thenAlways: server.stop)
    }

    /// Returns all tuples of a service, and the error with which it ended.
    private func drain(
        _ dialer: Dialer, silence: TimeAmount = .seconds(60), atMost count: Int = 1000
    ) async throws -> (tuples: [FeedbackTuple], error: FeedbackError?, incomplete: Int) {
        let session = try await FeedbackSession.connect(dialer, silence: silence)
        defer { session.close() }
        var tuples: [FeedbackTuple] = []
        do {
            while case let more = try await session.next(atMost: count), !more.isEmpty {
                #expect(more.count <= count)
                tuples += more
            }
        } catch let error as FeedbackError {
            return (tuples, error, try await session.incompleteBytes())
        }
        return (tuples, nil, try await session.incompleteBytes())
    }

    /// Compares outside the macro, which would print all tuples.
    private func expect(
        _ tuples: [FeedbackTuple], _ numbers: Range<Int>, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(tuples.count == numbers.count, sourceLocation: sourceLocation)
        let wrong = zip(tuples, numbers).first { tuple, number in
            tuple.seconds != UInt32(number) || String(buffer: tuple.token.hex) != Self.token(number)
        }
        #expect(wrong == nil, sourceLocation: sourceLocation)
    }

    @Test(
        "delivers all sent records, in any pieces, whether or not it is closed with close_notify",
        arguments: [true, false])
    func pieces(inGoodOrder: Bool) async throws {
        for (size, count) in [(1, 0), (1, 100), (5, 100), (38, 3000), (1000, 3000), (200_000, 3000)] {
            let bytes = Self.bytes(0..<count)
            try await withServer(script: { peer in
                var rest = bytes[...]
                while !rest.isEmpty {
                    peer.send(rest.prefix(size))
                    rest = rest.dropFirst(size)
                }
                if inGoodOrder { peer.close() } else { peer.hangUp() }
            }) { server in
                let (tuples, error, incomplete) = try await drain(Self.dialer(server.port), atMost: 700)
                #expect(error == nil && incomplete == 0, "\(String(describing: error))")
                expect(tuples, 0..<count)
            }
        }
    }

    enum Ending { case cut, malformed, silence }

    @Test(
        "a cut in the middle of a tuple, an invalid tuple, and silence are reported after the tuples before them",
        arguments: [
            (Ending.cut, 49, "in the middle of a tuple, after 31 bytes"), (.malformed, 3, "the tuple at byte 114"),
            (.silence, 5, "sent nothing for 3 s"),
        ])
    func badEnd(ending: Ending, count: Int, says: String) async throws {
        try await withServer(script: { peer in
            switch ending {
            case .cut:
                peer.send(Self.bytes(0..<50).dropLast(7))
                peer.hangUp()
            case .malformed: peer.send(Self.bytes(0..<3) + [0, 0, 0, 1, 0, 101, 1, 2, 3])
            case .silence: peer.send(Self.bytes(0..<5))
            }
        }) { server in
            let (tuples, error, incomplete) = try await drain(
                Self.dialer(server.port), silence: ending == .silence ? .seconds(3) : .seconds(60))
            expect(tuples, 0..<count)
            #expect(ending != .cut || incomplete == 31)
            #expect(error?.description.contains(says) == true, "\(String(describing: error))")
        }
    }

    @Test("a reset is reported after the tuples before it")
    func reset() async throws {
        try await withServer(script: { $0.send(Self.bytes(0..<20)) }) { server in
            let session = try await FeedbackSession.connect(Self.dialer(server.port))
            var tuples: [FeedbackTuple] = []
            while tuples.count < 20 { tuples += try await session.next(atMost: 100) }
            let peer = try #require(server.peers.first)
            peer.reset()
            let error = await #expect(throws: FeedbackError.self) { try await session.next(atMost: 100) }
            #expect(error?.description.contains("broke") == true, "\(String(describing: error))")
            expect(tuples, 0..<20)
            session.close()
        }
    }

    @Test("a certificate that the service refuses is reported", arguments: [nil, "client"])
    func certificate(name: String?) async throws {
        try await withServer(authority: name == nil ? "ca" : "other-ca", script: { $0.close() }) { server in
            // In TLS 1.3, the refusal arrives when the client's handshake is already complete.
            let error = await #expect(throws: FeedbackError.self) {
                if let error = try await drain(Self.dialer(server.port, certificate: name)).error { throw error }
            }
            guard case .tls? = error else { throw try #require(error) }
            #expect(error?.description.contains("alert") == true)
            #expect(server.peers.allSatisfy { !$0.isConnected })
        }
    }

    @Test("a service with a certificate for another host or from an untrusted authority is not read")
    func server() async throws {
        try await withServer(script: { $0.close() }) { server in
            await #expect(throws: FeedbackError.self) {
                try await FeedbackSession.connect(
                    Self.dialer(server.port, certificate: nil, trusting: "other-ca.pem"))
            }
        }
    }

    @Test("a silent server is abandoned after a timeout, and an unreachable one at once")
    func dead() async throws {
        try await withServer(setsUpTLS: false, script: { _ in }) { server in
            let error = await #expect(throws: FeedbackError.self) {
                try await FeedbackSession.connect(Self.dialer(server.port, timeout: .milliseconds(300)))
            }
            #expect(error?.description.contains("TLS was not set up within 300 ms") == true)
        }
        let port = try RedisServer.refusedPort()
        let error = await #expect(throws: FeedbackError.self) {
            try await FeedbackSession.connect(Self.dialer(port))
        }
        #expect(error?.description.contains("Connection refused") == true)
    }

    @Test("reads no faster than it is asked")
    func backPressure() async throws {
        let total = 60_000
        // The bytes are created here, because the event loop also runs other tests' servers.
        let pieces = stride(from: 0, to: total, by: 1000).map { Self.bytes($0..<($0 + 1000)) }
        try await withServer(
            sendBuffer: 64 * 1024,
            script: { peer in
                for piece in pieces { peer.send(piece) }
                peer.hangUp()
            }
        ) { server in
            let session = try await FeedbackSession.connect(Self.dialer(server.port))
            var tuples = try await session.next(atMost: 100)
            let peer = try #require(server.peers.first)
            // Waits until the service cannot send any more, so that its count stays the same for a while.
            var (last, same) = (-1, 0)
            try await eventually("the service is stuck") {
                let sent = peer.sentBytes
                same = sent == last ? same + 1 : 0
                last = sent
                return same > 20
            }
            #expect(peer.sentBytes < total * 38 / 4 * 3, "\(peer.sentBytes) bytes were taken though nobody asked")
            while case let more = try await session.next(atMost: 1000), !more.isEmpty { tuples += more }
            session.close()
            expect(tuples, 0..<total)
        }
    }

    @Test("after a stop it delivers records in transit, and reports that the end was not reached")
    func stop() async throws {
        try await withServer(script: { $0.send(Self.bytes(0..<500)) }) { server in
            let session = try await FeedbackSession.connect(Self.dialer(server.port))
            var tuples = try await session.next(atMost: 10)
            session.stop()
            let error = await #expect(throws: FeedbackError.self) {
                while case let more = try await session.next(atMost: 10), !more.isEmpty { tuples += more }
            }
            guard case .stopped? = error else { throw try #require(error) }
            expect(tuples, 0..<500)
            session.close()
        }
    }

    @Test("uses a proxy, and names one that refuses")
    func proxy() async throws {
        try await withServer(script: { peer in
            peer.send(Self.bytes(0..<10))
            peer.close()
        }) { server in
            try await withProxy(.connectsSlowly) { proxy in
                let (tuples, error, _) = try await drain(Self.dialer(server.port, proxy: proxy))
                #expect(error == nil)
                expect(tuples, 0..<10)
                let head = proxy.requests.withLockedValue { $0.first }
                #expect(head?.hasPrefix("CONNECT localhost:\(server.port) ") == true)
            }
            try await withProxy(.answers("HTTP/1.1 403 Forbidden\r\n\r\n", closes: false)) { proxy in
                let error = await #expect(throws: FeedbackError.self) {
                    try await FeedbackSession.connect(Self.dialer(server.port, proxy: proxy))
                }
                #expect(error?.description.contains("through http://127.0.0.1:\(proxy.port)") == true)
            }
        }
    }
}
