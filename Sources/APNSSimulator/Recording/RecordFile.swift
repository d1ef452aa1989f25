import Glibc
import Synchronization

/// A file to which a line is appended for each notification.
///
/// Each line is written before the notification is answered, so a concurrent reader sees it, and no signal can lose it.
package final class RecordFile: Sendable {
    /// A file that cannot be opened or written to.
    package struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
        /// The file, the reason, and the consequence for the recording.
        package let description: String
    }

    private struct State {
        var descriptor: Int32?
        var failure: Failure?
    }

    private let name: String
    private let isOwn: Bool
    private let state: Mutex<State>
    private let onFailure: @Sendable (Failure) -> Void

    /// Opens a file for appending; creates it, readable by the owner only, if it does not exist.
    /// - Parameters:
    ///   - path: the file, or `-` for standard output.
    ///   - onFailure: called once when a line could not be written. Nothing is written afterwards, so that no line
    ///     follows a truncated one.
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
        state = Mutex(State(descriptor: descriptor))
    }

    deinit { close() }

    /// The error that stopped the recording, if any.
    package var failure: Failure? { state.withLock { $0.failure } }

    /// Appends a line.
    /// - Parameter make: returns the line without its line feed; called under the lock, so that lines are in the order
    ///   in which they were made.
    func append(_ make: () -> [UInt8]) {
        let failure = state.withLock { state -> Failure? in
            let line = make()
            guard let descriptor = state.descriptor, state.failure == nil else { return nil }
            guard let problem = Self.write(line + [0x0A], to: descriptor) else { return nil }
            state.failure = Failure(
                description:
                    "cannot record to \(name): \(String(cString: strerror(problem))); nothing more is recorded "
                    + "there")
            return state.failure
        }
        if let failure { onFailure(failure) }
    }

    /// Closes the file; later notifications are not written.
    func close() {
        state.withLock { state in
            if isOwn, let descriptor = state.descriptor { _ = Self.close(descriptor) }
            state.descriptor = nil
        }
    }

    private static func close(_ descriptor: Int32) -> Int32 {
        Glibc.close(descriptor)
    }

    /// - Returns: the error number of the system, or nil.
    private static func write(_ bytes: [UInt8], to descriptor: Int32) -> Int32? {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { systemWrite(descriptor, $0) }
            if count > 0 {
                rest = rest.dropFirst(count)
                continue
            }
            switch errno {
            case EINTR: continue
            case EAGAIN:
                // Another process that shares the terminal may have made it non-blocking.
                var poll = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = systemPoll(&poll)
            case let problem: return problem
            }
        }
        return nil
    }

    private static func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
        Glibc.write(descriptor, bytes.baseAddress, bytes.count)
    }

    private static func systemPoll(_ poll: inout pollfd) -> Int32 {
        Glibc.poll(&poll, 1, -1)
    }
}
