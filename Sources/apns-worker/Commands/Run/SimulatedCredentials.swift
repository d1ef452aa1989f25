import APNS
import APNSSimulator
import PushWorker
import TLS

/// The credentials of a worker's apps and of its simulator, created for this run.
struct SimulatedCredentials: Sendable {
    /// The topic of an app that has no topic in its settings.
    static let defaultTopic = "com.example.app"

    private let authority: SimulatedAuthority
    // The authority's key ID is always the same. It can't be used, because workers share provider tokens in Redis by key ID, and another
    // run signs its tokens with another key.
    private let keyID: String

    init() throws {
        authority = try SimulatedAuthority()
        keyID = "S1" + String(UInt32.random(in: 0x1000_0000 ... .max), radix: 16, uppercase: true)
    }

    /// Returns a placeholder for an app's endpoint, until the simulator's ports are known.
    static func endpoint(usesGateway: Bool) -> APNSEndpoint {
        APNSEndpoint(host: "simulator.invalid", port: usesGateway ? 2195 : 443)
    }

    /// The certificates that the apps must trust.
    var trust: TLSTrust { .pem(authority.certificatePEM) }

    /// Returns a signing key, or a certificate for the gateway, which accepts only certificates.
    func credential(
        topic: String, otherTopics: [String], usesGateway: Bool
    ) throws -> Credential {
        if usesGateway {
            let pair = try authority.client(topic: topic, otherTopics: otherTopics)
            return .certificate(
                try TLSIdentity(
                    bytes: pair.certificatePEM, keyBytes: pair.keyPEM, source: "the simulated certificate"))
        }
        return .providerTokens([
            try ProviderTokenSource(
                key: SigningKey(pem: authority.signingKeyPEM), keyID: keyID, teamID: SimulatedAuthority.teamID)
        ])
    }

    /// Returns the configuration of a simulator that accepts only these credentials.
    func simulator() throws -> SimulatorConfiguration {
        var configuration = SimulatorConfiguration(identity: try authority.serverIdentity())
        configuration.clientTrust = trust
        configuration.providerKeys = [
            try ProviderKey(keyID: keyID, teamID: SimulatedAuthority.teamID, pem: authority.signingKeyPEM)
        ]
        return configuration
    }
}
