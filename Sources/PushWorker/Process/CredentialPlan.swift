import APNS
import TLS

/// The means by which an app proves to APNs that it may send.
package enum Credential: Sendable {
    /// At least one signing key. Each request carries a token of the first key, or of the next if APNs refuses that one.
    case providerTokens([ProviderTokenSource])
    /// A client certificate, presented when a connection is made.
    case certificate(TLSIdentity)

    package var tokenSources: [ProviderTokenSource] {
        if case .providerTokens(let sources) = self { sources } else { [] }
    }

    /// The end of the certificate's validity, in seconds since 1970; `nil` for keys, which do not expire.
    var certificateEnd: Int64? {
        if case .certificate(let identity) = self { identity.notAfter } else { nil }
    }
}

/// The sources of an app's credential. When they change, the credential is made again.
package struct CredentialPlan: Sendable, Equatable {
    /// A signing key and its identifiers at Apple.
    package struct Key: Sendable, Equatable {
        /// The `.p8` file.
        package var source: SecretSource
        package var passphrase: SecretSource?
        package var keyID: String
        package var teamID: String

        package init(source: SecretSource, passphrase: SecretSource? = nil, keyID: String, teamID: String) {
            self.source = source
            self.passphrase = passphrase
            self.keyID = keyID
            self.teamID = teamID
        }
    }

    package enum Kind: Sendable, Equatable {
        /// Signing keys in order of use. The next key is used when APNs refuses the one before, for example because it was revoked.
        case keys([Key])
        /// A certificate as PEM or PKCS#12, its key if that has a source of its own, and its passphrase.
        case certificate(SecretSource, key: SecretSource?, passphrase: SecretSource?)
    }

    package struct Unusable: Error, Sendable, CustomStringConvertible {
        /// The problem, its place, and the first step to mend it.
        package let description: String
    }

    package var kind: Kind
    /// The source of the authorities that are trusted instead of the system's.
    package var authorities: SecretSource?

    package init(_ kind: Kind) {
        self.kind = kind
    }

    /// All sources in the order that ``make(from:)`` expects: first those of the credential, then the authorities.
    package var sources: [SecretSource] {
        let credential =
            switch kind {
            case .keys(let keys): keys.flatMap { [$0.source] + ($0.passphrase.map { [$0] } ?? []) }
            case .certificate(let certificate, let key, let passphrase):
                [certificate] + [key, passphrase].compactMap { $0 }
            }
        return credential + (authorities.map { [$0] } ?? [])
    }

    /// Returns the trusted authorities; `nil` for the system's.
    /// - Parameter contents: the contents of the sources, in their order.
    package func trust(from contents: [[UInt8]]) -> TLSTrust? {
        guard let authorities, let bytes = contents.last else { return nil }
        return .pem(bytes, name: "\(authorities)")
    }

    /// Reads all sources and makes the credential.
    /// - Throws: ``Unusable``.
    package func make() throws -> (credential: Credential, contents: [[UInt8]]) {
        let contents = try sources.map { source in
            do { return try source.read() } catch { throw Unusable(description: "\(error)") }
        }
        return (try make(from: contents), contents)
    }

    /// Makes the credential.
    /// - Parameter contents: the contents of the sources, in their order.
    /// - Throws: ``Unusable``.
    package func make(from contents: [[UInt8]]) throws -> Credential {
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
                        let isLocked = error as? SigningKey.Invalid == .encrypted(passphraseGiven: false)
                        let setting = isLocked ? " (key_passphrase_file, or next_key_passphrase_file)" : ""
                        throw Unusable(description: "the signing key \(key.source): \(error)\(setting)")
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
            } catch let error {
                let isLocked = if case .wrongPassphrase(_, given: false) = error.kind { true } else { false }
                throw Unusable(description: "\(error)\(isLocked ? " (certificate_passphrase_file)" : "")")
            }
        }
    }

    /// Returns the findings about the credential.
    /// - Parameter now: seconds since 1970.
    package func report(
        _ credential: Credential, topics: [String], endpoint: APNSEndpoint, now: Int64
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

    /// Returns a passphrase without the line breaks at the end of its file.
    private static func passphrase(_ bytes: [UInt8]) -> String {
        var rest = bytes[...]
        while let last = rest.last, last == 0x0A || last == 0x0D { rest.removeLast() }
        return String(decoding: rest, as: UTF8.self)
    }
}
