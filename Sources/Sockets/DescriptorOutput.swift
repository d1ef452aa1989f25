import Dispatch
import Glibc
import Synchronization

/// Writing to a descriptor whose reader may be slow, stall, or end.
public enum DescriptorOutput {
    public enum End: Equatable, Sendable {
        case complete
        /// The reader took nothing more, and the caller no longer waits.
        case abandoned
        /// The error number of write(2).
        case failed(Int32)
    }

    /// The maximum number of bytes per write(2). A pipe that poll(2) reports as writable has space for this many (pipe(7), PIPE_BUF), so
    /// the write does not block.
    public static let pieceSize = 4096
    /// The time in milliseconds between two calls that ask whether to wait longer.
    private static let interval: Int32 = 50

    /// Writes bytes as fast as the reader takes them.
    /// - Parameter waits: called about twenty times per second while the reader takes nothing; returns `false` to give up.
    /// - Returns: the end, and the number of bytes that were written.
    public static func write(
        _ bytes: UnsafeRawBufferPointer, to descriptor: Int32, while waits: () -> Bool
    ) -> (end: End, written: Int) {
        var written = 0
        while written < bytes.count {
            guard isWritable(descriptor, within: 0) || isWritable(descriptor, within: interval) else {
                if waits() { continue }
                return (.abandoned, written)
            }
            let rest = UnsafeRawBufferPointer(rebasing: bytes[written...].prefix(pieceSize))
            let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
            if count > 0 {
                written += count
            } else if count == 0 || (errno != EINTR && errno != EAGAIN) {
                return (.failed(errno), written)
            }
        }
        return (.complete, written)
    }

    public static func write(_ text: String, to descriptor: Int32, while waits: () -> Bool) -> End {
        var text = text
        return text.withUTF8 { write(UnsafeRawBufferPointer($0), to: descriptor, while: waits).end }
    }

    /// True while the reader of standard error takes nothing.
    private static let hasStalled = Atomic(false)
    private static let patience = Duration.seconds(1)

    /// Writes a message to standard error. Failures are ignored, because there is nowhere else to report them. The message is dropped if
    /// the reader takes nothing for a second, because it must not delay the process.
    public static func note(_ text: String) {
        let limit = ContinuousClock.now + (hasStalled.load(ordering: .relaxed) ? .zero : patience)
        let end = write(text, to: STDERR_FILENO) { ContinuousClock.now < limit }
        hasStalled.store(end == .abandoned, ordering: .relaxed)
    }

    /// Returns true if a write does not block. If the reader has closed its end, the write reports that.
    public static func isWritable(_ descriptor: Int32, within milliseconds: Int32 = 0) -> Bool {
        var request = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return poll(&request, 1, milliseconds) > 0
    }
}

/// Writes lines to a descriptor on a thread of its own, so that the caller never waits for the reader or for a disk.
///
/// Lines that exceed the buffer, or that can't be written, are lost and counted. Lines stay whole and in order. Lines that fit into one
/// write(2) share it.
public final class LineQueue: Sendable {
    /// The reason why lines are lost.
    public enum Loss: Equatable, Sendable {
        /// The reader is too slow, or has stalled.
        case full
        /// The error number of write(2).
        case failed(Int32)
    }

    /// One or several lines.
    private struct Piece {
        var bytes: [UInt8]
        var lines = 1
        /// The number of lost lines that this piece reports.
        var reports = 0

        mutating func append(_ other: Piece) {
            bytes += other.bytes
            lines += other.lines
            reports += other.reports
        }
    }

    private struct State {
        var lines: [Piece] = []
        /// The size of the lines that are waiting or being written, in bytes.
        var size = 0
        /// The number of lost lines that have not been reported, and the number since the start.
        var (unreported, lost) = (0, 0)
        var loss: Loss?
        var isWriting = false

