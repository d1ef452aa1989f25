import NIOCore
import PushJob

/// The result of one notification, for producers. An entry of ``QueueKeys/results`` contains many results.
public struct NotificationResult: Sendable {
    /// The producer's id, if the job has one.
    public var id: ByteBuffer?
    /// The device token or the channel; `nil` if the job was not parsed that far.
    public var token: ByteBuffer?
    public var outcome: Outcome
    /// The reason if it was not delivered: APNs' or one of the worker's own.
    public var reason: String?
    /// APNs' status, or the gateway's.
    public var status: Int?
    /// The `apns-id` of the request.
    public var apnsID: String?
    /// The `apns-unique-id` of APNs' response.
    public var apnsUniqueID: String?
    public var app: String?
    /// The number of attempts that were made.
    public var attempt: Int
    public var trace: TraceParent?
    public var campaign: ByteBuffer?
    public var fair: ByteBuffer?
    /// The labels of its job: a valid JSON object in one line.
    public var labels: ByteBuffer?
    /// The id of the job, or the name of the campaign, that has replaced its job.
    public var replacedBy: ByteBuffer?

    public init(_ outcome: Outcome, reason: String? = nil, attempt: Int = 0) {
        self.outcome = outcome
        self.reason = reason
        self.attempt = attempt
    }
}

/// Several results as a JSON object: the members that they share, and `notifications`, an array with an object for the other members of
/// each result.
struct PackedGroup: Sendable {
    private let first: NotificationResult
    /// True if the results are of one job; otherwise they are of jobs of one campaign.
    private let isOfJob: Bool
    /// The JSON without its end.
    private var text = ByteBuffer(string: "{")

    init(_ first: NotificationResult, ofJob isOfJob: Bool) {
        (self.first, self.isOfJob) = (first, isOfJob)
        first.writeShared(to: &text, withJob: isOfJob)
        text.writeStaticString(",\"notifications\":[")
        first.writeOwn(to: &text, withJob: !isOfJob)
    }

    var outcome: Outcome { first.outcome }

    /// In bytes.
    var size: Int { text.readableBytes }

    /// Returns true if a result has the shared members.
    func accepts(_ result: NotificationResult) -> Bool {
        isOfJob ? first.isLike(result) : first.endedLike(result) && first.campaign == result.campaign
    }

    mutating func add(_ result: NotificationResult) {
        text.writeStaticString(",")
        result.writeOwn(to: &text, withJob: !isOfJob)
    }

    func write(to json: inout ByteBuffer) {
        json.writeImmutableBuffer(text)
        json.writeStaticString("]}")
    }
}

/// The results of a job, encoded for Redis: a JSON array of groups.
public struct PackedResults: Sendable {
    /// A result is compared with this number of groups. If its group is not found, it gets a new one, which only costs memory.
    private static let comparedGroups = 8

    /// The only result, which is not encoded yet.
    private(set) var only: NotificationResult?
    private var groups: [PackedGroup] = []
    public private(set) var count = 0

    public init() {}

    public var isEmpty: Bool { count == 0 }

    public mutating func append(_ result: NotificationResult) {
        count += 1
        guard count > 1 else { return only = result }
        if let first = only {
            only = nil
            groups.append(PackedGroup(first, ofJob: true))
        }
        for index in groups.indices.suffix(Self.comparedGroups).reversed() where groups[index].accepts(result) {
            return groups[index].add(result)
        }
        groups.append(PackedGroup(result, ofJob: true))
    }

    public mutating func append(_ others: PackedResults) {
        guard count > 0 else { return self = others }
        groups = allGroups + others.allGroups
        count += others.count
        only = nil
    }

    private var allGroups: [PackedGroup] { only.map { [PackedGroup($0, ofJob: true)] } ?? groups }

    /// The approximate size in memory, in bytes.
    public var size: Int { groups.reduce(only == nil ? 0 : 300) { $0 + $1.size } }

    /// The encoded results, as scripts read them; empty without results.
    public var argument: ByteBuffer {
        var argument = ByteBuffer()
        guard count > 0 else { return argument }
        let groups = allGroups
        argument.reserveCapacity(groups.reduce(2) { $0 + $1.size + 3 })
        for (index, group) in groups.enumerated() {
            argument.writeStaticString(index == 0 ? "[" : ",")
            group.write(to: &argument)
        }
        argument.writeStaticString("]")
        return argument
    }
}

extension NotificationResult {
    /// The maximum length of a token in bytes. A malformed token can be as long as its job; this part is enough to recognize it.
    private static let maximumTokenLength = 2048

    /// True if the result of another notification of the same job has the same shared members.
    fileprivate func isLike(_ other: NotificationResult) -> Bool {
        endedLike(other) && id == other.id && campaign == other.campaign && labels == other.labels
            && fair == other.fair && trace == other.trace
    }

    /// True if the result of another job of the same campaign has the same shared members.
    fileprivate func endedLike(_ other: NotificationResult) -> Bool {
        outcome == other.outcome && status == other.status && attempt == other.attempt && reason == other.reason
            && app == other.app
    }

    /// Writes the members that results share.
    /// - Parameter withJob: true if the results are of one job.
    fileprivate func writeShared(to json: inout ByteBuffer, withJob: Bool) {
        if withJob { writeJob(to: &json) }
        json.writeMember("outcome", outcome.rawValue)
        json.writeMember("reason", reason)
        json.writeMember("status", status)
        json.writeMember("app", app)
        json.writeMember("attempt", attempt)
        json.writeMember("campaign", campaign)
    }

    /// Writes a line feed, and an object with the members that the results do not share.
    /// - Parameter withJob: true if the results are of different jobs.
    fileprivate func writeOwn(to json: inout ByteBuffer, withJob: Bool) {
        json.writeStaticString("\n{")
        if withJob { writeJob(to: &json) }
        json.writeMember("token", token.map { $0.getSlice(at: $0.readerIndex, length: Self.maximumTokenLength) ?? $0 })
        json.writeMember("apns_id", apnsID)
        json.writeMember("apns_unique_id", apnsUniqueID)
        json.writeMember("replaced_by", replacedBy)
        json.writeStaticString("}")
    }

    private func writeJob(to json: inout ByteBuffer) {
        json.writeMember("id", id)
        json.writeMember("trace_id", trace?.traceID)
        json.writeMember("parent_id", trace?.parentID)
        json.writeMember("fair", fair)
        json.writeMember("labels", json: labels)
    }
}
