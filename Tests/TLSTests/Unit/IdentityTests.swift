import Foundation
import TLS
import TestSupport
import Testing

@Suite("Certificate and key files")
struct IdentityTests {
    private func error(_ body: () throws -> Void) throws -> TLSError {
        try #require(throws: TLSError.self) { try body() }
    }

    @Test("contain the identity's name and expiration")
    func identity() throws {
        let identity = try TestCertificates.identity("client")
        #expect(identity.commonName == "Apple Push Services: com.example.app")
        #expect(identity.userID == "com.example.app")
        #expect(try #require(identity.notAfter) > Int64(Date().timeIntervalSince1970))
        #expect(try TestCertificates.identity("expired").notAfter == 1_609_459_200)
    }

    @Test("that have another content get an error that names the expected one")
    func swapped() throws {
        let (certificate, key) = (
            try TestCertificates.contents("client.pem"), try TestCertificates.contents("client-key.pem")
        )
        let error = try error { _ = try TLSIdentity(bytes: key, keyBytes: certificate, source: "a.pem") }
        #expect(error.kind == .notPEM(source: "a.pem", expected: "a certificate"))
        #expect(error.description.hasPrefix("a.pem does not contain a certificate in readable PEM"))
    }

    @Test("whose second certificate is damaged are not read as a chain of one")
    func damagedChain() throws {
        var chain = try TestCertificates.contents("chain.pem")
        chain[chain.count - 100] = UInt8(ascii: "!")
        let error = try error {
            _ = try TLSIdentity(bytes: chain, keyBytes: TestCertificates.contents("chain-key.pem"), source: "chain.pem")
        }
        #expect(error.kind == .notPEM(source: "chain.pem", expected: "a certificate"))
    }

    @Test("of authorities may be DER")
    func binaryAuthorities() throws {
        let pem = String(decoding: try TestCertificates.contents("ca.pem"), as: UTF8.self)
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
        let error = try error { _ = try TestCertificates.client(protocols: ["h2", ""]) }
        #expect(error.description.contains("application protocol \"\""))
    }
}
