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

/// Runs a body with a temporary directory, and removes the directory afterwards.
func withTemporaryDirectory<Result>(_ body: (URL) throws -> Result) throws -> Result {
    let directory = FileManager.default.temporaryDirectory.appending(path: "apns-tests-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    return try body(directory)
}
