import FoundationEssentials
import Glibc
import UnixSignals

/// Standard output, which may be a terminal.
struct StatusScreen {
    let isTerminal: Bool
    let isColoured: Bool

    init(environment: [String: String] = ProcessInfo.processInfo.environment) {
        isTerminal = isatty(STDOUT_FILENO) == 1
        isColoured = isTerminal && environment["NO_COLOR", default: ""].isEmpty && environment["TERM"] != "dumb"
    }

    /// The number of columns and rows; 80 columns and no row limit if unknown.
    var size: (columns: Int, rows: Int?) {
        var size = winsize()
        guard isTerminal, ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, nil)
        }
        return (min(max(Int(size.ws_col), 60), 120), Int(size.ws_row))
    }

    /// Runs `body` until it ends or a signal asks the process to stop.
    /// - Parameter isDrawn: true to use the alternate screen, so that the previous contents reappear afterwards.
    func watch(isDrawn: Bool, _ body: @escaping @Sendable () async throws -> Void) async throws {
        let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sighup)
        if isDrawn, !write("\u{1B}[?1049h\u{1B}[?25l") { return }
        defer { if isDrawn { _ = write("\u{1B}[?25h\u{1B}[?1049l") } }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for await _ in signals { return Interruption.request() } }
            group.addTask { try await body() }
            try await group.next()
            group.cancelAll()
        }
    }

    /// Draws over the previous contents, as far as the lines fit. Without a terminal, appends a block.
    /// - Returns: `false` if standard output has been closed by its reader.
    func draw(_ lines: [String]) -> Bool {
        guard isTerminal else { return write(lines.joined(separator: "\n") + "\n\n") }
        var shown = lines
        if let rows = size.rows, shown.count > rows {
            shown = Array(shown.prefix(rows - 1)) + ["… \(lines.count - rows + 1) more lines"]
        }
        return write("\u{1B}[H" + shown.map { $0 + "\u{1B}[K" }.joined(separator: "\r\n") + "\u{1B}[J")
    }

    /// - Returns: `false` if standard output has been closed by its reader.
    func write(_ text: String) -> Bool { Terminal.print(text) }
}
