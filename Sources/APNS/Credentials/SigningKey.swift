import COpenSSL
import TLS

/// An APNs authentication key (`AuthKey_….p8`): a P-256 private key in PKCS#8 PEM.
///
/// Not modified after `init`. OpenSSL's keys can then be used by several threads at once (openssl-threads(7)), so
/// sharing it is safe.
public final class SigningKey: @unchecked Sendable {
    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case empty
        /// The input is a certificate, or a PKCS#12 file.
        case certificate
        case publicKey
        case encrypted(passphraseGiven: Bool)
        case legacyProviderMissing
        case notPrivateKey
        /// A private key of another type or on another curve, described by the value.
        case notP256(String)
        /// OpenSSL could not sign; the value is its error.
        case signingFailed(String)

        public var description: String {
            switch self {
            case .empty: "empty; an APNs key is the AuthKey_….p8 file that Apple's developer site offers once"
            case .certificate:
                "a certificate, not a signing key; use the AuthKey_….p8 file, or set the certificate instead of a key"
            case .publicKey: "a public key; signing needs the private one, the AuthKey_….p8 file"
            case .encrypted(passphraseGiven: true): "encrypted with another passphrase; set the right one"
            case .encrypted(passphraseGiven: false): "encrypted; set its passphrase"
            case .legacyProviderMissing:
                "encrypted with an algorithm of OpenSSL's legacy provider, which is not installed (Debian's package "
                    + "libssl3, from Debian 13 on openssl-provider-legacy); install it, or encrypt the key with AES"
            case .notPrivateKey:
                "not a private key in PEM form; an APNs key is the AuthKey_….p8 file that Apple's developer site "
                    + "offers once, and begins with -----BEGIN PRIVATE KEY-----"
            case .notP256(let found):
                "the key is \(found); APNs accepts only P-256 keys (the .p8 file of Apple's developer site)"
            case .signingFailed(let why): "signing failed: \(why)"
            }
        }
    }

    private let key: OpaquePointer

    /// - Parameters:
    ///   - pem: the contents of the `.p8` file: PEM or PKCS#8 DER, plain or in base64.
    ///   - passphrase: the passphrase of an encrypted key.
    public init(pem: some Collection<UInt8>, passphrase: String? = nil) throws(Invalid) {
        let read = try Self.read(Array(pem), passphrase: passphrase)
        guard EVP_PKEY_get_base_id(read) == EVP_PKEY_EC else {
            defer { EVP_PKEY_free(read) }
            throw .notP256("of another kind (\(Self.typeName(read)))")
        }
        var group = [CChar](repeating: 0, count: 80)
        var length = 0
        EVP_PKEY_get_group_name(read, &group, group.count, &length)
        let name = String(decoding: group.prefix(length).map(UInt8.init(bitPattern:)), as: UTF8.self)
        guard name == "prime256v1" else {
            EVP_PKEY_free(read)
            throw .notP256("on the curve \(name)")
        }
        key = read
    }

    deinit {
        EVP_PKEY_free(key)
    }

    /// Signs as JOSE's ES256 requires (RFC 7518 §3.4): 32 bytes of r and 32 bytes of s, not OpenSSL's DER.
    public func signES256(_ message: [UInt8]) throws(Invalid) -> [UInt8] {
        ERR_clear_error()
        guard let context = EVP_MD_CTX_new() else { throw .signingFailed("out of memory") }
        defer { EVP_MD_CTX_free(context) }
        var length = 0
        guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key) == 1,
            EVP_DigestSign(context, nil, &length, message, message.count) == 1
        else { throw .signingFailed(Self.lastError()) }
        var der = [UInt8](repeating: 0, count: length)
        guard EVP_DigestSign(context, &der, &length, message, message.count) == 1 else {
            throw .signingFailed(Self.lastError())
        }
        return try der.withUnsafeBufferPointer { der throws(Invalid) in
            var start = der.baseAddress
            guard let signature = d2i_ECDSA_SIG(nil, &start, length) else { throw .signingFailed(Self.lastError()) }
            defer { ECDSA_SIG_free(signature) }
            var joined = [UInt8](repeating: 0, count: 64)
            guard BN_bn2binpad(ECDSA_SIG_get0_r(signature), &joined, 32) == 32 else {
                throw .signingFailed(Self.lastError())
            }
            let padded = joined.withUnsafeMutableBufferPointer {
                BN_bn2binpad(ECDSA_SIG_get0_s(signature), $0.baseAddress.map { $0 + 32 }, 32)
            }
            guard padded == 32 else { throw .signingFailed(Self.lastError()) }
            return joined
        }
    }

    /// Returns true if a signature in the format of ``signES256(_:)`` was made with this key, of exactly that message.
    ///
    /// The signature and the message are untrusted.
    public func verifies(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        ES256.verifies(signature, of: message, key: key)
    }

    private static func typeName(_ key: OpaquePointer) -> String {
        EVP_PKEY_get0_type_name(key).map { String(cString: $0) } ?? "unknown"
    }

    private static func lastError() -> String {
        var text = [CChar](repeating: 0, count: 256)
        ERR_error_string_n(ERR_get_error(), &text, text.count)
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

/// Finds the private key in the user's file, or determines what the file contains instead.
extension SigningKey {
    /// - Returns: an OpenSSL `EVP_PKEY`, which the caller owns.
    private static func read(_ bytes: [UInt8], passphrase: String?) throws(Invalid) -> OpaquePointer {
        let isBlank = bytes.allSatisfy { [0x09, 0x0A, 0x0D, 0x20].contains($0) }
        guard !isBlank else { throw .empty }
        do throws(Invalid) {
            return try readPlain(bytes, passphrase: passphrase)
        } catch .notPrivateKey {
            // The position of an error is not reported, because the input need not be base64.
            guard let decoded = try? Base64.decode(bytes) else { throw .notPrivateKey }
            return try readPlain(decoded, passphrase: passphrase)
        }
    }

    private static func readPlain(_ bytes: [UInt8], passphrase: String?) throws(Invalid) -> OpaquePointer {
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

    private static func otherKind(_ bytes: [UInt8]) -> Invalid? {
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

extension SigningKey: CustomStringConvertible, CustomReflectable {
    /// The type of the key; no part of its contents.
    public var description: String { "signing key (P-256)" }

    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Signatures in the format of ``SigningKey/signES256(_:)``.
public enum ES256 {
    /// Returns true if a signature was made with an EC key on the curve P-256, of exactly that message.
    ///
    /// Signature and message are untrusted.
    public static func verifies(_ signature: [UInt8], of message: [UInt8], key: OpaquePointer) -> Bool {
        guard signature.count == 64, let pair = ECDSA_SIG_new() else { return false }
        defer {
            ECDSA_SIG_free(pair)
            ERR_clear_error()
        }
        let r = BN_bin2bn(Array(signature[..<32]), 32, nil)
        let s = BN_bin2bn(Array(signature[32...]), 32, nil)
        guard ECDSA_SIG_set0(pair, r, s) == 1 else {
            BN_free(r)
            BN_free(s)
            return false
        }
        // OpenSSL expects DER.
        var der: UnsafeMutablePointer<UInt8>?
        let length = i2d_ECDSA_SIG(pair, &der)
        guard length > 0, let der else { return false }
        defer { CRYPTO_free(der, nil, 0) }
        guard let context = EVP_MD_CTX_new() else { return false }
        defer { EVP_MD_CTX_free(context) }
        return EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1
            && EVP_DigestVerify(context, der, Int(length), message, message.count) == 1
    }
}
