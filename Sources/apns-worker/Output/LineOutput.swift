import Glibc
import NIOCore

/// Where lines are written for another program, which may be slow, stop reading, or go away.
///
/// Whole calls come out one after the other, in the order in which they were made. What cannot be written is counted, and
/// nothing more is written then: the reader would not know what it missed.
actor LineOutput {
    /// The maximum number of bytes in a write, so that a pipe with room for it does not block.
    private static let pieceSize = 4096

    private let descriptor: Int32
    private let closesDescriptor: Bool
    private let stop: StopSignal
    /// For how long the reader may take nothing.
    private let patience: Duration
    private var last: Task<Void, Never>?
    private var isClosed = false
    /// Why nothing is written any more.
    private(set) var failure: String?
    /// Lines that were not written, or not wholly.
    private(set) var lostLines = 0

    init(_ descriptor: Int32, closesDescriptor: Bool, patience: Duration, stop: StopSignal) {
        self.descriptor = descriptor
        self.closesDescriptor = closesDescriptor
        self.patience = patience
        self.stop = stop
    }

    /// Writes lines, and waits until that is done or given up.
    func write(_ lines: ByteBuffer, count: Int) async {
        let previous = last
        let task = Task {
            await previous?.value
            await put(lines, count: count)
        }
        last = task
        await task.value
    }

    /// Tells the reader that this is all.
    func close() {
        guard closesDescriptor, !isClosed else { return }
        isClosed = true
        Glibc.close(descriptor)
    }

    private func put(_ lines: ByteBuffer, count: Int) async {
        var rest = lines.readableBytesView[...]
        var since = ContinuousClock.now
        while failure == nil, !rest.isEmpty {
            if hasRoom() {
                let written = rest.prefix(Self.pieceSize).withUnsafeBytes { piece in
                    Glibc.write(descriptor, piece.baseAddress, piece.count)
                }
                if written > 0 {
                    rest = rest.dropFirst(written)
                    since = .now
                    continue
                }
                guard written < 0, errno == EINTR || errno == EAGAIN else {
                    failure = errno == EPIPE ? "its reader is closed" : String(cString: strerror(errno))
                    break
                }
            }
            let limit = stop.isStopped ? min(patience, .seconds(2)) : patience
            guard ContinuousClock.now - since < limit else {
                failure = "nothing of it was read for \(limit.components.seconds) s"
                break
            }
            do {
                try await Task.sleep(for: .milliseconds(2))
            } catch {
                // Cancelled; the wait is bounded all the same.
            }
        }
        if !rest.isEmpty {
            lostLines += rest.count == lines.readableBytes ? count : rest.lazy.filter { $0 == 10 }.count
        }
    }

    private func hasRoom() -> Bool {
        var request = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        // With nobody at the other end it is the write that says so.
        return poll(&request, 1, 0) > 0
    }
}
