import COpenSSL
import NIOCore

/// The libssl state of one connection: ciphertext in and out, plaintext out and in. It does no I/O itself.
///
/// Every call first clears OpenSSL's error queue, because the queue belongs to the thread. Errors of another connection would otherwise
/// count as errors of this one.
final class TLSSession {
    struct Received {
        var handshakeCompleted = false
        var end: End?
    }

    /// The reason why nothing more will be received.
    enum End: Equatable {
        case closeNotify
        case failure(TLSError)
    }

    /// The maximum plaintext of one record (RFC 8446, section 5.1).
    static let largestRecord = 16_384
    /// The index of the session in the data of its `SSL`: 0, as in OpenSSL's `SSL_get_app_data`.
    static let dataIndex: Int32 = 0

    /// Set by the verification callback.
    var verificationFailure: TLSError.Kind?

    private let context: TLSContext
    private let ssl: OpaquePointer
    private let pipe = CiphertextPipe()
    private let peer: TLSError.Peer
    private var isEstablished = false
    /// A failed session fails every later call, but only the first failure is the cause.
    private var firstFailure: TLSError?
    /// The number of bytes of an incomplete record that libssl holds.
    private var carriedOver = 0

    /// - Parameter host: the server to connect to; nil to be the server.
    /// - Throws: `invalidHost`, `invalidConfiguration`.
    init(_ context: TLSContext, host: String?) throws(TLSError) {
        self.context = context
        self.peer = host.map(TLSError.Peer.server) ?? .client
        var name: ServerName?
        if let host {
            name = ServerName(host)
            guard name != nil else { throw TLSError(.invalidHost, peer: peer) }
        }
        ERR_clear_error()
        guard let ssl = SSL_new(context.pointer) else {
            throw TLSError(.invalidConfiguration(reason: OpenSSLFailure.take().text), peer: peer)
        }
        self.ssl = ssl
        SSL_set_ex_data(ssl, Self.dataIndex, Unmanaged.passUnretained(self).toOpaque())
        // One BIO for both directions needs only one reference.
        guard let bio = pipe.makeBIO() else {
            throw TLSError(.invalidConfiguration(reason: "out of memory"), peer: peer)
        }
        SSL_set_bio(ssl, bio, bio)
        guard let name else {
            SSL_set_accept_state(ssl)
            return
        }
        SSL_set_connect_state(ssl)
        guard name.apply(to: ssl) else { throw TLSError(.invalidHost, peer: peer) }
    }

    deinit { SSL_free(ssl) }

    var hasOutput: Bool { pipe.output.readableBytes > 0 }

    func takeOutput() -> ByteBuffer { pipe.takeOutput() }

    /// Creates a client's first message.
    func startHandshake() -> End? {
        var received = Received()
        advanceHandshake(&received)
        return received.end
    }

    /// Processes data from the peer, and appends the plaintext to `plaintext`. libssl's own answers (handshake
    /// messages, key updates, alerts) are then available as output.
    func receive(_ ciphertext: ByteBuffer, into plaintext: inout ByteBuffer) -> Received {
        var received = Received()
        ciphertext.withUnsafeReadableBytes { bytes in
            pipe.lend(bytes) {
                if !isEstablished { advanceHandshake(&received) }
                if isEstablished, received.end == nil { received.end = decrypt(into: &plaintext) }
            }
        }
        return received
    }

    /// Returns the maximum size of the plaintext of a received ciphertext.
    func plaintextBound(_ ciphertext: ByteBuffer) -> Int { ciphertext.readableBytes + carriedOver }

    /// Encrypts into as few records as possible.
    func encrypt(_ plaintext: UnsafeRawBufferPointer) -> TLSError? {
        guard !plaintext.isEmpty else { return nil }
        ERR_clear_error()
        var count = 0
        // The plaintext is written completely or not at all: partial writes are not enabled, and the pipe accepts everything.
        guard SSL_write_ex(ssl, plaintext.baseAddress, plaintext.count, &count) != 1 else { return nil }
        return failure()
    }

    /// Reserves memory for the ciphertext of this much plaintext at once, instead of record by record.
    func reserveOutput(forPlaintext byteCount: Int) {
        let records = byteCount / Self.largestRecord + 1
        pipe.reserveOutput(byteCount + records * 64)
    }

    /// Creates the close_notify, after which nothing can be encrypted.
    func sendCloseNotify() {
        ERR_clear_error()
        SSL_shutdown(ssl)
        ERR_clear_error()
    }

