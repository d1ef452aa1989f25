/// The counters of one of the simulator's protocols.
package protocol LedgerCounters: Encodable, Sendable {
    /// One connection's additions.
    associatedtype Tally

    init()
    mutating func add(_ tally: Tally)
}

/// The counts of one of a simulator's protocols since it started: its counters, and how often each id was accepted.
@dynamicMemberLookup
package struct Ledger<Counters: LedgerCounters, ID: Hashable & Sendable>: Encodable, Sendable {
    private(set) var counters = Counters()
    /// The accepted ids and how often each was accepted.
    package private(set) var ids: RecentCounts<ID>
    /// Acceptances under an id that had been accepted before.
    package private(set) var duplicates = 0

    /// - Parameter limit: the least number of ids that are remembered; nil for all.
    package init(limit: Int?) { ids = RecentCounts(limit: limit) }

    package subscript<Value>(dynamicMember member: KeyPath<Counters, Value>) -> Value { counters[keyPath: member] }

    /// The number of different accepted ids.
    package var distinctIDs: Int { ids.distinct }

    /// Returns how often something was accepted under an id.
    package func acceptances(of id: ID) -> Int { ids[id] }

    mutating func accept(_ id: ID) {
        if ids.add(id) > 1 { duplicates += 1 }
    }

    mutating func add(_ tally: Counters.Tally) { counters.add(tally) }

    mutating func count(_ change: (inout Counters) -> Void) { change(&counters) }

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

/// The account of a simulator's HTTP/2 interface. An id is an `apns-id`, or an `apns-request-id`.
package typealias PushLedger = Ledger<PushCounters, NotificationID>

/// The counters of the HTTP/2 interface.
package struct PushCounters: LedgerCounters {
    /// Requests to deliver a notification that arrived completely.
    package internal(set) var requests = 0
    /// Accepted notifications whose stream or connection ended before the 200 was sent.
    package internal(set) var acceptedAnswerLost = 0
    /// Those of ``acceptedAnswerLost`` that a GOAWAY then reported as unprocessed, so that the client rightly sends
    /// them again.
    package internal(set) var acceptedTakenBack = 0
    /// Answers sent, by status and reason, such as `200` and `410 Unregistered`.
    package internal(set) var answers: [String: Int] = [:]
    /// Answers to requests that manage channels, by status and reason; no other counter includes them.
    package internal(set) var managementAnswers: [String: Int] = [:]
    /// Requests left unanswered by a rule.
    package internal(set) var silenced = 0
    /// RST_STREAM sent by a rule.
    package internal(set) var resets = 0
    /// RST_STREAM received: streams that the client cancelled.
    package internal(set) var resetsReceived = 0
    /// GOAWAY sent.
    package internal(set) var goAways = 0
    /// Connections dropped by a rule.
    package internal(set) var drops = 0
    /// Connections that completed TLS.
    package internal(set) var connections = 0
    /// Connections whose client did not speak HTTP/2, or violated the protocol.
    package internal(set) var protocolErrors = 0
    /// The maximum number of streams open at once on one connection.
    package internal(set) var highestConcurrentStreams = 0
    /// Bytes of HTTP/2 received.
    package internal(set) var bytesReceived = 0
    /// Bytes of HTTP/2 sent.
    package internal(set) var bytesSent = 0

    package init() {}

    package mutating func add(_ tally: ConnectionTally) {
        requests += tally.requests
        if tally.successes > 0 { answers["200", default: 0] += tally.successes }
        for (answer, count) in tally.otherAnswers { answers[answer, default: 0] += count }
        for (answer, count) in tally.managementAnswers { managementAnswers[answer, default: 0] += count }
        acceptedAnswerLost += tally.acceptedAnswerLost
        acceptedTakenBack += tally.acceptedTakenBack
        silenced += tally.silenced
        resets += tally.resets
        resetsReceived += tally.resetsReceived
        goAways += tally.goAways
        drops += tally.drops
        protocolErrors += tally.protocolErrors
        bytesReceived += tally.bytesReceived
        bytesSent += tally.bytesSent
        highestConcurrentStreams = max(highestConcurrentStreams, tally.highestConcurrentStreams)
    }
}

/// One connection's additions to the account, collected so that a batch of requests takes the lock once.
package struct ConnectionTally {
    var requests = 0
    var successes = 0
    var otherAnswers: [String: Int] = [:]
    var managementAnswers: [String: Int] = [:]
    var acceptedAnswerLost = 0
    var acceptedTakenBack = 0
    var silenced = 0
    var resets = 0
    var resetsReceived = 0
    var goAways = 0
    var drops = 0
    var protocolErrors = 0
    var highestConcurrentStreams = 0
    var bytesReceived = 0
    var bytesSent = 0
    /// In microseconds.
    var latencies: [Int64] = []
}
