import APNS

/// The counters of one of the simulator's protocols. Each connection has its own counters, and adds them to the account once per batch of
/// notifications, so that a batch takes the lock once.
package protocol TrafficCounters: Encodable, Sendable {
    init()
    mutating func add(_ other: Self)
}

/// The traffic of one of a simulator's protocols since it started: its counters, and how often each id was accepted.
@dynamicMemberLookup
package struct TrafficLedger<Counters: TrafficCounters, ID: Hashable & Sendable>: Encodable, Sendable {
    var counters = Counters()
    /// The number of acceptances by id.
    package private(set) var ids: RecentCounts<ID>
    /// The number of acceptances of an id that had been accepted before.
    package private(set) var duplicates = 0

    /// - Parameter limit: at least this many ids are remembered; nil for all.
    package init(limit: Int?) { ids = RecentCounts(limit: limit) }

    package subscript<Value>(dynamicMember member: KeyPath<Counters, Value>) -> Value { counters[keyPath: member] }

    package var distinctIDs: Int { ids.distinct }

    mutating func accept(_ id: ID) {
        if ids.add(id) > 1 { duplicates += 1 }
    }

    private enum Key: String, CodingKey {
        case duplicates
        case distinctIDs = "distinct_ids"
        case forgottenIDs = "forgotten_ids"
    }

    /// Encodes everything except the ids.
    package func encode(to encoder: any Encoder) throws {
        try counters.encode(to: encoder)
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(duplicates, forKey: .duplicates)
        try container.encode(distinctIDs, forKey: .distinctIDs)
        try container.encode(ids.forgotten, forKey: .forgottenIDs)
    }
}

/// The traffic of the HTTP/2 interface. An id is an `apns-id`, or an `apns-request-id`.
package typealias PushLedger = TrafficLedger<PushCounters, APNSID>

package struct PushCounters: TrafficCounters {
    /// Complete requests to deliver a notification.
    package internal(set) var requests = 0
    /// Accepted notifications whose stream or connection ended before the 200 was sent.
    package internal(set) var acceptedAnswerLost = 0
    /// The part of ``acceptedAnswerLost`` that a GOAWAY then reported as unprocessed, so that the client rightly resends these
    /// notifications.
    package internal(set) var acceptedTakenBack = 0
    /// Answers sent, by status and reason, such as `200` and `410 Unregistered`.
    package internal(set) var answers: [String: Int] = [:]
    /// Answers to requests that manage channels, by status and reason. No other counter includes these requests.
    package internal(set) var managementAnswers: [String: Int] = [:]
    /// Requests left unanswered by a rule.
    package internal(set) var silenced = 0
    /// RST_STREAM sent by a rule.
    package internal(set) var resets = 0
    /// RST_STREAM received: streams that the client cancelled.
    package internal(set) var resetsReceived = 0
    package internal(set) var goAways = 0
    /// Connections dropped by a rule.
    package internal(set) var drops = 0
    /// Connections that completed TLS.
    package internal(set) var connections = 0
    /// Connections whose client did not speak HTTP/2, or violated it.
    package internal(set) var protocolErrors = 0
    /// The maximum number of streams open at once on one connection.
    package internal(set) var highestConcurrentStreams = 0
    package internal(set) var bytesReceived = 0
    package internal(set) var bytesSent = 0

    package init() {}

    package mutating func add(_ other: PushCounters) {
        requests += other.requests
        answers.merge(other.answers, uniquingKeysWith: +)
        managementAnswers.merge(other.managementAnswers, uniquingKeysWith: +)
        acceptedAnswerLost += other.acceptedAnswerLost
        acceptedTakenBack += other.acceptedTakenBack
        silenced += other.silenced
        resets += other.resets
        resetsReceived += other.resetsReceived
        goAways += other.goAways
        drops += other.drops
        connections += other.connections
        protocolErrors += other.protocolErrors
        highestConcurrentStreams = max(highestConcurrentStreams, other.highestConcurrentStreams)
        bytesReceived += other.bytesReceived
        bytesSent += other.bytesSent
    }
}

/// The traffic of the binary gateway. An id is the value of the payload member that identifies a notification.
package typealias GatewayLedger = TrafficLedger<GatewayCounters, [UInt8]>

package struct GatewayCounters: TrafficCounters {
    /// Complete notifications by command.
    package internal(set) var frames: [Int: Int] = [:]
    /// Accepted notifications, including repeated ones.
    package internal(set) var accepted = 0
    /// Complete notifications that were discarded, because they arrived after a notification that ended the connection.
    package internal(set) var dropped = 0
    /// Discarded bytes after an error that hides where the next notification begins.
    package internal(set) var droppedBytes = 0
    /// Refused notifications by status, such as `8 InvalidToken`, even if no error packet was sent.
    package internal(set) var refused: [String: Int] = [:]
    /// Error packets by status, including partly sent packets.
    package internal(set) var packets: [String: Int] = [:]
    /// Connections whose client certificate was accepted.
    package internal(set) var connections = 0
    /// Connections that ended or failed in the handshake, because the client's certificate was missing or not accepted.
    package internal(set) var refusedClients = 0
    /// Connections that the gateway closed, with or without an error packet.
    package internal(set) var closes = 0
    package internal(set) var resets = 0
    /// Connections on which a rule stopped reading.
    package internal(set) var hangs = 0
    /// Bytes received, without TLS.
    package internal(set) var bytesReceived = 0

    package init() {}

    package mutating func add(_ other: GatewayCounters) {
        frames.merge(other.frames, uniquingKeysWith: +)
        accepted += other.accepted
        dropped += other.dropped
        droppedBytes += other.droppedBytes
        refused.merge(other.refused, uniquingKeysWith: +)
        packets.merge(other.packets, uniquingKeysWith: +)
        connections += other.connections
        refusedClients += other.refusedClients
        closes += other.closes
        resets += other.resets
        hangs += other.hangs
        bytesReceived += other.bytesReceived
    }
}

extension GatewayLedger {
    /// The number of acceptances by id.
    package var acceptedIDs: [String: Int] {
        var counts: [String: Int] = [:]
        // Different ids that are not UTF-8 can become the same string.
        for (id, count) in ids.all { counts[String(decoding: id, as: UTF8.self), default: 0] += count }
        return counts
    }
}

/// The counts of a simulator's feedback service since it started.
package struct FeedbackAccount: Encodable, Sendable {
    /// Connections whose client certificate was accepted.
    package internal(set) var connections = 0
    /// Connections that ended or failed in the handshake, because the client's certificate was missing or not accepted.
    package internal(set) var refusedClients = 0
    /// Records that were sent completely or in part. They are no longer kept.
    package internal(set) var served = 0
    package internal(set) var waiting = 0
    /// Records that were dropped before they were served, because a million newer records arrived.
    package internal(set) var forgotten = 0
}
