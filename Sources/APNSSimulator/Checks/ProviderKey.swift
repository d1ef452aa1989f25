import APNS
import COpenSSL

/// A key that can sign provider tokens, and its owner.
///
/// Unchecked because of the pointer; safe because it is set once and only used to verify, which OpenSSL allows from
/// many threads at once.
package final class ProviderKey: @unchecked Sendable {
    /// The key's ten-character identifier (`kid`).
    package let keyID: String
    /// The team's ten-character identifier (`iss`).
    package let teamID: String
    /// The topics and the environment that the key is valid for.
    let scope: Scope
    private let key: OpaquePointer

    /// The scope of a key.
    ///
    /// Source: Apple, "Establishing a token-based connection to APNs", "Team-scoped keys" and "Topic-specific keys".
    package struct Scope: Equatable, Sendable {
        /// The bundle identifiers of a topic-specific key; nil for a team-scoped one.
        package var topics: Set<String>?
        /// The environment of the key; nil for both, as for keys older than scopes.
        package var environment: APNSEnvironment?
        /// The identifier of the key whose tokens can be used on the same connection as those of this topic-specific
        /// key.
        package var relatedKeyID: String?

        /// A team-scoped key for both environments.
        package init() {}

        /// Reads `topics=com.example.app+com.example.other,environment=sandbox,related=KEYID`; each part is optional.
        /// - Throws: ``RuleError`` that names the invalid part.
        package init(_ text: String) throws(RuleError) {
            var reader = try RuleReader(text, kind: "scope of a provider key")
            topics = try reader.take("topics", "must be bundle identifiers with + between them") { text in
                text.isEmpty ? nil : Set(RuleReader.list(text))
            }
            environment = try reader.take("environment", "must be production or sandbox") {
                APNSEnvironment(rawValue: $0)
            }
            relatedKeyID = reader.take("related")
            try reader.finish()
        }
    }

    /// A key that could not be read.
    package struct Unreadable: Error, Equatable, Sendable, CustomStringConvertible {
        /// The problem, its key, and the remedy.
        package let description: String
    }

    /// Reads a public key, or a private one as Apple issues it (`AuthKey_….p8`), in PEM.
    /// - Throws: ``Unreadable`` if it is neither, or not on the curve P-256.
    package init(keyID: String, teamID: String, pem: [UInt8], scope: Scope = Scope()) throws(Unreadable) {
        guard let key = Self.read(pem) else {
            throw Unreadable(
                description: "provider key \(keyID): not a public or private key in PEM without a passphrase")
        }
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_EC, EVP_PKEY_get_bits(key) == 256 else {
            EVP_PKEY_free(key)
            throw Unreadable(description: "provider key \(keyID): not an EC key on the curve P-256 (prime256v1)")
        }
        self.keyID = keyID
        self.teamID = teamID
        self.scope = scope
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    private static func read(_ pem: [UInt8]) -> OpaquePointer? {
        guard let bio = BIO_new_mem_buf(pem, Int32(pem.count)) else { return nil }
        defer {
            BIO_free(bio)
            ERR_clear_error()
        }
        // Without a callback, OpenSSL would ask for a passphrase on the terminal; this one makes an encrypted key fail.
        if let key = PEM_read_bio_PUBKEY(bio, nil, { _, _, _, _ in -1 }, nil) { return key }
        BIO_ctrl(bio, BIO_CTRL_RESET, 0, nil)
        return PEM_read_bio_PrivateKey(bio, nil, { _, _, _, _ in -1 }, nil)
    }

    /// Returns true if the token's signature was made with this key.
    func verifies(_ token: ProviderToken) -> Bool {
        guard let pair = ECDSA_SIG_new() else { return false }
        defer { ECDSA_SIG_free(pair) }
        // JWS concatenates r and s (RFC 7518 §3.4); OpenSSL expects DER.
        let r = BN_bin2bn(Array(token.signature.prefix(32)), 32, nil)
        let s = BN_bin2bn(Array(token.signature.suffix(32)), 32, nil)
        guard ECDSA_SIG_set0(pair, r, s) == 1 else {
            BN_free(r)
            BN_free(s)
            return false
        }
        var der: UnsafeMutablePointer<UInt8>?
        let length = i2d_ECDSA_SIG(pair, &der)
        guard length > 0, let der else { return false }
        defer { CRYPTO_free(der, nil, 0) }
        guard let context = EVP_MD_CTX_new() else { return false }
        defer {
            EVP_MD_CTX_free(context)
            ERR_clear_error()
        }
        return EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1
            && EVP_DigestVerify(context, der, Int(length), token.signed, token.signed.count) == 1
    }
}
