import Foundation

/// Certificates and keys to test with, made by `scripts/make-certs`.
public enum TestCertificates {
    /// The script did not work, for the reason it gave.
    public struct Failure: Error, CustomStringConvertible {
        /// What the script or the system said.
        public let description: String
    }

    /// The directory that holds them. It is made on first use, and removed when the process exits.
    public static func directory() throws -> String { try made.get() }

    /// The path of one of them.
    public static func path(_ name: String) throws -> String { try directory() + "/" + name }

    private static let made: Result<String, Failure> = {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let process = Process()
        let errors = Pipe()
        process.executableURL = root.appending(path: "scripts/make-certs")
        process.arguments = [path]
        process.standardError = errors
        // Not `waitUntilExit`: it spins a run loop, and on a thread of the concurrency pool it may never come back.
        let ended = DispatchSemaphore(value: 0)
        process.terminationHandler = { _ in ended.signal() }
        do {
            try process.run()
        } catch {
            return .failure(Failure(description: "scripts/make-certs does not start: \(error)"))
        }
        let said = errors.fileHandleForReading.readDataToEndOfFile()
        ended.wait()
        atexit { try? FileManager.default.removeItem(atPath: TestCertificates.path) }
        guard process.terminationStatus == 0 else {
            return .failure(Failure(description: "scripts/make-certs: \(String(decoding: said, as: UTF8.self))"))
        }
        return .success(path)
    }()

    private static let path = FileManager.default.temporaryDirectory
        .appending(path: "apns-worker-certificates-\(UUID().uuidString)").path
}
