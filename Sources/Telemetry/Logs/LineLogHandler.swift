import Glibc
import Logging
import Synchronization

/// The level of all loggers that have none of their own; it can be changed while they are in use. From anywhere.
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
    /// Further metadata of its lines, by the place where they are written.
    package var metadataProvider: Logger.MetadataProvider?

    private let label: String
    private let format: LogFormat
    private let isColored: Bool
    private let output: LogOutput
    private let shared: SharedLogLevel
    private var own: Logger.Level?

    /// - Parameters:
    ///   - label: the logger's name.
    ///   - format: `auto` is taken for text; see ``LogFormat/resolved(environment:)``.
    ///   - isColored: true to color the level, in text.
    ///   - output: the destination; one for all handlers that write to the same place.
    ///   - level: the level of all handlers that are not given one of their own.
    package init(
        label: String, format: LogFormat, isColored: Bool = false, output: LogOutput, level: SharedLogLevel
    ) {
        self.label = label
        self.format = format
        self.isColored = isColored
        self.output = output
        shared = level
    }

    /// Its own level, or else the one that it shares with others.
    package var logLevel: Logger.Level {
        get { own ?? shared.level }
        set { own = newValue }
    }

    /// One of what all its lines have.
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
    /// The factory of loggers that write to standard error.
    /// - Parameters:
    ///   - format: the configured format; `auto` is resolved here.
    ///   - environment: of the process: where systemd's journal is, and whether colors are wanted (`NO_COLOR`, see
    ///     no-color.org).
    package static func standardError(
        _ format: LogFormat, level: SharedLogLevel, environment: [String: String]
    ) -> @Sendable (String) -> LineLogHandler {
        let resolved = format.resolved(environment: environment)
        let isColored = isatty(STDERR_FILENO) == 1 && (environment["NO_COLOR"] ?? "").isEmpty
        let output = LogOutput()
        return { LineLogHandler(label: $0, format: resolved, isColored: isColored, output: output, level: level) }
    }
}
