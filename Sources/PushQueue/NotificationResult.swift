import NIOCore
import PushJob

/// The result of one notification, for producers: an entry of ``QueueKeys/results``.
public struct NotificationResult: Sendable {
    /// The producer's id, if the job has one.
    public var id: ByteBuffer?
    /// The device token or the channel; `nil` if the job was not parsed that far.
    public var token: ByteBuffer?
    /// How it ended.
    public var outcome: Outcome
    /// The reason if it was not delivered: APNs' or one of the worker's own.
    public var reason: String?
    /// APNs' status, or the gateway's.
    public var status: Int?
    /// The `apns-id` of the request.
    public var apnsID: String?
    /// The `apns-unique-id` of APNs' response.
    public var apnsUniqueID: String?
    /// The name of the app that sent it.
    public var app: String?
    /// The number of attempts that were made.
    public var attempt: Int
    /// The trace of its job.
    public var trace: TraceParent?
    /// The campaign of its job.
    public var campaign: ByteBuffer?
    /// The labels of its job: a JSON object.
    public var labels: ByteBuffer?

    /// Makes a result whose other members are not known yet.
    public init(_ outcome: Outcome, reason: String? = nil, attempt: Int = 0) {
        self.outcome = outcome
        self.reason = reason
        self.attempt = attempt
    }
}

/// The results that a queue keeps.
public enum ResultsKept: String, CaseIterable, Sendable {
    /// All results.
    case all
    /// The results of notifications that were not delivered.
    case failures
    /// None.
    case off

    /// Returns true if the results of notifications that ended in this way are kept.
    public func includes(_ outcome: Outcome) -> Bool {
        switch self {
        case .all: true
        case .failures: outcome != .delivered
        case .off: false
        }
    }
}

/// Results encoded for Redis as MessagePack: one array per result, with its values in the order of the stream's fields.
/// Redis' Lua can decode MessagePack, and it holds any bytes.
public struct PackedResults: Sendable {
    private var values = ByteBuffer()
    /// The number of results.
    public private(set) var count = 0

    /// Makes an empty batch.
    public init() {}

    /// True if there are no results.
    public var isEmpty: Bool { count == 0 }

    /// In bytes. A malformed token can be as long as its job; this much of it is enough to recognize it.
    private static let maximumTokenLength = 2048

    /// Adds a result.
    public mutating func append(_ result: NotificationResult) {
        count += 1
        values.writeInteger(UInt8(0x9D))
        write(result.id)
        write(result.token.map { $0.getSlice(at: $0.readerIndex, length: Self.maximumTokenLength) ?? $0 })
        write(result.outcome.rawValue)
        write(result.reason)
        write(result.status.map { String($0) })
        write(result.apnsID)
        write(result.app)
        write(String(result.attempt))
        write(result.trace?.traceID)
        write(result.trace?.parentID)
        write(result.apnsUniqueID)
        write(result.campaign)
        write(result.labels)
    }

    /// Adds other results.
    mutating func append(_ other: PackedResults) {
        count += other.count
        values.writeImmutableBuffer(other.values)
    }

    /// The size in memory, in bytes.
    var size: Int { values.readableBytes }

    /// The encoded results, as scripts read them.
    package var argument: ByteBuffer {
        var argument = ByteBuffer()
        argument.reserveCapacity(values.readableBytes + 5)
        argument.writeInteger(UInt8(0xDD))
        argument.writeInteger(UInt32(count))
        argument.writeImmutableBuffer(values)
        return argument
    }

    private mutating func write(_ text: String?) {
        let text = text ?? ""
        writeLength(text.utf8.count)
        values.writeString(text)
    }

    private mutating func write(_ text: ByteBuffer?) {
        writeLength(text?.readableBytes ?? 0)
        if let text { values.writeImmutableBuffer(text) }
    }

    private mutating func writeLength(_ length: Int) {
        switch length {
        case ..<32: values.writeInteger(0xA0 | UInt8(length))
        case ..<65536:
            values.writeInteger(UInt8(0xDA))
            values.writeInteger(UInt16(length))
        default:
            values.writeInteger(UInt8(0xDB))
            values.writeInteger(UInt32(length))
        }
    }
}
