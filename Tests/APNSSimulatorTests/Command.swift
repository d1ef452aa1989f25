import Dispatch
import Foundation
import TestSupport

/// A foreign client, run to its end.
struct Command {
    let status: Int32
    let output: String
    let errors: String

    /// - Parameter timeout: seconds after which it is ended, for tests to fail rather than hang.
    static func run(_ path: String, _ arguments: [String], timeout: Double = 60) async throws -> Command {
        try await withCheckedThrowingContinuation { continuation in
            // Waiting must not take a thread from the tests' own pool, which is as small as the machine.
            DispatchQueue.global().async {
                continuation.resume(with: Result { try runBlocking(path, arguments, timeout: timeout) })
            }
        }
    }

    private static func runBlocking(_ path: String, _ arguments: [String], timeout: Double) throws -> Command {
        let process = Process()
        let output = try ChildPipe()
        // Into a file, because a process that fills an unread pipe never ends.
        let errorFile = FileManager.default.temporaryDirectory.appending(path: "command-\(UUID().uuidString)")
        try Data().write(to: errorFile)
        defer { try? FileManager.default.removeItem(at: errorFile) }
        process.executableURL = URL(filePath: path)
        process.arguments = arguments
        process.standardOutput = output.writing
        process.standardError = try FileHandle(forWritingTo: errorFile)
        process.standardInput = FileHandle.nullDevice
        try process.run()
        try output.writing.close()
        let watchdog = DispatchWorkItem { process.terminate() }
        DispatchQueue.global().asyncAfter(deadline: .now() + timeout, execute: watchdog)
        let said = output.reading.readDataToEndOfFile()
        process.waitUntilExit()
        watchdog.cancel()
        return Command(
            status: process.terminationStatus, output: String(decoding: said, as: UTF8.self),
            errors: String(decoding: try Data(contentsOf: errorFile), as: UTF8.self))
    }
}
