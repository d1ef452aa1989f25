import NIOCore
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// Many lanes with a breaker each, one Redis, and an app that APNs refuses for some time: in milliseconds that are counted here.
///
/// What each lane sends arrives and is answered in order, after random times, as over a connection. The lanes do what
/// ``Lane`` does with its breaker, and the Redis what `pause.lua`, `probe.lua` and `resume.lua` do.
private struct BreakerFleet {
    static let firstPause = 500
    static let longestPause = 1000
    static let probeLimit = 30_000
    static let readInterval = 1000

    struct LaneState {
        var breaker = AppBreaker()
        var readAt = 0
        /// When its latest message arrives at Redis, and when its latest answer arrives at it.
        var lastSent = 0
        var lastAnswer = 0
    }

    enum Event {
        case tick
        case redisReads(version: Int)
        case redisProbes
        case redisTrips(isProbe: Bool)
        case redisCloses
        case read(pause: Int?, version: Int)
        case told(AppPauses.ProbeAnswer)
        case tripped(wait: Int)
        case probeAnswered
    }

    /// What Redis has of the app: until when it is paused, and for how long.
    var pause: (until: Int, length: Int)?
    var lanes: [LaneState]
    var events: [(at: Int, order: Int, lane: Int, event: Event)] = []
    var order = 0
    var now = 0
    /// Until when APNs refuses the app.
    let refusedUntil: Int
    var probes: [Int] = []
    var random: SeededGenerator

    init(lanes count: Int, refusedUntil: Int, seed: UInt64) {
        random = SeededGenerator(seed: seed)
        lanes = Array(repeating: LaneState(), count: count)
        self.refusedUntil = refusedUntil
        for lane in lanes.indices { schedule(lane, in: Int.random(in: 0..<20, using: &random), .tick) }
    }

    var deadline: NIODeadline { .uptimeNanoseconds(UInt64(1_000_000 + now) * 1_000_000) }

    mutating func schedule(_ lane: Int, in time: Int, _ event: Event) {
        order += 1
        events.append((now + time, order, lane, event))
    }

    mutating func send(_ lane: Int, _ event: Event) {
        lanes[lane].lastSent = max(lanes[lane].lastSent, now + Int.random(in: 0...8, using: &random))
        schedule(lane, in: lanes[lane].lastSent - now, event)
    }

    mutating func answer(_ lane: Int, _ event: Event) {
        lanes[lane].lastAnswer = max(lanes[lane].lastAnswer, now + Int.random(in: 0...8, using: &random))
        schedule(lane, in: lanes[lane].lastAnswer - now, event)
    }

    /// Goes on until a time.
    mutating func run(until end: Int) {
        while let next = events.indices.min(by: {
            (events[$0].at, events[$0].order) < (events[$1].at, events[$1].order)
        }) {
            guard events[next].at <= end else { break }
            let (at, _, lane, event) = events.remove(at: next)
            now = at
            happens(event, lane)
        }
        now = end
    }

    private mutating func happens(_ event: Event, _ lane: Int) {
        switch event {
        case .tick: tick(lane)
        case .redisReads(let version):
            answer(lane, .read(pause: pause.map { max(0, $0.until - now) }, version: version))
        case .redisProbes: answer(lane, .told(redisProbes()))
        case .redisTrips(let isProbe): answer(lane, .tripped(wait: redisTrips(isProbe: isProbe)))
        case .redisCloses: pause = nil
        case .read(let wait, let version):
            guard lanes[lane].breaker.version == version else { return }
            if let wait {
                _ = lanes[lane].breaker.learned(reason: "x", wait: .milliseconds(Int64(wait)), now: deadline)
            } else {
                _ = lanes[lane].breaker.closed()
            }
        case .told(.closed): _ = lanes[lane].breaker.closed()
        case .told(.granted):
            lanes[lane].breaker.granted()
            if lanes[lane].breaker.decide(now: deadline) == .probe {
                lanes[lane].breaker.probeSent()
                probes.append(now)
                schedule(lane, in: Int.random(in: 5...50, using: &random), .probeAnswered)
            }
        case .told(.wait(let wait, let reason, _)):
            lanes[lane].breaker.denied(
                reason: Reason(.init(text: reason)), wait: wait.map { .milliseconds($0) }, now: deadline)
        case .tripped(let wait):
            _ = lanes[lane].breaker.learned(reason: "x", wait: .milliseconds(Int64(wait)), now: deadline)
        case .probeAnswered: answered(lane, isProbe: true)
        }
    }

    /// A lane always has work: where its app is not paused it sends, and sees at once whether it is refused.
    private mutating func tick(_ lane: Int) {
        if now - lanes[lane].readAt >= Self.readInterval {
            lanes[lane].readAt = now
            send(lane, .redisReads(version: lanes[lane].breaker.version))
        }
        switch lanes[lane].breaker.decide(now: deadline) {
        case .send: answered(lane, isProbe: false)
        case .ask:
            lanes[lane].breaker.asked()
            send(lane, .redisProbes)
        case .probe, .wait: break
        }
        schedule(lane, in: Int.random(in: 5...20, using: &random), .tick)
    }

    private mutating func answered(_ lane: Int, isProbe: Bool) {
        if now < refusedUntil {
            let opened = lanes[lane].breaker.tripped(reason: "x", isProbe: isProbe, now: deadline)
            if opened || isProbe { send(lane, .redisTrips(isProbe: isProbe)) }
        } else if isProbe, lanes[lane].breaker.closed() != nil {
            send(lane, .redisCloses)
        }
    }

    private mutating func redisProbes() -> AppPauses.ProbeAnswer {
        guard let pause else { return .closed }
        guard pause.until <= now else { return .wait(milliseconds: Int64(pause.until - now), reason: "x", detail: nil) }
        self.pause?.until = now + Self.probeLimit
        return .granted
    }

    private mutating func redisTrips(isProbe: Bool) -> Int {
        if let pause {
            let length = isProbe ? min(pause.length * 2, Self.longestPause) : pause.length
            self.pause = isProbe ? (now + length, length) : pause
        } else {
            pause = (now + Self.firstPause, Self.firstPause)
        }
        return max(0, (pause?.until ?? now) - now)
    }
}

@Suite("The breakers of a fleet")
struct BreakerFleetTests {
    @Test("one probe after the other is made, none is late, and all go on soon after one gets through")
    func fleet() {
        for seed in 0..<300 as Range<UInt64> {
            var fleet = BreakerFleet(lanes: 1 + Int(seed % 8), refusedUntil: 20_000, seed: seed)
            fleet.run(until: 20_000)
            // A pause, the time that asking and answering take, and a lane that looks again after its patience.
            let longest = BreakerFleet.longestPause + 1000 + 100
            let gaps = zip(fleet.probes, fleet.probes.dropFirst()).map { $1 - $0 }
            #expect(gaps.allSatisfy { (400...longest).contains($0) }, "seed \(seed): \(fleet.probes)")
            #expect(fleet.probes.count > 10, "seed \(seed): \(fleet.probes)")
            fleet.run(until: 20_000 + longest + BreakerFleet.readInterval + 100)
            #expect(fleet.lanes.allSatisfy { !$0.breaker.isOpen } && fleet.pause == nil, "seed \(seed)")
        }
    }
}
