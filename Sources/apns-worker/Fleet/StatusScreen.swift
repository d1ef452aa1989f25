import FoundationEssentials
import Glibc

/// Standard output, as far as it is a terminal.
struct StatusScreen {
    /// True if somebody looks at it.
    let isTerminal: Bool
    let isColoured: Bool

    init(environment: [String: String] = ProcessInfo.processInfo.environment) {
        isTerminal = isatty(STDOUT_FILENO) == 1
        isColoured = isTerminal && environment["NO_COLOR", default: ""].isEmpty && environment["TERM"] != "dumb"
    }

    /// Columns and rows; 80 columns where nobody says, and no bound of rows.
    var size: (columns: Int, rows: Int?) {
        var size = winsize()
        guard isTerminal, ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, nil)
        }
        return (min(max(Int(size.ws_col), 60), 120), Int(size.ws_row))
    }

    /// Goes over to a screen of its own, so that what was there before is there again afterwards.
    func open() -> Bool { !isTerminal || write("\u{1B}[?1049h\u{1B}[?25l") }

    func close() { if isTerminal { _ = write("\u{1B}[?25h\u{1B}[?1049l") } }

    /// Draws over what was drawn before, as far as there is room; where nobody looks, appends a block.
    /// - Returns: `false` when nobody reads any more.
    func draw(_ lines: [String]) -> Bool {
        guard isTerminal else { return write(lines.joined(separator: "\n") + "\n\n") }
        var shown = lines
        if let rows = size.rows, shown.count > rows {
            shown = Array(shown.prefix(rows - 1)) + ["… \(lines.count - rows + 1) more lines"]
        }
        return write("\u{1B}[H" + shown.map { $0 + "\u{1B}[K" }.joined(separator: "\r\n") + "\u{1B}[J")
    }

    /// - Returns: `false` when nobody reads any more.
    func write(_ text: String) -> Bool {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Self.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            bytes = bytes.dropFirst(count)
        }
        return true
    }

    // Within the type the name stands for the method.
    private static let write: @Sendable (Int32, UnsafeRawPointer?, Int) -> Int = { descriptor, bytes, count in
        Glibc.write(descriptor, bytes, count)
    }
}
