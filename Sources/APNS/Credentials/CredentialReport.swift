import PushJob
import TLS

/// Findings about a credential, made before it is used and periodically while it is in use.
///
/// A report is made only of a P-256 key, or of a certificate that matches its key. For other credentials, ``SigningKey`` or `TLSIdentity`
/// throws an error.
public struct CredentialReport: Sendable, Equatable {
    public enum Severity: String, Sendable {
        /// APNs will refuse the credential.
        case error
        /// APNs will probably accept the credential, but it needs attention.
        case warning
    }

    public struct Finding: Sendable, Equatable {
        public let severity: Severity
        /// The problem and what to do, as a sentence without a final period.
        public let sentence: String
    }

    /// The findings, errors first.
    public let findings: [Finding]
    /// Whole days until the certificate expires, negative once it has; nil for a key, which does not expire.
    public let daysLeft: Int?

    /// True if APNs can be expected to accept the credential.
    public var isUsable: Bool { !findings.contains { $0.severity == .error } }

    /// Checks a certificate.
    /// - Parameters:
    ///   - topic: the topic to send to; nil to skip this check.
    ///   - environment: the service to send through; nil for servers other than Apple's, which accept any environment.
    ///   - keySources: the sources of the private key and its passphrase, whose permissions are checked.
    ///   - now: seconds since 1970.
    public init(
        certificate: APNSCertificate, topic: String?, environment: APNSEnvironment?, keySources: [SecretSource] = [],
        now: Int64
    ) {
        var findings = Self.validity(certificate, now: now)
        if let topic { findings += Self.topic(certificate, topic) }
        if let environment { findings += Self.environment(certificate, environment) }
        findings += Self.permissions(keySources)
        self.findings = findings.filter { $0.severity == .error } + findings.filter { $0.severity == .warning }
        daysLeft = certificate.notAfter.map { Int((Double($0 - now) / 86_400).rounded(.down)) }
    }

    /// Checks a signing key. If the key could be read, only the permissions of its file can be wrong.
    /// - Parameter keySources: the sources of the key and its passphrase.
    public init(keySources: [SecretSource]) {
        findings = Self.permissions(keySources)
        daysLeft = nil
    }

    private static func validity(_ certificate: APNSCertificate, now: Int64) -> [Finding] {
        CertificateValidity(notBefore: certificate.notBefore, notAfter: certificate.notAfter)
            .problems(now: now, advice: "make a new one at Apple's developer site")
            .map {
                Finding(severity: $0.isError ? .error : .warning, sentence: "\(name(certificate)) \($0.predicate)")
            }
    }

    private static func topic(_ certificate: APNSCertificate, _ topic: String) -> [Finding] {
        guard !certificate.allows(topic: topic) else { return [] }
        guard !certificate.topics.isEmpty else {
            return [
                Finding(
                    severity: .warning,
                    sentence:
                        "\(name(certificate)) has no topic; Apple's push certificates have topics, so check that it is one of them"
                )
            ]
        }
        return mismatch(certificate, topic).map { [Finding(severity: .error, sentence: $0)] } ?? []
    }

    /// Returns an error, as a sentence without a final period, if the certificate names topics, but not this one; `nil` otherwise.
    public static func mismatch(_ certificate: APNSCertificate, _ topic: String) -> String? {
        guard !certificate.topics.isEmpty, !certificate.allows(topic: topic) else { return nil }
        let shown = certificate.topics.prefix(5).map { printable($0.name) }.joined(separator: ", ")
        let more = certificate.topics.count > 5 ? " and \(certificate.topics.count - 5) more" : ""
        return "\(name(certificate)) is for \(shown)\(more), not for the topic \(printable(topic)); use that app's "
            + "certificate, or correct the topic"
    }

    /// Returns the reason why a certificate can't send to a topic of a push type; `nil` if it can. A sentence without a final period.
    ///
    /// Source: Apple, "Sending notification requests to APNs": "If a push topic for a specific push type isn't listed, you
    /// can't use the certificate".
    public static func refusal(_ certificate: APNSCertificate, _ topic: String, _ type: PushType) -> String? {
        if type.row.needsKey {
            return "\(name(certificate)) can't send notifications of push type \(type.name), which need a signing key"
        }
        guard certificate.listsTopics else { return nil }
        return mismatch(certificate, topic)
    }

    private static func environment(_ certificate: APNSCertificate, _ environment: APNSEnvironment) -> [Finding] {
        guard !certificate.environments.isEmpty, !certificate.environments.contains(environment) else { return [] }
        let other: APNSEnvironment = environment == .production ? .sandbox : .production
        return [
            Finding(
                severity: .error,
                sentence: "\(name(certificate)) is for the \(other.rawValue) environment only, not for "
                    + "\(environment.rawValue); use another certificate, or the \(other.rawValue) endpoint")
        ]
    }

    private static func permissions(_ sources: [SecretSource]) -> [Finding] {
        sources.compactMap { $0.permissionsWarning() }.map { Finding(severity: .warning, sentence: $0) }
    }

    private static func name(_ certificate: APNSCertificate) -> String {
        certificate.commonName.map { "the certificate (\(printable($0)))" } ?? "the certificate"
    }
}
