import Logging
import NIOConcurrencyHelpers

/// The logged lines.
final class RecordedLog: Sendable {
    struct Line {
        let level: Logger.Level
        let message: String
        let metadata: Logger.Metadata

        var event: String { self["event"] }

        subscript(key: String) -> String { metadata[key].map { "\($0)" } ?? "" }
    }

    private let recorded = NIOLockedValueBox<[Line]>([])

    var lines: [Line] { recorded.withLockedValue { $0 } }

    func lines(of event: String) -> [Line] { lines.filter { $0.event == event } }

    var handler: any LogHandler { Handler(log: self) }

    private struct Handler: LogHandler {
        let log: RecordedLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.info

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = Line(
                level: event.level, message: "\(event.message)",
                metadata: metadata.merging(event.metadata ?? [:]) { $1 })
            log.recorded.withLockedValue { $0.append(line) }
        }
    }
}
