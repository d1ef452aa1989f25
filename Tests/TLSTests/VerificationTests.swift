import NIOCore
import TLS
import TestSupport
import Testing

@Suite("Verification", .timeLimit(.minutes(10)))
struct VerificationTests {
    /// Connects to a server with a certificate. Checks that each side reports one error, and returns both.
    private func refusal(
        certificate: String, host: String = "localhost", trusting authority: String = "ca.pem"
    ) async throws -> (client: TLSError, server: TLSError) {
        try await withServer(TestCertificates.server(certificate)) { server in
            let client = try await SocketClient.connect(
                TestCertificates.client(trusting: authority), port: server.port, host: host)
            let write = client.channel.eventLoop.makePromise(of: Void.self)
            client.channel.writeAndFlush(ByteBuffer(string: "secret"), promise: write)
            let seen = try await client.end.get()
            #expect(seen.handshake == nil)
            #expect(seen.errors.count == 1)
            let error = try #require(seen.tlsErrors.first)
            await #expect(throws: (any Error).self) { try await write.futureResult.get() }
            let other = try await server.nextOutcome()
            #expect(other.text == "")
            #expect(other.errors.count == 1)
            return (error, try #require(other.tlsErrors.first))
        }
    }

    @Test(
        "refuses a certificate that is out of date or for another host, and reports why",
        arguments: [
            (
                "expired", "localhost", .certificateExpired(certificate: "localhost", since: 1_609_459_200),
                "expired on 2021-01-01T00:00:00Z"
            ),
            (
                "notyet", "localhost", .certificateNotYetValid(certificate: "localhost", until: 2_493_072_000),
                "not valid before 2049-01-01T00:00:00Z"
            ),
            (
                "wronghost", "localhost", .hostNameMismatch(certificateNames: ["example.invalid"]),
                "is for example.invalid, not for localhost"
            ),
            (
                "server", "127.0.0.2", .hostNameMismatch(certificateNames: ["localhost", "127.0.0.1", "::1"]),
                "not for 127.0.0.2"
            ),
        ] as [(String, String, TLSError.Kind, String)])
    func refused(certificate: String, host: String, kind: TLSError.Kind, says: String) async throws {
        let (error, server) = try await refusal(certificate: certificate, host: host)
        #expect(error.kind == kind)
        #expect(error.host == host)
        #expect(error.description.contains(host) && error.description.contains(says), "\(error)")
        guard certificate == "expired" else { return }
        #expect(server.kind == .alert(TLSAlert(code: 45)))
        #expect(server.description.contains("certificate_expired"))
    }

    @Test("refuses a certificate of an authority that is not trusted")
    func unknownAuthority() async throws {
        let (error, server) = try await refusal(certificate: "server", trusting: "other-ca.pem")
        guard case .untrustedCertificate(certificate: "localhost", reason: _) = error.kind else { throw error }
        #expect(error.description.contains("is not trusted"))
        #expect(server.kind == .alert(TLSAlert(code: 48)))
    }

    @Test("refuses a test authority when the system's are trusted, which is the default")
    func systemTrust() throws {
        let pair = try EmbeddedPair(client: TLSContext.client(TLSClientConfiguration()))
        try pair.connect()
        guard case .untrustedCertificate? = pair.clientEvents.tlsErrors.first?.kind else {
            Issue.record("\(pair.clientEvents.errors)")
            return
        }
    }

    @Test("refuses a server that presents a client certificate")
    func wrongPurpose() async throws {
        let (error, _) = try await refusal(certificate: "client")
        guard case .certificateRejected(_, let reason) = error.kind else { throw error }
        #expect(reason.contains("purpose"))
    }

    @Test(
        "accepts names in any case, with a final dot, and addresses with and without brackets",
        arguments: ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "::1", "[::1]"])
    func hosts(host: String) throws {
        let pair = try EmbeddedPair(host: host)
        try pair.connect()
        #expect(pair.clientEvents.errors.isEmpty)
        #expect(pair.clientEvents.handshake != nil)
        let isName = host.lowercased().hasPrefix("localhost")
        #expect((pair.serverEvents.handshake?.serverName != nil) == isName)
    }

