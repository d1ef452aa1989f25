import COpenSSL
import Foundation
import TestSupport
import Testing

@testable import TLS

@Suite("A certificate's file")
struct IdentityFormTests {
    private func kind(_ body: () throws -> Void) throws -> TLSError.Kind {
        try #require(throws: TLSError.self) { try body() }.kind
    }

    @Test("may be PEM with its key, or with the key in another file")
    func pem() throws {
        let (certificate, key) = (
            try TestCertificates.contents("client.pem"), try TestCertificates.contents("client-key.pem")
        )
        #expect(try TLSIdentity(bytes: certificate + key, source: "both").userID == "com.example.app")
        #expect(try TLSIdentity(bytes: certificate, keyBytes: key, source: "one").userID == "com.example.app")
        #expect(
            try kind { _ = try TLSIdentity(bytes: certificate, source: "client.pem") }
                == .notPEM(source: "client.pem", expected: "a private key"))
        let other = try TestCertificates.contents("server-key.pem")
        let mismatch = try #require(throws: TLSError.self) {
            _ = try TLSIdentity(bytes: certificate, keyBytes: other, source: "a.pem", keySource: "b.pem")
        }
        #expect(mismatch.kind == .keyMismatch(key: "b.pem", certificate: "a.pem"))
        #expect(mismatch.description.contains("a.pem") && mismatch.description.contains("b.pem"))
    }

    /// The forms in which people store PEM.
    private static let storages: [(name: String, store: @Sendable (String) -> [UInt8])] = [
        ("a byte order mark", { [0xEF, 0xBB, 0xBF] + Array($0.utf8) }),
        ("UTF-16 after a mark", { [0xFF, 0xFE] + $0.utf8.flatMap { [$0, 0] } }),
        ("UTF-16 in the other order", { [0xFE, 0xFF] + $0.utf8.flatMap { [0, $0] } }),
        ("UTF-16 without a mark", { $0.utf8.flatMap { [$0, 0] } }),
        ("UTF-16 in the other order without a mark", { $0.utf8.flatMap { [0, $0] } }),
        ("line ends of Windows", { Array($0.replacing("\n", with: "\r\n").utf8) }),
        ("line ends of old Macs", { Array($0.replacing("\n", with: "\r").utf8) }),
        ("written line ends", { Array($0.replacing("\n", with: "\\n").utf8) }),
        ("written line ends of Windows", { Array($0.replacing("\n", with: "\\r\\n").utf8) }),
        ("written line ends in quotation marks", { Array("\"\($0.replacing("\n", with: "\\n"))\"".utf8) }),
        ("spaces for line ends", { Array($0.replacing("\n", with: " ").utf8) }),
        ("nothing for line ends", { Array($0.replacing("\n", with: "").utf8) }),
        ("indentation", { Array($0.replacing("\n", with: "\n    ").utf8) }),
        ("text around", { Array("subject: x\n\($0)\nmore".utf8) }),
    ]

    @Test("may be PEM in every way in which people store it", arguments: storages.indices)
    func stored(_ index: Int) throws {
        let storage = Self.storages[index]
        let workshop = try OpenSSLWorkshop()
        try workshop.key("key.pem")
        let key = String(decoding: try workshop.read("key.pem"), as: UTF8.self)
        for (name, options) in [
            ("plain.pem", []), ("pkcs8.pem", ["-aes256", "-passout", "pass:hunter2"]),
            ("old.pem", ["-traditional", "-aes256", "-passout", "pass:hunter2"]),
        ] {
            try workshop.openssl(["pkey", "-in", "key.pem", "-out", name] + options)
            let text = String(decoding: try workshop.read(name), as: UTF8.self)
            // Without line ends, the headers of the old form have no end.
            if name == "old.pem", storage.name.contains("for line ends") { continue }
            let stored = storage.store(text)
            #expect(throws: Never.self, "\(name) with \(storage.name)") {
                EVP_PKEY_free(try PEM(bytes: stored, source: "x").privateKey(passphrase: "hunter2"))
            }
        }
        #expect(throws: TLSError.self) {
            _ = try PEM(bytes: storage.store(String(key.dropLast(60))), source: "x").privateKey(passphrase: nil)
        }
        let both = String(
            decoding: try TestCertificates.contents("client.pem") + TestCertificates.contents("client-key.pem"),
            as: UTF8.self)
        let identity = try TLSIdentity(bytes: storage.store(both), source: "both")
        #expect(identity.userID == "com.example.app", "\(storage.name)")
        #expect(try PEM(bytes: storage.store(both), source: "both").certificates().count == 1)
    }

    @Test("may have several keys and certificates in any order")
    func several() throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.certificate("old", subject: "/UID=com.example.old/CN=old")
        try workshop.certificate("new", subject: "/UID=com.example.new/CN=new")
        let (old, new) = (try workshop.read("old.pem"), try workshop.read("new.pem"))
        let (oldKey, newKey) = (try workshop.read("old-key.pem"), try workshop.read("new-key.pem"))
        let authority = try TestCertificates.contents("ca.pem")
        for (bytes, keyBytes, topic) in [
            (authority + new + newKey, nil, "new"), (newKey + authority + new, nil, "new"),
            (new + oldKey + newKey, nil, "new"), (old + new + newKey, nil, "new"), (old + new, newKey, "new"),
            (new, oldKey + newKey, "new"), (old + oldKey + new + newKey, nil, "old"),
        ] as [([UInt8], [UInt8]?, String)] {
            let identity = try TLSIdentity(bytes: bytes, keyBytes: keyBytes, source: "x")
            #expect(identity.userID == "com.example.\(topic)")
        }
        let error = try #require(throws: TLSError.self) {
            _ = try TLSIdentity(bytes: authority + old + newKey, source: "x.pem")
        }
        #expect(error.description == "no private key in x.pem belongs to a certificate in it. Export both together.")
    }

    @Test("may be Apple's .cer, but only with a separate key, in PEM or DER")
    func binary() throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(
            "x509", "-in", try TestCertificates.path("client.pem"), "-outform", "DER", "-out", "aps.cer")
        let certificate = try workshop.read("aps.cer")
        #expect(
            try kind { _ = try TLSIdentity(bytes: certificate, source: "aps.cer") }
                == .identityIncomplete(source: "aps.cer", missing: "private key"))
        let key = try TestCertificates.contents("client-key.pem")
        #expect(try TLSIdentity(bytes: certificate, keyBytes: key, source: "aps.cer").userID == "com.example.app")
        try workshop.openssl(
            "pkey", "-in", try TestCertificates.path("client-key.pem"), "-outform", "DER", "-out", "key.der")
        let binaryKey = try workshop.read("key.der")
        #expect(try TLSIdentity(bytes: certificate, keyBytes: binaryKey, source: "aps.cer").userID == "com.example.app")
    }

    @Test("of no known form is reported as such", arguments: ["", "hello", "MIIKaQIBAzCCCi8GCSqGSIb3DQEHAaCC"])
    func unknown(text: String) throws {
        #expect(
            try kind { _ = try TLSIdentity(bytes: Array(text.utf8), source: "file") } == .notRecognised(source: "file"))
    }

    @Test(
        "of some other binary form is not read as PKCS#12", arguments: [[0x30], [0x30, 0x80], [0x30, 0x03, 2, 1, 3]])
    func otherBinary(bytes: [UInt8]) throws {
        guard case .notPKCS12(source: "file", _) = try kind({ _ = try TLSIdentity(bytes: bytes, source: "file") })
        else {
            Issue.record("another error")
            return
        }
    }

    @Test("has its period of validity, and its extensions")
    func facts() throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.certificate(
            "push", subject: "/UID=com.example.app/CN=x", extensions: ["1.2.840.113635.100.6.3.1=ASN1:NULL"])
        let identity = try TLSIdentity(
            certificateFile: workshop.path("push.pem"), keyFile: workshop.path("push-key.pem"))
        let (notBefore, notAfter) = (try #require(identity.notBefore), try #require(identity.notAfter))
        #expect(notAfter - notBefore == 365 * 86_400)
        #expect(identity.certificateExtension("1.2.840.113635.100.6.3.1") == [0x05, 0x00])
        for absent in ["1.2.840.113635.100.6.3.2", "no identifier", ""] {
            #expect(identity.certificateExtension(absent) == nil)
        }
    }
}

