/// Answers OpenSSL's question for a passphrase, and remembers that it asked.
struct PassphraseRequest {
    let passphrase: [UInt8]?
    private(set) var wasAsked = false

    init(_ passphrase: String?) {
        self.passphrase = passphrase.map { Array($0.utf8) }
    }

    /// To be given to OpenSSL with a pointer to a request.
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

    // Without a callback of ours OpenSSL would ask on the terminal and hang a service.
    static let refuse:
        @convention(c) (UnsafeMutablePointer<CChar>?, Int32, Int32, UnsafeMutableRawPointer?)
            -> Int32 = { _, _, _, _ in -1 }
}
