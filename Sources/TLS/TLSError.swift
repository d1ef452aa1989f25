import PrintableText

/// A problem with a certificate, a key, a handshake or a connection.
///
/// The description has the problem, the peer or the file, and the remedy. It never contains a key, a passphrase or application data.
public struct TLSError: Error, Equatable, Sendable {
    public enum Kind: Equatable, Sendable {
        /// A certificate of the peer's chain has expired; `since` in seconds since 1970.
        case certificateExpired(certificate: String, since: Int64?)
        /// A certificate of the peer's chain is not valid yet; `until` in seconds since 1970.
        case certificateNotYetValid(certificate: String, until: Int64?)
        case untrustedCertificate(certificate: String, reason: String)
        case hostNameMismatch(certificateNames: [String])
        /// A certificate of the peer's chain failed another check: its purpose, its signature, its key's strength.
        case certificateRejected(certificate: String, reason: String)
        case peerCertificateMissing
        case alert(TLSAlert)
        case handshakeFailed(reason: String)
        case protocolViolation(reason: String)
        case closedDuringHandshake
        /// The connection ended without the peer's close_notify: the last data received may be incomplete.
        case truncated
        case unreadable(SecretSource.Unreadable)
        /// A file or text does not contain the expected PEM block, or the block is damaged.
        case notPEM(source: String, expected: String)
        /// A file begins like PKCS#12, but OpenSSL cannot read it.
        case notPKCS12(source: String, reason: String)
        /// A file is neither PEM nor PKCS#12.
        case notRecognised(source: String)
        /// A PKCS#12 file lacks its certificate or key, or a certificate was given without its key.
        case identityIncomplete(source: String, missing: String)
        case legacyProviderMissing(source: String)
        case wrongPassphrase(source: String, given: Bool)
        case keyMismatch(key: String, certificate: String)
        case invalidHost
        case invalidConfiguration(reason: String)
    }

    public enum Peer: Equatable, Sendable {
        /// A server, with the name or address used to connect.
        case server(host: String)
        case client
    }

    public let kind: Kind
    /// The other side of the connection; nil for errors of local files and settings.
    public let peer: Peer?

    init(_ kind: Kind, peer: Peer? = nil) {
        self.kind = kind
        self.peer = peer
    }

    public var host: String? {
        guard case .server(let host) = peer else { return nil }
        return host
    }
}

extension TLSError: CustomStringConvertible {
    public var description: String {
        switch peer {
        case .server(let host): "TLS with \(printable(host)): \(explanation)"
        case .client: "TLS with a client: \(explanation)"
        case nil: explanation
        }
    }

    private var explanation: String {
        switch kind {
        case .certificateExpired(let certificate, let since):
            "the \(side)'s certificate (\(certificate)) expired\(since.map { " on " + utcTime($0) } ?? ""). "
                + "Renew it on the \(side), or correct this machine's clock."
        case .certificateNotYetValid(let certificate, let until):
            "the \(side)'s certificate (\(certificate)) is not valid before "
                + "\(until.map(utcTime) ?? "a later date"). Correct this machine's clock, or replace the certificate."
        case .untrustedCertificate(let certificate, let reason):
            "the \(side)'s certificate (\(certificate)) is not trusted: \(reason). Trust the authority that issued "
                + "it: name its CA file, or install the system's CA certificates (package ca-certificates)."
        case .hostNameMismatch(let names):
            "the certificate is for \(list(names)), not for \(host.map(printable) ?? "this host"). "
                + "Connect by a name in the certificate, or give the server a certificate for that host."
        case .certificateRejected(let certificate, let reason):
            "the \(side)'s certificate (\(certificate)) was rejected: \(reason). Replace it on the \(side)."
        case .peerCertificateMissing:
            "the client sent no certificate, and one is required. Configure a certificate on the client."
        case .alert(let alert):
            "the \(side) ended the connection with the alert \(alert). \(alert.advice)"
        case .handshakeFailed(let reason):
            "the handshake failed: \(reason). Check that the other side is a TLS port and speaks TLS 1.2 or later."
        case .protocolViolation(let reason):
            "the \(side) broke the protocol: \(reason)."
        case .closedDuringHandshake:
            "the \(side) closed the connection during the handshake. Check that it is a TLS port, "
                + "and look for the reason in its log."
        case .truncated:
            "the connection ended without the \(side)'s close_notify; the last data may be incomplete."
        case .unreadable(let problem): "\(problem)."
        case .notPEM(let source, let expected):
            "\(source) does not contain \(expected) in readable PEM. Convert it with openssl, or use another file."
        case .notPKCS12(let source, let reason):
            "\(source) is not a readable PKCS#12 file: \(reason). It may be damaged or cut off; export it again."
        case .notRecognised(let source):
            "\(source) is neither PEM (text with -----BEGIN …-----) nor a PKCS#12 file (.p12). Export the "
                + "certificate with its key in one of these formats."
        case .identityIncomplete(let source, let missing):
            "\(source) does not contain a \(missing). Export the certificate together with its private key; a .cer file of "
                + "Apple's developer site contains no private key."
        case .legacyProviderMissing(let source):
            "\(source) is encrypted with an algorithm that OpenSSL keeps in its legacy provider, which is not "
                + "installed. Install it (it comes with Debian's package libssl3, from Debian 13 on with "
                + "openssl-provider-legacy), or export the file again with AES."
        case .wrongPassphrase(let source, given: true):
            "the passphrase does not decrypt the private key in \(source). Set the right one; if it is right, "
                + "the file is damaged."
        case .wrongPassphrase(let source, given: false):
            "the private key in \(source) is encrypted. Set its passphrase."
        case .keyMismatch(let key, let certificate):
            key == certificate
                ? "no private key in \(key) belongs to a certificate in it. Export both together."
                : "no private key in \(key) belongs to a certificate in \(certificate). Use a matching pair."
        case .invalidHost:
            "this is neither a host name nor an IP address. Write names in ASCII (IDN in its xn-- form)."
        case .invalidConfiguration(let reason): "the TLS configuration is not usable: \(reason)."
        }
    }

    private var side: String { peer == .client ? "client" : "server" }

    private func list(_ names: [String]) -> String {
        guard !names.isEmpty else { return "no host at all" }
        let shown = names.prefix(5).joined(separator: ", ")
        return names.count > 5 ? "\(shown) and \(names.count - 5) more" : shown
    }
}

/// The alert of a peer that ended a connection (RFC 8446, section 6).
public struct TLSAlert: Equatable, Sendable, CustomStringConvertible {
    public let code: UInt8

    public init(code: UInt8) {
        self.code = code
    }

    /// The alert's name in the RFC, or its number if it has none.
    public var description: String { Self.names[code] ?? "number \(code)" }

    var advice: String {
        switch code {
        case 42...46, 48, 49, 116:
            "It does not accept this side's certificate: check that a certificate is configured, valid and meant for that peer."
        case 70: "It speaks none of the TLS versions allowed here (1.2 and later)."
        case 40, 71: "It shares no cipher, key or parameters with this side, or requires a client certificate."
        case 112: "It does not know the requested host name: check the name."
        case 120: "It speaks none of the application protocols offered (ALPN)."
        case 22, 20, 50, 51: "It received damaged data, or no TLS: check proxies in between."
        default: "Its log should have the reason."
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

/// Makes untrusted text safe for a log line: a certificate's names are chosen by the peer, and may contain line breaks
/// or terminal escapes.
public func printable(_ text: String) -> String {
    text.printable(replacing: "?", atMost: 253)
}
