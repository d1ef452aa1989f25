import COpenSSL

/// Recognizes PEM in the forms that people store.
enum PEMText {
    private static let begin = Array("-----BEGIN ".utf8)

    /// Returns true if the bytes contain the beginning of a PEM block. Text may precede it, as in the output of
    /// `openssl`.
    static func isPEM(_ bytes: [UInt8]) -> Bool { bytes.firstRange(of: begin) != nil }

    /// Returns PEM in the form that OpenSSL reads. The input can be UTF-16, begin with a byte order mark, or have other line ends, line
    /// ends written as `\n` or as spaces, indentation, or quotation marks. None of these changes the meaning of base64. Other bytes are
    /// unchanged.
    static func normalized(_ bytes: [UInt8]) -> [UInt8] {
        let text = ofUTF16(bytes) ?? bytes
        var rest = text[...]
        var blocks: [UInt8] = []
        while let start = rest.firstRange(of: begin) {
            let behind = rest[start.upperBound...]
            guard let labelEnd = behind.firstRange(of: Array("-----".utf8)) else { return text }
            let label = behind[..<labelEnd.lowerBound]
            let end = Array("-----END ".utf8) + label + Array("-----".utf8)
            guard label.count <= 64, let stop = behind.firstRange(of: end) else { return text }
            blocks +=
                begin + label + Array("-----\n".utf8) + lines(of: behind[labelEnd.upperBound..<stop.lowerBound]) + end
            blocks.append(0x0A)
            rest = behind[stop.upperBound...]
        }
        return blocks.isEmpty ? text : blocks
    }

    /// Returns the contents of a block in lines of 64 characters.
    private static func lines(of body: ArraySlice<UInt8>) -> [UInt8] {
        var characters: [UInt8] = []
        var index = body.startIndex
        // An encrypted key in the old form has headers, whose lines must be kept.
        let hasHeaders = body.contains(UInt8(ascii: ":"))
        while index < body.endIndex {
            let byte = body[index]
            index += 1
            switch byte {
            case UInt8(ascii: "\\"):
                guard index < body.endIndex else { return Array(body) }
                if body[index] == UInt8(ascii: "n"), hasHeaders { characters.append(0x0A) }
                guard body[index] == UInt8(ascii: "n") || body[index] == UInt8(ascii: "r") else { return Array(body) }
                index += 1
            case 0x0D where hasHeaders && (index == body.endIndex || body[index] != 0x0A): characters.append(0x0A)
            case 0x0A where hasHeaders: characters.append(byte)
            case 0x20 where hasHeaders && characters.last != 0x0A: characters.append(byte)
            case 0x09, 0x0A, 0x0D, 0x20, UInt8(ascii: "\""), UInt8(ascii: "'"): continue
            default: characters.append(byte)
            }
        }
        if hasHeaders { return Array(characters.drop { $0 == 0x0A }) }
        var lines: [UInt8] = []
        for start in stride(from: 0, to: characters.count, by: 64) {
            lines += characters[start..<min(start + 64, characters.count)]
            lines.append(0x0A)
        }
        return lines
    }

    /// Returns the characters of a text in UTF-16, if all are of ASCII; a byte order mark is removed.
    private static func ofUTF16(_ bytes: [UInt8]) -> [UInt8]? {
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { return Array(bytes.dropFirst(3)) }
        let isBigEndian = bytes.starts(with: [0xFE, 0xFF]) || bytes.starts(with: [0, UInt8(ascii: "-")])
        guard isBigEndian || bytes.starts(with: [0xFF, 0xFE]) || bytes.starts(with: [UInt8(ascii: "-"), 0]) else {
            return nil
        }
        let text = bytes.first ?? 0 >= 0xFE ? bytes.dropFirst(2) : bytes[...]
        var characters: [UInt8] = []
        for pair in stride(from: text.startIndex, to: text.endIndex - 1, by: 2) {
            let (high, low) = isBigEndian ? (text[pair], text[pair + 1]) : (text[pair + 1], text[pair])
            guard high == 0, low < 0x80 else { return nil }
            characters.append(low)
        }
        return characters
    }
}

