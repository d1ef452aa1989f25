import Foundation

/// A directory in which the program `openssl` makes keys, certificates and PKCS#12 files. It is removed with the object.
package final class OpenSSLWorkshop: Sendable {
    package let directory: URL

    package init() throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "openssl-workshop-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(at: directory) }

    /// Runs `openssl` in the directory, and returns its output.
    /// - Throws: ``ChildProcess/Failure`` if `openssl` fails.
    @discardableResult
    package func openssl(_ arguments: String...) throws -> String { try openssl(arguments) }

    /// Runs `openssl` in the directory, and returns its output.
    /// - Throws: ``ChildProcess/Failure`` if `openssl` fails.
    @discardableResult
    package func openssl(_ arguments: [String]) throws -> String {
        let process = try ChildProcess(
            "/bin/sh", ["-c", "cd \"$0\" && exec openssl \"$@\" 2>&1", directory.path] + arguments)
        guard try process.waitBlocking() == .exited(0) else {
            throw process.failure("openssl \(arguments.joined(separator: " "))")
        }
        return process.output
    }

    package func path(_ name: String) -> String { directory.appending(path: name).path }

    package func read(_ name: String) throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(filePath: path(name)))) }

    package func write(_ bytes: some Sequence<UInt8>, to name: String) throws {
        try Data(bytes).write(to: URL(filePath: path(name)), options: .atomic)
    }

    /// Makes a P-256 key: PKCS#8 in PEM.
    package func key(_ name: String) throws {
        try openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", name)
    }

    /// Makes a client certificate NAME.pem, which the authority of the test certificates issues, and its key NAME-key.pem.
    /// - Parameters:
    ///   - subject: such as `/UID=com.example.app/CN=Apple Push Services: com.example.app`.
    ///   - extensions: further lines of openssl's extension file. They may begin sections.
    package func certificate(_ name: String, subject: String, extensions: [String] = []) throws {
        try key("\(name)-key.pem")
        try openssl("req", "-new", "-key", "\(name)-key.pem", "-subj", subject, "-out", "\(name).csr")
        let lines = ["basicConstraints=critical,CA:false", "extendedKeyUsage=clientAuth"] + extensions
        try write(Data(lines.joined(separator: "\n").utf8), to: "\(name).ext")
        try openssl(
            "x509", "-req", "-in", "\(name).csr", "-CA", try TestCertificates.path("ca.pem"), "-CAkey",
            try TestCertificates.path("ca-key.pem"), "-set_serial", "\(Int.random(in: 1...Int.max))", "-sha256",
            "-days", "365", "-extfile", "\(name).ext", "-out", "\(name).pem")
    }
}
