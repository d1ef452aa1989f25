import Foundation
import TestSupport
import Testing

@testable import APNS

extension SigningKey {
    static func example(_ file: String = "AuthKey_ABC123DEFG.p8") throws -> SigningKey {
        try SigningKey(pem: TestCertificates.contents(file))
    }
}

@Suite("A signing key")
struct SigningKeyTests {
    /// Returns ASN.1's `SEQUENCE { r INTEGER, s INTEGER }`, the format that `openssl` verifies.
    private func der(_ signature: [UInt8]) -> [UInt8] {
        let numbers = [signature.prefix(32), signature.suffix(32)].flatMap { half -> [UInt8] in
            var number = Array(half.drop { $0 == 0 })
            if number.isEmpty || number[0] >= 0x80 { number.insert(0, at: 0) }
            return [0x02, UInt8(number.count)] + number
        }
        return [0x30, UInt8(numbers.count)] + numbers
    }

    @Test("makes signatures of 64 bytes that openssl verifies")
    func verified() throws {
        let key = try SigningKey.example()
        let workshop = try OpenSSLWorkshop()
        let p8 = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
        try workshop.openssl("pkey", "-in", p8, "-pubout", "-out", "public.pem")
        let verify = ["dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "message"]
        // Few rounds, because each starts processes. Another test covers leading zeros, which one of 256 numbers has.
        for round in 0..<5 {
            let message = Array("message \(round)".utf8)
            let signature = try key.signES256(message)
            #expect(signature.count == 64)
            try workshop.write(message, to: "message")
            try workshop.write(der(signature), to: "signature")
            let verdict = try workshop.openssl(verify)
            #expect(verdict.contains("Verified OK"), "\(verdict)")
            try workshop.write(message + [0], to: "message")
            #expect(throws: ChildProcess.Failure.self) { try workshop.openssl(verify) }
        }
    }

    @Test("pads r and s to 32 bytes each, however small they are")
    func padding() throws {
        let key = try SigningKey.example()
        var shortNumbers = 0
        for round in 0..<2000 {
            let signature = try key.signES256(Array("\(round)".utf8))
            #expect(signature.count == 64)
            if signature[0] == 0 || signature[32] == 0 { shortNumbers += 1 }
        }
        #expect(shortNumbers > 0)
    }

    @Test("signs from many threads at once")
    func threads() async throws {
        let key = try SigningKey.example()
        let signatures = try await withThrowingTaskGroup(of: Int.self) { group in
            for task in 0..<8 {
                group.addTask { try (0..<50).count { try key.signES256(Array("\(task) \($0)".utf8)).count == 64 } }
            }
            return try await group.reduce(0, +)
        }
        #expect(signatures == 400)
    }

    @Test(
        "of another kind is refused by its name",
        arguments: [
            (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "RSA"),
            (["genpkey", "-algorithm", "ED25519"], "ED25519"),
            (["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], "secp384r1"),
            (["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "secp256k1"),
        ])
    func otherKinds(command: [String], name: String) throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(command + ["-out", "key.pem"])
        let pem = try workshop.read("key.pem")
        let error = #expect(throws: SigningKey.Invalid.self) { try SigningKey(pem: pem) }
        guard case .notP256(let found)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(found.contains(name), "\(found)")
    }

    @Test("that is not a key is identified in the error")
    func otherFiles() throws {
        let workshop = try OpenSSLWorkshop()
        let p8 = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
        let client = try TestCertificates.path("client.pem")
        try workshop.openssl("pkey", "-in", p8, "-pubout", "-out", "public.pem")
        try workshop.openssl("pkey", "-in", p8, "-pubout", "-outform", "DER", "-out", "public.der")
        try workshop.openssl("x509", "-in", client, "-outform", "DER", "-out", "aps.cer")
        try workshop.openssl(
            "pkcs12", "-export", "-in", client, "-inkey", try TestCertificates.path("client-key.pem"), "-passout",
            "pass:secret", "-out", "aps.p12")
        let expected: [(String, SigningKey.Invalid)] = [
            (client, .certificate), (workshop.path("aps.cer"), .certificate), (workshop.path("aps.p12"), .certificate),
            (workshop.path("public.pem"), .publicKey), (workshop.path("public.der"), .publicKey),
        ]
        for (path, invalid) in expected {
            let bytes = try Data(contentsOf: URL(filePath: path))
            #expect(throws: invalid) { try SigningKey(pem: bytes) }
            #expect(throws: invalid) { try SigningKey(pem: bytes.base64EncodedString().utf8) }
        }
    }

    @Test(
        "that is random bytes is refused",
        arguments: [
            "\0", "ABC123DEFG", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\n",
            "aGVsbG8=", "VFZSSk5BPT0=",
        ])
    func garbage(text: String) {
        let error = #expect(throws: SigningKey.Invalid.notPrivateKey) { try SigningKey(pem: text.utf8) }
        #expect(error?.description.contains("BEGIN PRIVATE KEY") == true)
    }

    @Test("that is empty is reported as empty", arguments: ["", "\n", " \r\n\t"])
    func empty(text: String) { #expect(throws: SigningKey.Invalid.empty) { try SigningKey(pem: text.utf8) } }

    @Test("may be base64 of the file, or PKCS#8 in DER, plain or in base64")
    func forms() throws {
        let workshop = try OpenSSLWorkshop()
        let p8 = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
        try workshop.openssl("pkcs8", "-topk8", "-nocrypt", "-in", p8, "-outform", "DER", "-out", "key.der")
        let pem = try Data(contentsOf: URL(filePath: p8))
        let der = Data(try workshop.read("key.der"))
        let original = try SigningKey(pem: pem)
        let forms = [
            pem.base64EncodedData(), pem.base64EncodedData(options: [.lineLength64Characters, .endLineWithLineFeed]),
            der, der.base64EncodedData(), der.base64EncodedData() + Data("\n".utf8),
        ]
        for form in forms {
            let signature = try SigningKey(pem: form).signES256(Array("message".utf8))
            #expect(original.verifies(signature, of: Array("message".utf8)))
        }
    }

    @Test(
        "may be encrypted, with old and new algorithms",
        arguments: [
            ["-v2", "aes-256-cbc"], ["-v2", "des3"],
            ["-v1", "PBE-SHA1-RC2-40", "-provider", "legacy", "-provider", "default"],
            ["-v2", "aes-256-cbc", "-outform", "DER"],
        ])
    func encrypted(way: [String]) throws {
        let workshop = try OpenSSLWorkshop()
        let p8 = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
        try workshop.openssl(["pkcs8", "-topk8", "-in", p8, "-passout", "pass:secret", "-out", "key"] + way)
        let bytes = try workshop.read("key")
        let signature = try SigningKey(pem: bytes, passphrase: "secret").signES256([1, 2, 3])
        #expect(try SigningKey.example().verifies(signature, of: [1, 2, 3]))
        let encoded = Data(bytes).base64EncodedData()
        #expect(try SigningKey(pem: encoded, passphrase: "secret").verifies(signature, of: [1, 2, 3]))
        #expect(throws: SigningKey.Invalid.encrypted(passphraseGiven: false)) { try SigningKey(pem: bytes) }
        for wrong in ["", "wrong"] {
            #expect(throws: SigningKey.Invalid.encrypted(passphraseGiven: true)) {
                try SigningKey(pem: bytes, passphrase: wrong)
            }
        }
    }

    @Test("verifies its own signatures, and no other bytes")
    func verifies() throws {
        let key = try SigningKey.example()
        let other = try SigningKey.example("client-key.pem")
        let message = Array("header.claims".utf8)
        for _ in 0..<20 {
            let signature = try key.signES256(message)
            #expect(key.verifies(signature, of: message))
            #expect(!key.verifies(signature, of: message + [0]))
            #expect(!key.verifies(signature, of: []))
            #expect(!other.verifies(signature, of: message))
            #expect(!key.verifies(signature.dropLast() + [], of: message))
            #expect(!key.verifies(signature + [0], of: message))
            for position in stride(from: 0, to: 64, by: 7) {
                var changed = signature
                changed[position] ^= 1
                #expect(!key.verifies(changed, of: message))
            }
        }
        for bytes in [[], [UInt8](repeating: 0, count: 64), [UInt8](repeating: 0xFF, count: 64), [1]] {
            #expect(!key.verifies(bytes, of: message))
        }
    }

    @Test("reveals nothing when printed")
    func printed() throws {
        let key = try SigningKey.example()
        for text in try shownTexts(of: key) {
            #expect(text.contains("signing key (P-256)") && !text.contains("0x"), "\(text)")
        }
    }

    @Test("cut off anywhere is refused, and never stops the process")
    func truncated() throws {
        let pem = Array(try Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        for length in stride(from: 0, to: pem.count - 2, by: 5) {
            #expect(throws: SigningKey.Invalid.self) { try SigningKey(pem: pem.prefix(length)) }
        }
    }
}
