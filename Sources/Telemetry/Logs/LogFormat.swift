import Glibc

/// How lines of a log are written.
public enum LogFormat: String, CaseIterable, Sendable {
    /// What fits the place that standard error leads to: see ``resolved(environment:)``.
    case auto
    /// For people: time, level, message, and what else there is as `key=value`.
    case text
    /// For programs: one JSON object a line.
    case json
    /// For systemd's journal: as text, but without the time, which the journal has, and with the priority in front.
    case journal

    /// The format that is meant: for ``auto``, text on a terminal, the journal's where systemd has connected standard error to
    /// it, and JSON everywhere else, which is mostly a container's runtime.
    public func resolved(environment: [String: String]) -> LogFormat {
        guard self == .auto else { return self }
        if isatty(STDERR_FILENO) == 1 { return .text }
        return Self.isJournal(environment["JOURNAL_STREAM"]) ? .journal : .json
    }

    /// Whether standard error is the journal's stream. The variable alone says nothing: it is inherited by programs whose
    /// output goes elsewhere (systemd.exec(5), "$JOURNAL_STREAM").
    private static func isJournal(_ stream: String?) -> Bool {
        var status = stat()
        guard let stream, fstat(STDERR_FILENO, &status) == 0 else { return false }
        return stream == "\(status.st_dev):\(status.st_ino)"
    }
}
