import TestSupport

/// The faults and their times. They depend only on the seed and the options, not on the machine.
struct Plan {
    /// The faults in the order in which they begin.
    let faults: [Fault]

    /// The weight and the range of durations of each kind of fault.
    private struct Odds {
        var worker: [Chance<Fault.Action>]
        var network: [Chance<Fault.Network>]
        var redis: [Chance<Fault.RedisFault>]
    }

    /// - Parameters:
    ///   - lease: the workers' lease in milliseconds: some workers are stopped for longer.
    ///   - topology: determines the possible faults of Redis.
    ///   - durability: true if Redis may lose confirmed writes.
    init(seed: UInt64, seconds: Int, workers: Int, lease: Int, topology: Topology, durability: Durability) {
        var generator = SeededGenerator(seed: seed)
        let odds = Odds(
            worker: [
                (.killWorker, 10, 50...2500), (.stopWorker, 6, 100...2500),
                (.stopWorker, 3, lease + 500...lease + 4000), (.endWorker, 7, 0...0), (.rotateCredentials, 4, 0...0),
                (.setClock(seconds: Fault.clockStep), 2, 0...0), (.setClock(seconds: -Fault.clockStep), 2, 0...0),
            ],
            network: [
                (.cut, 6, 0...0), (.reset, 6, 0...0), (.blackHole, 4, 500...7000), (.noAnswers, 4, 200...6000),
                (.refusal, 4, 300...4000), (.delay(milliseconds: 0), 4, 500...4000),
            ],
            redis: topology.faults(lease: lease, durability))
        let end = seconds * 1000
        var free: [Fault.Target: Int] = [:]
        var faults: [Fault] = []
        var now = 1000
        while now < end - 500 {
            let slot = Int.random(in: 0..<workers, using: &generator)
            var fault: Fault
            switch Int.random(in: 0..<100, using: &generator) {
            case 0..<38:
                let (action, time) = Self.draw(odds.worker, &generator)
                fault = Fault(action: action, target: .worker(slot), begin: now, end: now + time)
            case 38..<60:
                fault = Self.network(.apnsOf(slot), odds, at: now, &generator)
            case 60..<82 where topology.hasProxies:
                fault = Self.network(.redisOf(slot), odds, at: now, &generator)
            default:
                let (action, time) = Self.draw(odds.redis, &generator)
                fault = Fault(action: .redis(action), target: .redis, begin: now, end: now + time)
            }
            now += Int.random(in: 100...1100, using: &generator)
            guard fault.begin >= free[fault.target, default: 0] else { continue }
            // During the pause, the target works.
            let pause = fault.target == .redis ? topology.peace : 300
            free[fault.target] = fault.end + pause
            fault.end = min(fault.end, end)
            faults.append(fault)
        }
        self.faults = faults
    }

    private static func network(
        _ target: Fault.Target, _ odds: Odds, at now: Int, _ generator: inout SeededGenerator
    ) -> Fault {
        var (network, time) = draw(odds.network, &generator)
        if case .delay = network { network = .delay(milliseconds: Int.random(in: 20...900, using: &generator)) }
        return Fault(action: .network(network), target: target, begin: now, end: now + time)
    }

    private static func draw<Choice>(_ choices: [Chance<Choice>], _ generator: inout SeededGenerator) -> (Choice, Int) {
        var left = Int.random(in: 0..<choices.reduce(0) { $0 + $1.weight }, using: &generator)
        let choice = choices.first { choice in
            left -= choice.weight
            return left < 0
        }
        guard let choice else { preconditionFailure("the weights add up to their sum") }
        return (choice.0, Int.random(in: choice.milliseconds, using: &generator))
    }
}

/// A fault, its weight, and the range of its durations.
typealias Chance<Choice> = (Choice, weight: Int, milliseconds: ClosedRange<Int>)

enum Topology: String, CaseIterable, Sendable {
    case single, sentinel, cluster

    /// True if proxies can disturb the workers' connections to Redis. Servers of a set announce their own addresses.
    var hasProxies: Bool { self == .single }

    /// The time between two faults of Redis, in milliseconds.
    var peace: Int { self == .single ? 2000 : 8000 }

    /// The faults of a topology, with their weights and durations in milliseconds.
    func faults(lease: Int, _ durability: Durability) -> [Chance<Fault.RedisFault>] {
        let longerThanLease = lease + 500...lease + 5000
        let common: [Chance<Fault.RedisFault>] = [
            (.killClients, 3, 0...0), (.flushScripts, 2, 0...0), (.fill, 2, 200...2000), (.fill, 1, longerThanLease),
            (.outage, 2, longerThanLease),
        ]
        switch self {
        case .single:
            let lasting: [Chance<Fault.RedisFault>] = [
                (.kill, 5, 50...3000), (.kill, 1, longerThanLease), (.restart, 3, 0...0), (.pause, 4, 200...7000),
                (.clockForward, 2, 0...0), (.clockBack, 2, 0...0),
            ]
            return common + lasting + (durability == .relaxed ? [(.powerCut, 5, 1100...3000)] : [])
        case .sentinel:
            return common + [
                (.kill, 4, 500...8000), (.pause, 4, 200...6000), (.failOver, 4, 0...0),
                (.killReplica, 3, 500...4000), (.pauseWatcher, 2, 500...5000),
            ]
        case .cluster:
            return common + [
                (.kill, 4, 200...12_000), (.pause, 4, 200...12_000), (.failOver, 3, 0...0),
                (.killReplica, 2, 500...4000), (.reshard, 6, 0...0), (.moveShard, 6, 0...0),
            ]
        }
    }
}

/// The measures of Redis and the producer against the loss of confirmed writes.
enum Durability: String, Sendable {
    /// A single server writes to its disk before it answers; a master accepts writes only while a replica keeps up, and
    /// the producer waits until a replica has the jobs.
    case strict
    /// `appendfsync everysec`, no `min-replicas-to-write`, and a producer that does not wait for replicas.
    case relaxed
}
