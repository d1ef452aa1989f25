import Glibc
import Logging
import Synchronization

/// The level of all loggers without their own level. It can be changed while they are in use, from any thread.
package final class SharedLogLevel: Sendable {
    private let value: Atomic<Int>

    /// - Parameter level: the initial level.
    package init(_ level: Logger.Level) { value = Atomic(Self.levels.firstIndex(of: level) ?? 0) }

    /// The level.
    package var level: Logger.Level {
        get { Self.levels[value.load(ordering: .relaxed)] }
        set { value.store(Self.levels.firstIndex(of: newValue) ?? 0, ordering: .relaxed) }
    }

    private static let levels = Logger.Level.allCases
}

/// Writes a log line by line, in one of the formats of ``LogFormat``.
package struct LineLogHandler: LogHandler {
    /// The metadata of all its lines.
    package var metadata: Logger.Metadata = [:]
    /// The source of further metadata, from the context in which a line is written.
    package var metadataProvider: Logger.MetadataProvider?

    private let label: String
    private let format: LogFormat
    private let isColored: Bool
    private let output: LogOutput
    private let shared: SharedLogLevel
    private var own: Logger.Level?

    /// - Parameters:
    ///   - label: the logger's name.
    ///   - format: `auto` counts as text; see ``LogFormat/resolved(environment:)``.
    ///   - isColored: true to color the level in the text format.
    ///   - output: the destination; share one among all handlers that write to it.
    ///   - level: the level of all handlers without their own level.
    package init(
        label: String, format: LogFormat, isColored: Bool = false, output: LogOutput, level: SharedLogLevel
    ) {
        self.label = label
        self.format = format
        self.isColored = isColored
        self.output = output
        shared = level
    }

    /// The handler's own level or, by default, the shared one.
    package var logLevel: Logger.Level {
        get { own ?? shared.level }
        set { own = newValue }
    }

    /// An entry of the metadata of all its lines.
    package subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes a line.
    package func log(event: LogEvent) {
        var metadata = metadata
        if let provided = metadataProvider?.get() { metadata.merge(provided) { $1 } }
        if let own = event.metadata { metadata.merge(own) { $1 } }
        if let error = event.error { metadata["error"] = "\(error)" }
        write(event.level, event.message.description, metadata)
    }

    private func write(_ level: Logger.Level, _ message: String, _ metadata: Logger.Metadata) {
        func bytes(_ level: Logger.Level, _ message: String, _ metadata: Logger.Metadata) -> [UInt8] {
            LogLine(time: .now, level: level, label: label, message: message, metadata: metadata)
                .bytes(format, isColored: isColored)
        }
        output.write(bytes(level, message, metadata)) { lost in
            bytes(
                .warning, "log lines could not be written and are lost",
                ["event": "log_lines_lost", "count": "\(lost)"])
        }
    }
}

extension LineLogHandler {
    /// Returns a factory of handlers that write to standard error.
    /// - Parameters:
    ///   - format: the configured format; `auto` is resolved here.
    ///   - environment: the process' environment, which identifies systemd's journal, and disables colors (`NO_COLOR`,
    ///     see no-color.org).
    package static func standardError(
        _ format: LogFormat, level: SharedLogLevel, environment: [String: String]
    ) -> @Sendable (String) -> LineLogHandler {
        let resolved = format.resolved(environment: environment)
        let isColored = isatty(STDERR_FILENO) == 1 && (environment["NO_COLOR"] ?? "").isEmpty
        let output = LogOutput()
        return { LineLogHandler(label: $0, format: resolved, isColored: isColored, output: output, level: level) }
    }
}