    /// Returns the negotiated parameters. Meaningful once the handshake is complete.
    func summary() -> TLSHandshakeCompleted {
        var chosen: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        SSL_get0_alpn_selected(ssl, &chosen, &length)
        let applicationProtocol = chosen.map {
            String(decoding: UnsafeBufferPointer(start: $0, count: Int(length)), as: UTF8.self)
        }
        return TLSHandshakeCompleted(
            applicationProtocol: applicationProtocol,
            version: SSL_get_version(ssl).map { String(cString: $0) } ?? "",
            serverName: SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name).map { String(cString: $0) },
            peerCertificate: SSL_get0_peer_certificate(ssl).map {
                TLSPeerCertificate(CertificateView(pointer: $0), verdict: SSL_get_verify_result(ssl))
            })
    }

    /// Returns an error of this connection that did not occur in libssl.
    func error(_ kind: TLSError.Kind) -> TLSError { TLSError(kind, peer: peer) }

    private func advanceHandshake(_ received: inout Received) {
        ERR_clear_error()
        let result = SSL_do_handshake(ssl)
        guard result != 1 else {
            isEstablished = true
            received.handshakeCompleted = true
            return
        }
        received.end = end(of: result)
    }

    private func decrypt(into plaintext: inout ByteBuffer) -> End? {
        let atStart = pipe.unread
        var atLastRecord: Int?
        var end: End?
        var isDrained = false
        while !isDrained, end == nil {
            let size = max(Int(SSL_pending(ssl)), pipe.unread, 1)
            plaintext.writeWithUnsafeMutableBytes(minimumWritableBytes: size) { space in
                var filled = 0
                while filled < space.count, !isDrained {
                    var count = 0
                    ERR_clear_error()
                    let result = SSL_read_ex(ssl, space.baseAddress?.advanced(by: filled), space.count - filled, &count)
                    guard result == 1 else {
                        end = self.end(of: result)
                        isDrained = true
                        break
                    }
                    filled += count
                    atLastRecord = pipe.unread
                    // No lent and no decrypted bytes are left, so another call of libssl would return the same result.
                    isDrained = pipe.unread == 0 && SSL_pending(ssl) == 0
                }
                return filled
            }
        }
        carriedOver = min(atLastRecord ?? (carriedOver + atStart), Self.largestRecord)
        return end
    }

    /// Returns nil if libssl only waits for more data.
    private func end(of result: Int32) -> End? {
        switch SSL_get_error(ssl, result) {
        case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: nil
        case SSL_ERROR_ZERO_RETURN: isEstablished ? .closeNotify : .failure(error(.closedDuringHandshake))
        default: .failure(failure())
        }
    }

    private func failure() -> TLSError {
        let error = firstFailure ?? currentFailure()
        firstFailure = error
        return error
    }

    private func currentFailure() -> TLSError {
        let failure = OpenSSLFailure.take()
        if let verificationFailure { return error(verificationFailure) }
        if let alert = failure.alert { return error(.alert(alert)) }
        if failure.sslReason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE { return error(.peerCertificateMissing) }
        return error(
            isEstablished ? .protocolViolation(reason: failure.text) : .handshakeFailed(reason: failure.text))
    }
}

/// The host that a client connects to. The server's certificate must be valid for it.
struct ServerName {
    private let text: String
    private let isAddress: Bool

    /// Returns nil if the host can be neither a name nor an address. An IPv6 address may be in brackets, and a name may end in a dot, but
    /// certificates and SNI allow neither brackets nor that dot.
    init?(_ host: String) {
        var text = Substring(host)
        if text.hasPrefix("["), text.hasSuffix("]") {
            text = text.dropFirst().dropLast()
        } else if text.hasSuffix(".") {
            text = text.dropLast()
        }
        // For OpenSSL, an empty name disables the check, and a name ends at the first zero byte.
        guard !text.isEmpty, text.utf8.count <= 253, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            return nil
        }
        self.text = String(text)
        let address = a2i_IPADDRESS(self.text)
        self.isAddress = address != nil
        ASN1_OCTET_STRING_free(address)
        ERR_clear_error()
    }

    /// Sends the name as SNI (only names: RFC 6066, section 3), and makes OpenSSL check the certificate for the host.
    func apply(to ssl: OpaquePointer) -> Bool {
        ERR_clear_error()
        if !isAddress, COpenSSL_SSL_set_tlsext_host_name(ssl, text) != 1 { return false }
        guard let parameters = SSL_get0_param(ssl) else { return false }
        if isAddress { return X509_VERIFY_PARAM_set1_ip_asc(parameters, text) == 1 }
        X509_VERIFY_PARAM_set_hostflags(parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS))
        return X509_VERIFY_PARAM_set1_host(parameters, text, text.utf8.count) == 1
    }
}

/// Records a failed check of the peer's chain. OpenSSL calls this for each certificate that it has checked. Afterwards only an error number
/// is available, and not the certificate.
let rememberVerificationFailure: @convention(c) (Int32, OpaquePointer?) -> Int32 = { verdict, store in
    guard verdict != 1, let store else { return verdict }
    guard let ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
        let session = SSL_get_ex_data(OpaquePointer(ssl), TLSSession.dataIndex)
    else { return verdict }
    Unmanaged<TLSSession>.fromOpaque(session).takeUnretainedValue().verificationFailure = verificationFailure(store)
    return verdict
}

/// Ignores failed checks, so that the handshake continues: OpenSSL keeps the verdict for `SSL_get_verify_result`.
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
