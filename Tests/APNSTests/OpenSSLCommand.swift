import Foundation
import TestSupport

/// The `openssl` program, as a second opinion on what we sign.
enum OpenSSLCommand {
    struct Result {
        var status: Int32
        var output: String
    }

    /// Runs it with the files that are named by their arguments; output and errors together.
    static func run(_ arguments: [String], in directory: URL) throws -> Result {
        let process = Process()
        let output = try ChildPipe()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = ["openssl"] + arguments
        process.currentDirectoryURL = directory
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = output.writing
        process.standardError = output.writing
        try process.run()
        try output.writing.close()
        let said = output.reading.readDataToEndOfFile()
        process.waitUntilExit()
        return Result(status: process.terminationStatus, output: String(decoding: said, as: UTF8.self))
    }
}

/// Runs a body with a directory of its own, and removes it afterwards.
func withTemporaryDirectory<Result>(_ body: (URL) throws -> Result) throws -> Result {
    let directory = FileManager.default.temporaryDirectory.appending(path: "apns-tests-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    return try body(directory)
}
