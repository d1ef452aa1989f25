import Foundation
import TLS
import Testing

@Suite("Certificate and key files")
struct IdentityTests {
    private func error(_ body: () throws -> Void) throws -> TLSError {
        try #require(throws: TLSError.self) { try body() }
    }

    @Test("contain the identity's name and expiration")
    func identity() throws {
        let identity = try Fixtures.identity("client")
        #expect(identity.commonName == "Apple Push Services: com.example.app")
        #expect(identity.userID == "com.example.app")
        #expect(try #require(identity.notAfter) > Int64(Date().timeIntervalSince1970))
        #expect(try Fixtures.identity("expired").notAfter == 1_609_459_200)
    }

    @Test("may be PEM in memory, certificate and key in one")
    func memory() throws {
        let both = try Fixtures.contents("client-key.pem") + Fixtures.contents("client.pem")
        let identity = try TLSIdentity(certificatePEM: both, keyPEM: both)
        #expect(identity.userID == "com.example.app")
    }

    @Test(
        "that cannot be read are named, with the system's reason",
        arguments: [
            ("/nowhere/a.pem", "cannot read /nowhere/a.pem: No such file or directory"),
            ("/tmp", "/tmp is a directory; use the path of the file in it"),
        ])
    func unreadable(path: String, says: String) throws {
        let error = try error { _ = try TLSIdentity(certificateFile: path, keyFile: path) }
        #expect(error.description.contains(says))
    }

    @Test("that are not PEM get errors that name the expected contents")
    func notPEM() throws {
        let certificate = try Fixtures.contents("client.pem")
        let key = try Fixtures.contents("client-key.pem")
        let first = try error { _ = try TLSIdentity(certificatePEM: Array("hello".utf8), keyPEM: key) }
        #expect(first.description.contains("the certificate PEM given does not contain a certificate in readable PEM"))
        let second = try error { _ = try TLSIdentity(certificatePEM: certificate, keyPEM: []) }
        #expect(second.description.contains("the key PEM given does not contain a private key in readable PEM"))
        let swapped = try error { _ = try TLSIdentity(certificatePEM: key, keyPEM: certificate) }
        #expect(swapped.kind == .notPEM(source: "the certificate PEM given", expected: "a certificate"))
    }

    @Test("whose second certificate is damaged are not read as a chain of one")
    func damagedChain() throws {
        var chain = try Fixtures.contents("chain.pem")
        chain[chain.count - 100] = UInt8(ascii: "!")
        let error = try error { _ = try TLSIdentity(certificatePEM: chain, keyPEM: Fixtures.contents("chain-key.pem")) }
        #expect(error.kind == .notPEM(source: "the certificate PEM given", expected: "a certificate"))
    }

    @Test("of authorities may be DER")
    func binaryAuthorities() throws {
        let pem = String(decoding: try Fixtures.contents("ca.pem"), as: UTF8.self)
        let lines = pem.split(separator: "\n").drop { !$0.hasPrefix("-----BEGIN CERTIFICATE") }.dropFirst()
        let der = try #require(Data(base64Encoded: lines.prefix { !$0.hasPrefix("-----") }.joined()))
        var configuration = TLSClientConfiguration()
        configuration.trust = .pem([UInt8](der))
        #expect(throws: Never.self) { try TLSContext.client(configuration) }
        configuration.trust = .pem([UInt8](der.dropLast()))
        #expect(throws: TLSError.self) { try TLSContext.client(configuration) }
    }

    @Test("of authorities must hold certificates")
    func authorities() throws {
        var configuration = TLSClientConfiguration()
        configuration.trust = .file("/nowhere/ca.pem")
        #expect(
            try error { _ = try TLSContext.client(configuration) }.description.contains(
                "cannot read /nowhere/ca.pem: No such file or directory"))
        configuration.trust = .pem(Array("none".utf8))
        #expect(
            try error { _ = try TLSContext.client(configuration) }.kind
                == .notPEM(source: "the CA PEM given", expected: "a certificate"))
    }

    @Test("are not read for an application protocol without a name")
    func emptyProtocol() throws {
        let error = try error { _ = try Fixtures.client(protocols: ["h2", ""]) }
        #expect(error.description.contains("application protocol \"\""))
    }
}
