import APNS
import APNSSimulator
import PushWorker
import TLS

/// The credentials of a worker's apps for its own simulator, and those of the simulator: made for this run.
struct SimulatedCredentials: Sendable {
    /// The topic of an app that names none.
    static let defaultTopic = "com.example.app"

    private let authority: SimulatedAuthority
    // Not the authority's, which is always the same: workers share tokens in Redis by it, and those of another run are
    // signed with another key.
    private let keyID: String

    init() throws {
        authority = try SimulatedAuthority()
        keyID = "S1" + String(UInt32.random(in: 0x1000_0000 ... .max), radix: 16, uppercase: true)
    }

    /// Where an app's notifications would go until the simulator's ports are known: nowhere.
    static func endpoint(usesGateway: Bool) -> APNSEndpoint {
        APNSEndpoint(host: "simulator.invalid", port: usesGateway ? 2195 : 443)
    }

    /// Whom the apps have to trust.
    var trust: TLSTrust { .pem(authority.certificatePEM) }

    /// A signing key or, for the gateway, which takes nothing else, a certificate.
    func credential(
        topic: String, otherTopics: [String], usesGateway: Bool
    ) throws -> AppConfiguration.Credential {
        if usesGateway {
            let pair = try authority.client(topic: topic, otherTopics: otherTopics)
            return .certificate(try TLSIdentity(certificatePEM: pair.certificatePEM, keyPEM: pair.keyPEM))
        }
        return .providerTokens([
            try ProviderTokenSource(
                key: SigningKey(pem: authority.signingKeyPEM), keyID: keyID, teamID: SimulatedAuthority.teamID)
        ])
    }

    /// A simulator that takes these credentials, and no others.
    func simulator() throws -> SimulatorConfiguration {
        var configuration = SimulatorConfiguration(identity: try authority.serverIdentity())
        configuration.clientTrust = trust
        configuration.providerKeys = [
            try ProviderKey(keyID: keyID, teamID: SimulatedAuthority.teamID, pem: authority.signingKeyPEM)
        ]
        return configuration
    }
}
