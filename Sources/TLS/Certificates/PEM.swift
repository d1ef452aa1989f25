import COpenSSL
import Glibc

/// What tells PEM from binary forms.
enum PEMText {
    /// Whether the bytes hold the beginning of a PEM block. Text may stand before it, as `openssl` writes it.
    static func isPEM(_ bytes: [UInt8]) -> Bool { bytes.firstRange(of: Array("-----BEGIN ".utf8)) != nil }
}

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
        while let certificate = PEM_read_bio_X509(bio, nil, PassphraseRequest.refuse, nil) { found.append(certificate) }
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
    /// - Throws: `notPEM`, or `wrongPassphrase` for an encrypted key, `legacyProviderMissing`.
    func privateKey(passphrase: String?) throws(TLSError) -> OpaquePointer {
        try PrivateKeyText(bytes, source: source).read(passphrase: passphrase)
    }

    /// A reader over the bytes. The caller frees it.
    func memoryBIO() throws(TLSError) -> OpaquePointer {
        let bio = BIO_new(BIO_s_mem())
        var written = 0
        guard let bio, bytes.isEmpty || BIO_write_ex(bio, bytes, bytes.count, &written) == 1 else {
            BIO_free(bio)
            throw TLSError(.invalidConfiguration(reason: "out of memory reading \(source)"))
        }
        return bio
    }
}
