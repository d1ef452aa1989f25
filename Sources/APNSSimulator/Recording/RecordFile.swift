import Glibc
import Synchronization

/// A file that grows by a line for each notification.
///
/// Each line is with the kernel before the notification is answered: whoever reads along sees it, and no signal loses it.
package final class RecordFile: Sendable {
    /// The file cannot be opened, or not be written to.
    package struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
        /// Which file, why, and what becomes of the recording.
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

    /// Opens a file to append to; it is made if there is none, for nobody else to read.
    /// - Parameters:
    ///   - path: the file, or `-` for standard output.
    ///   - onFailure: told once when a line could not be written. Nothing more is written then, so that no line is half.
    /// - Throws: ``Failure``.
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

    /// The error, if there was one.
    package var failure: Failure? { state.withLock { $0.failure } }

    /// Appends a line.
    /// - Parameter make: makes it, without its end; called while nobody else appends, so that lines keep the order in which
    ///   they were made.
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

    /// Closes the file; what comes later is not written.
    func close() {
        state.withLock { state in
            if isOwn, let descriptor = state.descriptor { _ = Self.close(descriptor) }
            state.descriptor = nil
        }
    }

    private static func close(_ descriptor: Int32) -> Int32 {
        Glibc.close(descriptor)
    }

    /// - Returns: the system's number for what went wrong, if something did.
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
                // A terminal may have been made non-blocking by whoever shares it.
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
