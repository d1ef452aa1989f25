import COpenSSL

/// A key that provider tokens may be signed with, and to whom it belongs.
///
/// Unchecked because of the pointer; safe because it is set once and only used to verify, which OpenSSL allows from many
/// threads at once.
package final class ProviderKey: @unchecked Sendable {
    /// The key's ten-character identifier (`kid`).
    package let keyID: String
    /// The team's ten-character identifier (`iss`).
    package let teamID: String
    private let key: OpaquePointer

    /// A key that could not be read.
    package struct Unreadable: Error, Equatable, Sendable, CustomStringConvertible {
        /// What is wrong, with which key, and what to do.
        package let description: String
    }

    /// Takes a public key, or a private one as Apple hands it out (`AuthKey_….p8`), in PEM.
    /// - Throws: ``Unreadable`` when it is neither, or not on the curve P-256.
    package init(keyID: String, teamID: String, pem: [UInt8]) throws(Unreadable) {
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
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    private static func read(_ pem: [UInt8]) -> OpaquePointer? {
        guard let bio = BIO_new_mem_buf(pem, Int32(pem.count)) else { return nil }
        defer {
            BIO_free(bio)
            ERR_clear_error()
        }
        // OpenSSL would ask for a passphrase on the terminal; so an encrypted key fails instead.
        if let key = PEM_read_bio_PUBKEY(bio, nil, { _, _, _, _ in -1 }, nil) { return key }
        BIO_ctrl(bio, BIO_CTRL_RESET, 0, nil)
        return PEM_read_bio_PrivateKey(bio, nil, { _, _, _, _ in -1 }, nil)
    }

    /// Whether the token's signature was made with this key.
    func verifies(_ token: ProviderToken) -> Bool {
        guard let pair = ECDSA_SIG_new() else { return false }
        defer { ECDSA_SIG_free(pair) }
        // JWS has r and s side by side (RFC 7518, section 3.4); OpenSSL wants them in DER.
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
