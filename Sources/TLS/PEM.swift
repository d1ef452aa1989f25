import COpenSSL
import Glibc

/// Certificates and keys in PEM form, from a file or from memory.
struct PEM {
    let bytes: [UInt8]
    /// What to call it in an error: the file's path, or what it was given as.
    let source: String

    init(bytes: [UInt8], source: String) {
        self.bytes = bytes
        self.source = source
    }

    /// - Throws: `fileUnreadable`.
    init(file path: String) throws(TLSError) {
        guard let file = fopen(path, "rbe") else {
            throw TLSError(.fileUnreadable(path: path, reason: String(cString: strerror(errno))))
        }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = fread(&chunk, 1, chunk.count, file)
            bytes.append(contentsOf: chunk[..<count])
            guard count < chunk.count else { continue }
            // A directory opens like a file and fails only here.
            guard ferror(file) == 0 else {
                throw TLSError(.fileUnreadable(path: path, reason: String(cString: strerror(errno))))
            }
            break
        }
        self.init(bytes: bytes, source: path)
    }

    /// All certificates, in their order. The caller owns them.
    ///
    /// - Throws: `notPEM` if there is none, or one of them is damaged.
    func certificates() throws(TLSError) -> [OpaquePointer] {
        let bio = try memoryBIO()
        defer { BIO_free(bio) }
        var found: [OpaquePointer] = []
        ERR_clear_error()
        while let certificate = PEM_read_bio_X509(bio, nil, refusePassphrase, nil) { found.append(certificate) }
        let last = ERR_peek_last_error()
        ERR_clear_error()
        let reachedTheEnd = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE
        guard reachedTheEnd, !found.isEmpty else {
            found.forEach(X509_free)
            throw TLSError(.notPEM(source: source, expected: "a certificate"))
        }
        return found
    }

    /// The first private key. The caller owns it.
    ///
    /// - Throws: `notPEM`, or `wrongPassphrase` for an encrypted key.
    func privateKey(passphrase: String?) throws(TLSError) -> OpaquePointer {
        let bio = try memoryBIO()
        defer { BIO_free(bio) }
        var request = PassphraseRequest(passphrase: passphrase.map { Array($0.utf8) })
        ERR_clear_error()
        let key = withUnsafeMutablePointer(to: &request) { request in
            PEM_read_bio_PrivateKey(bio, nil, answerPassphrase, request)
        }
        ERR_clear_error()
        guard let key else {
            // OpenSSL's reasons differ with the kind of encryption; that it asked at all tells the cases apart.
            throw TLSError(
                request.wasAsked
                    ? .wrongPassphrase(source: source, given: passphrase != nil)
                    : .notPEM(source: source, expected: "a private key"))
        }
        return key
    }

    private func memoryBIO() throws(TLSError) -> OpaquePointer {
        let bio = BIO_new(BIO_s_mem())
        var written = 0
        guard let bio, bytes.isEmpty || BIO_write_ex(bio, bytes, bytes.count, &written) == 1 else {
            BIO_free(bio)
            throw TLSError(.invalidConfiguration(reason: "out of memory reading \(source)"))
        }
        return bio
    }
}

private struct PassphraseRequest {
    let passphrase: [UInt8]?
    var wasAsked = false
}

// Without a callback of ours OpenSSL would ask on the terminal and hang a service.
private let refusePassphrase:
    @convention(c) (UnsafeMutablePointer<CChar>?, Int32, Int32, UnsafeMutableRawPointer?)
        -> Int32 = { _, _, _, _ in -1 }

private let answerPassphrase:
    @convention(c) (UnsafeMutablePointer<CChar>?, Int32, Int32, UnsafeMutableRawPointer?)
        -> Int32 = { buffer, size, _, context in
            guard let request = context?.assumingMemoryBound(to: PassphraseRequest.self) else { return -1 }
            request.pointee.wasAsked = true
            guard let buffer, let passphrase = request.pointee.passphrase, passphrase.count <= size else { return -1 }
            UnsafeMutableRawPointer(buffer).copyMemory(from: passphrase, byteCount: passphrase.count)
            return Int32(passphrase.count)
        }
