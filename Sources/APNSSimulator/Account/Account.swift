import APNS
import FoundationEssentials

/// The counts of a simulator's traffic since it started.
@dynamicMemberLookup
package struct Account: Sendable {
    /// The number of accepted notifications, including repeated ones, broadcasts, and notifications at the binary gateway. A notification
    /// counts even if its answer did not reach the client.
    package internal(set) var accepted = 0
    /// The broadcasts among ``accepted``.
    package internal(set) var broadcasts = 0
    /// The times from sending to arrival of the accepted requests whose payload contains the time of sending.
    package internal(set) var latency = LatencyHistogram()

    package internal(set) var http2: PushLedger
    /// The traffic of the binary gateway. ``accepted`` and the counts of tokens include the notifications that it accepted.
    package internal(set) var gateway: GatewayLedger
    package internal(set) var feedback = FeedbackAccount()

    private var byToken: RecentCounts<SimulatedToken>
    private var byChannel: RecentCounts<[UInt8]>

    /// - Parameter limit: at least this many ids, tokens and channels keep their own counts; nil to keep all.
    init(limit: Int?) {
        http2 = PushLedger(limit: limit)
        gateway = GatewayLedger(limit: limit)
        byToken = RecentCounts(limit: limit)
        byChannel = RecentCounts(limit: limit)
    }

    package subscript<Value>(dynamicMember member: KeyPath<PushLedger, Value>) -> Value { http2[keyPath: member] }

    package var distinctTokens: Int { byToken.distinct }

    package func accepted(id: APNSID) -> Int { http2.ids[id] }

    package func accepted(token: SimulatedToken) -> Int { byToken[token] }

    package func accepted(channel: String) -> Int { byChannel[Array(channel.utf8)] }

    /// Counts an accepted notification. Ignores the management of channels.
    mutating func accept(_ id: APNSID, for target: EventTarget) {
        switch target {
        case .device(let token): _ = byToken.add(token)
        case .channel(let channel):
            _ = byChannel.add(channel)
            broadcasts += 1
        case .app, .connection: return
        }
        accepted += 1
        http2.accept(id)
    }

    /// Adds the traffic of a connection to the gateway.
    /// - Parameter ids: the ids of the accepted notifications. A notification can lack an id.
    mutating func add(_ counters: GatewayCounters, tokens: [SimulatedToken], ids: [[UInt8]]) {
        accepted += tokens.count
        for token in tokens { _ = byToken.add(token) }
        for id in ids { gateway.accept(id) }
        gateway.counters.add(counters)
    }

    /// Adds the traffic of a connection over HTTP/2.
    /// - Parameter latencies: in microseconds.
    mutating func add(_ counters: PushCounters, latencies: [Int64]) {
        http2.counters.add(counters)
        for time in latencies { latency.record(time) }
    }

    /// Returns the number of accepted notifications per device token, one per line: the token's hex digits, a space,
    /// the number.
    package func tokenCounts() -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(byToken.count * (SimulatedToken.minimumDigits + 4))
        for (token, count) in byToken.all {
            text += token.hex.utf8
            text.append(UInt8(ascii: " "))
            text += String(count).utf8
            text.append(UInt8(ascii: "\n"))
        }
        return text
    }

    /// Returns the account as a JSON object with sorted keys.
    /// - Parameter details: true to list every accepted `apns-id` and device token with its count, after all other keys
    ///   and in any order.
    package func json(details: Bool) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        var json = String(decoding: try encoder.encode(Page(account: self, details: details)), as: UTF8.self)
        guard details else { return json }
        json.removeLast("\n}".count)
        Self.append("accepted_by_id", http2.ids.all.lazy.map { ($0.key.description.uppercased(), $0.value) }, to: &json)
        Self.append("accepted_by_token", byToken.all.lazy.map { ($0.key.hex, $0.value) }, to: &json)
        json += "\n}"
        return json
    }

    /// Appends an object of counts as the next member of an unfinished JSON object. `JSONEncoder` would take many times longer for millions
    /// of counts.
    private static func append(
        _ name: String, _ counts: some Sequence<(key: String, count: Int)>, to json: inout String
    ) {
        json += ",\n  \"\(name)\" : {"
        var separator = ""
        for (key, count) in counts {
            json += "\(separator)\n    \"\(key)\" : \(count)"
            separator = ","
        }
        json += "\n  }"
    }

    private struct Page: Encodable {
        let account: Account
        let details: Bool

        private enum Key: CodingKey {
            case accepted, broadcasts, distinctTokens, forgottenTokens, acceptedByGateway, gateway, feedback, latency
            case acceptedByChannel, gatewayAcceptedByID
        }

        func encode(to encoder: any Encoder) throws {
            try account.http2.encode(to: encoder)
            var page = encoder.container(keyedBy: Key.self)
            try page.encode(account.accepted, forKey: .accepted)
            try page.encode(account.broadcasts, forKey: .broadcasts)
            try page.encode(account.distinctTokens, forKey: .distinctTokens)
            try page.encode(account.byToken.forgotten, forKey: .forgottenTokens)
            try page.encode(account.gateway.accepted, forKey: .acceptedByGateway)
            try page.encode(account.gateway, forKey: .gateway)
            try page.encode(account.feedback, forKey: .feedback)
            if account.latency.count > 0 { try page.encode(account.latency, forKey: .latency) }
            guard details else { return }
            try page.encode(account.gateway.acceptedIDs, forKey: .gatewayAcceptedByID)
            let channels = account.byChannel.all.map { (String(decoding: $0.key, as: UTF8.self), $0.value) }
            try page.encode(Dictionary(uniqueKeysWithValues: channels), forKey: .acceptedByChannel)
        }
    }
}