/// Certificates and private keys as stored in files: any number of them in PEM, or one of them in DER.
public struct PEM {
    let bytes: [UInt8]
    let source: String

    /// - Parameter source: the name in errors: the file's path, or a description of the input.
    public init(bytes: [UInt8], source: String) {
        self.bytes = PEMText.normalized(bytes)
        self.source = source
    }

    /// - Throws: `unreadable`.
    init(file path: String) throws(TLSError) {
        do throws(SecretSource.Unreadable) {
            self.init(bytes: try SecretSource.file(path).read(allowsPipe: true), source: path)
        } catch {
            throw TLSError(.unreadable(error))
        }
    }

    /// Returns all certificates in order, or the only one of a DER file. The caller owns them.
    /// - Throws: `notPEM` if there is no certificate, or one is damaged.
    func certificates() throws(TLSError) -> [OpaquePointer] {
        if !PEMText.isPEM(bytes), let certificate = DERCertificate.read(bytes) { return [certificate] }
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

    /// Returns the first private key, in PKCS#8 or an older form, encrypted or not: an OpenSSL `EVP_PKEY`, which the
    /// caller owns.
    /// - Throws: `notPEM` if there is no private key; for an encrypted one also `wrongPassphrase` or
    ///   `legacyProviderMissing`.
    public func privateKey(passphrase: String?) throws(TLSError) -> OpaquePointer {
        let keys = try privateKeys(passphrase: passphrase)
        keys.dropFirst().forEach(EVP_PKEY_free)
        return keys[0]
    }

    /// Returns the private keys before the first one that can't be read; at least one. The caller owns them.
    /// - Parameter modules: the directory of OpenSSL's legacy provider; nil for OpenSSL's default.
    func privateKeys(passphrase: String?, modules: String? = nil) throws(TLSError) -> [OpaquePointer] {
        let exported = try LegacyAlgorithms.read(
            source, modules: modules,
            unsupported: .notPEM(source: source, expected: "a private key with an encryption that OpenSSL supports")
        ) { () throws(TLSError) in try exportedKeys(passphrase) }
        let keys = exported.compactMap { $0.imported() }
        guard !keys.isEmpty else {
            throw TLSError(.notPEM(source: source, expected: "a private key that OpenSSL can use"))
        }
        return keys
    }

    /// Returns nil if the algorithm of the encryption is missing.
    private func exportedKeys(_ passphrase: String?) throws(TLSError) -> [ExportedKey]? {
        let bio = try memoryBIO()
        defer { BIO_free(bio) }
        var request = PassphraseRequest(passphrase)
        ERR_clear_error()
        var keys: [OpaquePointer] = []
        withUnsafeMutablePointer(to: &request) { request in
            guard PEMText.isPEM(bytes) else {
                let key = plainDER() ?? d2i_PKCS8PrivateKey_bio(bio, nil, PassphraseRequest.answer, request)
                return keys = key.map { [$0] } ?? []
            }
            while let key = PEM_read_bio_PrivateKey(bio, nil, PassphraseRequest.answer, request) { keys.append(key) }
        }
        defer { keys.forEach(EVP_PKEY_free) }
        let failure = OpenSSLFailure.take()
        if !keys.isEmpty { return keys.compactMap(ExportedKey.init) }
        // OpenSSL's reasons vary with the encryption; only encrypted keys cause a request for a passphrase.
        guard request.wasAsked else { throw TLSError(.notPEM(source: source, expected: "a private key")) }
        guard passphrase != nil, failure.isUnsupportedAlgorithm else {
            throw TLSError(.wrongPassphrase(source: source, given: passphrase != nil))
        }
        return nil
    }

    private func plainDER() -> OpaquePointer? {
        bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            return d2i_AutoPrivateKey(nil, &start, bytes.count)
        }
    }

