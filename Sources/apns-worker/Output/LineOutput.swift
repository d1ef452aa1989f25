import Glibc
import NIOCore

/// Output of lines to another program, which may be slow, stop reading, or end.
///
/// The lines of one call stay together, and calls are written in order. After a failure nothing more is written,
/// because the reader would not know what it missed; the remaining lines are counted.
actor LineOutput {
    /// The maximum number of bytes per write, so that it does not block if the pipe has space for it.
    private static let pieceSize = 4096

    private let descriptor: Int32
    private let closesDescriptor: Bool
    private let stop: StopSignal
    /// The maximum time in which the reader reads nothing.
    private let patience: Duration
    private var last: Task<Void, Never>?
    private var isClosed = false
    /// The reason why nothing more is written.
    private(set) var failure: String?
    /// The number of lines that were not written completely.
    private(set) var lostLines = 0

    init(_ descriptor: Int32, closesDescriptor: Bool, patience: Duration, stop: StopSignal) {
        self.descriptor = descriptor
        self.closesDescriptor = closesDescriptor
        self.patience = patience
        self.stop = stop
    }

    /// Writes lines, and waits until they are written or abandoned.
    func write(_ lines: ByteBuffer, count: Int) async {
        let previous = last
        let task = Task {
            await previous?.value
            await put(lines, count: count)
        }
        last = task
        await task.value
    }

    /// Closes the output, which signals to the reader that it is complete.
    func close() {
        guard closesDescriptor, !isClosed else { return }
        isClosed = true
        Glibc.close(descriptor)
    }

    private func put(_ lines: ByteBuffer, count: Int) async {
        var rest = lines.readableBytesView[...]
        var since = ContinuousClock.now
        while failure == nil, !rest.isEmpty {
            if canWrite() {
                let written = rest.prefix(Self.pieceSize).withUnsafeBytes { piece in
                    Glibc.write(descriptor, piece.baseAddress, piece.count)
                }
                if written > 0 {
                    rest = rest.dropFirst(written)
                    since = .now
                    continue
                }
                guard written < 0, errno == EINTR || errno == EAGAIN else {
                    failure = errno == EPIPE ? "the reader has closed it" : String(cString: strerror(errno))
                    break
                }
            }
            let limit = stop.isStopped ? min(patience, .seconds(2)) : patience
            guard ContinuousClock.now - since < limit else {
                failure = "the reader has read nothing for \(limit.components.seconds) s"
                break
            }
            do {
                try await Task.sleep(for: .milliseconds(2))
            } catch {
                // Cancelled; the wait is limited anyway.
            }
        }
        if !rest.isEmpty {
            lostLines += rest.count == lines.readableBytes ? count : rest.lazy.filter { $0 == 10 }.count
        }
    }

    private func canWrite() -> Bool {
        var request = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        // If the reader has closed its end, the write reports it.
        return poll(&request, 1, 0) > 0
    }
}
