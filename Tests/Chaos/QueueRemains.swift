import Foundation
import NIOCore
import PushQueue
import TestSupport

/// The contents of the queues' keys at the end.
struct QueueRemains {
    struct Letter {
        /// The JSON line about a dead letter.
        struct Header: Decodable {
            let reason: String
            let tokens: [String]?
        }

        let queue: String
        let header: Header
        let original: [UInt8]
    }

    /// The campaign's counters, of all queues together.
    struct Campaign: Encodable {
        /// Notifications that were pushed, as the producer counted them.
        var total = 0
        /// Notifications that have an outcome.
        var ended = 0
        /// The time of the last settlement, in milliseconds since 1970.
        var updatedAt = 0
    }

    private static let outcomes = [
        "delivered", "invalid_token", "expired", "dropped", "suppressed", "dead", "cancelled",
    ]

    /// The counters of all days and queues.
    private(set) var counters: [String: Int] = [:]
    private(set) var letters: [Letter] = []
    private(set) var invalidTokens: [String] = []
    private(set) var invalidTokenDetails = 0
    /// Bodies of jobs that have not ended, with their places.
    private(set) var unsettled: [(body: [UInt8], place: String)] = []
    private(set) var campaign = Campaign()
    /// The numbers of the timed jobs, by the upper bound of the time from push to acceptance, in milliseconds.
    private(set) var delays: [Int: Int] = [:]
    /// Keys that should not exist.
    private(set) var keysLeft: [String] = []

    init(_ servers: any QueueServers, _ hotQueue: HotQueue) throws {
        for name in hotQueue.names {
            let queue = try servers.connect(for: HotQueue.jobsKey(name))
            for key in try Self.keys(of: name, queue) { try read(key, of: name, queue) }
        }
        let set = try servers.connect(for: "push:{shared}:invalid-tokens")
        invalidTokens = try Self.scan(set, "SSCAN", "push:{shared}:invalid-tokens").compactMap(\.text)
        invalidTokenDetails = try StoredInvalidTokens(set).detailsCount()
    }

    /// Returns the number of jobs that have not ended. It is quick, and approximate while jobs move.
    static func unsettledCount(_ servers: any QueueServers, _ hotQueue: HotQueue) throws -> Int {
        var count = 0
        for name in hotQueue.names {
            let queue = try servers.connect(for: HotQueue.jobsKey(name))
            for key in try keys(of: name, queue) {
                let command: String? =
                    switch key.dropFirst(HotQueue.base(name).count) {
                    case "jobs", "inbox": "LLEN"
                    case "retry", "failed", "sorted": "ZCARD"
                    case let rest where rest.hasPrefix("claimed:"): "HLEN"
                    default: nil
                    }
                if let command { count += try queue.run(command, key).number ?? 0 }
            }
        }
        return count
    }

    static func counters(_ servers: any QueueServers, _ hotQueue: HotQueue) throws -> [String: Int] {
        var counters: [String: Int] = [:]
        for name in hotQueue.names {
            let queue = try servers.connect(for: HotQueue.jobsKey(name))
            for key in try keys(of: name, queue) where key.hasPrefix(HotQueue.base(name) + "stats:") {
                try add(hash: queue.run("HGETALL", key), to: &counters)
            }
        }
        return counters
    }

    func count(_ counter: String) -> Int { counters[counter] ?? 0 }