@Suite("An encrypted private key")
struct EncryptedKeyTests {
    /// Ways to encrypt the client's key: the arguments of an `openssl` command before `-in` and `-out`.
    static let ways = [
        ["pkcs8", "-topk8", "-v2", "aes-256-cbc"], ["pkcs8", "-topk8", "-v2", "des3"], ["pkcs8", "-topk8", "-scrypt"],
        ["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-outform", "DER"], ["ec", "-aes256"], ["ec", "-des3"],
    ].map { $0 + ["-passout", "pass:secret"] }

    /// Ways that need the algorithms of OpenSSL's legacy provider.
    static let oldWays = [
        ["pkcs8", "-topk8", "-v1", "PBE-SHA1-RC2-40"], ["pkcs8", "-topk8", "-v1", "PBE-MD5-DES"],
        ["pkcs8", "-topk8", "-v2", "des"], ["ec", "-des"],
    ].map { $0 + ["-provider", "legacy", "-provider", "default", "-passout", "pass:secret"] }

    private func encrypted(_ way: [String]) throws -> [UInt8] {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(way + ["-in", TestCertificates.path("client-key.pem"), "-out", "key"])
        return try workshop.read("key")
    }

    private func identity(_ key: [UInt8], passphrase: String?) throws -> TLSIdentity {
        let certificate = try TestCertificates.contents("client.pem")
        return try TLSIdentity(
            bytes: certificate, keyBytes: key, passphrase: passphrase, source: "client.pem", keySource: "key")
    }

    @Test("works in PKCS#8 and in the older forms, with old and new algorithms", arguments: ways + oldWays)
    func works(way: [String]) throws {
        let key = try encrypted(way)
        let pair = try EmbeddedPair(
            client: TestCertificates.client(identity: identity(key, passphrase: "secret")),
            server: TestCertificates.server(clientCertificates: .required(.file(TestCertificates.path("ca.pem")))))
        try pair.connect()
        #expect(pair.serverEvents.handshake?.peerCertificate?.userID == "com.example.app")
    }

    @Test("needs its passphrase", arguments: ways + oldWays, ["wrong", "", nil])
    func passphrase(way: [String], passphrase: String?) throws {
        let key = try encrypted(way)
        let error = try #require(throws: TLSError.self) { _ = try identity(key, passphrase: passphrase) }
        #expect(error.kind == .wrongPassphrase(source: "key", given: passphrase != nil), "\(error)")
    }

    @Test("with an old algorithm names OpenSSL's legacy provider if that is not installed", arguments: oldWays)
    func missingProvider(way: [String]) throws {
        let empty = try OpenSSLWorkshop()
        let key = try PEM(bytes: encrypted(way), source: "key")
        let error = try #require(throws: TLSError.self) {
            _ = try key.privateKeys(passphrase: "secret", modules: empty.directory.path)
        }
        #expect(error.kind == .legacyProviderMissing(source: "key"))
    }
}
