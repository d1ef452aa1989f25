import COpenSSL

/// A list of ALPN protocols in its wire form: each name is preceded by a byte with its length.
///
/// Unchecked because of the pointer; safe because the bytes are written once, before the list is shared.
final class ApplicationProtocols: @unchecked Sendable {
    let wireForm: UnsafeBufferPointer<UInt8>

    /// - Throws: `invalidConfiguration` if a name is empty or longer than 255 bytes.
    init(_ names: [String]) throws(TLSError) {
        var bytes: [UInt8] = []
        for name in names {
            guard let length = UInt8(exactly: name.utf8.count), length > 0 else {
                throw TLSError(
                    .invalidConfiguration(reason: "the application protocol \"\(name)\" is not 1 to 255 bytes long"))
            }
            bytes.append(length)
            bytes.append(contentsOf: name.utf8)
        }
        let buffer = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = buffer.initialize(from: bytes)
        self.wireForm = UnsafeBufferPointer(buffer)
    }

    deinit { wireForm.deallocate() }

    func offer(in context: OpaquePointer) throws(TLSError) {
        guard !wireForm.isEmpty else { return }
        // This function of OpenSSL returns zero for success.
        guard SSL_CTX_set_alpn_protos(context, wireForm.baseAddress, UInt32(wireForm.count)) == 0 else {
            throw TLSError(.invalidConfiguration(reason: "OpenSSL refuses the application protocols"))
        }
    }

    /// The list must outlive the context.
    func select(in context: OpaquePointer) {
        guard !wireForm.isEmpty else { return }
        SSL_CTX_set_alpn_select_cb(
            context,
            { _, selected, selectedLength, offered, offeredLength, argument in
                guard let argument else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                let own = Unmanaged<ApplicationProtocols>.fromOpaque(argument).takeUnretainedValue().wireForm
                var choice: UnsafeMutablePointer<UInt8>?
                let result = SSL_select_next_proto(
                    &choice, selectedLength, own.baseAddress, UInt32(own.count), offered, offeredLength)
                // Without an overlap, `choice` points at the client's first protocol, which must not be confirmed.
                guard result == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                selected?.pointee = UnsafePointer(choice)
                return SSL_TLSEXT_ERR_OK
            }, Unmanaged.passUnretained(self).toOpaque())
    }
}
