import Glibc
import NIOConcurrencyHelpers

/// Where a log is written to: each line whole, with one write(2), so that lines of several threads do not mix.
///
/// Lines that can't be written (a closed pipe, a full disk) are lost and harm nothing else; how many lines that were is
/// said as soon as one can be written again.
package final class LogOutput: Sendable {
    private let descriptor: Int32
    /// Lines that were lost. The lock also keeps lines apart that are longer than what a pipe takes at once.
    private let lost = NIOLockedValueBox(0)

    /// - Parameter descriptor: what to write to; it stays the caller's, and is standard error by default.
    package init(descriptor: Int32 = STDERR_FILENO) {
        self.descriptor = descriptor
        // A reader that goes away would end the process by a signal; the error of the write is enough.
        signal(SIGPIPE, SIG_IGN)
    }

    /// Writes a line.
    /// - Parameters:
    ///   - line: with its line feed.
    ///   - lossLine: makes the line that says how many were lost.
    func write(_ line: [UInt8], lossLine: (Int) -> [UInt8]) {
        lost.withLockedValue { lost in
            if lost > 0 {
                guard writeWhole(lossLine(lost)) else {
                    lost += 1
                    return
                }
                lost = 0
            }
            if !writeWhole(line) { lost += 1 }
        }
    }

    private func writeWhole(_ line: [UInt8]) -> Bool {
        line.withUnsafeBytes { bytes in
            var offset = 0
            while offset < bytes.count {
                let count = systemWrite(bytes[offset...])
                if count < 0, errno == EINTR { continue }
                // Half a line is ended as far as that can be done: the next one is to begin at the beginning.
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
