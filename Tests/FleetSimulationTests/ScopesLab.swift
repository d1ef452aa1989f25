import Foundation
import NIOCore

@testable import PushWorker

/// A model of one lane, one peer and a queue in virtual time, with the real ``Scopes``. It measures how bad notifications or an outage of
/// the peer delay good notifications.
///
/// All times are in milliseconds.
struct ScopesLab {
    static let streams = 500
    static let backoff = 1000.0
    static let longestBackoff = 60_000.0

    struct Arrival {
        var at: Int64
        var isBad = false
        var group = ""
    }

    final class Job {
        let at: Int64
        let isBad: Bool
        let group: String
        var attempt = 0
        var goodAt: Int64?

        init(_ arrival: Arrival) { (at, isBad, group) = (arrival.at, arrival.isBad, arrival.group) }
    }

    struct Outcome {
        var delivered = 0
        var good = 0
        /// The 99th percentile and the maximum of the good notifications' times in the queue.
        var p99: Int64 = 0
        var maximum: Int64 = 0
        /// The requests per second in the outage, without its first 5 s.
        var rate: Double?
        /// The time from the end of the outage until the rate is back at 95 % of the rate before the outage.
        var back: Int64?
    }

    /// A generator with a seed.
    struct Generator: RandomNumberGenerator {
        var state: UInt64

        init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }

        mutating func next() -> UInt64 {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return state &* 0x2545_F491_4F6C_DD1D
        }

