import FoundationEssentials

/// What a simulator has seen and said since it started.
public struct Account: Sendable {
    /// Requests to deliver a notification that arrived whole.
    public internal(set) var requests = 0
    /// Notifications accepted, every time anew, whether or not the client ever heard of it; broadcasts and what came
    /// through the binary gateway included.
    public internal(set) var accepted = 0
    /// Of those, broadcasts.
    public internal(set) var broadcasts = 0
    /// Accepted, but the stream or the connection ended before the 200 was on its way.
    public internal(set) var acceptedAnswerLost = 0
    /// Of those, the ones that a GOAWAY then called unprocessed: the client sends them again and cannot know better.
    public internal(set) var acceptedTakenBack = 0
    /// Answers sent, by status and reason, such as `200` and `410 Unregistered`.
    public internal(set) var answers: [String: Int] = [:]
    /// Answers to requests that manage channels, by status and reason; these are in no other count.
    public internal(set) var managementAnswers: [String: Int] = [:]
    /// Requests that a rule never answers.
    public internal(set) var silenced = 0
    /// RST_STREAM sent by a rule.
    public internal(set) var resets = 0
    /// Streams the client gave up.
    public internal(set) var resetsReceived = 0
    /// GOAWAY sent.
    public internal(set) var goAways = 0
    /// Connections that a rule dropped.
    public internal(set) var drops = 0
    /// Connections that completed TLS.
    public internal(set) var connections = 0
    /// Connections whose client spoke no HTTP/2, or wrongly.
    public internal(set) var protocolErrors = 0
    /// The most streams that were open at once on one connection.
    public internal(set) var highestConcurrentStreams = 0
    /// Bytes of HTTP/2 that arrived.
    public internal(set) var bytesReceived = 0
    /// Bytes of HTTP/2 that were sent.
    public internal(set) var bytesSent = 0
    /// Accepted more than once under the same `apns-id`, or a broadcast under the same `apns-request-id`, counting from the
    /// second time.
    public internal(set) var duplicates = 0
    /// From sending to arrival, of the requests that passed every check and say when they were sent.
    public internal(set) var latency = LatencyHistogram()

    /// What the binary gateway has seen and said; of what it accepted, ``accepted`` and the tokens' counts know too.
    public internal(set) var gateway = GatewayAccount()
    /// What the feedback service has served.
    public internal(set) var feedback = FeedbackAccount()

    /// Of what was accepted, what came through the binary gateway.
    public var acceptedByGateway: Int { gateway.accepted }

    private var byID: [NotificationID: Int] = [:]
    private var byToken: [SimulatedToken: Int] = [:]
    private var byChannel: [[UInt8]: Int] = [:]

    /// How many different `apns-id` were accepted.
    public var distinctIDs: Int { byID.count }
    /// To how many different device tokens notifications were accepted.
    public var distinctTokens: Int { byToken.count }

    /// How often a notification was accepted under an `apns-id`.
    public func accepted(id: NotificationID) -> Int { byID[id] ?? 0 }

    /// How many notifications were accepted for a device token.
    public func accepted(token: SimulatedToken) -> Int { byToken[token] ?? 0 }

    /// How many broadcasts were accepted on a channel.
    public func accepted(channel: String) -> Int { byChannel[Array(channel.utf8)] ?? 0 }

    /// Every accepted `apns-id` with how often it was accepted.
    public var acceptedIDs: some Sequence<(id: NotificationID, count: Int)> {
        byID.lazy.map { (id: $0.key, count: $0.value) }
    }

    /// Every device token with how many notifications were accepted for it.
    public var acceptedTokens: some Sequence<(token: SimulatedToken, count: Int)> {
        byToken.lazy.map { (token: $0.key, count: $0.value) }
    }

    mutating func accept(id: NotificationID, token: SimulatedToken) {
        byToken[token, default: 0] += 1
        accept(id)
    }

    mutating func accept(id: NotificationID, channel: [UInt8]) {
        byChannel[channel, default: 0] += 1
        broadcasts += 1
        accept(id)
    }

    private mutating func accept(_ id: NotificationID) {
        accepted += 1
        let count = byID[id, default: 0] + 1
        byID[id] = count
        if count > 1 { duplicates += 1 }
    }

    mutating func add(_ tally: GatewayTally) {
        accepted += tally.accepted.count
        for token in tally.accepted { byToken[token, default: 0] += 1 }
        gateway.add(tally)
    }

    mutating func add(_ tally: ConnectionTally) {
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
        for time in tally.latencies { latency.record(time) }
    }

