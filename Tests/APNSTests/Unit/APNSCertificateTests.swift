import Foundation
import TLS
import TestSupport
import Testing

@testable import APNS

@Suite("A push certificate")
struct APNSCertificateTests {
    /// The extensions of a certificate for an app with all topics and both environments.
    static let universal = [
        "1.2.840.113635.100.6.3.1=ASN1:NULL", "1.2.840.113635.100.6.3.2=ASN1:NULL",
        "1.2.840.113635.100.6.3.6=ASN1:SEQUENCE:topics", "[topics]", "a=UTF8String:com.example.app",
        "b=SEQWRAP,UTF8String:app", "c=UTF8String:com.example.app.voip", "d=SEQWRAP,UTF8String:voip",
        "e=UTF8String:com.example.app.complication", "f=SEQWRAP,UTF8String:complication",
    ]

    static func certificate(
        subject: String = "/UID=com.example.app/CN=Apple Push Services: com.example.app", _ extensions: [String]
    ) throws -> APNSCertificate {
        let workshop = try OpenSSLWorkshop()
        try workshop.certificate("push", subject: subject, extensions: extensions)
        return try TLSIdentity(certificateFile: workshop.path("push.pem"), keyFile: workshop.path("push-key.pem")).apns
    }

    @Test("names its topics, the user ID first, with what each is for")
    func topics() throws {
        let certificate = try Self.certificate(Self.universal)
        #expect(
            certificate.topics == [
                .init(name: "com.example.app", types: ["app"]), .init(name: "com.example.app.voip", types: ["voip"]),
                .init(name: "com.example.app.complication", types: ["complication"]),
            ])
        #expect(certificate.allows(topic: "com.example.app.voip"))
        #expect(!certificate.allows(topic: "com.example.app.VoIP"))
        #expect(!certificate.allows(topic: "com.example"))
        #expect(certificate.environments == [.sandbox, .production])
        #expect(certificate.commonName == "Apple Push Services: com.example.app")
    }

    @Test("of the old kind is for the topic of its user ID, in one environment")
    func old() throws {
        let development = try Self.certificate(["1.2.840.113635.100.6.3.1=ASN1:NULL"])
        #expect(development.topics == [.init(name: "com.example.app", types: [])])
        #expect(development.environments == [.sandbox])
        let production = try Self.certificate(["1.2.840.113635.100.6.3.2=ASN1:NULL"])
        #expect(production.environments == [.production])
        let (start, end) = (try #require(production.notBefore), try #require(production.notAfter))
        #expect(end - start == 365 * 86_400)
    }

    @Test("from another authority has neither topics nor environments")
    func foreign() throws {
        let certificate = try Self.certificate(subject: "/CN=worker", [])
        #expect(certificate.topics.isEmpty && certificate.environments.isEmpty)
    }

    @Test("with a list that cannot be read still has the topic of its user ID")
    func damagedList() throws {
        let certificate = try Self.certificate(["1.2.840.113635.100.6.3.6=DER:30:05:0C:09:61:62:63"])
        #expect(certificate.topics.map(\.name) == ["com.example.app"])
    }

    @Test("may list its VoIP topic in that extension")
    func voIP() throws {
        let certificate = try Self.certificate([
            "1.2.840.113635.100.6.3.4=ASN1:SEQUENCE:topics", "[topics]", "a=UTF8String:com.example.app.voip",
            "b=SEQWRAP,UTF8String:voip",
        ])
        #expect(certificate.topics.map(\.name) == ["com.example.app", "com.example.app.voip"])
        #expect(try Self.certificate(["1.2.840.113635.100.6.3.4=ASN1:NULL"]).topics.count == 1)
    }

    /// A list with one topic, `a`, of type `b`.
    private static let list: [UInt8] = [0x30, 0x08, 0x0C, 0x01, 0x61, 0x30, 0x03, 0x0C, 0x01, 0x62]

    @Test("lists topics in DER, of any length")
    func lengths() {
        #expect(APNSCertificate.topics(der: Self.list) == [.init(name: "a", types: ["b"])])
        #expect(APNSCertificate.topics(der: [0x30, 0x00]) == [])
        // Types follow the topic they belong to; elements of other kinds are ignored.
        #expect(APNSCertificate.topics(der: [0x30, 0x05, 0x30, 0x03, 0x0C, 0x01, 0x62]) == [])
        #expect(
            APNSCertificate.topics(der: [0x30, 0x05, 0x05, 0x00, 0x0C, 0x01, 0x61]) == [.init(name: "a", types: [])])
        for count in [127, 128, 255, 256, 60_000] {
            func element(_ tag: UInt8, _ contents: [UInt8]) -> [UInt8] {
                let length = contents.count
                let digits: [UInt8] =
                    length < 128
                    ? [UInt8(length)] : [0x83, UInt8(length >> 16), UInt8(length >> 8 & 255), UInt8(length & 255)]
                return [tag] + digits + contents
            }
            let name = [UInt8](repeating: 0x61, count: count)
            #expect(APNSCertificate.topics(der: element(0x30, element(0x0C, name)))?.first?.name.utf8.count == count)
        }
    }

    @Test(
        "with a malformed list has no topics",
        arguments: [
            [], [0x30], [0x0C, 0x01, 0x61], [0x30, 0x80, 0x00, 0x00], [0x30, 0x84, 0, 0, 0, 0], [0x30, 0xFF],
            [0x30, 0x02, 0x0C, 0x05], [0x30, 0x03, 0x0C, 0x01, 0xFF], [0x30, 0x00, 0x00], [0x3F, 0x01, 0x00],
            [0x30, 0x88, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], [0x30, 0x83, 0xFF, 0xFF, 0xFF],
            [0x30, 0x05, 0x30, 0x03, 0x0C, 0x01, 0xC0],
        ] as [[UInt8]])
    func malformed(der: [UInt8]) { #expect(APNSCertificate.topics(der: der) == nil) }

    @Test("with any bytes for a list never stops the process")
    func fuzz() {
        var generator = SeededGenerator(seed: 17)
        for length in 0..<Self.list.count { #expect(APNSCertificate.topics(der: Array(Self.list[..<length])) == nil) }
        var lists = 0
        for _ in 0..<50_000 {
            var bytes = Self.list
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                bytes[Int.random(in: bytes.indices, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            if let topics = APNSCertificate.topics(der: bytes) {
                lists += 1
                #expect(topics.count <= 4)
            }
        }
        #expect(lists > 0)
    }
}

@Suite("An APNs environment")
struct APNSEnvironmentTests {
    @Test(
        "is derived from Apple's host names only",
        arguments: [
            ("api.push.apple.com", .production), ("API.push.apple.com.", .production),
            ("api.sandbox.push.apple.com", .sandbox), ("api.development.push.apple.com", .sandbox),
            ("gateway.push.apple.com", .production), ("gateway.sandbox.push.apple.com", .sandbox),
            ("feedback.push.apple.com", .production), ("feedback.sandbox.push.apple.com", .sandbox), ("localhost", nil),
            ("push.apple.com", nil), ("api.push.apple.com.example.com", nil), ("", nil),
        ] as [(String, APNSEnvironment?)])
    func hosts(host: String, environment: APNSEnvironment?) { #expect(APNSEnvironment(host: host) == environment) }
}
