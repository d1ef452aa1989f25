import APNS
import APNSSimulator
import Foundation
import TLS
import TestSupport
import Testing

@Suite("The simulator's own authority")
struct AuthorityTests {
    private let workshop: OpenSSLWorkshop
    private let authority: SimulatedAuthority

    init() throws {
        workshop = try OpenSSLWorkshop()
        authority = try SimulatedAuthority()
        try workshop.write(authority.certificatePEM, to: "ca.pem")
    }

    @Test("signs certificates that openssl accepts for each of its names, and for no other")
    func server() throws {
        try workshop.write(
            try authority.server(names: ["push.example", "10.1.2.3", "::1"]).certificatePEM, to: "s.pem")
        let check = ["verify", "-x509_strict", "-CAfile", "ca.pem", "-purpose", "sslserver"]
        for name in [["-verify_hostname", "push.example"], ["-verify_ip", "10.1.2.3"], ["-verify_ip", "::1"]] {
            #expect(try workshop.openssl(check + name + ["s.pem"]).contains("s.pem: OK"))
        }
        #expect(throws: ChildProcess.Failure.self) {
            try workshop.openssl(check + ["-verify_hostname", "other.example", "s.pem"])
        }
        #expect(throws: ChildProcess.Failure.self) {
            try workshop.openssl("verify", "-CAfile", "ca.pem", "-purpose", "sslclient", "s.pem")
        }
    }

    @Test(
        "signs client certificates with the contents of Apple's",
        arguments: ["com.example.app", String(repeating: "long.", count: 40) + "app"])
    func client(topic: String) throws {
        let pair = try authority.client(topic: topic)
        try workshop.write(pair.certificatePEM, to: "c.pem")
        #expect(
            try workshop.openssl("verify", "-x509_strict", "-CAfile", "ca.pem", "-purpose", "sslclient", "c.pem")
                .contains("c.pem: OK"))
        let certificate = try TLSIdentity(bytes: pair.certificatePEM, keyBytes: pair.keyPEM, source: "test").apns
        #expect(certificate.commonName == "Apple Push Services: \(topic)")
        #expect(certificate.environments == [.sandbox, .production])
        #expect(certificate.topics.map(\.name) == [topic, topic + ".voip", topic + ".complication"])
        #expect(certificate.topics.map(\.types) == [["app"], ["voip"], ["complication"]])
    }

    @Test("signs each certificate with its own serial number, and differs from others", .timeLimit(.minutes(10)))
    func distinct() throws {
        var numbers: Set<String> = []
        for _ in 0..<20 {
            try workshop.write(try authority.client(topic: "a.b").certificatePEM, to: "c.pem")
            numbers.insert(try workshop.openssl("x509", "-in", "c.pem", "-noout", "-serial"))
        }
        #expect(numbers.count == 20)
        try workshop.write(try SimulatedAuthority().client(topic: "a.b").certificatePEM, to: "stranger.pem")
        #expect(throws: ChildProcess.Failure.self) {
            try workshop.openssl("verify", "-CAfile", "ca.pem", "stranger.pem")
        }
    }

    @Test("is valid from the day before, for ten years")
    func validity() throws {
        let authority = try SimulatedAuthority(now: 1_000_000_000)
        let pair = try authority.server()
        let identity = try TLSIdentity(bytes: pair.certificatePEM, keyBytes: pair.keyPEM, source: "test")
        #expect(identity.notBefore == Int64(1_000_000_000 - 86_400))
        #expect(identity.notAfter == Int64(1_000_000_000 + 3650 * 86_400))
    }

    @Test("makes a key whose signatures the simulator verifies")
    func signingKey() throws {
        let message = Array("header.claims".utf8)
        let signature = try SigningKey(pem: authority.signingKeyPEM).signES256(message)
        #expect(try SigningKey(pem: authority.signingKeyPEM).verifies(signature, of: message))
        #expect(try SigningKey(pem: SimulatedAuthority().signingKeyPEM).verifies(signature, of: message) == false)
        let key = try authority.providerKey()
        #expect(key.keyID == "ABC123DEFG" && key.teamID == "TEAM123456")
    }

    @Test("refuses invalid names", arguments: ["", "a b", "a,DNS:b", "höst", "a:b"])
    func names(_ name: String) {
        let error = #expect(throws: SimulatorError.self) { try authority.server(names: [name]) }
        #expect(error?.description.contains("'\(name)'") == true)
        #expect(throws: SimulatorError.self) { try authority.client(topic: name) }
        #expect(throws: SimulatorError.self) { try authority.server(names: []) }
    }

    @Test("writes a directory, replaces its own files, and refuses other directories")
    func directory() throws {
        let directory = CertificateDirectory(workshop.path("certs"))
        func mode(_ name: String) throws -> Int? {
            try FileManager.default.attributesOfItem(atPath: directory.file(name))[.posixPermissions] as? Int
        }
        try directory.write(authority, topic: "com.example.app")
        #expect(try workshop.read("certs/ca.pem") == authority.certificatePEM)
        #expect(try workshop.read("certs/AuthKey_ABC123DEFG.p8") == authority.signingKeyPEM)
        #expect(try mode("client-key.pem") == 0o600 && mode("AuthKey_ABC123DEFG.p8") == 0o600)
        _ = try TLSIdentity(certificateFile: directory.file("client.pem"), keyFile: directory.file("client-key.pem"))
        let second = try SimulatedAuthority()
        try directory.write(second, topic: "com.example.app")
        #expect(try workshop.read("certs/ca.pem") == second.certificatePEM)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).count == 5)

        let foreign = CertificateDirectory(workshop.directory.path)
        let error = #expect(throws: SimulatorError.self) { try foreign.write(second, topic: "a.b") }
        #expect(error?.description.contains("ca.pem already exists") == true)
        #expect(try workshop.read("ca.pem") == authority.certificatePEM)
        #expect(throws: SimulatorError.self) {
            try CertificateDirectory("/dev/null/certs").write(second, topic: "a.b")
        }
    }
}
