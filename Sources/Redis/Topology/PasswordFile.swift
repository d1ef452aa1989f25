import Glibc
import NIOPosix

extension RedisEndpoint {
    private static let maximumPasswordSize = 4096

    /// The endpoint with the password that its file holds now.
    ///
    /// Secrets are mounted from memory, so that reading a line holds the event loop up no longer than a log line does.
    ///
    /// - Throws: `.connect` that names the file.
    func withPasswordRead() throws(RedisError) -> RedisEndpoint {
        guard let passwordFile else { return self }
        let descriptor = open(passwordFile, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw unreadable(passwordFile, because: errno) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var portion = [UInt8](repeating: 0, count: Self.maximumPasswordSize + 1)
        while bytes.count <= Self.maximumPasswordSize {
            let count = read(descriptor, &portion, portion.count)
            guard count >= 0 else { throw unreadable(passwordFile, because: errno) }
            if count == 0 { break }
            bytes += portion[..<count]
        }
        // Editors and `echo` end a file with a newline; passwords do not.
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard bytes.count <= Self.maximumPasswordSize, let text = String(validating: bytes, as: UTF8.self) else {
            throw .connect(
                address: address,
                reason: "the password file \(passwordFile) must hold UTF-8 text of at most "
                    + "\(Self.maximumPasswordSize) bytes")
        }
        var endpoint = self
        endpoint.password = text
        return endpoint
    }

    private func unreadable(_ file: String, because code: CInt) -> RedisError {
        .connect(
            address: address, reason: "cannot read the password file \(file): \(String(cString: strerror(code)))")
    }
}
