import APNS
import APNSSimulator
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
        let identity = try TLSIdentity(certificatePEM: pair.certificatePEM, keyPEM: pair.keyPEM)
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
}
