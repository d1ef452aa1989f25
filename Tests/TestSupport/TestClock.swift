import Foundation
import Synchronization

/// The wall clock of a process. A test can set it while the process runs. The monotonic clock does not change.
package final class TestClock: Sendable {
    private let library: String
    private let file = FileManager.default.temporaryDirectory.appending(path: "clock-\(UUID().uuidString)")
    private let offset = Mutex(Int64(0))

    package init() throws {
        library = try Self.compiled.get()
        try set(by: 0)
    }

    deinit { unlink(file.path) }

    /// The variables of a process that has this clock.
    package var environment: [String: String] { ["LD_PRELOAD": library, "TEST_CLOCK": file.path] }

    /// Sets the clock forward, or back by a negative number.
    package func set(by seconds: Int) throws {
        try offset.withLock { offset in
            offset += Int64(seconds)
            let descriptor = open(file.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
            defer { close(descriptor) }
            guard withUnsafeBytes(of: offset, { write(descriptor, $0.baseAddress, $0.count) }) == 8 else {
                throw ChildProcess.Failure(description: "cannot write \(file.path): \(errno)")
            }
        }
    }

    /// The library that the process preloads. It is built on first use, and removed when this process exits.
    private static let compiled = Result<String, any Error> {
        atexit { unlink(TestClock.path) }
        let source = Repository.path("scripts/chaos.d/clock.c")
        let process = try ChildProcess("clang", ["-shared", "-fPIC", "-O2", "-Wall", "-o", path, source])
        guard try process.waitBlocking() == .exited(0) else { throw process.failure("clang") }
        return path
    }

    private static let path = FileManager.default.temporaryDirectory.appending(path: "clock-\(UUID().uuidString).so")
        .path
}
