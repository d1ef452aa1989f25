import Foundation
import TestSupport

/// The `openssl` program, as an independent check of our signatures.
enum OpenSSLCommand {
    struct Result {
        var status: Int32
        var output: String
    }

    /// Runs it with files named by their arguments. Returns its output and errors together.
    static func run(_ arguments: [String], in directory: URL) throws -> Result {
        let process = try ChildProcess(
            "/bin/sh", ["-c", "cd \"$0\" && exec openssl \"$@\" 2>&1", directory.path] + arguments)
        guard case .exited(let status) = try process.waitBlocking() else { throw process.failure("was ended") }
        return Result(status: status, output: process.output)
    }
}
