import COpenSSL
import Foundation
import NIOCore
import TestSupport
import Testing

@testable import TLS

@Suite("PKCS#12 files", .timeLimit(.minutes(10)))
struct PKCS12Tests {
    private static let modern: [String] = []
    private static let keychain = ["-legacy", "-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-RC2-40"]
    private static let tripleDES = ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES", "-macalg", "sha1"]
    private static let allRC2 = ["-legacy", "-keypbe", "PBE-SHA1-RC2-40", "-certpbe", "PBE-SHA1-RC2-128"]
    private static let plain = ["-keypbe", "NONE", "-certpbe", "NONE"]

    private func export(_ arguments: [String], passphrase: String = "secret", from name: String = "client") throws
        -> [UInt8]
    {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(
            [
                "pkcs12", "-export", "-in", TestCertificates.path("\(name).pem"), "-inkey",
                TestCertificates.path("\(name)-key.pem"),
                "-passout", "pass:\(passphrase)", "-out", "identity.p12",
            ] + arguments)
        return try workshop.read("identity.p12")
    }

    private func error(_ bytes: [UInt8], passphrase: String? = "secret") throws -> TLSError {
        try #require(throws: TLSError.self) {
            _ = try TLSIdentity(bytes: bytes, passphrase: passphrase, source: "identity.p12")
        }
    }

    /// Connects with the identity, and returns the certificate that the server received.
    private func shown(_ identity: TLSIdentity) throws -> TLSPeerCertificate? {
        let server = try TestCertificates.server(clientCertificates: .required(.file(TestCertificates.path("ca.pem"))))
        let pair = try EmbeddedPair(client: TestCertificates.client(identity: identity), server: server)
        try pair.connect()
        #expect(pair.serverEvents.errors.isEmpty)
        return pair.serverEvents.handshake?.peerCertificate
    }

    @Test(
        "of all ages work in a connection", arguments: [modern, keychain, tripleDES, allRC2, plain, ["-nomac"]],
        ["secret", "pässwörd €", ""])
    func ages(arguments: [String], passphrase: String) throws {
        let bytes = try export(arguments, passphrase: passphrase)
        let identity = try TLSIdentity(bytes: bytes, passphrase: passphrase, source: "identity.p12")
        #expect(identity.userID == "com.example.app")
        #expect(identity.commonName == "Apple Push Services: com.example.app")
        #expect(try shown(identity)?.userID == "com.example.app")
    }

    @Test("may come without a passphrase, whether an empty or an absent one is given", arguments: [modern, keychain])
    func emptyPassphrase(arguments: [String]) throws {
        let bytes = try export(arguments, passphrase: "")
        for passphrase in [nil, ""] as [String?] {
            let identity = try TLSIdentity(bytes: bytes, passphrase: passphrase, source: "identity.p12")
            #expect(identity.userID == "com.example.app")
        }
    }

    @Test(
        "are refused with another passphrase, which is not shown, also without a checksum",
        arguments: [modern, keychain, ["-nomac"], keychain + ["-nomac"]], ["wrong1", "secret\0x", "", nil])
    func wrongPassphrase(arguments: [String], passphrase: String?) throws {
        let bytes = try export(arguments)
        #expect(try TLSIdentity(bytes: bytes, passphrase: "secret", source: "x").userID == "com.example.app")
        let error = try error(bytes, passphrase: passphrase)
        #expect(error.kind == .wrongPassphrase(source: "identity.p12", given: passphrase != nil), "\(error)")
        #expect(error.description.contains("identity.p12"))
        #expect(!error.description.contains("wrong1") && !error.description.contains("secret"))
    }

    @Test("do not enable old algorithms for the whole process")
    func defaultContext() throws {
        let identity = try TLSIdentity(bytes: export(Self.keychain), passphrase: "secret", source: "identity.p12")
        #expect(identity.userID == "com.example.app")
        #expect(OSSL_PROVIDER_available(nil, "legacy") == 0)
        let cipher = EVP_CIPHER_fetch(nil, "RC2-40-CBC", nil)
        ERR_clear_error()
        #expect(cipher == nil)
        EVP_CIPHER_free(cipher)
    }

    @Test("with old algorithms name what is missing if OpenSSL's legacy provider is not installed")
    func missingProvider() throws {
        let empty = try OpenSSLWorkshop()
        let modern = try PKCS12File(bytes: export(Self.modern), source: "new.p12", modules: empty.directory.path)
        let (chain, key) = try modern.identity(passphrase: "secret")
        chain.forEach(X509_free)
        EVP_PKEY_free(key)
        let old = try PKCS12File(bytes: export(Self.keychain), source: "old.p12", modules: empty.directory.path)
        let error = try #require(throws: TLSError.self) { _ = try old.identity(passphrase: "secret") }
        #expect(error.kind == .legacyProviderMissing(source: "old.p12"))
        #expect(error.description.contains("old.p12") && error.description.contains("openssl-provider-legacy"))
    }

    @Test("with old algorithms can be read by many threads at once, with others reading new ones")
    func threads() async throws {
        let (old, new) = (try export(Self.keychain), try export(Self.modern))
        let read = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    try (0..<5).count { round in
                        let bytes = round.isMultiple(of: 2) ? old : new
                        return try TLSIdentity(bytes: bytes, passphrase: "secret", source: "p12").userID != nil
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(read == 40)
    }

    @Test("return the own certificate first and its issuers in order, whatever else they contain", arguments: 0..<3)
    func chain(rotation: Int) throws {
        let workshop = try OpenSSLWorkshop()
        func text(_ name: String) throws -> String {
            String(decoding: try TestCertificates.contents(name), as: UTF8.self)
        }
        let end = "-----END CERTIFICATE-----\n"
        let parts = try text("chain.pem").components(separatedBy: end).filter { !$0.isEmpty }.map { $0 + end }
        try #require(parts.count == 2)
        var certificates = try [text("other-ca.pem"), text("ca.pem"), parts[1]]
        certificates = Array(certificates[rotation...] + certificates[..<rotation])
        try workshop.write(Data(certificates.joined().utf8), to: "others.pem")
        try workshop.write(Data(parts[0].utf8), to: "own.pem")
        try workshop.openssl(
            "pkcs12", "-export", "-in", "own.pem", "-inkey", try TestCertificates.path("chain-key.pem"), "-certfile",
            "others.pem", "-passout", "pass:secret", "-out", "chain.p12")
        let (found, key) = try PKCS12File(bytes: workshop.read("chain.p12"), source: "chain.p12")
            .identity(passphrase: "secret")
        #expect(
            found.map { CertificateView(pointer: $0).commonName }
                == ["localhost", "apns-worker test intermediate", "apns-worker test authority"])
        found.forEach(X509_free)
        EVP_PKEY_free(key)
    }

    @Test("without a key or without a certificate get an error that names the missing part")
    func incomplete() throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(
            "pkcs12", "-export", "-nokeys", "-in", try TestCertificates.path("client.pem"), "-passout", "pass:secret",
            "-out",
            "certificate.p12")
        let keyless = try error(workshop.read("certificate.p12"))
        #expect(keyless.kind == .identityIncomplete(source: "identity.p12", missing: "private key"))
        try workshop.openssl(
            "pkcs12", "-export", "-nocerts", "-inkey", try TestCertificates.path("client-key.pem"), "-passout",
            "pass:secret",
            "-out", "key.p12")
        let bare = try error(workshop.read("key.p12"))
        #expect(bare.kind == .identityIncomplete(source: "identity.p12", missing: "certificate"))
    }

    @Test("cut off or damaged anywhere are refused, and never stop the process", arguments: [modern, keychain])
    func damaged(arguments: [String]) throws {
        let bytes = try export(arguments)
        for length in stride(from: 0, to: bytes.count, by: 97) { _ = try error(Array(bytes[..<length])) }
        for position in stride(from: 0, to: bytes.count, by: 61) {
            var damaged = bytes
            damaged[position] ^= 0x55
            // Some bytes do not matter, such as those of the friendly name. Then the identity must still be correct.
            do {
                let identity = try TLSIdentity(bytes: damaged, passphrase: "secret", source: "identity.p12")
                #expect(identity.userID == "com.example.app")
            } catch {
                #expect(!error.description.isEmpty)
            }
        }
    }

    @Test("with a separate key are refused, because the right key is ambiguous")
    func separateKey() throws {
        let key = try TestCertificates.contents("client-key.pem")
        let bytes = try export(Self.modern)
        let error = try #require(throws: TLSError.self) {
            _ = try TLSIdentity(
                bytes: bytes, keyBytes: key, passphrase: "secret", source: "a.p12", keySource: "b.pem")
        }
        #expect(error.description.contains("a.p12") && error.description.contains("b.pem"))
    }
}
