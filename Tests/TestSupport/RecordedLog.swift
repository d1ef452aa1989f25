import Logging
import NIOConcurrencyHelpers

/// The logged lines.
package final class RecordedLog: Sendable {
    package struct Line {
        package let level: Logger.Level
        package let message: String
        package let metadata: Logger.Metadata

        package var event: String { self["event"] }

        package subscript(key: String) -> String { metadata[key].map { "\($0)" } ?? "" }
    }

    private let recorded = NIOLockedValueBox<[Line]>([])

    package var lines: [Line] { recorded.withLockedValue { $0 } }

    package func lines(of event: String) -> [Line] { lines.filter { $0.event == event } }

    package var handler: any LogHandler { Handler(log: self) }

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
