import Logging
import NIOConcurrencyHelpers

/// What was logged, as `level: message`.
final class RecordedLog: Sendable {
    private let recorded = NIOLockedValueBox<[String]>([])

    var lines: [String] { recorded.withLockedValue { $0 } }
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
            log.recorded.withLockedValue { $0.append("\(event.level): \(event.message)") }
        }
    }
}
