import Logging
import Synchronization

/// The level of all loggers of a process, which can be changed while it runs.
final class SwitchableLogLevel: Sendable {
    private let index: Atomic<Int>

    init(_ level: Logger.Level) {
        index = Atomic(Self.index(level))
    }

    var level: Logger.Level {
        get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
        set { index.store(Self.index(newValue), ordering: .relaxed) }
    }

    private static func index(_ level: Logger.Level) -> Int { Logger.Level.allCases.firstIndex(of: level) ?? 0 }
}

/// A log handler that goes by a ``SwitchableLogLevel``, but where a logger has a level of its own.
struct SwitchableLogHandler: LogHandler {
    private var handler: any LogHandler
    private let common: SwitchableLogLevel
    private var own: Logger.Level?

    /// - Parameter handler: what writes.
    init(_ handler: any LogHandler, level: SwitchableLogLevel) {
        self.handler = handler
        common = level
        // Which lines there are is decided here.
        self.handler.logLevel = .trace
    }

    var logLevel: Logger.Level {
        get { own ?? common.level }
        set { own = newValue }
    }

    var metadata: Logger.Metadata {
        get { handler.metadata }
        set { handler.metadata = newValue }
    }

    var metadataProvider: Logger.MetadataProvider? {
        get { handler.metadataProvider }
        set { handler.metadataProvider = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { handler[metadataKey: key] }
        set { handler[metadataKey: key] = newValue }
    }

    func log(event: LogEvent) { handler.log(event: event) }
}
