import Glibc
import Sockets

/// A directory with the files that a client needs to connect to a simulator with generated certificates.
///
/// | file | contents |
/// |---|---|
/// | `ca.pem` | the authority to trust |
/// | `client.pem`, `client-key.pem` | a certificate to present instead of provider tokens |
/// | `AuthKey_ABC123DEFG.p8` | the key to sign provider tokens with |
package struct CertificateDirectory: Sendable {
    package let path: String

    /// Marks the other files as written by a simulator, so that a simulator may replace them.
    private static let mark = ".apns-simulator"

    /// - Parameter path: the directory; created if it does not exist.
    package init(_ path: String) { self.path = path }

    package func file(_ name: String) -> String { path + "/" + name }

    /// Writes the files, each atomically. Replaces the files of an earlier run. Private keys are readable by the owner only.
    /// - Parameter topic: the bundle identifier of the client's certificate.
    /// - Throws: ``SimulatorError`` if a file cannot be written, or if a file exists that no simulator wrote.
    package func write(_ authority: SimulatedAuthority, topic: String) throws(SimulatorError) {
        let client = try authority.client(topic: topic)
        let files: [(name: String, contents: [UInt8], mode: mode_t)] = [
            ("ca.pem", authority.certificatePEM, 0o644), ("client.pem", client.certificatePEM, 0o644),
            ("client-key.pem", client.keyPEM, 0o600),
            ("AuthKey_\(SimulatedAuthority.keyID).p8", authority.signingKeyPEM, 0o600),
        ]
        if mkdir(path, 0o755) != 0, errno != EEXIST { throw failure("make", path) }
        if access(file(Self.mark), F_OK) != 0 {
            for (name, _, _) in files where access(file(name), F_OK) == 0 {
                throw SimulatorError(
                    "\(file(name)) already exists and was not written by apns-simulator; use another directory")
            }
        }
        try write(
            Array("A simulator that starts with this directory replaces the files in it.\n".utf8), Self.mark, 0o644)
        for (name, contents, mode) in files { try write(contents, name, mode) }
    }

    // Writes to a temporary file and renames it, so that a concurrent reader never sees half a file.
    private func write(_ bytes: [UInt8], _ name: String, _ mode: mode_t) throws(SimulatorError) {
        let target = file(name)
        let temporary = target + ".new"
        if unlink(temporary) != 0, errno != ENOENT { throw failure("replace", temporary) }
        // Fails if the file exists, because a link that another user placed there must not be followed.
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw failure("write", temporary) }
        guard bytes.withUnsafeBytes({ DescriptorOutput.write($0, to: descriptor) { true }.end }) == .complete else {
            let error = failure("write", temporary)
            _ = close(descriptor)
            throw error
        }
        guard close(descriptor) == 0, rename(temporary, target) == 0 else { throw failure("write", target) }
    }

    private func failure(_ what: String, _ path: String) -> SimulatorError {
        SimulatorError(
            "cannot \(what) \(path): \(String(cString: strerror(errno))); check the path and its permissions")
    }
}
