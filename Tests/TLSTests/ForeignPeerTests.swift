import NIOCore
import TLS
import TestSupport
import Testing

@Suite("With openssl s_client", .timeLimit(.minutes(10)))
struct OpenSSLClientTests {
    private func connect(to server: SocketServer, _ arguments: [String] = []) throws -> OpenSSLCommand {
        try OpenSSLCommand(
            ["s_client", "-connect", "127.0.0.1:\(server.port)", "-CAfile", TestCertificates.path("ca.pem")] + arguments
        )
    }

    @Test(
        "a server is verified, selects the protocol, sends no tickets, echoes, and survives key updates",
        arguments: ["-tls1_2", "-tls1_3"])
    func server(version: String) async throws {
        try await withServer(TestCertificates.server("chain", protocols: ["h2"]), behaviour: .init(echoes: true)) {
            server in
            let client = try connect(
                to: server,
                [
                    version, "-servername", "localhost", "-verify_hostname", "localhost", "-verify_return_error",
                    "-alpn", "http/1.1,h2",
                ])
            try client.send("first line\n")
            try await client.expect("first line")
            #expect(client.output.contains("Verification: OK"))
            #expect(client.output.contains("ALPN protocol: h2"))
            #expect(client.output.contains("Compression: NONE"))
            if version == "-tls1_3" {
                // K: the client updates its keys, and requests an update of the server's.
                try client.send("K\n")
                try await client.expect("KEYUPDATE")
                try client.send("second line\n")
                try await client.expect("second line")
            }
            try client.hangUp()
            let seen = try await server.nextOutcome()
            await client.end()
            #expect(!client.output.contains("New Session Ticket"))
            #expect(!client.output.contains("session ticket:"))
            #expect(seen.errors.isEmpty)
            #expect(seen.handshake?.version == (version == "-tls1_3" ? "TLSv1.3" : "TLSv1.2"))
            #expect(seen.handshake?.serverName == "localhost")
            #expect(seen.text == (version == "-tls1_3" ? "first line\nsecond line\n" : "first line\n"))
        }
    }

    @Test("a server refuses TLS 1.1 and reports that to both sides")
    func oldVersion() async throws {
        try await withServer(TestCertificates.server()) { server in
            let client = try connect(to: server, ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"])
            await client.end()
            #expect(client.output.contains("alert protocol version"))
            let error = try #require(try await server.nextOutcome().tlsErrors.first)
            #expect(error.kind == .handshakeFailed(reason: "unsupported protocol"))
            #expect(error.description.contains("TLS 1.2 or later"))
        }
    }

    @Test("a server refuses to renegotiate")
    func renegotiation() async throws {
        try await withServer(TestCertificates.server(), behaviour: .init(echoes: true)) { server in
            let client = try connect(to: server, ["-tls1_2"])
            try client.send("hello\n")
            try await client.expect("hello")
            try client.send("R\n")
            await client.end()
            #expect(client.output.contains("no renegotiation"))
            #expect(try await server.nextOutcome().text == "hello\n")
        }
    }

    @Test("a server accepts a client certificate, and reads its topic")
    func clientCertificate() async throws {
        let context = try TestCertificates.server(clientCertificates: .required(.file(TestCertificates.path("ca.pem"))))
        try await withServer(context) { server in
            let client = try connect(
                to: server,
                ["-cert", TestCertificates.path("client.pem"), "-key", TestCertificates.path("client-key.pem")])
            try await client.expect("Acceptable client certificate CA names")
            try await client.expect("Verify return code: 0 (ok)")
            try client.hangUp()
            let seen = try await server.nextOutcome()
            await client.end()
            #expect(seen.errors.isEmpty)
            #expect(seen.handshake?.peerCertificate?.userID == "com.example.app")
        }
    }
}

@Suite("With openssl s_server", .timeLimit(.minutes(10)))
struct OpenSSLServerTests {
    @Test("a client sends SNI, negotiates a protocol, sends data, and closes", arguments: ["-tls1_2", "-tls1_3"])
    func client(version: String) async throws {
        let (server, port) = try await OpenSSLCommand.server(
            [version, "-naccept", "1", "-alpn", "h2", "-state", "-tlsextdebug"])
        let client = try await SocketClient.connect(
            TestCertificates.client(protocols: ["h2", "http/1.1"]), port: port, behaviour: .init(closesAfter: 6))
        let handshake = try await client.handshake.get()
        #expect(handshake.applicationProtocol == "h2")
        #expect(handshake.version == (version == "-tls1_3" ? "TLSv1.3" : "TLSv1.2"))
        #expect(handshake.peerCertificate?.commonName == "localhost")
        try await client.channel.writeAndFlush(ByteBuffer(string: "question\n"))
        try await server.expect("question")
        try server.send("reply\n")
        let seen = try await client.end.get()
        await server.end()
        #expect(seen.text == "reply\n")
        #expect(seen.errors.isEmpty)
        #expect(server.output.contains("TLS client extension \"server name\" (id=0), len=14"))
        #expect(server.output.contains("SSL3 alert read:warning:close notify"))
    }

    @Test("a client follows key updates the server starts")
    func keyUpdate() async throws {
        let (server, port) = try await OpenSSLCommand.server(["-tls1_3", "-naccept", "1", "-msg"])
        let client = try await SocketClient.connect(
            TestCertificates.client(), port: port, behaviour: .init(echoes: true, closesAfter: 12))
        _ = try await client.handshake.get()
        try server.send("K\n")
        try await server.expect(">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
        try server.send("renewed\n")
        // libssl sends its own key update before its next write, which is the echo.
        try await server.expect("<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
        try await server.expect("renewed\n")
        try server.send("end\n")
        let seen = try await client.end.get()
        await server.end()
        #expect(seen.text == "renewed\nend\n")
        #expect(seen.errors.isEmpty)
    }

    @Test("a client refuses TLS 1.1")
    func oldVersion() async throws {
        let (server, port) = try await OpenSSLCommand.server(["-tls1_1", "-naccept", "1", "-cipher", "ALL:@SECLEVEL=0"])
        let client = try await SocketClient.connect(TestCertificates.client(), port: port)
        let seen = try await client.end.get()
        await server.end()
        #expect(seen.handshake == nil)
        #expect(seen.tlsErrors.map(\.kind) == [.alert(TLSAlert(code: 70))])
        #expect(seen.tlsErrors.first?.description.contains("protocol_version") == true)
    }

    @Test("a client uses a certificate with an encrypted key, and one without a certificate gets an alert")
    func clientCertificates() async throws {
        let demand = try [
            "-Verify", "1", "-verify_return_error", "-CAfile", TestCertificates.path("ca.pem"), "-naccept", "2",
        ]
        let (server, port) = try await OpenSSLCommand.server(demand)
        let identity = try TLSIdentity(
            certificateFile: TestCertificates.path("client.pem"),
            keyFile: TestCertificates.path("client-key-encrypted.pem"),
            passphrase: "secret")
        let known = try await SocketClient.connect(TestCertificates.client(identity: identity), port: port)
        _ = try await known.handshake.get()
        try await known.channel.writeAndFlush(ByteBuffer(string: "known\n"))
        try await server.expect("known")
        try await known.channel.close()
        #expect(server.output.contains("com.example.app"))

        let unknown = try await SocketClient.connect(TestCertificates.client(), port: port)
        let seen = try await unknown.end.get()
        await server.end()
        #expect(seen.tlsErrors.map(\.kind) == [.alert(TLSAlert(code: 116))])
    }
}
