import Foundation

/// A named pipe whose reader reads nothing.
package final class StalledPipe: Sendable {
    package let path: String
    private let descriptor: Int32

    /// - Parameter isFull: true to fill the pipe at once, so that a program's first write blocks.
    package init(isFull: Bool = true) throws {
        path = FileManager.default.temporaryDirectory.appending(path: "pipe-\(UUID().uuidString)").path
        guard mkfifo(path, 0o600) == 0 else { throw ChildProcess.Failure(description: "mkfifo: \(errno)") }
        // Opens both ends, so that a program can open the pipe for writing.
        descriptor = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { throw ChildProcess.Failure(description: "open: \(errno)") }
        guard isFull else { return }
        let bytes = [UInt8](repeating: UInt8(ascii: "-"), count: 4096)
        while write(descriptor, bytes, bytes.count) > 0 {}
        while write(descriptor, bytes, 1) > 0 {}
    }

    deinit {
        close(descriptor)
        unlink(path)
    }

    /// Returns the first words of a command whose output goes into the pipe.
    /// - Parameter output: 1 for the command's standard output, 2 for its standard error.
    package func command(_ output: Int) -> [String] { ["sh", "-c", "exec \"$@\" \(output)>\"$0\"", path] }
}
