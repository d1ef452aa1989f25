import COpenSSL
import Glibc
import TLS

/// The simulator's own certificate authority, in memory. Clients trust it, and the simulator trusts the clients that it certifies.
///
/// All keys are P-256, newly generated, and worthless outside tests.
package final class SimulatedAuthority: Sendable {
    package struct Pair: Sendable {
        /// PEM.
        package let certificatePEM: [UInt8]
        /// PKCS#8 in PEM, without a passphrase.
        package let keyPEM: [UInt8]
    }

    /// Clients connect to a simulator on this machine with these names.
    package static let localNames = ["localhost", "127.0.0.1", "::1"]
    package static let keyID = "ABC123DEFG"
    package static let teamID = "TEAM123456"

    /// The authority's own certificate in PEM. Clients must trust it.
    package let certificatePEM: [UInt8]
    /// The key that signs provider tokens, in PEM, like Apple's `AuthKey_….p8`.
    package let signingKeyPEM: [UInt8]
    private let certificate: IssuedCertificate
    private let key: P256Key
    private let now: Int

    /// - Parameter now: seconds since 1970, the time of issue of all certificates.
    package init(now: Int = time(nil)) throws(SimulatorError) {
        self.now = now
        key = try P256Key()
        certificate = try IssuedCertificate(
            subject: [(NID_commonName, "apns-simulator authority")],
            extensions: [
                (NID_basic_constraints, "critical,CA:true"), (NID_key_usage, "critical,keyCertSign,cRLSign"),
                (NID_subject_key_identifier, "hash"),
            ], key: key, issuer: nil, now: now)
        certificatePEM = try certificate.pem()
        signingKeyPEM = try P256Key().pem()
    }

    /// - Parameter names: at least one host name or IP address for clients to connect to.
    package func server(names: [String] = localNames) throws(SimulatorError) -> Pair {
        guard let first = names.first else {
            throw SimulatorError("a server certificate needs at least one name")
        }
        var alternatives: [String] = []
        for name in names { alternatives.append(try Self.alternativeName(name)) }
        return try issue(
            subject: [(NID_commonName, first)], usage: "serverAuth",
            extensions: [(NID_subject_alt_name, alternatives.joined(separator: ","))])
    }

    package func serverIdentity(names: [String] = localNames) throws -> TLSIdentity {
        let pair = try server(names: names)
        return try TLSIdentity(bytes: pair.certificatePEM, keyBytes: pair.keyPEM, source: "the simulator's certificate")
    }

    /// Issues a client certificate with the contents of Apple's push certificates: the bundle identifier as the subject's user ID, the
    /// app's topics, and both environments.
    /// - Parameters:
    ///   - topic: the app's bundle identifier: letters, digits, dots, hyphens and underscores.
    ///   - otherTopics: further topics to list.
    package func client(topic: String, otherTopics: [String] = []) throws(SimulatorError) -> Pair {
        for topic in [topic] + otherTopics
        where topic.isEmpty || !topic.utf8.allSatisfy(\.isOfName) {
            throw SimulatorError(
                "'\(topic)' is not a bundle identifier; use only letters, digits, dots, hyphens and underscores")
        }
        return try issue(
            subject: [(NID_userId, topic), (NID_commonName, "Apple Push Services: \(topic)")], usage: "clientAuth",
            ownExtensions: PushCertificateExtensions.make(bundleID: topic, otherTopics: otherTopics))
    }

    package func providerKey() throws(SimulatorError) -> ProviderKey {
        try ProviderKey(keyID: Self.keyID, teamID: Self.teamID, pem: signingKeyPEM)
    }

    private func issue(
        subject: [(attribute: Int32, value: String)], usage: String,
        extensions: [(identifier: Int32, value: String)] = [], ownExtensions: [(oid: String, der: [UInt8])] = []
    ) throws(SimulatorError) -> Pair {
        let key = try P256Key()
        let issued = try IssuedCertificate(
            subject: subject,
            extensions: [
                (NID_basic_constraints, "critical,CA:false"), (NID_key_usage, "critical,digitalSignature"),
                (NID_ext_key_usage, usage), (NID_subject_key_identifier, "hash"),
                (NID_authority_key_identifier, "keyid:always"),
            ] + extensions, ownExtensions: ownExtensions, key: key, issuer: (certificate, self.key), now: now)
        return Pair(certificatePEM: try issued.pem(), keyPEM: try key.pem())
    }

    // Returns a name in OpenSSL's syntax. Other characters are refused, because commas and colons separate the names in OpenSSL's list.
    private static func alternativeName(_ name: String) throws(SimulatorError) -> String {
        var address = in6_addr()
        if inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1 { return "IP:\(name)" }
        guard (1...253).contains(name.utf8.count), name.utf8.allSatisfy({ $0.isOfName || $0 == UInt8(ascii: "*") })
        else {
            throw SimulatorError("'\(name)' is neither a host name nor an IP address; write names in ASCII")
        }
        return "DNS:\(name)"
    }
}
