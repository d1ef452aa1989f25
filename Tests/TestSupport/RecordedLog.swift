import Logging
import NIOConcurrencyHelpers

package final class RecordedLog: Sendable {
    package struct Line {
        package let level: Logger.Level
        package let message: String
        package let metadata: Logger.Metadata

        package var event: String { self["event"] }

        package var text: String { "\(message) \(metadata)" }

        package subscript(key: String) -> String { metadata[key].map { "\($0)" } ?? "" }
    }

    private let recorded = NIOLockedValueBox<[Line]>([])

    package init() {}

    package var lines: [Line] { recorded.withLockedValue { $0 } }

    package func lines(of event: String) -> [Line] { lines.filter { $0.event == event } }

    package var events: [String] { lines.map(\.event).filter { !$0.isEmpty } }

    package func logger(at level: Logger.Level = .info) -> Logger {
        Logger(label: "test") { _ in Handler(log: self, logLevel: level) }
    }

    private struct Handler: LogHandler {
        let log: RecordedLog
        var metadata: Logger.Metadata = [:]
        var logLevel: Logger.Level

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
