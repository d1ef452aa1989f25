import NIOCore
import NIOEmbedded
import TLS
import Testing

@Suite("Handshake")
struct HandshakeTests {
    @Test("tells both sides what was agreed on")
    func summary() throws {
        let pair = try EmbeddedPair(
            client: Fixtures.client(protocols: ["h2", "http/1.1"]), server: Fixtures.server(protocols: ["h2"]))
        try pair.connect()

        let client = try #require(pair.clientEvents.handshake)
        #expect(client.applicationProtocol == "h2")
        #expect(client.version == "TLSv1.3")
        #expect(client.cipher.hasPrefix("TLS_"))
        #expect(client.peerCertificate?.commonName == "localhost")
        #expect(client.peerCertificate?.sha256.count == 64)
        let server = try #require(pair.serverEvents.handshake)
        #expect(server.applicationProtocol == "h2")
        #expect(server.serverName == "localhost")
        #expect(server.peerCertificate == nil)
        #expect(pair.clientEvents.errors.isEmpty)
        #expect(pair.serverEvents.errors.isEmpty)
    }

    @Test("carries what was written before it completed, in order")
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
