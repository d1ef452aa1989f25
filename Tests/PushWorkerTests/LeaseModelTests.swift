import NIOCore
import TestSupport
import Testing

@testable import PushWorker

/// A claim window against a model of the scripts, over connections that break at any time: commands are executed and not
/// answered, not executed, or executed long after; leases end, and others take over; Redis goes back in time.
@Suite("Claims and leases, with whatever may happen between the lane and Redis")
struct LeaseModelTests {
    @Test("every job ends, and stays nowhere", arguments: 0..<1000)
    func everyJobEnds(seed: UInt64) {
        var model = LeaseModel(seed: seed, mayGoBack: true, mayLoseLease: true)
        model.run(steps: 600)
        check(model.settleAll())
        check(model.taken.count == 400)
    }

    @Test("no job is taken twice as long as the lease lasts and Redis forgets nothing", arguments: 0..<300)
    func nothingTwice(seed: UInt64) {
        var model = LeaseModel(seed: seed, mayGoBack: false, mayLoseLease: false)
        model.run(steps: 600)
        check(model.settleAll())
        check(model.taken.count == 400 && model.taken.values.allSatisfy { $0 == 1 })
    }
}

private struct LeaseModel {
    /// What the scripts do, to the extent that matters here.
    struct Server {
        var jobs: [Int]
        var claims: [String: [Int: Int]] = [:]
        var leases: Set<String> = []
        var numbers: [String: Int] = [:]
        var ended: Set<Int> = []

        mutating func claim(_ worker: String, _ claim: ClaimWindow.Claim) -> [Int]? {
            guard claim.join || leases.contains(worker) else { return nil }
            leases.insert(worker)
            var held = claims[worker] ?? [:]
            defer { claims[worker] = held }
            guard claim.count > 0 else { return [] }
            if held[claim.first] != nil {
                return (claim.first..<claim.first + claim.count).prefix { held[$0] != nil }.compactMap { held[$0] }
            }
            guard claim.first >= numbers[worker] ?? 0 else { return [] }
            numbers[worker] = claim.first + claim.count
            let taken = Array(jobs.prefix(claim.count))
            jobs.removeFirst(taken.count)
            for (offset, job) in taken.enumerated() { held[claim.first + offset] = job }
            return taken
        }

        mutating func settle(_ worker: String, _ numbers: Set<Int>) {
            for number in numbers {
                if let job = claims[worker]?.removeValue(forKey: number) { ended.insert(job) }
            }
        }

        /// What reaping and release do: all goes back.
        mutating func giveBack(_ worker: String) {
            jobs = (claims.removeValue(forKey: worker) ?? [:]).sorted { $0.key < $1.key }.map(\.value) + jobs
            leases.remove(worker)
        }
    }

    enum Command {
        case claim(ClaimWindow.Claim)
        case settle(Int, Set<Int>)
        case look
    }

    private var random: SeededGenerator
    private let mayGoBack, mayLoseLease: Bool
    private var now = NIODeadline.uptimeNanoseconds(1_000_000_000)
    private(set) var server = Server(jobs: Array(0..<400))
    private var snapshot: Server
    /// How often each job was taken up.
    private(set) var taken: [Int: Int] = [:]

    // The lane.
    private var window = ClaimWindow()
    private var generation = 0
    private var held: Set<Int> = []
    private var unconfirmed: [Int: Set<Int>] = [:]
    private var batches = 0

    // The connection: what was written and not yet answered, in its order, and what the network still has of older ones.
    private var isConnected = true
    private var pipeline: [(worker: String, command: Command)] = []
    private var late: [(worker: String, command: Command)] = []

    private var worker: String { "w\(generation)" }

    init(seed: UInt64, mayGoBack: Bool, mayLoseLease: Bool) {
        random = SeededGenerator(seed: seed)
        (self.mayGoBack, self.mayLoseLease) = (mayGoBack, mayLoseLease)
        snapshot = server
    }

