import COpenSSL

/// An APNs authentication key (`AuthKey_….p8`): a P-256 private key in PKCS#8 PEM.
///
/// The key is never written to after `init`, and OpenSSL's keys may then be used by several threads at once
/// (openssl-threads(7)): that makes it safe to share.
public final class SigningKey: @unchecked Sendable {
    /// What is wrong with a key.
    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case notPrivateKey
        case notP256(String)
        case signingFailed(String)

        /// What is wrong and what to do.
        public var description: String {
            switch self {
            case .notPrivateKey:
                "not a private key in PEM form; an APNs key is the AuthKey_….p8 file that Apple's developer site "
                    + "gives out once, and begins with -----BEGIN PRIVATE KEY-----"
            case .notP256(let found):
                "the key is \(found); APNs takes only P-256 keys (the .p8 file of Apple's developer site)"
            case .signingFailed(let why): "signing failed: \(why)"
            }
        }
    }

    private let key: OpaquePointer

    /// Reads a key.
    /// - Parameter pem: the contents of the `.p8` file.
    public init(pem: some Collection<UInt8>) throws(Invalid) {
        ERR_clear_error()
        let bytes = Array(pem)
        // With an empty passphrase given, an encrypted key is an error and never a prompt on the terminal.
        let parsed = bytes.withUnsafeBytes { bytes -> OpaquePointer? in
            guard let bio = BIO_new_mem_buf(bytes.baseAddress, Int32(clamping: bytes.count)) else { return nil }
            defer { BIO_free(bio) }
            var empty: CChar = 0
            return PEM_read_bio_PrivateKey(bio, nil, nil, &empty)
        }
        guard let parsed else { throw .notPrivateKey }
        guard EVP_PKEY_get_base_id(parsed) == EVP_PKEY_EC else {
            defer { EVP_PKEY_free(parsed) }
            throw .notP256("of another kind (\(Self.typeName(parsed)))")
        }
        var group = [CChar](repeating: 0, count: 80)
        var length = 0
        EVP_PKEY_get_group_name(parsed, &group, group.count, &length)
        let name = String(decoding: group.prefix(length).map(UInt8.init(bitPattern:)), as: UTF8.self)
        guard name == "prime256v1" else {
            EVP_PKEY_free(parsed)
            throw .notP256("on the curve \(name)")
        }
        key = parsed
    }

    deinit {
        EVP_PKEY_free(key)
    }

    /// Signs as JOSE's ES256 wants it (RFC 7518 §3.4): the 32 bytes of r and the 32 bytes of s, not OpenSSL's DER.
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

    private static func typeName(_ key: OpaquePointer) -> String {
        EVP_PKEY_get0_type_name(key).map { String(cString: $0) } ?? "unknown"
    }

    private static func lastError() -> String {
        var text = [CChar](repeating: 0, count: 256)
        ERR_error_string_n(ERR_get_error(), &text, text.count)
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
