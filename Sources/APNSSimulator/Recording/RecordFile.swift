import Glibc
import Sockets
import Synchronization

/// A file to which a line is appended for each notification.
///
/// A file on a disk gets each line before the notification is answered. So a concurrent reader sees the line, and no signal can lose it.
/// Lines for a pipe or a terminal are buffered, because their reader may stall.
package final class RecordFile: Sendable {
    /// The file cannot be opened or written.
    package struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
        /// The file, the reason, and the consequence for the recording.
        package let description: String
    }

    private struct State {
        var descriptor: Int32?
        /// The lines for a reader that may stall.
        var queue: LineQueue?
        var failure: Failure?
    }

    /// The maximum number of bytes that wait for a reader.
    private static let maximumQueue = 8 << 20

    private let name: String
    private let isOwn: Bool
    private let state: Mutex<State>
    private let onFailure: @Sendable (Failure) -> Void

    /// Opens a file for appending. If it does not exist, creates it, readable by the owner only.
    /// - Parameters:
    ///   - path: the file, or `-` for standard output.
    ///   - onFailure: called once when a line could not be written. Nothing is written afterwards, because it would follow a truncated
    ///     line.
    /// - Throws: ``Failure`` if the file cannot be opened.
    package init(path: String, onFailure: @escaping @Sendable (Failure) -> Void) throws(Failure) {
        isOwn = path != "-"
        name = isOwn ? path : "standard output"
        self.onFailure = onFailure
        let descriptor = isOwn ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600) : STDOUT_FILENO
        guard descriptor >= 0 else {
            throw Failure(
                description: "cannot record to \(path): \(String(cString: strerror(errno))); check the path and its "
                    + "permissions")
        }
        let queue = Self.mayStall(descriptor) ? LineQueue(descriptor: descriptor, limit: Self.maximumQueue) : nil
        state = Mutex(State(descriptor: descriptor, queue: queue))
    }

    /// Returns true for a pipe, a socket or a terminal.
    private static func mayStall(_ descriptor: Int32) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return false }
        return [S_IFIFO, S_IFSOCK].contains(status.st_mode & S_IFMT) || isatty(descriptor) == 1
    }

    deinit { close() }

    /// The error that stopped the recording, if any.
    package var failure: Failure? { state.withLock { $0.failure } }

    /// Appends a line.
    /// - Parameter make: returns the line without its line feed. Called under the lock, so that lines are in the order of these calls.
    func append(_ make: () -> [UInt8]) {
        let failure = state.withLock { state -> Failure? in
            let line = make() + [0x0A]
            guard let descriptor = state.descriptor, state.failure == nil else { return nil }
            let problem: String
            if let queue = state.queue {
                switch queue.append(line) {
                case nil: return nil
                case .full: problem = "its reader is too slow, or has stalled"
                case .failed(let error): problem = String(cString: strerror(error))
                }
            } else {
                let end = line.withUnsafeBytes { DescriptorOutput.write($0, to: descriptor) { true }.end }
                guard case .failed(let error) = end else { return nil }
                problem = String(cString: strerror(error))
            }
            state.failure = Failure(
                description: "cannot record to \(name): \(problem); nothing more is recorded there")
            return state.failure
        }
        if let failure { onFailure(failure) }
    }

    /// Closes the file. Later lines are not written.
    func close() {
        let queue = state.withLock(\.queue)
        queue?.flush(within: .seconds(2))
        state.withLock { state in
            if isOwn, let descriptor = state.descriptor { _ = Glibc.close(descriptor) }
            (state.descriptor, state.queue) = (nil, nil)
        }
    }
}
