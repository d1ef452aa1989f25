import COpenSSL

/// The first entry of this thread's OpenSSL error queue: the cause. Later entries are the functions that returned it.
struct OpenSSLFailure {
    private let code: UInt
    /// True if an algorithm was missing, which another provider may have.
    private(set) var isUnsupportedAlgorithm = false
    /// True if the decrypted data was invalid, or its checksum wrong: usually because of the passphrase.
    private(set) var isWrongPassphrase = false

    /// Returns the cause and empties the queue. Remaining entries would be attributed to the thread's next call,
    /// perhaps on another connection.
    static func take() -> OpenSSLFailure {
        var failure = OpenSSLFailure(code: ERR_get_error())
        var entry = failure.code
        while entry != 0 {
            failure.note(entry)
            entry = ERR_get_error()
        }
        ERR_clear_error()
        return failure
    }

    /// True if the queue was empty.
    var isNone: Bool { code == 0 }

    private init(code: UInt) { self.code = code }

    private mutating func note(_ entry: UInt) {
        let reason = ERR_GET_REASON(entry)
        switch ERR_GET_LIB(entry) {
        // Only this library's errors count, because decoders report every other format as unsupported.
        case ERR_LIB_EVP where reason == COpenSSL_ERR_R_UNSUPPORTED || reason == COpenSSL_ERR_R_FETCH_FAILED:
            isUnsupportedAlgorithm = true
        case ERR_LIB_EVP where reason == EVP_R_BAD_DECRYPT, ERR_LIB_PROV where reason == PROV_R_BAD_DECRYPT,
            ERR_LIB_PKCS12 where reason == PKCS12_R_MAC_VERIFY_FAILURE,
            ERR_LIB_PKCS12 where reason == PKCS12_R_PKCS12_CIPHERFINAL_ERROR,
            // One in 256 wrong passphrases decrypts to data with valid padding.
            ERR_LIB_PKCS12 where reason == PKCS12_R_DECODE_ERROR:
            isWrongPassphrase = true
        default: break
        }
    }

    /// The number of the reason, if libssl itself reported it.
    var sslReason: Int32? {
        ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : nil
    }

    /// The alert sent by the peer, which libssl reports as a reason above 1000 (`SSL_AD_REASON_OFFSET`).
    var alert: TLSAlert? {
        guard let reason = sslReason else { return nil }
        return UInt8(exactly: reason - Int32(SSL_AD_REASON_OFFSET)).map(TLSAlert.init(code:))
    }

    var text: String {
        guard code != 0 else { return "OpenSSL gave no reason" }
        return ERR_reason_error_string(code).map { String(cString: $0) } ?? "OpenSSL error \(code)"
    }
}
