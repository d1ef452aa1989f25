import Glibc
import NIOConcurrencyHelpers

/// The destination of a log. Each line is written with one write(2), so that lines of different threads do not mix.
///
/// Lines that cannot be written (a closed pipe, a full disk) are lost without further effects; their number is logged
/// as soon as a line can be written again.
package final class LogOutput: Sendable {
    private let descriptor: Int32
    /// The number of lost lines. Its lock also keeps lines apart that are longer than one write to a pipe.
    private let lost = NIOLockedValueBox(0)

    /// - Parameter descriptor: the descriptor to write to, which the caller owns; standard error by default.
    package init(descriptor: Int32 = STDERR_FILENO) {
        self.descriptor = descriptor
        // Writing to a closed pipe would end the process with a signal; the error of the write is enough.
        signal(SIGPIPE, SIG_IGN)
    }

    /// Writes a line.
    /// - Parameters:
    ///   - line: the line, including its line feed.
    ///   - lossLine: returns the line for a number of lost lines.
    func write(_ line: [UInt8], lossLine: (Int) -> [UInt8]) {
        lost.withLockedValue { lost in
            if lost > 0 {
                guard writeCompletely(lossLine(lost)) else {
                    lost += 1
                    return
                }
                lost = 0
            }
            if !writeCompletely(line) { lost += 1 }
        }
    }

    private func writeCompletely(_ line: [UInt8]) -> Bool {
        line.withUnsafeBytes { bytes in
            var offset = 0
            while offset < bytes.count {
                let count = systemWrite(bytes[offset...])
                if count < 0, errno == EINTR { continue }
                // Ends an incomplete line if possible, so that the next one begins on a new line.
                guard count > 0 else {
                    if offset > 0 { _ = systemWrite([UInt8(ascii: "\n")][...]) }
                    return false
                }
                offset += count
            }
            return true
        }
    }

    private func systemWrite(_ bytes: Slice<UnsafeRawBufferPointer>) -> Int {
        let rest = UnsafeRawBufferPointer(rebasing: bytes)
        return Glibc.write(descriptor, rest.baseAddress, rest.count)
    }

    private func systemWrite(_ bytes: ArraySlice<UInt8>) -> Int {
        bytes.withUnsafeBytes { systemWrite($0[...]) }
    }
}