    /// How many notifications were accepted for each device token, a line each: the token's digits, a space, the number.
    public func tokenCounts() -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(byToken.count * (SimulatedToken.minimumDigits + 4))
        for (token, count) in byToken {
            text += token.hex.utf8
            text.append(UInt8(ascii: " "))
            text += String(count).utf8
            text.append(UInt8(ascii: "\n"))
        }
        return text
    }

    /// The account as a JSON object, keys sorted.
    /// - Parameter details: whether every accepted `apns-id` and device token is listed with its count.
    public func json(details: Bool) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        return String(decoding: try encoder.encode(Page(account: self, details: details)), as: UTF8.self)
    }

    private struct Page: Encodable {
        let account: Account
        let details: Bool

        private enum Key: String, CodingKey {
            case requests, accepted, acceptedAnswerLost, acceptedTakenBack, answers, silenced, resets, resetsReceived
            case goAways, drops, connections, protocolErrors, highestConcurrentStreams, bytesReceived, bytesSent,
                duplicates
            case distinctIDs, distinctTokens, latency, acceptedByID, acceptedByToken
            case broadcasts, managementAnswers, acceptedByChannel
            case acceptedByGateway, gateway, feedback, gatewayAccepted, gatewayAcceptedByID
        }

        private enum LatencyKey: String, CodingKey {
            case count, p50Microseconds, p99Microseconds, p999Microseconds, maximumMicroseconds
        }

        func encode(to encoder: any Encoder) throws {
            var page = encoder.container(keyedBy: Key.self)
            try page.encode(account.requests, forKey: .requests)
            try page.encode(account.accepted, forKey: .accepted)
            try page.encode(account.acceptedAnswerLost, forKey: .acceptedAnswerLost)
            try page.encode(account.acceptedTakenBack, forKey: .acceptedTakenBack)
            try page.encode(account.answers, forKey: .answers)
            try page.encode(account.silenced, forKey: .silenced)
            try page.encode(account.resets, forKey: .resets)
            try page.encode(account.resetsReceived, forKey: .resetsReceived)
            try page.encode(account.goAways, forKey: .goAways)
            try page.encode(account.drops, forKey: .drops)
            try page.encode(account.connections, forKey: .connections)
            try page.encode(account.protocolErrors, forKey: .protocolErrors)
            try page.encode(account.highestConcurrentStreams, forKey: .highestConcurrentStreams)
            try page.encode(account.bytesReceived, forKey: .bytesReceived)
            try page.encode(account.bytesSent, forKey: .bytesSent)
            try page.encode(account.duplicates, forKey: .duplicates)
            try page.encode(account.distinctIDs, forKey: .distinctIDs)
            try page.encode(account.distinctTokens, forKey: .distinctTokens)
            try page.encode(account.broadcasts, forKey: .broadcasts)
            try page.encode(account.managementAnswers, forKey: .managementAnswers)
            try page.encode(account.acceptedByGateway, forKey: .acceptedByGateway)
            try page.encode(account.gateway, forKey: .gateway)
            try page.encode(account.feedback, forKey: .feedback)
            if account.latency.count > 0 {
                var latency = page.nestedContainer(keyedBy: LatencyKey.self, forKey: .latency)
                try latency.encode(account.latency.count, forKey: .count)
                try latency.encode(account.latency.quantile(0.5), forKey: .p50Microseconds)
                try latency.encode(account.latency.quantile(0.99), forKey: .p99Microseconds)
                try latency.encode(account.latency.quantile(0.999), forKey: .p999Microseconds)
                try latency.encode(account.latency.maximum, forKey: .maximumMicroseconds)
            }
            guard details else { return }
            try page.encode(account.gateway.acceptedIDs, forKey: .gatewayAcceptedByID)
            try page.encode(account.gateway.records, forKey: .gatewayAccepted)
            let ids = account.byID.map { ($0.key.text, $0.value) }
            try page.encode(Dictionary(uniqueKeysWithValues: ids), forKey: .acceptedByID)
            let tokens = account.byToken.map { ($0.key.hex, $0.value) }
            try page.encode(Dictionary(uniqueKeysWithValues: tokens), forKey: .acceptedByToken)
            let channels = account.byChannel.map { (String(decoding: $0.key, as: UTF8.self), $0.value) }
            try page.encode(Dictionary(uniqueKeysWithValues: channels), forKey: .acceptedByChannel)
        }
    }
}

/// What one connection adds to the account, gathered so that a batch of requests costs one visit to it.
struct ConnectionTally {
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