    @Test(
        "never connects to an invalid host", arguments: ["", ".", "[]", "local host", "localhost\0.evil", "bücher.de"])
    func invalidHosts(host: String) throws {
        let pair = try EmbeddedPair(host: host)
        try pair.connect()
        #expect(pair.clientEvents.tlsErrors.map(\.kind) == [.invalidHost])
        #expect(!pair.client.isActive)
        #expect(pair.sentByClient.readableBytes == 0)
    }

    @Test(
        "follows a chain, and trusts an intermediate, or the server's certificate itself, if a file contains it",
        arguments: ["ca.pem", "intermediate.pem", "chain.pem"])
    func chain(authority: String) throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(trusting: authority), server: TestCertificates.server("chain"))
        try pair.connect()
        #expect(pair.clientEvents.errors.isEmpty)
        #expect(pair.clientEvents.handshake != nil)
    }
}

@Suite("Client certificates", .timeLimit(.minutes(10)))
struct ClientCertificateTests {
    @Test("may be missing if they are only requested")
    func requested() throws {
        let pair = try EmbeddedPair(
            server: TestCertificates.server(clientCertificates: .requested(.file(TestCertificates.path("ca.pem")))))
        try pair.connect()
        #expect(pair.serverEvents.errors.isEmpty)
        #expect(pair.serverEvents.handshake != nil)
        #expect(pair.serverEvents.handshake?.peerCertificate == nil)
    }

    @Test("are refused if they are from another authority, even if only requested")
    func untrusted() throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(identity: TestCertificates.identity("client")),
            server: TestCertificates.server(
                clientCertificates: .requested(.file(TestCertificates.path("other-ca.pem")))))
        try pair.connect()
        let error = try #require(pair.serverEvents.tlsErrors.first)
        #expect(error.peer == .client)
        #expect(error.host == nil)
        #expect(error.description.hasPrefix("TLS with a client: the client's certificate"))
        #expect(pair.serverEvents.handshake == nil)
        #expect(pair.clientEvents.tlsErrors.map(\.kind) == [.alert(TLSAlert(code: 48))])
    }

    @Test("are accepted if they are only reported, with the error", arguments: ["ca.pem", "other-ca.pem"])
    func reported(authority: String) throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(identity: TestCertificates.identity("client")),
            server: TestCertificates.server(clientCertificates: .reported(.file(TestCertificates.path(authority)))))
        try pair.connect()
        #expect(pair.serverEvents.errors.isEmpty && pair.clientEvents.errors.isEmpty)
        let certificate = try #require(pair.serverEvents.handshake?.peerCertificate)
        #expect(certificate.userID == "com.example.app")
        #expect((certificate.refusal == nil) == (authority == "ca.pem"))
    }

    @Test("are reported even if there is none, or its authority is unknown")
    func reportedWithoutAuthorities() throws {
        let server = try TestCertificates.server(clientCertificates: .reported(nil))
        let pair = try EmbeddedPair(
            client: TestCertificates.client(identity: TestCertificates.identity("client")), server: server)
        try pair.connect()
        #expect(pair.serverEvents.handshake?.peerCertificate?.refusal != nil)
        let without = try EmbeddedPair(server: server)
        try without.connect()
        #expect(without.serverEvents.handshake != nil)
        #expect(without.serverEvents.handshake?.peerCertificate == nil)
    }

    @Test("that are missing end the connection, and both sides get the reason although the client was already writing")
    func missing() async throws {
        let context = try TestCertificates.server(clientCertificates: .required(.file(TestCertificates.path("ca.pem"))))
        try await withServer(context) { server in
            // In TLS 1.3, the client's handshake is complete before the server has verified its certificate.
            let client = try await SocketClient.connect(
                TestCertificates.client(), port: server.port,
                behaviour: .init(onHandshake: { channel in
                    channel.writeAndFlush(ByteBuffer(repeating: 7, count: 200_000), promise: nil)
                }))
            let seen = try await client.end.get()
            #expect(seen.tlsErrors.map(\.kind) == [.alert(TLSAlert(code: 116))])
            #expect(seen.tlsErrors.first?.description.contains("certificate_required") == true)
            let other = try await server.nextOutcome()
            #expect(other.tlsErrors.map(\.kind) == [.peerCertificateMissing])
            #expect(other.handshake == nil)
            #expect(other.received.readableBytes == 0)
        }
    }
}
