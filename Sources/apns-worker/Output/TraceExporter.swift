import FoundationEssentials
import Logging
import NIOCore
import NIOHTTP1
import PrintableText
import PushWorker
import ServiceLifecycle
import Sockets
import TLS
import Telemetry

/// Sends spans to an OpenTelemetry collector, apart from the lanes: OTLP/HTTP with JSON.
///
/// Source: OpenTelemetry, "OTLP Specification 1.x", OTLP/HTTP.
struct TraceExporter: Service {
    /// The maximum number of spans in a request.
    private static let batch = 512
    private static let interval = Duration.seconds(1)
    private static let backoff = Backoff(first: .seconds(1), longest: .seconds(32), least: 0.5)
    static let timeout = TimeAmount.seconds(10)

    let post: HTTPPost
    /// Additional headers, such as credentials for the collector.
    let headers: Renewable<HTTPHeaders>?
    /// The name of this process among all workers.
    let worker: String
    let spans: SpanQueue
    let logger: Logger

    private enum Reception {
        case accepted
        /// A number of spans was refused; the others were accepted.
        case partly(refused: Int, String)
        /// The same spans may be accepted later.
        case unavailable(String, seconds: Int?)
        case refused(String)
    }

    /// Exports spans until the worker has ended, and then the remaining spans.
    func run() async throws {
        await cancelWhenGracefulShutdown {
            var waiting: [Span] = []
            var failures = 0
            while !Task.isCancelled {
                var pause = Self.interval
                if waiting.isEmpty { waiting = spans.take(Self.batch) }
                if !waiting.isEmpty {
                    let reception = await send(waiting)
                    note(reception, of: waiting.count, hasFailed: failures > 0)
                    if case .unavailable(_, let seconds) = reception {
                        failures += 1
                        let (requested, random) = (TimeAmount.seconds(Int64(seconds ?? 0)), Double.random(in: 0...1))
                        pause = .nanoseconds(
                            Self.backoff.pause(failures: failures, requested: requested, random: random).nanoseconds)
                    } else {
                        waiting = []
                        failures = 0
                        if !spans.isEmpty { pause = .zero }
                    }
                }
                do { try await Task.sleep(for: pause) } catch { break }
            }
            // One attempt for each batch, because an unreachable collector must not delay the end.
            while true {
                if waiting.isEmpty { waiting = spans.take(Self.batch) }
                guard !waiting.isEmpty else { break }
                let reception = await send(waiting)
                note(reception, of: waiting.count, hasFailed: failures > 0)
                if case .unavailable = reception { break }
                waiting = []
            }
        }
    }

    private func note(_ reception: Reception, of count: Int, hasFailed: Bool) {
        switch reception {
        case .accepted:
            guard hasFailed else { return }
            logger.notice("spans are exported again", metadata: ["event": "traces_exported", "endpoint": "\(post)"])
        case .partly(let refused, let reason):
            spans.drop(refused)
            warn("the collector refused \(refused) of \(count) spans", reason)
        case .refused(let reason):
            spans.drop(count)
            warn("the collector refused \(count) spans", reason)
        case .unavailable(let reason, _):
            guard !hasFailed else { return }
            warn("spans wait, because the collector does not accept them", reason)
        }
    }

    private func warn(_ message: Logger.Message, _ reason: String) {
        logger.warning(
            message, metadata: ["event": "traces_not_exported", "endpoint": "\(post)", "reason": "\(reason)"])
    }

    private func send(_ batch: [Span]) async -> Reception {
        do {
            let body = try TraceExport(batch, worker: worker).json()
            return Self.reception(try await post.send(body, headers: headers?.current ?? [:]))
        } catch let failure as HTTPExchange.Failure {
            if case .broken = failure { return .refused("\(failure)") }
            return .unavailable("\(failure)", seconds: nil)
        } catch {
            return .refused("\(error)")
        }
    }

    private static func reception(_ answer: HTTPExchange.Answer) -> Reception {
        switch answer.status {
        case 200..<300:
            // An answer that is not JSON, or that reports no refused spans, is a success.
            guard let partial = TraceExport.refusal(in: answer.body) else { return .accepted }
            return .partly(refused: partial.count, partial.reason)
        // The only statuses after which the specification lets a sender repeat a request.
        case 429, 502, 503, 504:
            return .unavailable(
                "it answered \(answer.status)", seconds: answer.retryAfter.map { Int(min($0, 300)) })
        default: return .refused("it answered \(answer.status)")
        }
    }
}

