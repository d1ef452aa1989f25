import NIOCore
import NIOEmbedded
import TLS
import TestSupport
import Testing

@Suite("Handshake")
struct HandshakeTests {
    @Test("reports the negotiated parameters to both sides")
    func summary() throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(protocols: ["h2", "http/1.1"]),
            server: TestCertificates.server(protocols: ["h2"]))
        try pair.connect()

        let client = try #require(pair.clientEvents.handshake)
        #expect(client.applicationProtocol == "h2")
        #expect(client.version == "TLSv1.3")
        #expect(client.peerCertificate?.commonName == "localhost")
        let server = try #require(pair.serverEvents.handshake)
        #expect(server.applicationProtocol == "h2")
        #expect(server.serverName == "localhost")
        #expect(server.peerCertificate == nil)
        #expect(pair.clientEvents.errors.isEmpty)
        #expect(pair.serverEvents.errors.isEmpty)
    }

    @Test("delivers data written before it completed, in order")
    func earlyWrites() throws {
        let pair = try EmbeddedPair()
        let promise = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.write(ByteBuffer(string: "one "), promise: nil)
        pair.client.writeAndFlush(ByteBuffer(string: "two "), promise: promise)
        pair.client.write(ByteBuffer(string: "not flushed"), promise: nil)
        try pair.connect()

        try promise.futureResult.wait()
        #expect(String(buffer: pair.serverEvents.received) == "one two ")
    }
}

@Suite("Application protocols")
struct ApplicationProtocolTests {
    @Test(
        "are chosen in the server's order, and not negotiated if one side has none",
        arguments: [
            (["http/1.1", "h2"], ["spdy/1", "h2", "http/1.1"], "h2"), ([], ["h2"], nil), (["h2"], [], nil),
            ([], [], nil),
        ] as [([String], [String], String?)])
    func agreed(client: [String], server: [String], chosen: String?) throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(protocols: client), server: TestCertificates.server(protocols: server))
        try pair.connect()
        for events in [pair.clientEvents, pair.serverEvents] {
            #expect(try #require(events.handshake).applicationProtocol == chosen)
        }
    }

    @Test("without a common one end the handshake")
    func noOverlap() throws {
        let pair = try EmbeddedPair(
            client: TestCertificates.client(protocols: ["http/1.1"]), server: TestCertificates.server(protocols: ["h2"])
        )
        try pair.connect()
        #expect(pair.clientEvents.tlsErrors.map(\.kind) == [.alert(TLSAlert(code: 120))])
        #expect(pair.clientEvents.tlsErrors.first?.description.contains("no_application_protocol") == true)
        #expect(pair.serverEvents.tlsErrors.count == 1)
        #expect(pair.serverEvents.handshake == nil)
    }
}
