import FoundationEssentials
import NIOCore
import PushJob
import Redis

/// The location and format of a queue's jobs, and the limits of its dead letters and results.
///
/// Workers write it to ``QueueKeys/source`` when they join the queue, and it stays when they leave. So commands and the
/// dashboard work on the same jobs as the workers without being configured like them.
public struct QueueSource: Sendable {
    /// The names of the queue's keys, with the list of jobs and its head.
    public var keys: QueueKeys
    /// The format of its jobs. Sidekiq's format includes all classes here.
    public var format: JobFormat
    /// The limits of its dead letters and results.
    public var limits: QueueLimits
    /// The results that are kept; `nil` if no worker has written this.
    public private(set) var resultsKept: ResultsKept?

    public init(keys: QueueKeys, format: JobFormat = .native, limits: QueueLimits = QueueLimits()) {
        (self.keys, self.format, self.limits) = (keys, format, limits)
    }

    private struct Form: Codable {
        var list, head, format, results: String
        var max_dead_letters, max_dead_letter_age_ms, max_dead_letter_bytes, max_results: Int
    }

    private static let formats: [(name: String, format: JobFormat)] = [
        ("native", .native), ("sidekiq", .sidekiq(classes: [])),
    ]

    private var formatName: String { Self.formats.first { $0.format == format.withoutClasses }?.name ?? "" }

    /// The value of the key.
    var json: ByteBuffer {
        var json = ByteBuffer(string: "{")
        json.writeMember("list", keys.jobs)
        json.writeMember("head", keys.head.rawValue)
        json.writeMember("format", formatName)
        json.writeMember("max_dead_letters", limits.maximumDeadLetters)
        json.writeMember("max_dead_letter_age_ms", limits.maximumDeadLetterAge)
        json.writeMember("max_dead_letter_bytes", limits.maximumDeadLetterBytes)
        json.writeMember("results", limits.results.rawValue)
        json.writeMember("max_results", limits.resultsLimit)
        json.writeString("}")
        return json
    }

    /// Reads the source that the workers of a queue have written.
    /// - Parameter keys: the keys of the queue; the name of its list is ignored.
    /// - Returns: `nil` if no worker has written it yet, or this version can't read it.
    /// - Throws: `RedisError`.
    public static func read(_ client: RedisClient, _ keys: QueueKeys, prefix: String) async throws -> QueueSource? {
        guard let json = try await client.call(RedisCommand("GET", keys.source)).root.bytes,
            let form = try? JSONDecoder().decode(Form.self, from: Data(json.readableBytesView)),
            let head = QueueKeys.Head(rawValue: form.head),
            let format = formats.first(where: { $0.name == form.format })?.format,
            let results = ResultsKept(rawValue: form.results),
            let found = try? QueueKeys(prefix: prefix, queue: keys.queue, list: form.list, head: head)
        else { return nil }
        var source = QueueSource(keys: found, format: format)
        source.limits.maximumDeadLetters = form.max_dead_letters
        source.limits.maximumDeadLetterAge = form.max_dead_letter_age_ms
        source.limits.maximumDeadLetterBytes = form.max_dead_letter_bytes
        (source.limits.results, source.limits.maximumResults) = (results, form.max_results)
        source.resultsKept = results
        return source
    }

    /// True if both sources describe the same jobs.
    public func agrees(with other: QueueSource) -> Bool {
        keys.jobs == other.keys.jobs && keys.head == other.keys.head
            && format.withoutClasses == other.format.withoutClasses
    }

    /// The jobs in words, such as `sidekiq jobs from the right end of queue:default`.
    public var words: String {
        "\(formatName) jobs from the \(keys.head == .left ? "left" : "right") end of \(keys.jobs)"
    }
}
