import Glibc
import Logging
import Sockets

/// The destination of a log. Writing a line never waits: not for a reader that has stalled, nor for a slow disk.
///
/// Lines that cannot be written (a full or closed pipe, a full disk) are lost without further effects; their number is
/// logged as soon as a line can be written again.
public final class LogOutput: Sendable {
    public let format: LogFormat
    let isColored: Bool
    private let lines: LineQueue

    /// - Parameters:
    ///   - descriptor: the descriptor to write to, which the caller owns; standard error by default.
    ///   - format: `auto` counts as text; see ``LogFormat/resolved(environment:)``.
    ///   - isColored: true to color the level in the text format.
    public init(descriptor: Int32 = STDERR_FILENO, format: LogFormat, isColored: Bool = false) {
        self.format = format
        self.isColored = isColored
        lines = LineQueue(descriptor: descriptor) { lost in
            LogLine(
                time: .now, level: .warning, label: "log", message: "log lines could not be written and are lost",
                metadata: ["event": "log_lines_lost", "count": "\(lost)"]
            ).bytes(format, isColored: isColored)
        }
    }

    /// The number of lines that were lost since the start.
    public var lost: Int { lines.lost }

    /// Waits until all lines are written or lost.
    /// - Parameter limit: the maximum time to wait for a reader that takes nothing.
    public func flush(within limit: Duration) { lines.flush(within: limit) }

    func write(_ line: LogLine) { lines.append(line.bytes(format, isColored: isColored)) }
}