        mutating func unit() -> Double { Double(next() >> 11) / Double(1 << 53) }
    }

    /// The scopes that may be at fault for a bad notification, and for a failure in an outage.
    var concerns: ScopeSet = [.group, .endpoint]
    var outage: Range<Int64> = .max - 1..<Int64.max
    /// The share of notifications that are accepted in the outage.
    var leak = 0.0
    var end: Int64 = 120_000
    var retriesLeft = 0

    func run(_ arrivals: [Arrival]) -> Outcome {
        var random = Generator(seed: 1)
        let scopes = Scopes()
        let app = scopes.add(.app, now: 0).id
        let endpoint = scopes.add(.endpoint, now: 0).id
        scopes.join(app: app, credentials: [], endpoint: endpoint)
        var groups: [String: ScopeID] = [:]
        var names: [ScopeID: String] = [:]
        func place(_ group: String) -> ScopePlace {
            let id: ScopeID
            if let known = groups[group] {
                id = known
            } else {
                let (new, forgotten) = scopes.add(.group, parent: app, now: now)
                if let forgotten, let name = names.removeValue(forKey: forgotten) { groups[name] = nil }
                (groups[group], names[new], id) = (new, group, new)
            }
            return ScopePlace(group: id, app: app, endpoint: endpoint)
        }
        var now: Int64 = 0
        var next = 0
        var free = Self.streams
        var fresh: [String: CircularBuffer<Job>] = [:]
        var retries: [String: TimeHeap<Int64, Job>] = [:]
        var events = TimeHeap<Int64, (job: Job, isFresh: Bool, probed: ScopeSet)>()
        var jobs: [Job] = []
        var requests: [Int64] = []
        var accepted: [Int64] = []
        var turn = 0
        for _ in 0..<retriesLeft {
            let job = Job(Arrival(at: 0))
            job.attempt = 5
            jobs.append(job)
            retries["", default: TimeHeap()].insert(job, at: Int64(random.unit() * 30_000))
        }
        func pick() -> (Job, Bool)? {
            var due: (at: Int64, group: String)?
            for (group, heap) in retries {
                guard let first = heap.first, first <= now, first < due?.at ?? .max else { continue }
                if case .wait = scopes.decide(place(group), isFresh: false, now: now) { continue }
                due = (first, group)
            }
            let candidates = fresh.filter { !$0.value.isEmpty }.map { group, queue in
                (
                    group,
                    Scopes.Candidate(place: place(group), oldest: queue.first?.at ?? 0, newest: queue.last?.at ?? 0)
                )
            }
            let isTurnOfRetry = due != nil && turn % 8 == 0
            let chosen = isTurnOfRetry ? nil : scopes.choose(candidates.map(\.1), now: now)
            if let chosen {
                let group = candidates[chosen.index].0
                guard let job = chosen.newest ? fresh[group]?.popLast() : fresh[group]?.popFirst() else { return nil }
                return (job, true)
            }
            if let due, let job = retries[due.group]?.popFirst() { return (job, false) }
            return nil
        }
        while now < end {
            while next < arrivals.count, arrivals[next].at <= now {
                let job = Job(arrivals[next])
                fresh[job.group, default: CircularBuffer()].append(job)
                jobs.append(job)
                scopes.recordUse(place(job.group).group, now: now)
                next += 1
            }
            while free > 0 {
                guard let (job, isFresh) = pick() else { break }
                free -= 1
                turn += 1
                let probed = scopes.recordSubmission(at: place(job.group), isFresh: isFresh, now: now)
                requests.append(now)
                events.insert((job, isFresh, probed), at: now + 60 + Int64(random.unit() * 40))
            }
            var times = [next < arrivals.count ? arrivals[next].at : nil, events.first, scopes.nextProbe(after: now)]
            times += retries.values.map(\.first)
            guard let time = times.compactMap(\.self).filter({ $0 > now }).min() else { break }
            now = time
            while let at = events.first, at <= now, let (job, isFresh, probed) = events.popFirst() {
                free += 1
                let isGood = !job.isBad && !(outage.contains(now) && random.unit() >= leak)
                let place = place(job.group)
                scopes.recordUse(place.group, now: now)
                scopes.recordEnd(probed, at: place, isFresh: isFresh)
                if isGood {
                    scopes.recordProof([.group, .app, .endpoint], at: place, isFresh: isFresh, now: now)
                    job.goodAt = now
                    accepted.append(now)
                } else {
                    scopes.recordFailure(concerns, at: place, isFresh: isFresh, now: now)
                    job.attempt += 1
                    var pause = Self.backoff
                    for _ in 1..<job.attempt where pause < Self.longestBackoff { pause *= 2 }
                    pause = min(pause, Self.longestBackoff) * (0.5 + random.unit() / 2)
                    retries[job.group, default: TimeHeap()].insert(job, at: now + Int64(pause))
                }
            }
        }
        var outcome = Outcome()
        let waits = jobs.filter { !$0.isBad }.map { ($0.goodAt ?? end) - $0.at }.sorted()
        outcome.good = waits.count
        outcome.delivered = jobs.count { !$0.isBad && $0.goodAt != nil }
        outcome.p99 = waits.isEmpty ? 0 : waits[waits.count * 99 / 100]
        outcome.maximum = waits.last ?? 0
        guard outage.lowerBound < end else { return outcome }
        let inside = requests.count { $0 >= outage.lowerBound + 5000 && $0 < outage.upperBound }
        outcome.rate = Double(inside) * 1000 / Double(min(outage.upperBound, end) - outage.lowerBound - 5000)
        let before = Double(accepted.count { $0 >= outage.lowerBound - 5000 && $0 < outage.lowerBound }) / 5
        outcome.back = (0..<600).map { Int64($0) * 100 }.first { step in
            let from = outage.upperBound + step
            return before > 0 && Double(accepted.count { $0 >= from && $0 < from + 1000 }) >= 0.95 * before
        }
        return outcome
    }

    // MARK: Arrivals

    /// Arrivals at random times, like real ones.
    static func steady(
        _ perSecond: Double, until: Int64, isBad: Bool = false, since: Int64 = 0, group: String = ""
    ) -> [Arrival] {
        var random = Generator(seed: UInt64(perSecond * 1000) + (isBad ? 1 : 0) + 7)
        var time = Double(since)
        var arrivals: [Arrival] = []
        while true {
            time -= log(1 - random.unit()) * 1000 / perSecond
            guard Int64(time) < until else { return arrivals }
            arrivals.append(Arrival(at: Int64(time), isBad: isBad, group: group))
        }
    }

    static func mix(_ perSecond: Double, until: Int64, bad share: Double, groups: Int = 1) -> [Arrival] {
        var random = Generator(seed: 3)
        return steady(perSecond, until: until).map { arrival in
            Arrival(
                at: arrival.at, isBad: random.unit() < share,
                group: "g\(Int.random(in: 0..<groups, using: &random))")
        }
    }

    static func batch(_ count: Int, bad share: Double = 1, at time: Int64 = 0, group: String = "") -> [Arrival] {
        var random = Generator(seed: 3)
        return (0..<count).map { _ in Arrival(at: time, isBad: random.unit() < share, group: group) }
    }

    static func together(_ arrivals: [Arrival]...) -> [Arrival] { arrivals.flatMap(\.self).sorted { $0.at < $1.at } }
}
