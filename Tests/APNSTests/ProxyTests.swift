import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("Through a proxy", .timeLimit(.minutes(10)))
struct ProxyTests {
    @Test("notifications are delivered, also when its answer arrives byte by byte", arguments: [true, false])
    func delivered(slowly: Bool) async throws {
        try await withPeer(script: answersAll) { peer in
            try await withProxy(slowly ? .connectsSlowly : .connects) { proxy in
                let through = HTTPProxy(host: "127.0.0.1", port: proxy.port)
                try await withPool(host: "localhost", port: peer.port, { $0.proxy = through }) { client in
                    let answers = try await client.results(300)
                    #expect(answers == .delivered(300))
                    #expect(try await client.ask { $0.lastFailure == nil })
                }
                // The name is not resolved: the proxy does that.
                let head = "CONNECT localhost:\(peer.port) HTTP/1.1\r\nHost: localhost:\(peer.port)\r\n\r\n"
                #expect(proxy.requests.withLockedValue { $0 } == [head])
                // TLS is with the server, whose name is verified: the proxy has no certificate.
                #expect(peer.seen.withLockedValue(\.connections) == 1)
            }
        }
    }

    @Test("a user and a password are sent only to the proxy that requires them")
    func credentials() async throws {
        try await withPeer(script: answersAll) { peer in
            // "me:secret"
            try await withProxy(.connects, authorization: "Basic bWU6c2VjcmV0") { proxy in
                let through = try HTTPProxy("http://me:secret@127.0.0.1:\(proxy.port)")
                try await withPool(port: peer.port, { $0.proxy = through }) { client in
                    try await expect(client.send(), .delivered)
                }
                let fields = peer.seen.withLockedValue { $0.frames(.headers).flatMap(\.headers) }
                #expect(!fields.contains { $0.name.contains("proxy") })
            }
        }
    }

    struct Refusal: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var behaviour = TestProxy.Behaviour.connects
        var credentials: HTTPProxy.Credentials?
        var authorization: String?
        var port: Int?
        var says: String
    }

    /// ``ProxyHandshakeTests`` tests the other answers.
    static let refusals = [
        Refusal(
            testDescription: "with others than it wants", credentials: .init(user: "u", password: "hunter2"),
            authorization: "Basic x", says: "it rejects the configured user and password"),
        Refusal(
            testDescription: "that allows none",
            behaviour: .answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", closes: true),
            says: "it answered 403 (Forbidden): it does not allow connections to 127.0.0.1:1"),
        Refusal(testDescription: "that reaches nobody", says: "it answered 502 (Bad Gateway): it cannot reach"),
        Refusal(
            testDescription: "that hangs up", behaviour: .answers("HTTP/1.1 200 O", closes: true),
            says: "it closed the connection without an answer to CONNECT"),
        Refusal(
            testDescription: "that says nothing", behaviour: .staysSilent,
            says: "it did not answer CONNECT within 1 s"),
        Refusal(testDescription: "that is not there", port: 1, says: "it cannot be reached"),
    ]

    @Test("failures are attributed to the proxy, by name, and followed by a pause", arguments: refusals)
    func refused(refusal: Refusal) async throws {
        try await withProxy(refusal.behaviour, authorization: refusal.authorization) { proxy in
            let port = refusal.port ?? proxy.port
            let through = HTTPProxy(host: "127.0.0.1", port: port, credentials: refusal.credentials)
            let limits = { @Sendable (configuration: inout ConnectionPool.Configuration) in
                configuration.proxy = through
                if case .staysSilent = refusal.behaviour { configuration.connectTimeout = .seconds(1) }
            }
            // Port 1 has no listener.
            try await withPool(port: 1, limits) { client in
                try await eventually("two failures") { try await client.failures() >= 2 }
                // On a busy machine a short timeout may expire before TCP is set up.
                try await eventually("one that says: \(refusal.says)") {
                    try await client.lastFailure().contains(refusal.says)
                }
                let failure = try await client.lastFailure()
                #expect(failure.hasPrefix("cannot connect to 127.0.0.1:1 through http://127.0.0.1:\(port): "))
                #expect(!failure.contains("hunter2"))
                #expect(try await client.ask { $0.connections.state.connecting } <= 1)
                #expect(client.log.lines(of: "apns_connection_failed").count == 1)
            }
        }
    }

    @Test("that intercepts TLS, the certificate is refused as without a proxy")
    func interception() async throws {
        try await withPeer(script: answersAll) { peer in
            try await withProxy(.connects) { proxy in
                let through = HTTPProxy(host: "127.0.0.1", port: proxy.port)
                try await withPool(port: peer.port, trusted: "other-ca.pem", { $0.proxy = through }) { client in
                    try await eventually("a failure") { try await client.ask { $0.lastFailure != nil } }
                    #expect(try await client.lastFailure().contains("certificate"))
                }
            }
        }
    }

    @Test("that does not answer, the attempt ends when the pool is closed")
    func closedMeanwhile() async throws {
        try await withProxy(.staysSilent) { proxy in
            let through = HTTPProxy(host: "127.0.0.1", port: proxy.port)
            let client = try await PoolClient.start(port: 1) { $0.proxy = through }
            try await eventually("the request") { proxy.requests.withLockedValue(\.count) == 1 }
            try await client.close()
            #expect(try await client.ask { $0.connections.state.connecting } == 0)
        }
    }
}
