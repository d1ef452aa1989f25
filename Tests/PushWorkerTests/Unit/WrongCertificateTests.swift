import APNS
import APNSSimulator
import LegacyAPNS
import NIOCore
import TLS
import Testing

@testable import PushWorker

@Suite("An app's certificate")
struct WrongCertificateTests {
    private static func app(
        topic: String, others: [String] = [], transport: AppConfiguration.Transport = .gateway(GatewayOptions()),
        certificate: String, alsoFor: [String] = []
    ) throws -> AppConfiguration {
        let pair = try SimulatedAuthority().client(topic: certificate, otherTopics: alsoFor)
        let identity = try TLSIdentity(bytes: pair.certificatePEM, keyBytes: pair.keyPEM, source: "test")
        var app = AppConfiguration(name: "shop", topic: topic, credential: .certificate(identity))
        app.otherTopics = others
        app.transport = transport
        return app
    }

    private static func refusal(_ app: AppConfiguration) -> Reason? { app.wrongCertificate(app.credential) }

    @Test("of another app prevents sending through the gateway, and the reason names both")
    func other() throws {
        let refusal = Self.refusal(try Self.app(topic: "com.other.app", certificate: "com.example.app"))
        #expect(refusal?.code == .own(.certificateNotForTopic))
        let words = try #require(refusal?.detail)
        #expect(words.contains("com.example.app, ") && words.contains("not for the topic com.other.app"))
    }

    @Test("must cover all topics of the app")
    func several() throws {
        let topics = ["com.example.app.voip", "com.example.second"]
        #expect(Self.refusal(try Self.app(topic: "com.example.app", certificate: "com.example.app")) == nil)
        let short = try Self.app(topic: "com.example.app", others: topics, certificate: "com.example.app")
        #expect(Self.refusal(short)?.detail?.contains("not for the topic com.example.second") == true)
        let whole = try Self.app(
            topic: "com.example.app", others: topics, certificate: "com.example.app", alsoFor: ["com.example.second"])
        #expect(Self.refusal(whole) == nil)
    }

    @Test("is left to APNs if requests name their topic")
    func http2() throws {
        let app = try Self.app(topic: "com.other.app", transport: .http2, certificate: "com.example.app")
        #expect(Self.refusal(app) == nil)
    }

    @Test(
        "that does not list the topic of a push type ends its jobs before they are sent",
        arguments: [
            (#""push_type":"voip""#, nil), (#""push_type":"alert""#, nil), (#""push_type":"complication""#, nil),
            (#""push_type":"widgets""#, "not for the topic com.example.app.push-type.widgets"),
            (#""push_type":"location""#, "a signing key"),
            (#""push_type":"alert","topic":"com.example.second""#, "not for the topic com.example.second"),
        ] as [(String, String?)])
    func pushTypes(members: String, refusal: String?) throws {
        let app = try Self.app(
            topic: "com.example.app", others: ["com.example.second"], transport: .http2, certificate: "com.example.app")
        let token = String(repeating: "ab", count: 32)
        let body = ByteBuffer(string: #"{"token":"\#(token)","alert":"x","priority":5,\#(members)}"#)
        let (verdicts, plan) = JobCheck([app]).run(body, name: "job", now: 1_800_000_000_000)
        #expect((plan == nil) == (refusal != nil), "\(verdicts)")
        if let refusal {
            #expect("\(verdicts)".contains(refusal) && "\(verdicts)".contains("CertificateNotForTopic"), "\(verdicts)")
        }
    }
}
