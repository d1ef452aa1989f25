import COpenSSL

/// Called by OpenSSL for each verdict on a certificate of the peer's chain. Only here is the certificate at hand that
/// failed; afterwards there is but a number.
let rememberVerificationFailure: @convention(c) (Int32, OpaquePointer?) -> Int32 = { verdict, store in
    guard verdict != 1, let store else { return verdict }
    guard let ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
        let session = SSL_get_ex_data(OpaquePointer(ssl), TLSSession.dataIndex)
    else { return verdict }
    Unmanaged<TLSSession>.fromOpaque(session).takeUnretainedValue().verificationFailure = verificationFailure(store)
    return verdict
}

/// The same where the handshake goes on: OpenSSL keeps the verdict for `SSL_get_verify_result`.
let overlookVerificationFailure: @convention(c) (Int32, OpaquePointer?) -> Int32 = { _, _ in 1 }

private func verificationFailure(_ store: OpaquePointer) -> TLSError.Kind {
    let code = X509_STORE_CTX_get_error(store)
    let reason = X509_verify_cert_error_string(Int(code)).map { String(cString: $0) } ?? "error \(code)"
    let current = X509_STORE_CTX_get_current_cert(store) ?? X509_STORE_CTX_get0_cert(store)
    guard let current else { return .certificateRejected(certificate: "none", reason: reason) }
    let certificate = CertificateView(pointer: current)
    switch code {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return .certificateExpired(certificate: certificate.label, since: certificate.notAfter)
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return .certificateNotYetValid(certificate: certificate.label, until: certificate.notBefore)
    case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH:
        return .hostNameMismatch(certificateNames: certificate.hosts)
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
        X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
        X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_CERT_UNTRUSTED:
        return .untrustedCertificate(certificate: certificate.label, reason: reason)
    default:
        return .certificateRejected(certificate: certificate.label, reason: reason)
    }
}
