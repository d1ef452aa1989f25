import NIOCore
import PushJob
import PushQueue

@testable import PushWorker
@testable import Redis

extension FleetSimulation {
    private static let auditedCounters = Outcome.allCases.map(\.rawValue)

    /// Checks that each notification is in one place, or has ended for a reason.
    /// - Returns: the number of notifications that have not ended.
    func audit() throws -> Int {
        ledger.beginAudit()
        let server = redis.server
        var commands = [RedisCommand("SMEMBERS", redis.sharedKeys.invalidTokens)]
        for keys in redis.queues {
            commands += [
                RedisCommand("LRANGE", keys.jobs, "0", "-1"), RedisCommand("LRANGE", keys.inbox, "0", "-1"),
                RedisCommand("ZRANGE", keys.retry, "0", "-1"), RedisCommand("ZRANGE", keys.failed, "0", "-1"),
                RedisCommand("ZRANGE", keys.dead, "0", "-1"), RedisCommand("ZRANGE", keys.cancelled, "0", "-1"),
                RedisCommand("ZRANGE", keys.sorted, "0", "-1"),
                RedisCommand("KEYS", "push:{\(keys.queue)}:claimed:*"),
            ]
        }
        let replies = server.run(commands)
        for queue in redis.queues.indices {
            let first = 1 + queue * 8
            for place in 0..<6 {
                for body in replies[first + place].root.children { try find(body.bytes, queue, isDead: place >= 4) }
            }
            for member in replies[first + 6].root.children {
                try find(member.bytes.map(Self.unsorted), queue, isDead: false)
            }
            let lanes = replies[first + 7].root.children.compactMap(\.string).sorted()
            for (lane, claims) in zip(lanes, lanes.isEmpty ? [] : server.run(lanes.map { RedisCommand("HGETALL", $0) }))
            {
                var elements = claims.root.children
                while let field = elements.next()?.string, let body = elements.next() {
                    if checks.isSettled("\(lane) \(field)") {
                        throw error("the settled claim \(field) of \(lane) is still there")
                    }
                    try find(body.bytes, queue, isDead: false)
                }
            }
        }
        var invalid: Set<String>?
        if !redis.hasRolledBack, ledger.needsInvalidTokens {
            invalid = Set(replies[0].root.children.compactMap(\.string))
        }
        if let mistake = ledger.endAudit(invalid: invalid) { throw error(mistake) }
        return ledger.openCount
    }

    /// Returns a sorted job as it was in the list, where it may have been a wrapped job.
    private static func unsorted(_ member: ByteBuffer) -> ByteBuffer { Envelope.read(member).originalBytes(in: member) }

    private func find(_ body: ByteBuffer?, _ queue: Int, isDead: Bool) throws {
        guard let bytes = body else { return }
        if let mistake = ledger.found(bytes, queue: queue, isDead: isDead) { throw error(mistake) }
    }

    func remaining() -> String {
        redis.queues.map { keys in
            let counts = redis.server.run([
                RedisCommand("LLEN", keys.jobs), RedisCommand("LLEN", keys.inbox), RedisCommand("ZCARD", keys.retry),
                RedisCommand("ZCARD", keys.failed), RedisCommand("ZCARD", keys.sorted),
            ]).map { $0.root.integer ?? -1 }
            return "queue \(keys.queue): jobs, inbox, retry, failed, sorted \(counts)"
        }.joined(separator: "; ") + "; "
            + workers.flatMap(\.lanes).flatMap(\.lane.consumers).compactMap { $0.problem?.reason }.joined(
                separator: " ")
    }

    /// Returns the sums of the counters in the hashes whose keys match a pattern.
    func counters(_ pattern: (QueueKeys) -> String) -> [String: Int] {
        var counters: [String: Int] = [:]
        for key in redis.queues.flatMap({ redis.server.run(RedisCommand("KEYS", pattern($0))).root.children }) {
            var elements = redis.server.run(RedisCommand("HGETALL", key.string ?? "")).root.children
            while let field = elements.next()?.string, let value = elements.next()?.string {
                counters[field, default: 0] += Int(value) ?? 0
            }
        }
        return counters
    }

    /// Checks that no sums were added twice to the minutes' counters. Some sums may be missing, because a lane's last second can be lost. A
    /// notification counts again if it is sent again because its job was reclaimed. After a crash, notifications that ended without a
    /// request, such as cancelled ones, can also count again, so they are then not checked.
    private func checkMinutes(atMost ended: Int) throws {
        // A notification that two lanes have ended, because the first lost its lease, counts for both.
        guard fleet.all.flatMap(\.lanes).allSatisfy({ $0.counters.lostClaims == 0 }) else { return }
        let audited = fleet.formerWorkers.allSatisfy(\.isDrained) ? Self.auditedCounters : [Outcome.delivered.rawValue]
        let counted = counters { $0.minutesPrefix + "*" }.filter { audited.contains($0.key) }
        guard counted.values.reduce(0, +) <= ended else {
            throw error("at most \(ended) notifications ended, and by the minutes' counters \(counted)")
        }
    }

    /// Checks that the counters add up to the notifications. If Redis has lost nothing, also checks that the possible duplicates explain
    /// the notifications that APNs accepted twice.
    func checkCounters() throws {
        guard !redis.hasRolledBack else { return }
        let counts = counters { "push:{\($0.queue)}:stats:*" }
        let ended = Self.auditedCounters.reduce(0) { $0 + (counts[$1] ?? 0) }
        guard ended == ledger.notificationCount else {
            throw error(
                """
                \(ledger.notificationCount) notifications, and \(ended) ended by the counters: \
                \(counts.sorted { $0.key < $1.key })
                """)
        }
        let possible = fleet.all.flatMap(\.lanes).reduce(0) { $0 + $1.counters.possibleDuplicates }
        guard ledger.duplicates <= possible else {
            throw error(
                """
                \(ledger.duplicates) were accepted again, and \(possible) were counted as possible duplicates: \
                \(ledger.mostDuplicated)
                """)
        }
        try checkMinutes(atMost: ended + possible)
    }
}