    /// Returns a BIO with the bytes. The caller frees it.
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

/// A private key in PKCS#8 form, which belongs to no OpenSSL library context.
///
/// OpenSSL overwrites the memory when the key is freed.
final class ExportedKey {
    private let pointer: OpaquePointer

    /// Copies a key; nil if it cannot be exported.
    init?(_ key: OpaquePointer) {
        guard let pointer = EVP_PKEY2PKCS8(key) else { return nil }
        self.pointer = pointer
    }

    deinit { PKCS8_PRIV_KEY_INFO_free(pointer) }

    /// Returns the key in the thread's current library context. The caller owns it.
    func imported() -> OpaquePointer? { EVP_PKCS82PKEY(pointer) }
}

/// Answers OpenSSL's request for a passphrase, and records it.
struct PassphraseRequest {
    let passphrase: [UInt8]?
    private(set) var wasAsked = false

    init(_ passphrase: String?) {
        self.passphrase = passphrase.map { Array($0.utf8) }
    }

    /// The callback for OpenSSL; its context is a pointer to a request.
    static let answer:
        @convention(c) (UnsafeMutablePointer<CChar>?, Int32, Int32, UnsafeMutableRawPointer?)
            -> Int32 = { buffer, size, _, context in
                guard let request = context?.assumingMemoryBound(to: PassphraseRequest.self) else { return -1 }
                request.pointee.wasAsked = true
                guard let buffer, let passphrase = request.pointee.passphrase, passphrase.count <= size
                else { return -1 }
                UnsafeMutableRawPointer(buffer).copyMemory(from: passphrase, byteCount: passphrase.count)
                return Int32(passphrase.count)
            }

    // Without this callback, OpenSSL would prompt on the terminal, which blocks a service.
    static let refuse:
        @convention(c) (UnsafeMutablePointer<CChar>?, Int32, Int32, UnsafeMutableRawPointer?)
            -> Int32 = { _, _, _, _ in -1 }
}

/// The algorithms in OpenSSL 3's legacy provider: RC2, DES and others that encrypt old files, including the PKCS#12
/// files of macOS' Keychain.
enum LegacyAlgorithms {
    /// Runs a body. If it returns nil because an algorithm is missing, runs it again with the legacy algorithms.
    ///
    /// The legacy algorithms are in a separate library context. Only this thread uses the context, and only while the body runs. It is
    /// freed afterwards, so the result of the body must not depend on it: return keys and certificates in DER form.
    /// - Parameters:
    ///   - source: the name in errors.
    ///   - modules: the directory of the provider's module; nil for OpenSSL's default.
    ///   - unsupported: the error if even the legacy algorithms do not suffice.
    /// - Throws: `legacyProviderMissing`, and the body's errors.
    static func read<Contents>(
        _ source: String, modules: String?, unsupported: TLSError.Kind, _ body: () throws(TLSError) -> Contents?
    ) throws(TLSError) -> Contents {
        if let contents = try body() { return contents }
        guard let context = OSSL_LIB_CTX_new() else {
            throw TLSError(.invalidConfiguration(reason: "out of memory reading \(source)"))
        }
        defer { OSSL_LIB_CTX_free(context) }
        ERR_clear_error()
        defer { ERR_clear_error() }
        if let modules { OSSL_PROVIDER_set_default_search_path(context, modules) }
        guard let legacy = OSSL_PROVIDER_load(context, "legacy") else {
            throw TLSError(.legacyProviderMissing(source: source))
        }
        defer { OSSL_PROVIDER_unload(legacy) }
        // A context that has loaded any provider by name no longer loads the default one implicitly.
        guard let standard = OSSL_PROVIDER_load(context, "default") else {
            throw TLSError(.invalidConfiguration(reason: OpenSSLFailure.take().text))
        }
        defer { OSSL_PROVIDER_unload(standard) }
        let previous = OSSL_LIB_CTX_set0_default(context)
        defer { OSSL_LIB_CTX_set0_default(previous) }
        guard let contents = try body() else { throw TLSError(unsupported) }
        return contents
    }
}
