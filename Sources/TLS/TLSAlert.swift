/// An alert by which the peer ended a connection (RFC 8446, section 6).
public struct TLSAlert: Equatable, Sendable, CustomStringConvertible {
    /// The alert's number on the wire.
    public let code: UInt8

    /// The alert's name in the RFC, or its number for one that is not there.
    public var description: String { Self.names[code] ?? "number \(code)" }

    /// What to do about it.
    var advice: String {
        switch code {
        case 42...46, 48, 49, 116:
            "It does not accept this side's certificate: check that one is configured, valid and meant for that peer."
        case 70: "It speaks none of the TLS versions allowed here (1.2 and later)."
        case 40, 71: "It shares no cipher, key or parameters with this side, or misses a client certificate."
        case 112: "It does not know the host name that was asked for: check the name."
        case 120: "It speaks none of the application protocols offered (ALPN)."
        case 22, 20, 50, 51: "What it received was damaged or not TLS: check what stands between the two."
        default: "Its log should say why."
        }
    }

    private static let names: [UInt8: String] = [
        0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 21: "decryption_failed",
        22: "record_overflow", 40: "handshake_failure", 42: "bad_certificate", 43: "unsupported_certificate",
        44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown", 47: "illegal_parameter",
        48: "unknown_ca", 49: "access_denied", 50: "decode_error", 51: "decrypt_error", 70: "protocol_version",
        71: "insufficient_security", 80: "internal_error", 86: "inappropriate_fallback", 90: "user_canceled",
        100: "no_renegotiation", 109: "missing_extension", 110: "unsupported_extension", 112: "unrecognized_name",
        113: "bad_certificate_status_response", 115: "unknown_psk_identity", 116: "certificate_required",
        120: "no_application_protocol",
    ]
}
