import ArgumentParser
import Glibc
import Operations
import Sockets
import Synchronization

/// Standard output and standard error, unbuffered.
enum Terminal {
    /// Writes to standard error; see ``DescriptorOutput/note(_:)``.
    static func note(_ text: String) { DescriptorOutput.note(text) }

    private static let noted = Mutex<Set<String>>([])

    /// Writes a text to standard error, unless this process has already written it there.
    static func noteOnce(_ text: String) {
        if noted.withLock({ $0.insert(text).inserted }) { note(text) }
    }

    /// The error number of the last write to standard output that failed; 0 if all succeeded.
    private static let failure = Atomic<Int32>(0)

    /// Writes to standard output at once, so that a reader of a pipe does not wait for a full buffer. Waits for a slow
    /// reader until the process is asked to stop. A failure ends the command with an exit status at its end.
    /// - Returns: `false` if the text was not written completely.
    @discardableResult
    static func print(_ text: String) -> Bool {
        let end = DescriptorOutput.write(text, to: STDOUT_FILENO) { !Interruption.isRequested }
        if case .failed(let error) = end { failure.store(error, ordering: .relaxed) }
        return end == .complete
    }

    /// Checks that all output was written.
    /// - Throws: ``CommandFailure``, or an exit code if the reader has closed its end, as `head` does.
    static func checkOutput() throws {
        let error = failure.load(ordering: .relaxed)
        guard error != 0 else { return }
        throw outputFailure(error, "standard output")
    }

    /// Returns the error that ends a command whose output can't be written.
    static func outputFailure(_ error: Int32, _ name: String) -> any Error {
        if error == EPIPE { return ExitCode(ExitStatus.attention.rawValue) }
        return CommandFailure(.attention, "cannot write to \(name): \(String(cString: strerror(error)))")
    }
}

/// Writes a line to standard output; see ``Terminal/print(_:)``.
func print(_ line: String) { Terminal.print(line + "\n") }

/// The rule for confirmations: a command that affects everything (`--all`, `--all-queues`) or deletes permanently asks
/// on a terminal, and otherwise requires `--yes`.
enum Confirmation {
    /// True if a person can answer.
    static var isPossible: Bool { isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 }

    /// Checks that the question can be asked, before anything else is done.
    /// - Parameter isGiven: true with `--yes`, or if nothing will be changed.
    /// - Throws: a usage error if it can't be asked.
    static func check(isGiven: Bool) throws {
        guard isGiven || isPossible else {
            throw ValidationError("refusing to continue without confirmation, because there is no terminal; pass --yes")
        }
    }

    /// Asks for confirmation.
    /// - Parameter answer: the only answer that confirms; `nil` for `y` and `yes`.
    /// - Throws: a usage error if the question can't be asked; an exit code if the answer is no.
    static func demand(_ question: String, isGiven: Bool, answer: String? = nil) throws {
        if isGiven { return }
        try check(isGiven: false)
        Terminal.note(answer.map { "\(question) Type \($0): " } ?? "\(question) [y/N] ")
        let given = readLine() ?? ""
        guard answer.map({ given == $0 }) ?? ["y", "yes"].contains(given.lowercased()) else {
            Terminal.note("nothing was changed\n")
            throw ExitCode(ExitStatus.attention.rawValue)
        }
    }
}

/// SIGINT and SIGTERM. They end a command at once, unless it traps them, or ends between two steps to report its progress.
enum Interruption {
    fileprivate static let flag = Atomic(false)

    /// True if the process was asked to stop.
    static var isRequested: Bool { flag.load(ordering: .relaxed) }

    /// Records a request that did not come as a signal.
    static func request() { flag.store(true, ordering: .relaxed) }

    /// Lets the signals end the process. The first process of a container needs a handler for that, because the kernel ignores its signals
    /// otherwise. Signals that the parent ignores stay ignored.
    static func endProcess() {
        for number in [SIGINT, SIGTERM] where !isIgnored(number) {
            signal(number) { end(signal: $0) }
        }
    }

    /// Records signals instead of letting them end the process. A second signal ends it.
    static func watch() {
        // The flag is initialized on first use, which must not happen in a signal handler.
        _ = isRequested
        for number in [SIGINT, SIGTERM] {
            signal(number) { note(signal: $0) }
        }
    }

    private static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        guard sigaction(number, nil, &action) == 0 else { return false }
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
    }
}

private func note(signal number: Int32) {
    Interruption.request()
    signal(number) { end(signal: $0) }
}

private func end(signal number: Int32) {
    // A signal without a handler does not end the first process of a container. The parent of any other process should learn which signal
    // ended it.
    if getpid() == 1 { _exit(128 + number) }
    signal(number, SIG_DFL)
    raise(number)
}

/// A table whose columns are as wide as the widest cell of the first lines.
struct Table {
    private var widths: [Int]
    /// The maximum length of a line; `nil` for no limit.
    private let width: Int?
    private let alignsLeft: Set<Int>

    /// - Parameters:
    ///   - width: the maximum length of a line, at which the last column is cut.
    ///   - alignsLeft: the columns with text; `nil` for all. The others have numbers.
    init(_ titles: [String], _ rows: [[String]], width: Int? = nil, alignsLeft: Set<Int>? = nil) {
        self.width = width
        self.alignsLeft = alignsLeft ?? Set(titles.indices)
        widths = titles.map(\.count)
        for row in rows {
            for (column, cell) in row.enumerated() where column < widths.count {
                widths[column] = max(widths[column], min(cell.count, 64))
            }
        }
    }

    /// Returns the lines of a table of things.
    static func text<Row: Shown>(of rows: [Row], now: Int64) -> String {
        let (titles, cells) = (Row.titles(), rows.map { $0.cells(now: now) })
        let table = Table(titles, cells)
        return ([titles] + cells).map { table.line($0) + "\n" }.joined()
    }

    func line(_ cells: [String]) -> String {
        let columns = cells.enumerated().map { column, cell in
            let padding = String(repeating: " ", count: max(0, widths[column] - cell.count))
            if !alignsLeft.contains(column) { return padding + cell }
            return column == cells.count - 1 ? cell : cell + padding
        }
        let line = columns.joined(separator: "  ")
        guard let width, line.count > width else { return line }
        return line.prefix(max(1, width - 1)) + "…"
    }
}
