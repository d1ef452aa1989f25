import COpenSSL

/// The first entry of this thread's OpenSSL error queue: the cause, where later entries tell who passed it on.
struct OpenSSLFailure {
    private let code: UInt

    /// Takes the cause from the queue and empties it: what is left would be blamed on the next call of the thread,
    /// which may be another connection's.
    static func take() -> OpenSSLFailure {
        let failure = OpenSSLFailure(code: ERR_get_error())
        ERR_clear_error()
        return failure
    }

    /// The reason's number if libssl itself raised it.
    var sslReason: Int32? {
        ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : nil
    }

    /// The alert the peer sent, which libssl reports as a reason above 1000 (`SSL_AD_REASON_OFFSET`).
    var alert: TLSAlert? {
        guard let reason = sslReason else { return nil }
        return UInt8(exactly: reason - Int32(SSL_AD_REASON_OFFSET)).map(TLSAlert.init(code:))
    }

    /// OpenSSL's words for it.
    var text: String {
        guard code != 0 else { return "OpenSSL gave no reason" }
        return ERR_reason_error_string(code).map { String(cString: $0) } ?? "OpenSSL error \(code)"
    }
}
