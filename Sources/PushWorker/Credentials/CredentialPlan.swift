import APNS
import TLS

/// Where an app's credential comes from, so that it can be made, and made anew when what it is made of changes.
public struct CredentialPlan: Sendable, Equatable {
    /// A signing key, and by which identifiers Apple knows it.
    public struct Key: Sendable, Equatable {
        /// The `.p8` file.
        public var source: SecretSource
        /// Its passphrase, if it is encrypted.
        public var passphrase: SecretSource?
        /// The key's identifier.
        public var keyID: String
        /// The team's identifier.
        public var teamID: String

        /// Takes what a key is known by.
        public init(source: SecretSource, passphrase: SecretSource? = nil, keyID: String, teamID: String) {
            self.source = source
            self.passphrase = passphrase
            self.keyID = keyID
            self.teamID = teamID
        }
    }

    /// The kind of credential.
    public enum Kind: Sendable, Equatable {
        /// Signing keys, the one to use first; the next is used when APNs refuses the one before, as it does when a key is
        /// revoked.
        case keys([Key])
        /// A certificate, PEM or PKCS#12, with its key where that stands elsewhere, and its passphrase.
        case certificate(SecretSource, key: SecretSource?, passphrase: SecretSource?)
    }

    /// An error of a credential, with its source.
    public struct Unusable: Error, Sendable, CustomStringConvertible {
        /// The problem, its place, and what to do.
        public let description: String
    }

    /// The parts that it is made of.
    public var kind: Kind

    /// Takes what a credential is made of.
    public init(_ kind: Kind) {
        self.kind = kind
    }

    /// All that is read for it, in the order in which ``make(from:)`` takes the contents.
    public var sources: [SecretSource] {
        switch kind {
        case .keys(let keys): keys.flatMap { [$0.source] + ($0.passphrase.map { [$0] } ?? []) }
        case .certificate(let certificate, let key, let passphrase):
            [certificate] + [key, passphrase].compactMap { $0 }
        }
    }

    /// Reads all sources and makes the credential.
    /// - Throws: ``Unusable``.
    public func make() throws -> (credential: AppConfiguration.Credential, contents: [[UInt8]]) {
        let contents = try sources.map { source in
            do { return try source.read() } catch { throw Unusable(description: "\(error)") }
        }
        return (try make(from: contents), contents)
    }

    /// Makes the credential.
    /// - Parameter contents: what the sources hold, in their order.
    /// - Throws: ``Unusable``.
    public func make(from contents: [[UInt8]]) throws -> AppConfiguration.Credential {
        var rest = contents[...]
        switch kind {
        case .keys(let keys):
            return .providerTokens(
                try keys.map { key in
                    let bytes = rest.removeFirst()
                    let passphrase = key.passphrase == nil ? nil : Self.passphrase(rest.removeFirst())
                    do {
                        return try ProviderTokenSource(
                            key: SigningKey(pem: bytes, passphrase: passphrase), keyID: key.keyID, teamID: key.teamID)
                    } catch {
                        throw Unusable(description: "the signing key \(key.source): \(error)")
                    }
                })
        case .certificate(let certificate, let key, let passphrase):
            let bytes = rest.removeFirst()
            let keyBytes = key == nil ? nil : rest.removeFirst()
            let text = passphrase == nil ? nil : Self.passphrase(rest.removeFirst())
            do {
                return .certificate(
                    try TLSIdentity(
                        bytes: bytes, keyBytes: keyBytes, passphrase: text, source: "\(certificate)",
                        keySource: key.map { "\($0)" }))
            } catch {
                throw Unusable(description: "\(error)")
            }
        }
    }

    /// Returns the findings about the credential.
    /// - Parameter now: seconds since 1970.
    public func report(
        _ credential: AppConfiguration.Credential, topics: [String], endpoint: APNSEndpoint, now: Int64
    ) -> [CredentialReport] {
        switch (kind, credential) {
        case (.keys(let keys), _):
            return [CredentialReport(keySources: keys.flatMap { [$0.source] + ($0.passphrase.map { [$0] } ?? []) })]
        case (.certificate(let source, let key, let passphrase), .certificate(let identity)):
            let keySources = [key ?? source] + (passphrase.map { [$0] } ?? [])
            let certificate = identity.apns
            let reports = (topics.isEmpty ? [nil] : topics.map(Optional.some)).map { topic in
                CredentialReport(
                    certificate: certificate, topic: topic, environment: APNSEnvironment(host: endpoint.host),
                    keySources: keySources, now: now)
            }
            return reports
        case (.certificate, .providerTokens): return []
        }
    }

    /// Files end in a line feed that is not part of the passphrase.
    private static func passphrase(_ bytes: [UInt8]) -> String {
        var rest = bytes[...]
        while let last = rest.last, last == 0x0A || last == 0x0D { rest.removeLast() }
        return String(decoding: rest, as: UTF8.self)
    }
}