    mutating func run(steps: Int) {
        for _ in 0..<steps {
            now = now + .milliseconds(Int64.random(in: 0...300, using: &random))
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<25: ask()
            case 25..<60: answer()
            case 60..<80: settleSome()
            case 80..<84: breakConnection()
            case 84..<92: connect()
            case 92..<94: executeLate()
            case 94: if isConnected { send(.look) }
            case 95: if mayLoseLease { server.giveBack(worker) }
            case 96: snapshot = server
            case 97 where mayGoBack:
                breakConnection()
                // A Redis that is older than it was is another process, or another server: what was on its way to the one
                // before was bytes of a connection that this one never had.
                late = []
                server = snapshot
            default: window.wake()
            }
        }
    }

    /// Nothing bad happens any more. Whether everything comes to its end then.
    mutating func settleAll() -> Bool {
        while !late.isEmpty { executeLate() }
        breakConnection()
        late = []
        // Who has no name any more is reaped by others, as its lease ends.
        for round in 0..<2000 {
            now = now + .milliseconds(50)
            connect()
            for name in server.leases.sorted() where name != worker { server.giveBack(name) }
            // Now and then the lane looks at what it holds.
            if round % 50 == 0 { send(.look) }
            ask()
            while !pipeline.isEmpty { answer() }
            flush(held)
            while !pipeline.isEmpty { answer() }
            if server.ended.count == 400 { return server.jobs.isEmpty && server.claims.values.allSatisfy(\.isEmpty) }
        }
        return false
    }

    private mutating func send(_ command: Command) { pipeline.append((worker, command)) }

    private mutating func ask() {
        guard isConnected else { return }
        let isRenewal = Int.random(in: 0..<8, using: &random) == 0
        let free = Int.random(in: 1...20, using: &random)
        guard let claim = isRenewal ? window.renewal(now: now) : window.next(free: free, busy: 0, now: now) else {
            return
        }
        send(.claim(claim))
    }

    private mutating func settleSome() {
        // In order: that of a set is another in each process, and a seed would not say what happens.
        flush(Set(held.sorted().filter { _ in Bool.random(using: &random) }))
    }

    private mutating func flush(_ numbers: Set<Int>) {
        guard isConnected, !numbers.isEmpty else { return }
        held.subtract(numbers)
        unconfirmed[batches] = numbers
        send(.settle(batches, numbers))
        batches += 1
    }

    /// The server executes what was written first, and the lane hears of it.
    private mutating func answer() {
        guard isConnected, !pipeline.isEmpty else { return }
        let (name, command) = pipeline.removeFirst()
        let isOurs = name == worker
        switch command {
        case .claim(let claim):
            if Int.random(in: 0..<20, using: &random) == 0 {
                // LOADING, BUSY, OOM.
                if isOurs { window.refused(now: now, pause: .milliseconds(500)) }
                return
            }
            let reply = server.claim(name, claim)
            guard isOurs else { return }
            guard let jobs = reply else { return startAfresh() }
            _ = window.answered(received: jobs.count, isPaused: false, nextDue: nil, now: now)
            for (offset, job) in jobs.enumerated() { take(claim.first + offset, job) }
        case .settle(let batch, let numbers):
            server.settle(name, numbers)
            if isOurs { unconfirmed[batch] = nil }
        case .look:
            guard isOurs else { return }
            let known = unconfirmed.values.reduce(held) { $0.union($1) }
            for (number, job) in (server.claims[worker] ?? [:]).sorted(by: { $0.key < $1.key })
            where window.wasAnswered(number) && !known.contains(number) {
                take(number, job)
            }
        }
    }

    private mutating func take(_ number: Int, _ job: Int) {
        held.insert(number)
        taken[job, default: 0] += 1
    }

    private mutating func startAfresh() {
        server.giveBack(worker)
        generation += 1
        window.startAfresh()
        held = []
        unconfirmed = [:]
    }

    /// Of what was written, some is executed now, some when the network passes it on, and the rest never.
    private mutating func breakConnection() {
        guard isConnected else { return }
        isConnected = false
        let executed = pipeline.prefix(Int.random(in: 0...pipeline.count, using: &random))
        for (name, command) in executed { execute(command, name) }
        let rest = pipeline.dropFirst(executed.count)
        late += rest.prefix(Int.random(in: 0...rest.count, using: &random))
        pipeline = []
        if window.isAsking { window.failed(mayHaveRun: true, now: now) }
    }

    private mutating func executeLate() {
        guard !late.isEmpty else { return }
        let (name, command) = late.removeFirst()
        execute(command, name)
    }

    private mutating func execute(_ command: Command, _ name: String) {
        switch command {
        case .claim(let claim): _ = server.claim(name, claim)
        case .settle(_, let numbers): server.settle(name, numbers)
        case .look: break
        }
    }

    /// What `QueueLane.redisChanged` does.
    private mutating func connect() {
        guard !isConnected else { return }
        isConnected = true
        if window.hasJoined { send(.look) }
        for (batch, numbers) in unconfirmed.sorted(by: { $0.key < $1.key }) { send(.settle(batch, numbers)) }
        window.wake()
    }
}
