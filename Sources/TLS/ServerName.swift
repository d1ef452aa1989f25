import COpenSSL

/// The host a client connects to: what the server's certificate must be for.
struct ServerName {
    private let text: String
    private let isAddress: Bool

    /// Nil if the host can be neither a name nor an address. An IPv6 address may stand in brackets, a name may end in
    /// a dot; neither belongs into certificates or SNI.
    init?(_ host: String) {
        var text = Substring(host)
        if text.hasPrefix("["), text.hasSuffix("]") {
            text = text.dropFirst().dropLast()
        } else if text.hasSuffix(".") {
            text = text.dropLast()
        }
        // OpenSSL takes an empty name for "check no name at all", and a name ends for it at the first zero byte.
        guard !text.isEmpty, text.utf8.count <= 253, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            return nil
        }
        self.text = String(text)
        let address = a2i_IPADDRESS(self.text)
        self.isAddress = address != nil
        ASN1_OCTET_STRING_free(address)
        ERR_clear_error()
    }

    /// Sends the name as SNI (names only: RFC 6066, section 3) and, if asked to, has the certificate checked for it.
    func apply(to ssl: OpaquePointer, verifying: Bool) -> Bool {
        ERR_clear_error()
        if !isAddress, COpenSSL_SSL_set_tlsext_host_name(ssl, text) != 1 { return false }
        guard verifying else { return true }
        guard let parameters = SSL_get0_param(ssl) else { return false }
        if isAddress { return X509_VERIFY_PARAM_set1_ip_asc(parameters, text) == 1 }
        X509_VERIFY_PARAM_set_hostflags(parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS))
        return X509_VERIFY_PARAM_set1_host(parameters, text, text.utf8.count) == 1
    }
}