    private mutating func read(_ key: String, of name: String, _ queue: RedisTestConnection) throws {
        let rest = key.dropFirst(HotQueue.base(name).count)
        switch rest {
        case "jobs", "inbox": try keep(queue.run("LRANGE", key, "0", "-1"), key)
        case "retry", "failed", "sorted": try keep(queue.run("ZRANGE", key, "0", "-1"), key)
        case "dead", "cancelled": letters += try Self.letters(of: name, queue, key)
        case _ where rest.hasPrefix("claimed:"): try keep(queue.run("HVALS", key), key)
        case _ where rest.hasPrefix("stats:"): try Self.add(hash: queue.run("HGETALL", key), to: &counters)
        case _ where key == HotQueue.timedKey(name): try readDelays(queue.run("HGET", key, "latency"))
        case _ where key == HotQueue.campaignKey(name): try readCampaign(queue.run("HGETALL", key))
        case _ where rest == Producer.batches || rest.hasPrefix("unique:") || rest.hasPrefix("next:"): return
        case "dead-bytes", "cancelled-bytes", "gauges", "results", "results-marks", "largest", "configurations",
            "source", "campaigns", "job-commands", "shares", "deliveries":
            return
        case _ where rest.hasPrefix("minute:"): return
        // A killed lane without claims keeps its long lease for a while. Its claims would be found below.
        case "workers", "worker-info": return
        default: keysLeft.append(key)
        }
    }

    private mutating func readCampaign(_ hash: RedisValue) throws {
        var counts: [String: Int] = [:]
        try Self.add(hash: hash, to: &counts)
        campaign.total += counts["total"] ?? 0
        campaign.ended += Self.outcomes.reduce(0) { $0 + (counts[$1] ?? 0) }
        campaign.updatedAt = max(campaign.updatedAt, counts["updated_at"] ?? 0)
    }

    private mutating func readDelays(_ value: RedisValue) throws {
        guard let text = value.text else { return }
        for (bound, count) in try JSONDecoder().decode([String: Int].self, from: Data(text.utf8)) {
            delays[Int(bound) ?? 0, default: 0] += count
        }
    }

    private mutating func keep(_ value: RedisValue, _ key: String) throws {
        unsettled += (value.elements ?? []).map { ($0.rawBytes, key) }
        keysLeft.append(key)
    }

    private static func letters(of name: String, _ queue: RedisTestConnection, _ key: String) throws -> [Letter] {
        var letters: [Letter] = []
        // A hundred at a time: an answer must not take longer than the connection's timeout.
        while true {
            let start = letters.count
            let answer = try queue.run("ZRANGE", key, "\(start)", "\(start + 99)")
            guard let members = answer.elements, !members.isEmpty else { return letters }
            for member in members {
                guard let letter = DeadLetter(member: ByteBuffer(bytes: member.rawBytes)) else {
                    throw ChildProcess.Failure(description: "a dead letter has no header: \(member)")
                }
                let header = try JSONDecoder().decode(Letter.Header.self, from: Data(letter.header.readableBytesView))
                letters.append(
                    Letter(queue: name, header: header, original: Array(letter.original.readableBytesView)))
            }
        }
    }

    private static func keys(of name: String, _ queue: RedisTestConnection) throws -> [String] {
        // In a Cluster a node that has just given a slot away may still list its keys.
        try queue.run("KEYS", "push:[{]\(name)[}]:*").elements?.compactMap(\.text) ?? []
    }

    private static func scan(_ connection: RedisTestConnection, _ command: String, _ key: String) throws -> [RedisValue]
    {
        var found: [RedisValue] = []
        var cursor = "0"
        repeat {
            guard let answer = try connection.run(command, key, cursor, "COUNT", "1000").elements, answer.count == 2
            else { throw ChildProcess.Failure(description: "\(command) gave no answer") }
            cursor = answer[0].text ?? "0"
            found += answer[1].elements ?? []
        } while cursor != "0"
        return found
    }

    private static func add(hash: RedisValue, to counters: inout [String: Int]) throws {
        let fields = hash.elements ?? []
        for index in stride(from: 0, to: fields.count, by: 2) {
            // The times to delivery are a histogram, not a counter.
            if fields[index].text == "latency" { continue }
            guard let name = fields[index].text, let count = fields[index + 1].number else {
                throw ChildProcess.Failure(description: "a counter is no number: \(fields[index])")
            }
            counters[name, default: 0] += count
        }
    }
}

extension RedisValue {
    /// The bytes of a string, UTF-8 or not.
    fileprivate var rawBytes: [UInt8] {
        if case .bytes(let bytes) = self { return bytes }
        return Array((text ?? "").utf8)
    }
}
