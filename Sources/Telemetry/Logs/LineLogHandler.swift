import Glibc
import Logging
import Sockets
import Synchronization

/// The level of all loggers without their own level. It can be changed while they are in use, from any thread.
public final class SharedLogLevel: Sendable {
    private let value: Atomic<Int>

    public init(_ level: Logger.Level) { value = Atomic(Self.levels.firstIndex(of: level) ?? 0) }

    public var level: Logger.Level {
        get { Self.levels[value.load(ordering: .relaxed)] }
        set { value.store(Self.levels.firstIndex(of: newValue) ?? 0, ordering: .relaxed) }
    }

    private static let levels = Logger.Level.allCases
}

/// Writes a log line by line, in one of the formats of ``LogFormat``.
public struct LineLogHandler: LogHandler {
    /// The metadata of all its lines.
    public var metadata: Logger.Metadata = [:]
    /// The source of more metadata: it reads the context of the code that logs the line.
    public var metadataProvider: Logger.MetadataProvider?

    private let label: String
    private let output: LogOutput
    private let shared: SharedLogLevel
    private var own: Logger.Level?

    /// - Parameters:
    ///   - label: the logger's name.
    ///   - output: the destination; share one among all handlers that write to it.
    ///   - level: the level of all handlers without their own level.
    public init(label: String, output: LogOutput, level: SharedLogLevel) {
        self.label = label
        self.output = output
        shared = level
    }

    /// The handler's own level or, by default, the shared one.
    public var logLevel: Logger.Level {
        get { own ?? shared.level }
        set { own = newValue }
    }

    /// An entry of the metadata of all its lines.
    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    public func log(event: LogEvent) {
        var metadata = metadata
        if let provided = metadataProvider?.get() { metadata.merge(provided) { $1 } }
        if let own = event.metadata { metadata.merge(own) { $1 } }
        if let error = event.error { metadata["error"] = "\(error)" }
        output.write(
            LogLine(
                time: .now, level: event.level, label: label, message: event.message.description, metadata: metadata))
    }
}

extension LogOutput {
    /// Returns the output to standard error. At its end, the process waits up to a second until all lines are written.
    /// - Parameters:
    ///   - format: the configured format; `auto` is resolved here.
    ///   - environment: the process' environment, which identifies systemd's journal, and disables colors (`NO_COLOR`, see no-color.org).
    public static func standardError(_ format: LogFormat, environment: [String: String]) -> LogOutput {
        let isColored = isatty(STDERR_FILENO) == 1 && (environment["NO_COLOR"] ?? "").isEmpty
        let output = LogOutput(format: format.resolved(environment: environment), isColored: isColored)
        AtExit.flush(output)
        return output
    }

    /// Returns a factory of handlers that write to this output.
    /// - Parameter level: the level of all handlers without their own level.
    public func handlers(_ level: SharedLogLevel) -> @Sendable (String) -> LineLogHandler {
        { LineLogHandler(label: $0, output: self, level: level) }
    }
}

/// The outputs to flush at the end of the process.
private enum AtExit {
    private static let outputs = Mutex<[LogOutput]>([])

    static func flush(_ output: LogOutput) {
        let isFirst = outputs.withLock { outputs in
            outputs.append(output)
            return outputs.count == 1
        }
        guard isFirst else { return }
        atexit { for output in AtExit.outputs.withLock({ $0 }) { output.flush(within: .seconds(1)) } }
    }
}

/// The destination of a log. Writing a line never waits for a stalled reader or a slow disk.
///
/// Lines that cannot be written (a full or closed pipe, a full disk) are lost. Their number is logged once a line can be written again.
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
    /// - Parameter limit: the maximum time to wait for a stalled reader.
    public func flush(within limit: Duration) { lines.flush(within: limit) }

    func write(_ line: LogLine) { lines.append(line.bytes(format, isColored: isColored)) }
}
