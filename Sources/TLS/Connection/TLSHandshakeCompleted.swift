import COpenSSL

/// The inbound user event that a ``TLSHandler`` fires once, when the handshake is complete and the peer is verified.
public struct TLSHandshakeCompleted: Equatable, Sendable {
    /// The protocol both sides agreed on through ALPN, such as `h2`; nil if they agreed on none.
    public let applicationProtocol: String?
    /// The protocol version as OpenSSL writes it, such as `TLSv1.3`.
    public let version: String
    /// The host name that the client requested (SNI); nil if it sent none.
    public let serverName: String?
    /// The peer's own certificate; nil if it sent none.
    public let peerCertificate: TLSPeerCertificate?
}

/// The contents of a peer's certificate. It was verified, unless the result is only reported.
public struct TLSPeerCertificate: Equatable, Sendable {
    public let commonName: String?
    /// The subject's user ID (OID 0.9.2342.19200300.100.1.1), which holds the topic in APNs certificates.
    public let userID: String?
    /// The end of the certificate's validity, in seconds since 1970.
    public let notAfter: Int64?
    /// The verification error, if it did not end the handshake; nil if there was none.
    public let refusal: String?
    /// The values of the certificate's extensions in DER, by object identifiers in numbers.
    public let extensions: [String: [UInt8]]

    /// - Parameter verdict: one of OpenSSL's `X509_V_` codes.
    init(_ certificate: CertificateView, verdict: Int) {
        commonName = certificate.commonName
        userID = certificate.userID
        notAfter = certificate.notAfter
        extensions = Dictionary(
            certificate.extensionIdentifiers.map { ($0, certificate.extensionValue($0) ?? []) }
        ) { first, _ in first }
        refusal =
            verdict == Int(X509_V_OK)
            ? nil : X509_verify_cert_error_string(verdict).map { String(cString: $0) } ?? "error \(verdict)"
    }
}
