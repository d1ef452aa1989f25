import Foundation
import NIOCore
import PushQueue
import TestSupport
import Testing

/// The contents of a queue in Redis, read without the worker's code.
struct QueueContents {
    struct Letter {
        let original: [UInt8]
        let reason: String
        let attempts: Int
        let detail: String?
        let tokens: [String]
    }

    /// The waiting jobs in order: the inbox, the sorted jobs without their wrappers, and the list.
    let jobs: [[UInt8]]
    /// The deferred jobs with the worker's wrappers, and when they are due, in milliseconds since 1970.
    let retries: [(body: [UInt8], due: Double)]
    let workers: [String]
    /// The number of claims of all lanes.
    let claims: Int
    let dead: [Letter]
    let invalidTokens: Set<String>
    let invalidTokenDetails: [String: StoredInvalidToken]
    /// The counters, summed over all days.
    let counters: [String: Int]
    let keys: Set<String>

    init(_ redis: RedisServer, queue: String = "default") throws {
        let base = "push:{\(queue)}:"
        let connection = try redis.connect()
        // Writes are paused because a job that moves during the reads would be counted twice, or not at all.
        _ = try connection.run("CLIENT", "PAUSE", "10000", "WRITE")
        defer { _ = try? connection.run("CLIENT", "UNPAUSE") }
        let keys = Set(try connection.run("KEYS", "*").strings())
        self.keys = keys
        let places = [("LRANGE", "inbox"), ("ZRANGE", "sorted"), ("LRANGE", "jobs")]
        jobs = try places.flatMap { command, name in
            let bodies = try connection.run(command, base + name, "0", "-1").list().map { try $0.rawBytes() }
            return name == "sorted" ? bodies.map(Self.unsorted) : bodies
        }
        let retries = try ["retry", "failed"].flatMap {
            try connection.run("ZRANGE", base + $0, "0", "-1", "WITHSCORES").list()
        }
        self.retries = try stride(from: 0, to: retries.count, by: 2).map { index in
            (try retries[index].rawBytes(), try #require(retries[index + 1].text.flatMap(Double.init)))
        }.sorted { $0.1 < $1.1 }
        workers = try connection.run("ZRANGE", base + "workers", "0", "-1").strings()
        claims = try keys.reduce(into: 0) { sum, key in
            if key.hasPrefix(base + "claimed:") { sum += try connection.run("HLEN", key).number ?? 0 }
        }
        // Cancelled jobs are kept like dead letters, in another key.
        dead = try ["dead", "cancelled"].flatMap { try connection.run("ZRANGE", base + $0, "0", "-1").list() }
            .map { try Letter($0.rawBytes()) }
        // In a Cluster, the sets can be on another server.
        let sets = SharedKeys()
        invalidTokens =
            keys.contains(sets.invalidTokens) ? Set(try connection.run("SMEMBERS", sets.invalidTokens).strings()) : []
        invalidTokenDetails =
            invalidTokens.isEmpty ? [:] : try StoredInvalidTokens(connection, sets.invalidTokens).details()
        var counters: [String: Int] = [:]
        for key in keys where key.hasPrefix(base + "stats:") {
            for (field, count) in try connection.run("HGETALL", key).pairs() {
                counters[field, default: 0] += try #require(Int(count))
            }
        }
        self.counters = counters
    }

    /// Returns the job in a member of the sorted jobs.
    private static func unsorted(_ member: [UInt8]) -> [UInt8] {
        guard member.starts(with: #"{"apns_worker":1,"claim":"sorted:"#.utf8),
            let start = member.firstRange(of: #"","job":"#.utf8)?.upperBound
        else { return member }
        return Array(member[start...].dropLast())
    }

    /// The keys of the queue, except counters, shares, and keys that expire within minutes.
    var lastingKeys: Set<String> {
        keys.filter { key in
            key.hasPrefix("push:{")
                && ![
                    ":stats:", ":minute:", ":next:", ":largest", ":gauges", ":configurations", ":source", ":shares",
                    ":deliveries", "{shared}",
                ].contains { key.contains($0) }
        }
    }

    /// True if no work is left.
    var isSettled: Bool { jobs.isEmpty && retries.isEmpty && claims == 0 }

    func count(_ counter: String) -> Int { counters[counter] ?? 0 }

    var deadReasons: [String: Int] { Dictionary(grouping: dead, by: \.reason).mapValues(\.count) }
}

extension QueueContents.Letter {
    private struct Header: Decodable {
        let reason: String
        let attempts: Int
        let size: Int
        let detail: String?
        let tokens: [String]?
    }

    init(_ member: [UInt8]) throws {
        let letter = try #require(DeadLetter(member: ByteBuffer(bytes: member)))
        let header = try JSONDecoder().decode(Header.self, from: Data(letter.header.readableBytesView))
        original = Array(letter.original.readableBytesView)
        #expect(header.size == original.count)
        (reason, attempts, detail, tokens) = (header.reason, header.attempts, header.detail, header.tokens ?? [])
    }
}

extension RedisValue {
    func list() throws -> [RedisValue] { try #require(elements, "an array was expected, not \(self)") }

    func strings() throws -> [String] { try list().map { try #require($0.text) } }

    func pairs() throws -> [String: String] {
        let strings = try strings()
        return Dictionary(
            uniqueKeysWithValues: stride(from: 0, to: strings.count, by: 2).map { (strings[$0], strings[$0 + 1]) })
    }

    func rawBytes() throws -> [UInt8] {
        if case .bytes(let bytes) = self { return bytes }
        return Array(try #require(text, "a string was expected, not \(self)").utf8)
    }
}

extension RedisServer {
    /// Stops the worker and the simulator, and expects that their accounts and the default queue agree.
    func stop(
        _ worker: WorkerProcess, _ simulator: SimulatorProcess, sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> (WorkerProcess.Account, QueueContents, SimulatorProcess.Account) {
        let (account, queue, seen) = (try await worker.stop(), try QueueContents(self), try await simulator.stop())
        expectAgreement(account, queue, seen, sourceLocation: sourceLocation)
        return (account, queue, seen)
    }
}

/// Expects that the accounts of worker, Redis and simulator agree, and that no work is left.
func expectAgreement(
    _ worker: WorkerProcess.Account, _ queue: QueueContents, _ simulator: SimulatorProcess.Account,
    sourceLocation: SourceLocation = #_sourceLocation
) {
    expectAgreement(worker, queue, sourceLocation: sourceLocation)
    // The worker does not receive answers that are in flight when a connection is dropped. It sends their notifications again.
    let unread = simulator.drops == 0 ? 0 : simulator.duplicates
    #expect(
        (worker.delivered...worker.delivered + unread).contains(simulator.answers["200"] ?? 0),
        sourceLocation: sourceLocation)
    #expect(simulator.accepted - simulator.duplicates == simulator.distinctIDs, sourceLocation: sourceLocation)
    #expect(simulator.duplicates <= worker.possibleDuplicates, sourceLocation: sourceLocation)
}

/// Expects that the accounts of worker and Redis agree, and that no work is left.
func expectAgreement(
    _ worker: WorkerProcess.Account, _ queue: QueueContents, sourceLocation: SourceLocation = #_sourceLocation
) {
    #expect(queue.isSettled, "jobs, retries or claims are left", sourceLocation: sourceLocation)
    #expect(queue.workers.isEmpty, sourceLocation: sourceLocation)
    #expect(worker.lostClaims == 0, sourceLocation: sourceLocation)
    for (counter, count) in [
        ("delivered", worker.delivered), ("invalid_token", worker.invalidToken), ("suppressed", worker.suppressed),
        ("expired", worker.expired),
        ("dropped", worker.dropped), ("dead", worker.dead), ("possible_duplicates", worker.possibleDuplicates),
        ("scheduled", worker.scheduled),
    ] {
        #expect(queue.count(counter) == count, "Redis counts otherwise: \(counter)", sourceLocation: sourceLocation)
    }
}
