import COpenSSL
import TLS

/// Finds the private key in whatever the user provides, or reports what was provided instead.
enum KeyMaterial {
    /// - Returns: an OpenSSL `EVP_PKEY`, which the caller owns.
    static func read(_ bytes: [UInt8], passphrase: String?) throws(SigningKey.Invalid) -> OpaquePointer {
        let isBlank = bytes.allSatisfy { [0x09, 0x0A, 0x0D, 0x20].contains($0) }
        guard !isBlank else { throw .empty }
        do throws(SigningKey.Invalid) {
            return try readPlain(bytes, passphrase: passphrase)
        } catch .notPrivateKey {
            // The position of an error is not reported, because the input need not be base64.
            guard let decoded = try? Base64.decode(bytes) else { throw .notPrivateKey }
            return try readPlain(decoded, passphrase: passphrase)
        }
    }

    private static func readPlain(_ bytes: [UInt8], passphrase: String?) throws(SigningKey.Invalid) -> OpaquePointer {
        do throws(TLSError) {
            return try PEM(bytes: bytes, source: "the key").privateKey(passphrase: passphrase)
        } catch {
            switch error.kind {
            case .wrongPassphrase(_, let given): throw .encrypted(passphraseGiven: given)
            case .legacyProviderMissing: throw .legacyProviderMissing
            default: throw otherKind(bytes) ?? .notPrivateKey
            }
        }
    }

    private static func otherKind(_ bytes: [UInt8]) -> SigningKey.Invalid? {
        defer { ERR_clear_error() }
        let blocks = ["CERTIFICATE-----", "TRUSTED CERTIFICATE-----", "PKCS7-----"]
        if blocks.contains(where: { bytes.firstRange(of: Array("-----BEGIN \($0)".utf8)) != nil }) {
            return .certificate
        }
        for block in ["PUBLIC KEY-----", "RSA PUBLIC KEY-----"]
        where bytes.firstRange(of: Array("-----BEGIN \(block)".utf8)) != nil { return .publicKey }
        return bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            if let certificate = d2i_X509(nil, &start, bytes.count) {
                X509_free(certificate)
                return .certificate
            }
            start = bytes.baseAddress
            if let file = d2i_PKCS12(nil, &start, bytes.count) {
                PKCS12_free(file)
                return .certificate
            }
            start = bytes.baseAddress
            if let key = d2i_PUBKEY(nil, &start, bytes.count) {
                EVP_PKEY_free(key)
                return .publicKey
            }
            return nil
        }
    }
}
