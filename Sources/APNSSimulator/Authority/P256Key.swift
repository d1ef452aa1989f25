import COpenSSL

/// A generated private key on the curve P-256.
///
/// Unchecked because of the pointer; safe because the key never changes after `init`, and OpenSSL then allows its use
/// by several threads at once (openssl-threads(7)).
final class P256Key: @unchecked Sendable {
    let pointer: OpaquePointer

    init() throws(SimulatedAuthorityError) {
        ERR_clear_error()
        guard let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil) else {
            throw SimulatedAuthorityError(openSSL: "make a key")
        }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_keygen(context, &key) == 1, let key
        else { throw SimulatedAuthorityError(openSSL: "make a key") }
        pointer = key
    }

    deinit { EVP_PKEY_free(pointer) }

    /// Returns the key as PKCS#8 in PEM, without a passphrase: the form of Apple's `.p8` files.
    func pem() throws(SimulatedAuthorityError) -> [UInt8] {
        try memoryText("write a key") { PEM_write_bio_PKCS8PrivateKey($0, pointer, nil, nil, 0, nil, nil) == 1 }
    }
}

/// Returns the text that OpenSSL writes.
func memoryText(
    _ what: String, _ write: (OpaquePointer) -> Bool
) throws(SimulatedAuthorityError) -> [UInt8] {
    guard let bio = BIO_new(BIO_s_mem()) else { throw SimulatedAuthorityError(openSSL: what) }
    defer { BIO_free(bio) }
    guard write(bio) else { throw SimulatedAuthorityError(openSSL: what) }
    var bytes = [UInt8](repeating: 0, count: BIO_ctrl_pending(bio))
    var count = 0
    guard BIO_read_ex(bio, &bytes, bytes.count, &count) == 1 else { throw SimulatedAuthorityError(openSSL: what) }
    return Array(bytes.prefix(count))
}
