import NIOConcurrencyHelpers
import PrintableText

/// A span of a distributed trace: a step in the life of one notification, with its start and end.
///
/// Source: OpenTelemetry, "Tracing API", "Span".
public struct Span: Sendable, Equatable {
    /// The IDs of a span.
    public struct Context: Sendable, Equatable {
        /// 32 lower-case hex digits.
        public var traceID: String
        /// 16 lower-case hex digits.
        public var spanID: String

        public init(traceID: String, spanID: String) {
            self.traceID = traceID
            self.spanID = spanID
        }
    }

    public enum Kind: Sendable, Equatable {
        /// A request to another system.
        case client
        /// The handling of a message.
        case consumer
    }

    public enum Value: Sendable, Equatable {
        case text(String)
        case number(Int)
    }

    public var name: String
    public var kind: Kind
    public var context: Context
    public var parentID: String
    /// The span that enqueued the job.
    public var producer: Context
    /// Nanoseconds since 1970.
    public var start: UInt64
    /// Nanoseconds since 1970.
    public var end: UInt64
    public var attributes: [String: Value]
    /// The reason of a failure; `nil` if there was none.
    public var failure: String?

    public init(
        _ name: String, _ kind: Kind, context: Context, parentID: String, producer: Context, start: UInt64, end: UInt64,
        attributes: [String: Value], failure: String? = nil
    ) {
        self.name = name
        self.kind = kind
        self.context = context
        self.parentID = parentID
        self.producer = producer
        self.start = start
        self.end = end
        self.attributes = attributes
        self.failure = failure
    }

    public static func newID() -> String { UInt64.random(in: 1 ... .max).digits(16, radix: 16) }
}

/// The spans that have ended and are not exported yet. Event loops add spans without waiting. Spans that do not fit are dropped and
/// counted.
public final class SpanQueue: Sendable {
    public static let capacity = 10_000

    private struct Contents {
        var spans: [Span] = []
        var dropped = 0
    }

    private let contents = NIOLockedValueBox(Contents())
    private let capacity: Int

    public init(capacity: Int = SpanQueue.capacity) { self.capacity = capacity }

    public func add(_ span: Span) {
        contents.withLockedValue { contents in
            if contents.spans.count < capacity { contents.spans.append(span) } else { contents.dropped += 1 }
        }
    }

    /// Counts spans that a collector refused.
    public func drop(_ count: Int) { contents.withLockedValue { $0.dropped += count } }

    /// Removes up to a number of spans, the oldest first.
    public func take(_ maximum: Int) -> [Span] {
        contents.withLockedValue { contents in
            let taken = Array(contents.spans.prefix(maximum))
            contents.spans.removeFirst(taken.count)
            return taken
        }
    }

    public var count: Int { contents.withLockedValue { $0.spans.count } }
    public var isEmpty: Bool { count == 0 }

    /// The number of spans that were never exported.
    public var dropped: Int { contents.withLockedValue { $0.dropped } }
}