/// The body of an export request: spans as OTLP's JSON.
struct TraceExport {
    private struct Request: Encodable { var resourceSpans: [ResourceSpans] }
    private struct ResourceSpans: Encodable {
        var resource: Resource
        var scopeSpans: [ScopeSpans]
    }
    private struct Resource: Encodable { var attributes: [Attribute] }
    private struct ScopeSpans: Encodable {
        var scope: Scope
        var spans: [Item]
    }
    private struct Scope: Encodable { var name, version: String }
    private struct Item: Encodable {
        var traceId, spanId, parentSpanId, name: String
        var kind: Int
        /// Numbers of 64 bits are texts in OTLP's JSON.
        var startTimeUnixNano, endTimeUnixNano: String
        var attributes: [Attribute]
        var links: [Link]
        var status: Status?
    }
    private struct Link: Encodable { var traceId, spanId: String }
    private struct Status: Encodable {
        var code: Int
        var message: String
    }
    private struct Attribute: Encodable {
        struct Value: Encodable { var stringValue, intValue: String? }
        var key: String
        var value: Value

        init(_ key: String, _ value: Span.Value) {
            self.key = key
            switch value {
            case .text(let text): self.value = Value(stringValue: text, intValue: nil)
            case .number(let number): self.value = Value(stringValue: nil, intValue: "\(number)")
            }
        }
    }

    private let request: Request

    init(_ spans: [Span], worker: String) {
        let resource = Resource(attributes: [
            Attribute("service.name", .text("apns-worker")),
            Attribute("service.version", .text(WorkerVersion.current)),
            Attribute("service.instance.id", .text(worker)),
        ])
        let scope = Scope(name: "apns-worker", version: WorkerVersion.current)
        request = Request(resourceSpans: [
            ResourceSpans(
                resource: resource, scopeSpans: [ScopeSpans(scope: scope, spans: spans.map { Self.item($0) })])
        ])
    }

    private static func item(_ span: Span) -> Item {
        Item(
            traceId: span.context.traceID, spanId: span.context.spanID, parentSpanId: span.parentID, name: span.name,
            // SPAN_KIND_CLIENT and SPAN_KIND_CONSUMER.
            kind: span.kind == .client ? 3 : 5, startTimeUnixNano: "\(span.start)", endTimeUnixNano: "\(span.end)",
            attributes: span.attributes.sorted { $0.key < $1.key }.map { Attribute($0.key, $0.value) },
            links: [Link(traceId: span.producer.traceID, spanId: span.producer.spanID)],
            // 2 is STATUS_CODE_ERROR. The status of a success stays unset.
            status: span.failure.map { Status(code: 2, message: $0) })
    }

    func json() throws -> ByteBuffer { ByteBuffer(bytes: try JSONEncoder().encode(request)) }

    /// Returns the number of spans that a collector refused according to its answer, and the reason; `nil` if it accepted all spans.
    static func refusal(in body: ByteBuffer) -> (count: Int, reason: String)? {
        struct Answer: Decodable {
            struct Partial: Decodable {
                var rejectedSpans: Count?
                var errorMessage: String?
            }
            /// A text, or a number, as in JSON of protocol buffers.
            struct Count: Decodable {
                var number: Int

                init(from decoder: any Decoder) throws {
                    let value = try decoder.singleValueContainer()
                    do {
                        number = try value.decode(Int.self)
                    } catch {
                        number = Int(try value.decode(String.self)) ?? 0
                    }
                }
            }
            var partialSuccess: Partial?
        }
        do {
            let answer = try JSONDecoder().decode(Answer.self, from: Data(body.readableBytesView))
            guard let count = answer.partialSuccess?.rejectedSpans?.number, count > 0 else { return nil }
            return (count, answer.partialSuccess?.errorMessage ?? "no reason")
        } catch {
            // A collector's answer can be empty.
            return nil
        }
    }
}

extension HTTPHeaders {
    /// Reads headers from lines such as `Name: value`; empty ones and those that begin with # are ignored.
    /// - Throws: ``Mistake``. Its text never includes a value.
    init(lines bytes: [UInt8]) throws(Mistake) {
        self.init()
        for (index, line) in bytes.split(separator: 0x0A, omittingEmptySubsequences: false).enumerated() {
            let text = String(decoding: line, as: UTF8.self).trimmed
            guard !text.isEmpty, !text.hasPrefix("#") else { continue }
            let name = text.prefix { $0 != ":" }
            let value = text.dropFirst(name.count + 1).trimmed
            let isToken = name.utf8.allSatisfy { byte in
                byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == 0x2D || byte == 0x5F
            }
            guard isToken, !name.isEmpty, !value.isEmpty, value.allSatisfy({ $0.isASCII && !$0.isNewline }) else {
                throw Mistake("line \(index + 1) is not a header such as “Authorization: Bearer …”")
            }
            replaceOrAdd(name: String(name), value: value)
        }
    }
}