        mutating func lose(_ piece: Piece, _ reason: Loss) {
            unreported += piece.lines + piece.reports
            lost += piece.lines
            loss = reason
        }
    }

    private let descriptor: Int32
    private let limit: Int
    private let lossLine: (@Sendable (Int) -> [UInt8])?
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "lines")

    /// - Parameters:
    ///   - descriptor: the descriptor to write to, which the caller owns.
    ///   - limit: the maximum number of bytes that wait.
    ///   - lossLine: returns a line that reports a number of lost lines. It is written as soon as lines can be written
    ///     again.
    public init(descriptor: Int32, limit: Int = 1 << 20, lossLine: (@Sendable (Int) -> [UInt8])? = nil) {
        self.descriptor = descriptor
        self.limit = limit
        self.lossLine = lossLine
        // Writing to a closed pipe would end the process with a signal; the error of the write is enough.
        signal(SIGPIPE, SIG_IGN)
    }

    /// The number of lines that were lost since the start.
    public var lost: Int { state.withLock(\.lost) }

    /// Appends a line, which includes its line feed.
    /// - Returns: the last loss, of this line or of an earlier one, if any.
    @discardableResult
    public func append(_ line: [UInt8]) -> Loss? {
        let (starts, loss) = state.withLock { state in
            if state.size + line.count <= limit || state.size == 0 {
                state.lines.append(Piece(bytes: line))
                state.size += line.count
            } else {
                state.lose(Piece(bytes: []), .full)
            }
            defer { state.isWriting = true }
            return (!state.isWriting, state.loss)
        }
        if starts { queue.async { self.writeAll() } }
        return loss
    }

    /// Waits until all lines are written or lost.
    /// - Parameter limit: the maximum time to wait for a reader that takes nothing.
    public func flush(within limit: Duration) {
        let end = ContinuousClock.now + limit
        while state.withLock(\.isWriting), ContinuousClock.now < end { usleep(500) }
    }

    private func writeAll() {
        var couldWrite = true
        while let lines = next(couldWrite: couldWrite) {
            var rest = lines[...]
            while var piece = rest.popFirst() {
                while let line = rest.first, piece.bytes.count + line.bytes.count <= DescriptorOutput.pieceSize {
                    piece.append(line)
                    rest.removeFirst()
                }
                let error = write(piece.bytes)
                couldWrite = error == nil
                state.withLock { state in
                    state.size -= piece.bytes.count
                    if let error { state.lose(piece, .failed(error)) }
                }
            }
        }
    }

    /// Returns the lines to write next; `nil` if there are none.
    private func next(couldWrite: Bool) -> [Piece]? {
        state.withLock { state in
            if let lossLine, state.unreported > 0, couldWrite || !state.lines.isEmpty {
                let line = Piece(bytes: lossLine(state.unreported), lines: 0, reports: state.unreported)
                state.lines.insert(line, at: 0)
                state.size += line.bytes.count
                state.unreported = 0
            }
            guard !state.lines.isEmpty else {
                state.isWriting = false
                return nil
            }
            defer { state.lines = [] }
            return state.lines
        }
    }

    /// - Returns: the error number; `nil` if everything was written.
    private func write(_ bytes: [UInt8]) -> Int32? {
        bytes.withUnsafeBytes { bytes in
            var offset = 0
            while offset < bytes.count {
                let count = Glibc.write(descriptor, bytes.baseAddress?.advanced(by: offset), bytes.count - offset)
                if count > 0 {
                    offset += count
                } else if count < 0, errno == EAGAIN {
                    // Another process that shares the descriptor has made it non-blocking.
                    _ = DescriptorOutput.isWritable(descriptor, within: -1)
                } else if count == 0 || errno != EINTR {
                    let error = errno
                    // Ends an incomplete line if possible, so that the next line begins on a new one.
                    if offset > 0 { _ = Glibc.write(descriptor, "\n", 1) }
                    return error
                }
            }
            return nil
        }
    }
}
