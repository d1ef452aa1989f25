import APNS
import Foundation
import Logging
import NIOCore
import PushJob
import TLS
import TestSupport

@testable import PushQueue
@testable import PushWorker
@testable import Redis

/// A whole fleet from one seed: workers with the real lanes and the real scripts in a real Redis, a simulated network, a simulated
/// APNs, producers, and faults of all of them, in virtual time on one thread.
///
/// The same seed gives the same run, event by event. A step is one event: a command that Redis executes, an answer, a timer, a
/// push, or a fault.
///
/// `@unchecked Sendable`: a test uses it on one thread.
final class FleetSimulation: @unchecked Sendable {
    struct Faults: OptionSet {
        let rawValue: Int
        /// Connections to Redis break: commands are executed and unanswered, lost, or executed late.
        static let breaks = Faults(rawValue: 1)
        /// Redis is unreachable for a while.
        static let outages = Faults(rawValue: 2)
        /// Processes do not run for a while, also for longer than their lease.
        static let stops = Faults(rawValue: 4)
        /// Processes end without warning.
        static let crashes = Faults(rawValue: 8)
        /// Processes are replaced in good order.
        static let drains = Faults(rawValue: 16)
        /// Redis goes back to an older state.
        static let rollbacks = Faults(rawValue: 32)
        /// The memory of Redis is full for a while.
        static let fullMemory = Faults(rawValue: 64)
        /// APNs refuses, delays and loses.
        static let apns = Faults(rawValue: 128)

        static let all: Faults = [.breaks, .outages, .stops, .crashes, .drains, .rollbacks, .fullMemory, .apns]
        /// All in which Redis keeps what it has confirmed.
        static let durable = all.subtracting(.rollbacks)
        static let singles: [Faults] = [
            .breaks, .outages, .stops, .crashes, .drains, .rollbacks, .fullMemory, .apns,
        ]
    }

    struct Violation: Error, CustomStringConvertible {
        let description: String
    }

    struct Options {
        var steps = 10_000
        var faults = Faults.durable
        var mutation: Mutation?
        /// The milliseconds between two faults, of all kinds.
        var faultInterval: ClosedRange<Int64> = 50...1000
        /// Prints what happens.
        var isVerbose = false
    }

    /// The maximum virtual time in which everything ends once there are no faults.
    static let drainLimit = TimeAmount.minutes(10)
    private static let auditInterval = 400
    private static let auditedCounters = Outcome.allCases.map(\.rawValue)

    let seed: UInt64
    let options: Options
    let server: SimulatedServer
    let queues: [QueueKeys]
    let sharedKeys: SharedKeys
    private(set) var random: SeededGenerator
    private(set) var now = NIODeadline.uptimeNanoseconds(3_600_000_000_000)
    private(set) var steps = 0
    /// A digest of all that has happened, in its order.
    private(set) var trace: UInt64 = 0xcbf2_9ce4_8422_2325
    private var events = EventHeap()
    private var cancelled: Set<UInt64> = []
    private var violation: String?
    /// False once everything is to end.
    private(set) var hasFaults = true
    private(set) var isRedisUp = true
    private(set) var hasRolledBack = false
    private var isMemoryFull = false
    private var clock: Int64 = 0
    private var snapshot: (dumps: [(key: String, dump: ByteBuffer)], jobs: Int)?
    /// The milliseconds that a command or an answer usually takes.
    let latency: ClosedRange<Int64>
    private(set) var workers: [SimulatedWorker] = []
    private var formerWorkers: [SimulatedWorker] = []
    private var startedWorkers = 0
    private var waits: [[SimulatedWait]]
    let ledger = SimulationLedger()
    private(set) lazy var apns = SimulatedAPNS(self)

    // What the server's scripts may do.
    private var digests: [String: QueueScript] = [:]
    private var granted: [String: (last: Int, stamp: String)] = [:]
    /// The claims whose settlement was confirmed to a lane: the key of the lane's claims and the field.
    private var confirmed: Set<String> = []

    init(seed: UInt64, _ options: Options, on server: SimulatedServer) throws {
        self.seed = seed
        self.options = options
        self.server = server
        random = SeededGenerator(seed: seed)
        latency = 0...([2, 10, 60].randomElement(using: &random) ?? 2)
        queues = try ["a", "b"].map { try QueueKeys(queue: $0) }
        sharedKeys = try SharedKeys()
        waits = queues.map { _ in [] }
        try server.reset()
        for _ in 0..<Int.random(in: 2...3, using: &random) { startWorker() }
        produce()
        if options.faults.contains(.rollbacks) { takeSnapshots() }
        scheduleFault()
    }

    // MARK: Time

    /// Redis' time in milliseconds since 1970.
    var milliseconds: Int64 { 1_800_000_000_000 + Int64(now.uptimeNanoseconds / 1_000_000) }

    func chance(_ percent: Double) -> Bool { Double.random(in: 0..<100, using: &random) < percent }

    func pick(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }

    func delay(_ milliseconds: ClosedRange<Int64>) -> TimeAmount {
        .microseconds(Int64.random(in: milliseconds.lowerBound * 1000...milliseconds.upperBound * 1000, using: &random))
    }

    @discardableResult
    func schedule(
        at time: NIODeadline, on loop: SimulatedLoop? = nil, abandon: @escaping () -> Void = {},
        _ task: @escaping () -> Void
    ) -> UInt64 {
        events.push(max(time, now), loop, abandon, task)
    }

    func cancel(_ event: UInt64) { cancelled.insert(event) }

    func fail(_ description: @autoclosure () -> String) {
        guard violation == nil else { return }
        violation = description()
    }

    /// Prints an event, for whoever looks into a seed.
    func log(_ event: @autoclosure () -> String) {
        if options.isVerbose { print("\(milliseconds) step \(steps): \(event())") }
    }

    private func note(_ value: UInt64) { trace = (trace ^ value) &* 0x100_0000_01b3 }

    /// What has happened, for whoever looks for a seed.
    private(set) var summary = ""

    private func makeSummary() -> String {
        let counters = (workers + formerWorkers).flatMap(\.lanes).map(\.counters)
        return """
            seed \(seed): \(steps) steps, \(ledger.jobs.count) jobs, \(ledger.notificationCount) notifications, \
            \(ledger.duplicates) duplicates, \(startedWorkers) workers, \
            \(counters.reduce(0) { $0 + $1.possibleDuplicates }) possible duplicates, \
            \(counters.reduce(0) { $0 + $1.lostClaims }) lost claims, \(counters.reduce(0) { $0 + $1.retried }) retried, \
            \(counters.reduce(0) { $0 + $1.deferred }) deferred, \((now - .uptimeNanoseconds(0)).nanoseconds / 1_000_000_000 - 3600) s
            """
    }

    // MARK: Running

    /// Runs with faults, and then without until everything has ended.
    func run() throws {
        defer { dismantle() }
        while steps < options.steps { try step() }
        try settle()
    }

    private func step() throws {
        guard let event = events.pop() else { throw error("nothing happens any more") }
        if !cancelled.isEmpty, cancelled.remove(event.id) != nil { return }
        now = event.time
        if let loop = event.loop {
            switch loop.state {
            case .running: break
            case .stopped: return loop.held.append(event)
            case .crashed: return event.abandon()
            }
        }
        steps += 1
        note(now.uptimeNanoseconds)
        note(event.id)
        event.task()
        if let violation { throw error(violation) }
        if steps % Self.auditInterval == 0 { _ = try audit() }
    }

    private func error(_ description: String) -> Violation {
        Violation(description: "seed \(seed), step \(steps), at \(milliseconds): \(description)")
    }

    /// Ends all faults, and waits until everything has ended.
    private func settle() throws {
        hasFaults = false
        setMemoryFull(false)
        for worker in workers where worker.loop.state == .stopped { resume(worker) }
        let limit = now + Self.drainLimit
        var nextAudit = now + .seconds(5)
        while true {
            try step()
            guard now >= nextAudit else { continue }
            nextAudit = now + .seconds(5)
            let places = try audit()
            if places == 0 { break }
            guard now < limit else { throw error("\(places) notifications do not end: \(remaining())") }
        }
        // What the lanes still do comes to an end.
        let end = now + .seconds(30)
        while now < end { try step() }
        guard try audit() == 0 else { throw error("jobs come back") }
        try checkCounters()
    }

    /// Dissolves what holds itself.
    private func dismantle() {
        let all = workers + formerWorkers
        summary = makeSummary()
        for worker in all {
            worker.loop.crash()
            worker.dismantle()
        }
        while let event = events.pop() { event.abandon() }
        if all.contains(where: { $0.isDraining && !$0.isDrained }) {
            // A drain has promises that only its end fulfills, and none may be freed before.
            _ = Unmanaged.passRetained(self)
        } else {
            (workers, formerWorkers) = ([], [])
        }
    }

    // MARK: Workers

    private func startWorker() {
        startedWorkers += 1
        log("start of w\(startedWorkers)")
        let worker = SimulatedWorker(
            "w\(startedWorkers)", lanes: pick(1...2), seed: random.next(), in: self)
        workers.append(worker)
        worker.start()
    }

    private func end(_ worker: SimulatedWorker) {
        workers.removeAll { $0 === worker }
        formerWorkers.append(worker)
        log("end of \(worker.name)")
        worker.loop.crash()
        for queue in waits.indices { waits[queue].removeAll { $0.worker === worker } }
        schedule(at: now + delay(200...3000)) { [self] in startWorker() }
    }

    private func resume(_ worker: SimulatedWorker) {
        guard worker.loop.state == .stopped else { return }
        worker.loop.state = .running
        let held = worker.loop.held
        worker.loop.held = []
        for event in held { events.pushAgain(event, at: now) }
    }

    // MARK: Faults

    private func scheduleFault() {
        schedule(at: now + delay(options.faultInterval)) { [self] in
            guard hasFaults else { return }
            scheduleFault()
            let fault = Faults.singles[pick(0...Faults.singles.count - 1)]
            guard options.faults.contains(fault) else { return }
            note(UInt64(fault.rawValue))
            happens(fault)
        }
    }

    private func happens(_ fault: Faults) {
        guard !workers.isEmpty else { return }
        let worker = workers[pick(0...workers.count - 1)]
        switch fault {
        case .breaks:
            worker.senders[pick(0...worker.senders.count - 1)].loseSoon()
            // What is late then meets an older state.
            guard options.faults.contains(.rollbacks), chance(40) else { return }
            schedule(at: now + delay(100...5000)) { [self] in if hasFaults { rollBack() } }
        case .outages:
            guard chance(20) else { return }
            takeRedisDown(for: delay(500...(chance(20) ? 25_000 : 4000)))
        case .stops:
            guard worker.loop.state == .running else { return }
            worker.loop.state = .stopped
            log("stop of \(worker.name)")
            schedule(at: now + delay(500...25_000)) { [self] in resume(worker) }
        case .crashes: if chance(worker.isDraining ? 5 : 40) { end(worker) }
        case .drains:
            guard chance(40), worker.loop.state == .running, !worker.isDraining else { return }
            worker.isDraining = true
            log("drain of \(worker.name)")
            let drained = worker.lanes.map { $0.drain(within: .seconds(3)) }
            EventLoopFuture.andAllComplete(drained, on: worker.loop).assumeIsolated().whenComplete { [self] _ in
                worker.isDrained = true
                log("end of the drain of \(worker.name)")
                schedule(at: now) { [self] in if workers.contains(where: { $0 === worker }) { end(worker) } }
            }
        case .rollbacks: if chance(30) { rollBack() }
        case .fullMemory:
            guard chance(40), !isMemoryFull else { return }
            setMemoryFull(true)
            schedule(at: now + delay(200...6000)) { [self] in setMemoryFull(false) }
        case .apns: apns.happens(worker)
        default: break
        }
    }

    private func takeRedisDown(for time: TimeAmount) {
        guard isRedisUp else { return }
        isRedisUp = false
        log("no Redis for \(time)")
        for worker in workers { for sender in worker.senders { sender.lose() } }
        for queue in waits.indices { waits[queue] = [] }
        schedule(at: now + time) { [self] in isRedisUp = true }
    }

    private func setMemoryFull(_ isFull: Bool) {
        guard isFull != isMemoryFull else { return }
        isMemoryFull = isFull
        // A limit below what any server uses: the current use would differ from run to run.
        server.run(RedisCommand("CONFIG", "SET", "maxmemory", isFull ? "1" : "0"))
    }

    private func takeSnapshots() {
        schedule(at: now + delay(300...4000)) { [self] in
            guard hasFaults else { return }
            snapshot = (server.dump(), ledger.jobs.count)
            takeSnapshots()
        }
    }

    /// A failover to a replica that is behind. Commands on their way to the old server reach the new one late.
    private func rollBack() {
        guard let snapshot, isRedisUp else { return }
        takeRedisDown(for: delay(300...5000))
        let wasFull = isMemoryFull
        setMemoryFull(false)
        server.restore(snapshot.dumps)
        clock = 0
        setMemoryFull(wasFull)
        hasRolledBack = true
        granted = [:]
        confirmed = []
        ledger.forget(after: snapshot.jobs)
    }

    // MARK: Redis

    /// Executes a command of a client.
    func execute(_ command: RedisCommand) -> Result<RESPReply, RedisError> {
        var command = command
        let arguments = CommandArguments(command)
        let script = script(of: arguments)
        if let (find, replacement) = options.mutation?.patch { command = arguments.replacing(find, by: replacement) }
        var leaseEnd: Double?
        if script == .reclaim, let workers = arguments.key(0), let lane = arguments.value(0) {
            leaseEnd = server.run(RedisCommand("ZSCORE", workers, lane)).root.string.flatMap(Double.init)
        }
        setClock()
        let reply = server.run(command)
        note(UInt64(reply.arena.readableBytes) << 16 ^ UInt64(reply.nodes.count))
        if let error = reply.error {
            if !["OOM", "NOSCRIPT"].contains(error.prefix) { fail("Redis refuses \(command): \(error)") }
            return .failure(.server(error))
        }
        switch script {
        case .claim: checkClaim(arguments, reply)
        case .reclaim:
            if let reclaimed = reply.root[0].integer, reclaimed >= 0 {
                if let leaseEnd, leaseEnd >= Double(milliseconds) {
                    fail("a lane was reclaimed although its lease goes on")
                }
                serveWaits()
            }
        case .release: serveWaits()
        default: break
        }
        return .success(reply)
    }

    /// True for a command that reclaims the claims of a lane.
    func isReclaim(_ command: RedisCommand) -> Bool {
        let arguments = CommandArguments(command)
        return arguments[0] == "EVALSHA" && digests[arguments[1]] == .reclaim
    }

    private func setClock() {
        guard clock != milliseconds else { return }
        clock = milliseconds
        if isMemoryFull { server.run(RedisCommand("CONFIG", "SET", "maxmemory", "0")) }
        server.run(RedisCommand("SET", SimulatedServer.clock, "\(milliseconds)"))
        if isMemoryFull { server.run(RedisCommand("CONFIG", "SET", "maxmemory", "1")) }
    }

    private func script(of arguments: CommandArguments) -> QueueScript? {
        switch arguments[0] {
        case "EVALSHA": return digests[arguments[1]]
        case "EVAL": return SimulatedServer.scripts[arguments.length(1)]
        case "SCRIPT":
            guard let script = SimulatedServer.scripts[arguments.length(2)] else { return nil }
            var load = RedisCommand("SCRIPT", "LOAD")
            let source = options.mutation?.patch.map {
                arguments.text(2).replacingOccurrences(of: $0.find, with: $0.by)
            }
            load.append(source ?? arguments.text(2))
            if let digest = server.run(load).root.string { digests[digest] = script }
            return nil
        default: return nil
        }
    }

    /// No number is given to two jobs, unless Redis has forgotten the first.
    private func checkClaim(_ arguments: CommandArguments, _ reply: RESPReply) {
        let count = reply.root.count - 8
        guard count > 0, let lane = arguments.key(2), let first = arguments.value(4).flatMap({ Int($0) }),
            let stamp = reply.root[6].string
        else { return }
        if let last = granted[lane], last.stamp != stamp, first <= last.last {
            fail("the claim \(first) of \(lane) was given again")
        }
        granted[lane] = (max(first + count - 1, granted[lane]?.last ?? 0), stamp)
    }

    func confirm(_ settlement: Settlement, of lane: String) {
        for claim in settlement.claims { confirmed.insert("\(lane) \(claim)") }
    }

    // MARK: Blocking waits

    func wait(_ wait: SimulatedWait) {
        waits[wait.queue].append(wait)
        serveWaits()
    }

    func stopWait(_ wait: SimulatedWait) { waits[wait.queue].removeAll { $0 === wait } }

    private func serveWaits() {
        guard isRedisUp else { return }
        for (index, keys) in queues.enumerated() {
            while let wait = waits[index].first {
                let reply = server.run(RedisCommand("LMOVE", keys.jobs, keys.inbox, "LEFT", "RIGHT"))
                guard reply.error == nil, !reply.root.isNull else { break }
                waits[index].removeFirst()
                wait.served()
            }
        }
    }

    // MARK: Producers

    private func produce() {
        schedule(at: now + delay(5...120)) { [self] in
            guard hasFaults else { return }
            produce()
            for _ in 0..<pick(1...3) { push() }
        }
    }

    private func push() {
        let queue = pick(0...2) > 0 ? 0 : 1
        let job = SimulatedJob.make(ledger.jobs.count, queue: queue, in: self)
        var command = RedisCommand("RPUSH", queues[queue].jobs)
        command.append(job.body)
        guard isRedisUp, server.run(command).error == nil else { return }
        ledger.add(job)
        serveWaits()
    }

    // MARK: Audits

    /// Checks that each notification is in one place or has ended for a reason.
    /// - Returns: the number of notifications that have not ended.
    private func audit() throws -> Int {
        ledger.begin()
        for (index, keys) in queues.enumerated() {
            let base = "push:{\(keys.queue)}:claimed:*"
            let lanes = server.run(RedisCommand("KEYS", base)).root.children.compactMap(\.string).sorted()
            let replies = server.run(
                [
                    RedisCommand("LRANGE", keys.jobs, "0", "-1"), RedisCommand("LRANGE", keys.inbox, "0", "-1"),
                    RedisCommand("ZRANGE", keys.retry, "0", "-1"), RedisCommand("ZRANGE", keys.dead, "0", "-1"),
                ] + lanes.map { RedisCommand("HGETALL", $0) })
            for (number, reply) in replies.enumerated() {
                var elements = reply.root.children
                while let element = elements.next() {
                    var body = element
                    if number >= 4 {
                        let field = "\(lanes[number - 4]) \(element.string ?? "")"
                        if confirmed.contains(field) { throw error("the settled claim \(field) is still there") }
                        guard let value = elements.next() else { break }
                        body = value
                    }
                    guard let bytes = body.bytes else { continue }
                    if let mistake = ledger.found(bytes, queue: index, isDead: number == 3) { throw error(mistake) }
                }
            }
        }
        var invalid: Set<String>?
        if !hasRolledBack, ledger.needsInvalidTokens {
            invalid = Set(
                server.run(RedisCommand("SMEMBERS", sharedKeys.invalidTokens)).root.children.compactMap(\.string))
        }
        if let mistake = ledger.end(invalid: invalid, isDurable: !hasRolledBack) { throw error(mistake) }
        return ledger.openCount
    }

    private func remaining() -> String {
        queues.map { keys in
            let counts = server.run([
                RedisCommand("LLEN", keys.jobs), RedisCommand("LLEN", keys.inbox), RedisCommand("ZCARD", keys.retry),
            ]).map { $0.root.integer ?? -1 }
            return "queue \(keys.queue): jobs, inbox, retries \(counts)"
        }.joined(separator: "; ") + "; "
            + workers.flatMap(\.lanes).flatMap(\.consumers).compactMap(\.problem).joined(separator: " ")
    }

    /// The counters add up to the notifications, and possible duplicates explain what was accepted twice, if Redis has kept all.
    private func checkCounters() throws {
        guard !hasRolledBack else { return }
        var counts: [String: Int] = [:]
        for keys in queues {
            for key in server.run(RedisCommand("KEYS", "push:{\(keys.queue)}:stats:*")).root.children {
                var elements = server.run(RedisCommand("HGETALL", key.string ?? "")).root.children
                while let field = elements.next()?.string, let value = elements.next()?.string {
                    counts[field, default: 0] += Int(value) ?? 0
                }
            }
        }
        let ended = Self.auditedCounters.reduce(0) { $0 + (counts[$1] ?? 0) }
        guard ended == ledger.notificationCount else {
            throw error(
                "\(ledger.notificationCount) notifications, and \(ended) ended by the counters: \(counts.sorted { $0.key < $1.key })"
            )
        }
        let possible = (workers + formerWorkers).flatMap(\.lanes).reduce(0) { $0 + $1.counters.possibleDuplicates }
        guard ledger.duplicates <= possible else {
            throw error(
                "\(ledger.duplicates) were accepted again, and \(possible) were counted as possible duplicates: \(ledger.mostDuplicated)"
            )
        }
    }
}

extension Lane {
    fileprivate var counters: LaneCounters { ledger.counters }
}

// MARK: - Events

/// An event of a simulation.
private struct SimulatedEvent {
    var time: NIODeadline
    var order: UInt64
    let id: UInt64
    let loop: SimulatedLoop?
    /// Fails the promise of what will never happen: none may be left open.
    let abandon: () -> Void
    let task: () -> Void
}

/// Events by time; those of one time in the order in which they were pushed.
private struct EventHeap {
    private var heap: [SimulatedEvent] = []
    private var next: UInt64 = 0

    mutating func push(
        _ time: NIODeadline, _ loop: SimulatedLoop?, _ abandon: @escaping () -> Void, _ task: @escaping () -> Void
    ) -> UInt64 {
        next += 1
        insert(SimulatedEvent(time: time, order: next, id: next, loop: loop, abandon: abandon, task: task))
        return next
    }

    mutating func pushAgain(_ event: SimulatedEvent, at time: NIODeadline) {
        var event = event
        next += 1
        (event.time, event.order) = (time, next)
        insert(event)
    }

    private func isBefore(_ one: Int, _ other: Int) -> Bool {
        heap[one].time == heap[other].time ? heap[one].order < heap[other].order : heap[one].time < heap[other].time
    }

    private mutating func insert(_ event: SimulatedEvent) {
        heap.append(event)
        var index = heap.count - 1
        while index > 0, isBefore(index, (index - 1) / 2) {
            heap.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    mutating func pop() -> SimulatedEvent? {
        guard !heap.isEmpty else { return nil }
        heap.swapAt(0, heap.count - 1)
        let first = heap.removeLast()
        var index = 0
        while true {
            var least = index
            for child in [2 * index + 1, 2 * index + 2] where child < heap.count && isBefore(child, least) {
                least = child
            }
            if least == index { return first }
            heap.swapAt(index, least)
            index = least
        }
    }
}

/// The event loop of a worker, in a simulation's time. It can stop for a while, as a process that does not get to run.
final class SimulatedLoop: EventLoop, @unchecked Sendable {
    enum State {
        case running
        case stopped
        case crashed
    }

    private unowned let simulation: FleetSimulation
    fileprivate(set) var state = State.running
    /// What came while it was stopped.
    fileprivate var held: [SimulatedEvent] = []

    init(_ simulation: FleetSimulation) { self.simulation = simulation }

    fileprivate func crash() {
        state = .crashed
        let abandoned = held
        held = []
        for event in abandoned { event.abandon() }
    }

    var inEventLoop: Bool { true }
    var now: NIODeadline { simulation.now }

    func execute(_ task: @escaping @Sendable () -> Void) { simulation.schedule(at: now, on: self, task) }

    func submit<T>(_ task: @escaping @Sendable () throws -> T) -> EventLoopFuture<T> {
        scheduleTask(deadline: now, task).futureResult
    }

    @discardableResult
    func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        let event = simulation.schedule(at: deadline, on: self, abandon: { promise.fail(EventLoopError.cancelled) }) {
            do {
                promise.assumeIsolated().succeed(try task())
            } catch {
                promise.fail(error)
            }
        }
        return Scheduled(promise: promise, cancellationTask: { [simulation] in simulation.cancel(event) })
    }

    @discardableResult
    func scheduleTask<T>(in time: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        scheduleTask(deadline: now + time, task)
    }

    func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        callback(nil)
    }
}

// MARK: - Redis

/// The real Redis, over a blocking connection.
final class SimulatedServer {
    static let clock = "simulation:clock"
    /// The scripts by the lengths of their sources.
    static let scripts = Dictionary(
        QueueScript.allCases.map { ($0.source(clock: .key(clock)).count, $0) }, uniquingKeysWith: { one, _ in one })

    private let process: RedisServer
    private let descriptor: Int32
    private let decoder = RESPDecoder()
    private var input = [UInt8](repeating: 0, count: RESPDecoder.portion)

    init() throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(
            "simulation-\(UInt32.random(in: 0...UInt32.max)).sock"
        ).path
        process = try RedisServer(arguments: ["--unixsocket", path, "--maxmemory-policy", "noeviction"])
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw FleetSimulation.Violation(description: "no connection to \(path)") }
    }

    deinit { close(descriptor) }

    func reset() throws {
        run(RedisCommand("CONFIG", "SET", "maxmemory", "0"))
        run(RedisCommand("FLUSHALL", "SYNC"))
    }

    @discardableResult
    func run(_ command: RedisCommand) -> RESPReply { run([command])[0] }

    func run(_ commands: [RedisCommand]) -> [RESPReply] {
        var output = ByteBuffer()
        do {
            for command in commands { try command.encode(into: &output) }
            try write(output)
            var replies: [RESPReply] = []
            while replies.count < commands.count {
                if let reply = try decoder.next() {
                    replies.append(reply)
                    continue
                }
                let count = read(descriptor, &input, input.count)
                guard count > 0 else { preconditionFailure("redis-server has ended: \(process.log.suffix(2000))") }
                try input.withUnsafeBytes { try decoder.feed(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            }
            return replies
        } catch {
            preconditionFailure("redis-server: \(error)")
        }
    }

    private func write(_ bytes: ByteBuffer) throws {
        bytes.withUnsafeReadableBytes { bytes in
            var rest = bytes[...]
            while !rest.isEmpty {
                let count = Foundation.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                guard count > 0 else { preconditionFailure("redis-server has ended: \(process.log.suffix(2000))") }
                rest = rest.dropFirst(count)
            }
        }
    }

    /// All keys, as they are now.
    func dump() -> [(key: String, dump: ByteBuffer)] {
        let keys = run(RedisCommand("KEYS", "*")).root.children.compactMap(\.string).sorted()
        let dumps = run(keys.map { RedisCommand("DUMP", $0) })
        return zip(keys, dumps).compactMap { key, dump in dump.root.bytes.map { (key, $0) } }
    }

    func restore(_ dumps: [(key: String, dump: ByteBuffer)]) {
        run(RedisCommand("FLUSHALL", "SYNC"))
        for (key, dump) in dumps {
            var command = RedisCommand("RESTORE", key, "0")
            command.append(dump)
            run(command)
        }
    }
}

/// The arguments of a command.
struct CommandArguments {
    private let command: RedisCommand
    private let starts: [Int]

    init(_ command: RedisCommand) {
        self.command = command
        var start = command.arguments.readerIndex
        starts = command.lengths.map { length in
            defer { start += length }
            return start
        }
    }

    func text(_ index: Int) -> String {
        command.arguments.getString(at: starts[index], length: command.lengths[index]) ?? ""
    }

    subscript(index: Int) -> String { index < starts.count ? text(index) : "" }

    func length(_ index: Int) -> Int { index < starts.count ? command.lengths[index] : 0 }

    private var keyCount: Int { Int(self[2]) ?? 0 }

    /// A key of a script's, counted from 0.
    func key(_ index: Int) -> String? { index < keyCount ? self[3 + index] : nil }

    /// An argument of a script's, counted from 0.
    func value(_ index: Int) -> String? {
        let index = 3 + keyCount + index
        return index < starts.count ? self[index] : nil
    }

    /// The command with another text in the source of its script.
    func replacing(_ find: String, by replacement: String) -> RedisCommand {
        let place: Int
        switch self[0] {
        case "EVAL": place = 1
        case "SCRIPT": place = 2
        default: return command
        }
        var changed = RedisCommand(self[0])
        for index in 1..<starts.count {
            if index == place {
                changed.append(text(index).replacingOccurrences(of: find, with: replacement))
            } else if let bytes = command.arguments.getSlice(at: starts[index], length: command.lengths[index]) {
                changed.append(bytes)
            }
        }
        return changed
    }
}

/// A lane's connection to Redis, which delivers in order after random times, and breaks.
final class SimulatedSender: RedisSender {
    private final class Pending {
        let command: RedisCommand
        let completion: RedisClient.Completion
        var isExecuted = false
        /// True once the connection is lost: there will be no answer.
        var isLost = false
        var isNeverExecuted = false

        init(_ command: RedisCommand, _ completion: @escaping RedisClient.Completion) {
            self.command = command
            self.completion = completion
        }
    }

    private unowned let simulation: FleetSimulation
    private let loop: SimulatedLoop
    /// Called with each change, before commands that are lost to it fail.
    var onStateChange: (RedisClient.State) -> Void = { _ in }
    private(set) var isReady = false
    private var isConnecting = false
    private var pending: [Pending] = []
    private var commandsUntilLoss = 0
    private var lastArrival = NIODeadline.distantPast
    private var lastAnswer = NIODeadline.distantPast

    init(_ loop: SimulatedLoop, in simulation: FleetSimulation) {
        self.loop = loop
        self.simulation = simulation
    }

    var eventLoop: any EventLoop { loop }

    private static let lost = RedisError.connectionLost(address: "simulation", sent: true, reason: "lost")

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisClient.Completion) {
        guard isReady else {
            return completion(.failure(.notConnected(address: "simulation", reason: "no connection")))
        }
        let entry = Pending(command, completion)
        pending.append(entry)
        // A reclaim that takes long meets lanes that are back.
        let isSlow = simulation.chance(simulation.isReclaim(command) ? 50 : 2)
        lastArrival = max(lastArrival, simulation.now + simulation.delay(isSlow ? 20...3000 : simulation.latency))
        if commandsUntilLoss > 0 {
            commandsUntilLoss -= 1
            if commandsUntilLoss == 0 {
                simulation.schedule(at: simulation.now + simulation.delay(0...3)) { [self] in lose() }
            }
        }
        simulation.schedule(at: lastArrival) { [self] in arrive(entry) }
    }

    private func arrive(_ entry: Pending) {
        guard !entry.isNeverExecuted, !entry.isExecuted else { return }
        entry.isExecuted = true
        let result = simulation.execute(entry.command)
        guard !entry.isLost else { return }
        lastAnswer = max(
            lastAnswer, simulation.now + simulation.delay(simulation.chance(2) ? 20...800 : simulation.latency))
        simulation.schedule(at: lastAnswer, on: loop) { [self] in
            guard !entry.isLost, pending.first === entry else { return }
            pending.removeFirst()
            entry.completion(result)
        }
    }

    func connect() {
        guard !isReady, !isConnecting else { return }
        isConnecting = true
        simulation.schedule(at: simulation.now + simulation.delay(5...3000), on: loop) { [self] in
            isConnecting = false
            guard simulation.isRedisUp else { return connect() }
            isReady = true
            onStateChange(.ready)
        }
    }

    /// Loses the connection while one of the next commands is on its way.
    func loseSoon() { commandsUntilLoss = simulation.pick(1...4) }

    /// Loses the connection. Of what has not been executed, some still is, some is later, and the rest never.
    func lose() {
        guard isReady else { return }
        isReady = false
        let entries = pending
        pending = []
        let waiting = entries.filter { !$0.isExecuted }
        for entry in entries { entry.isLost = true }
        let executed = simulation.chance(50) ? 0 : simulation.pick(0...waiting.count)
        let late = simulation.pick(0...waiting.count - executed)
        for entry in waiting[executed...] { entry.isNeverExecuted = true }
        var time = simulation.now + simulation.delay(10...(simulation.chance(50) ? 12_000 : 2000))
        for entry in waiting[executed..<executed + late] {
            time = time + simulation.delay(0...20)
            simulation.schedule(at: time) { [self] in
                entry.isNeverExecuted = false
                arrive(entry)
            }
        }
        simulation.schedule(at: simulation.now, on: loop) { [self] in
            onStateChange(.disconnected(Self.lost, retryIn: .milliseconds(100)))
            for entry in entries { entry.completion(.failure(Self.lost)) }
            connect()
        }
    }
}

/// A blocking wait.
final class SimulatedWait {
    let queue: Int
    unowned let worker: SimulatedWorker
    var served: () -> Void = {}

    init(_ queue: Int, _ worker: SimulatedWorker) {
        self.queue = queue
        self.worker = worker
    }
}

// MARK: - Workers

/// A process with its lanes.
final class SimulatedWorker {
    let name: String
    let loop: SimulatedLoop
    private(set) var lanes: [Lane] = []
    private(set) var senders: [SimulatedSender] = []
    private(set) var transports: [SimulatedTransport] = []
    var isDraining = false
    var isDrained = false
    private let simulation: FleetSimulation

    private static let prepared: Result<[AppSender.Prepared], any Error> = Result {
        try ["shop", "chat", "mail"].map { name in
            var app = try EngineScene.app(name)
            if name == "chat" { app.maximumPerSecond = SimulatedAPNS.chatRate }
            return try AppSender.Prepared(app)
        }
    }

    init(_ name: String, lanes count: Int, seed: UInt64, in simulation: FleetSimulation) {
        self.name = name
        self.simulation = simulation
        loop = SimulatedLoop(simulation)
        guard let apps = try? Self.prepared.get(), let topology = try? RedisTopology(url: "redis://127.0.0.1:1") else {
            preconditionFailure("the configuration is not valid")
        }
        var configuration = WorkerConfiguration(
            redis: topology,
            queues: zip(simulation.queues, [3, 1]).map { QueueConfiguration(keys: $0, weight: $1) },
            sharedKeys: simulation.sharedKeys, apps: apps.map(\.configuration), workerName: name)
        for index in configuration.queues.indices { configuration.queues[index].limits.lease = 10_000 }
        configuration.retry.base = 500
        configuration.retry.cap = 8000
        configuration.appPause.first = 1000
        configuration.appPause.longest = 4000
        configuration.appPause.probe = 5000
        let issues = IssueLog()
        var seeds = SeededGenerator(seed: seed)
        for index in 0..<count {
            let context = LaneContext(
                configuration: configuration, index: index, eventLoop: loop,
                logger: Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }, issues: issues,
                metrics: LaneMetrics(apps: apps.count, queues: configuration.queues.count, takesTimes: false),
                generator: SeededGenerator(seed: seeds.next()), wallClock: { 1_800_000_000 })
            let sender = SimulatedSender(loop, in: simulation)
            senders.append(sender)
            let stores = SimulatedStores(context, sender, self, seed: seeds.next(), in: simulation)
            let made = TransportMaker(self, simulation)
            lanes.append(Lane(context, of: count, stores: stores, makeTransport: { _, _, _ in made.make() }))
        }
    }

    private final class TransportMaker: @unchecked Sendable {
        private unowned let worker: SimulatedWorker
        private let simulation: FleetSimulation
        private var next = 0

        init(_ worker: SimulatedWorker, _ simulation: FleetSimulation) {
            self.worker = worker
            self.simulation = simulation
        }

        func make() -> any Transport {
            defer { next += 1 }
            let transport = SimulatedTransport(app: next, worker.loop, in: simulation)
            worker.transports.append(transport)
            return transport
        }
    }

    func start() {
        guard let apps = try? Self.prepared.get() else { return }
        let lanes = lanes
        for (index, lane) in lanes.enumerated() {
            lane.callbacks.backlog = { queue in
                for (other, lane) in lanes.enumerated() where other != index { lane.wake(queue) }
            }
            lane.callbacks.due = { queue, time in lanes[0].wake(queue, at: time) }
            lane.start(apps)
        }
    }

    func dismantle() {
        for transport in transports { transport.dismantle() }
        for sender in senders { sender.onStateChange = { _ in } }
        for lane in lanes {
            lane.callbacks = Lane.Callbacks()
            lane.context.schedulePump = {}
            lane.context.pump = {}
        }
    }
}

/// A lane's stores over its simulated connection.
private final class SimulatedStores: LaneStores {
    private let sender: SimulatedSender
    private unowned let worker: SimulatedWorker
    private let simulation: FleetSimulation
    private let invalidTokens: InvalidTokenSet
    private let random: () -> UInt32
    let fleet: any FleetStore

    init(
        _ context: LaneContext, _ sender: SimulatedSender, _ worker: SimulatedWorker, seed: UInt64,
        in simulation: FleetSimulation
    ) {
        self.sender = sender
        self.worker = worker
        self.simulation = simulation
        invalidTokens = InvalidTokenSet(
            client: sender, keys: simulation.sharedKeys, clock: .key(SimulatedServer.clock))
        fleet = RedisFleetStore(
            sender, configuration: context.configuration, lane: "\(worker.name).\(context.index)",
            clock: .key(SimulatedServer.clock))
        var generator = SeededGenerator(seed: seed)
        random = { UInt32(truncatingIfNeeded: generator.next()) }
    }

    func store(of queue: QueueContext, waits: Bool) -> any QueueStore {
        let store = RedisQueueStore(
            queue, client: sender, waiter: nil, invalidTokens: invalidTokens, clock: .key(SimulatedServer.clock),
            random: random)
        return SimulatedQueueStore(store, queue, waits: waits, worker, sender, in: simulation)
    }

    func start(_ consumers: [QueueConsumer]) {
        sender.onStateChange = { [weak self] state in
            guard self != nil else { return }
            for consumer in consumers { consumer.redisChanged(state) }
            if case .ready = state { for consumer in consumers { consumer.writeInvalidTokens() } }
        }
        sender.connect()
    }

    func close() -> EventLoopFuture<Void> { sender.eventLoop.makeSucceededVoidFuture() }
}

/// A queue's real store, with a simulated blocking wait, and the mutations of the engine's rules.
private final class SimulatedQueueStore: QueueStore {
    private let store: RedisQueueStore
    private let queue: QueueContext
    private let waits: Bool
    private unowned let worker: SimulatedWorker
    private let sender: SimulatedSender
    private let simulation: FleetSimulation
    private var holder: String
    private var wait: SimulatedWait?
    private var sentSettlements: Set<String> = []

    init(
        _ store: RedisQueueStore, _ queue: QueueContext, waits: Bool, _ worker: SimulatedWorker,
        _ sender: SimulatedSender, in simulation: FleetSimulation
    ) {
        self.store = store
        self.queue = queue
        self.waits = waits
        self.worker = worker
        self.sender = sender
        self.simulation = simulation
        holder = queue.holder
    }

    private var mutation: Mutation? { simulation.options.mutation }

    var isReady: Bool { store.isReady }
    var canWait: Bool { waits && sender.isReady }
    var holdsInvalidTokens: Bool { store.holdsInvalidTokens }

    func use(holder: String) {
        self.holder = holder
        store.use(holder: holder)
    }

    func claim(
        _ claim: ClaimWindow.Claim, heartbeat: WorkerHeartbeat?,
        completion: @escaping Completion<QueueConnection.Claimed>
    ) { store.claim(claim, heartbeat: heartbeat, completion: completion) }

    func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>) {
        store.reserve(reservations, completion: completion)
    }

    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>) {
        let lane = queue.keys.claimed(holder)
        let confirm: Completion<QueueConnection.Settled> = { [simulation] result in
            // One that found no claim says nothing of it: after a rollback a recovered job may be reserved under its name.
            if case .success(let settled) = result, settled.lost == 0 { simulation.confirm(settlement, of: lane) }
            completion(result)
        }
        switch mutation {
        case .dropsResentSettlements:
            let claims = "\(lane) \(settlement.claims)"
            guard sentSettlements.insert(claims).inserted else {
                return confirm(.success(QueueConnection.Settled(lost: 0, evicted: 0)))
            }
            store.settle(settlement, completion: confirm)
        case .confirmsFailedSettlements:
            store.settle(settlement) { result in
                if case .failure = result {
                    confirm(.success(QueueConnection.Settled(lost: 0, evicted: 0)))
                } else {
                    confirm(result)
                }
            }
        default: store.settle(settlement, completion: confirm)
        }
    }

    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>) {
        store.reclaim(other, completion: completion)
    }

    func release(endOf worker: String, completion: @escaping Completion<QueueConnection.Released>) {
        store.release(endOf: worker, completion: completion)
    }

    func claims(completion: @escaping Completion<[ClaimID]>) {
        if mutation == .skipsRecovery { return completion(.success([])) }
        store.claims(completion: completion)
    }

    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>) {
        store.bodies(of: claims, completion: completion)
    }

    func gauges(completion: @escaping Completion<QueueGauges>) { store.gauges(completion: completion) }

    func markInvalid(_ tokens: [InvalidToken], completion: @escaping Completion<Void>) {
        guard mutation == .settlesBeforeMarkingInvalid else {
            return store.markInvalid(tokens, completion: completion)
        }
        completion(.success(()))
        worker.loop.assumeIsolated().scheduleTask(in: .milliseconds(200)) { [store] in
            store.markInvalid(tokens) { _ in }
        }
    }

    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>) {
        guard sender.isReady, wait == nil else { return completion(.success(false)) }
        let wait = SimulatedWait(queue.id.index, worker)
        self.wait = wait
        var isDone = false
        let finish: (Bool) -> Void = { [weak self] hasCome in
            guard !isDone else { return }
            isDone = true
            if self?.wait === wait { self?.wait = nil }
            completion(.success(hasCome))
        }
        let loop = worker.loop
        wait.served = { [simulation] in
            // An answer may be lost: the job is in the inbox, where every claim finds it.
            guard !simulation.chance(3) else { return }
            simulation.schedule(at: simulation.now + simulation.delay(0...4), on: loop) { finish(true) }
        }
        simulation.schedule(at: simulation.now + simulation.delay(0...4)) { [simulation] in simulation.wait(wait) }
        simulation.schedule(at: simulation.now + .seconds(Int64(seconds)), on: loop) { [simulation] in
            simulation.stopWait(wait)
            finish(false)
        }
    }

    func stopWaiting() { if let wait { simulation.stopWait(wait) } }

    func close() -> EventLoopFuture<Void> { store.close() }
}

// MARK: - APNs

/// The lane's way to a simulated APNs, for one app.
final class SimulatedTransport: Transport {
    fileprivate final class Request {
        let tag: UInt64
        let notification: Int
        let token: String
        var isOpen = true

        init(_ tag: UInt64, _ notification: Int, _ token: String) {
            self.tag = tag
            self.notification = notification
            self.token = token
        }
    }

    private unowned let simulation: FleetSimulation
    private let loop: SimulatedLoop
    private let app: Int
    var delegate: (any TransportDelegate)?
    private var requests: [Request] = []
    private var limit = 20
    private var isConnected = true
    private var closing: EventLoopPromise<Void>?
    let isDormant = false
    let answerState = AnswerState.answered
    let lastFailure: (any Error)? = nil
    let failureCounts: [String: Int] = [:]

    init(app: Int, _ loop: SimulatedLoop, in simulation: FleetSimulation) {
        self.app = app
        self.loop = loop
        self.simulation = simulation
    }

    var capacity: Int { isConnected ? max(0, limit - requests.count) : 0 }
    var usableConnections: Int { isConnected ? 1 : 0 }

    var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.usable = usableConnections
        statistics.streamsInUse = requests.count
        statistics.streamLimit = limit
        return statistics
    }

    func submit(_ notification: consuming APNS.Notification, tag: UInt64) -> Bool {
        guard capacity > 0 else { return false }
        let token = String(buffer: notification.deviceToken.hex)
        guard
            let number = simulation.apns.submitted(
                token, notification.payload, id: notification.apnsID, app: app)
        else { return true }
        let request = Request(tag, number, token)
        requests.append(request)
        simulation.schedule(at: simulation.now + simulation.delay(1...40)) { [self] in
            simulation.apns.arrived(number, token, app: app) { [self] result, delay in
                simulation.schedule(at: simulation.now + delay, on: loop) { [self] in complete(request, result) }
            }
        }
        return true
    }

    private func complete(_ request: Request, _ result: RequestResult) {
        guard request.isOpen, let index = requests.firstIndex(where: { $0 === request }) else { return }
        request.isOpen = false
        requests.remove(at: index)
        delegate?.transport(self, completed: request.tag, with: result)
        delegate?.transportChanged(self)
        if requests.isEmpty { closing?.succeed(()) }
    }

    /// Loses the connection: none of what is in flight is answered, and some of it arrives.
    func lose() {
        guard isConnected else { return }
        isConnected = false
        let lost = requests
        simulation.schedule(at: simulation.now, on: loop) { [self] in
            for request in lost { complete(request, .uncertain(.connectionLost("lost"))) }
        }
        simulation.schedule(at: simulation.now + simulation.delay(50...4000), on: loop) { [self] in
            isConnected = true
            delegate?.transportChanged(self)
        }
    }

    func change(limit: Int) {
        self.limit = limit
        simulation.schedule(at: simulation.now, on: loop) { [self] in delegate?.transportChanged(self) }
    }

    func dismantle() {
        delegate = nil
        closing?.succeed(())
        closing = nil
    }

    func requestCapacity() {}
    func flushConfirmations() {}
    func check(now: NIODeadline) {}
    func setProviderToken(_ providerToken: String?) {}
    func setTLS(_: TLSContext) {}
    func replaceConnections(reason: String) {}
    func retireConnections(reason: String) {}

    func close() -> EventLoopFuture<Void> {
        let promise = closing ?? loop.makePromise(of: Void.self)
        closing = promise
        if requests.isEmpty { promise.succeed(()) }
        return promise.futureResult
    }

    func closeNow() { while let request = requests.first { complete(request, .uncertain(.connectionLost("closed"))) } }
}

/// APNs: what it accepts, what it answers, and what must hold for what it gets.
final class SimulatedAPNS {
    /// The notifications per second of the app `chat`.
    static let chatRate = 40
    private static let rateWindow = TimeAmount.seconds(10)

    unowned let simulation: FleetSimulation
    /// The answers that an app gets to everything for a while.
    private var refusals: [Int: (reason: APNSReason, until: NIODeadline)] = [:]
    private var chatTimes: [NIODeadline] = []

    init(_ simulation: FleetSimulation) { self.simulation = simulation }

    private var ledger: SimulationLedger { simulation.ledger }

    /// Something happens to APNs, or on the way to it.
    func happens(_ worker: SimulatedWorker) {
        let transport = worker.transports[simulation.pick(0...worker.transports.count - 1)]
        switch simulation.pick(0...9) {
        case 0...3: transport.lose()
        case 4...7: transport.change(limit: [1, 2, 5, 20, 60][simulation.pick(0...4)])
        default:
            let reason: APNSReason = simulation.chance(50) ? .invalidProviderToken : .expiredProviderToken
            refusals[simulation.pick(0...2)] = (reason, simulation.now + simulation.delay(500...8000))
        }
    }

    /// Notes a submission.
    /// - Returns: the notification's number.
    func submitted(_ token: String, _ payload: ByteBuffer, id: APNSID?, app: Int) -> Int? {
        let now = simulation.now
        guard let (job, number) = ledger.notification(token, payload) else {
            simulation.fail("APNs gets what no producer has pushed: \(token)")
            return nil
        }
        if job.app != app { simulation.fail("the job \(job.number) went through another app") }
        if let sendAt = job.sendAt, simulation.milliseconds < sendAt {
            simulation.fail("the job \(job.number) was sent before its time")
        }
        if !simulation.hasRolledBack, let mistake = ledger.checkID(id.map { "\($0)" }, of: number) {
            simulation.fail(mistake)
        }
        guard app == 1 else { return number }
        chatTimes.append(now)
        if chatTimes.count > 4000 { chatTimes.removeFirst(2000) }
        if !simulation.hasRolledBack {
            // A portion may be used for a second, and each lane may have one.
            let limit = Self.chatRate * 11 + 10 + 8 * (Self.chatRate / 20)
            if chatTimes.count > limit, now - chatTimes[chatTimes.count - 1 - limit] < Self.rateWindow {
                simulation.fail("the rate of an app was exceeded")
            }
        }
        return number
    }

    /// Answers a request that has arrived.
    func arrived(
        _ number: Int, _ token: String, app: Int, answer: (RequestResult, TimeAmount) -> Void
    ) {
        let delay = simulation.delay(simulation.chance(3) ? 50...2500 : 1...80)
        func refuse(_ reason: APNSReason, retryAfter: Int? = nil) {
            answer(
                .response(Response(status: reason.status, reason: reason, retryAfter: retryAfter)), delay)
        }
        if let reason = ledger.refusal(of: token) { return refuse(reason) }
        guard simulation.hasFaults, simulation.options.faults.contains(.apns) else {
            return accept(number, delay, answer)
        }
        if let refusal = refusals[app], simulation.now < refusal.until { return refuse(refusal.reason) }
        switch simulation.pick(0...999) {
        case 0..<20:
            let reason: APNSReason = simulation.chance(80) ? .unregistered : .badDeviceToken
            ledger.refuse(token, reason)
            refuse(reason)
        case 20..<40: refuse(.tooManyRequests, retryAfter: simulation.chance(50) ? simulation.pick(1...3) : nil)
        case 40..<60: refuse(simulation.chance(50) ? .internalServerError : .serviceUnavailable)
        case 60..<70:
            if simulation.chance(50) { ledger.accept(number) }
            answer(.uncertain(.timedOut), .seconds(5))
        case 70..<80:
            answer(.notProcessed(simulation.chance(50) ? .refusedStream : .goingAway(reason: nil)), delay)
        default: accept(number, delay, answer)
        }
    }

    private func accept(_ number: Int, _ delay: TimeAmount, _ answer: (RequestResult, TimeAmount) -> Void) {
        ledger.accept(number)
        answer(.response(Response(status: 200)), delay)
    }
}

// MARK: - Truth

/// A job of a producer.
struct SimulatedJob {
    let number: Int
    let queue: Int
    let app: Int
    var body = ""
    var tokens: [String] = []
    /// The number of its first notification.
    var first = 0
    /// The time before which it must not be sent, in milliseconds since 1970.
    var sendAt: Int64?
    var expires = false
    var uniqueID: String?
    /// True if no worker can read it: it must become a dead letter.
    var isBroken = false

    /// The number of its notifications; one for a job that can't be read.
    var count: Int { max(1, tokens.count) }

    static func make(_ number: Int, queue: Int, in simulation: FleetSimulation) -> SimulatedJob {
        var job = SimulatedJob(number: number, queue: queue, app: [0, 0, 1, 2][simulation.pick(0...3)])
        let name = ["shop", "chat", "mail"][job.app]
        var members = ##""app":"\##(name)","alert":"#\##(number)#""##
        let kind = simulation.pick(0...999)
        if kind >= 960 {
            return broken(job, members, simulation.pick(0...5))
        }
        var hasID = simulation.chance(50)
        switch kind {
        case 0..<550: job.tokens = [token(number, 0)]
        case 550..<669: job.tokens = (0..<simulation.pick(2...12)).map { token(number, $0) }
        case 669:
            // More than a worker sends at once: it is split.
            job.tokens = (0..<1100).map { token(number, $0) }
        case 670..<750:
            let time = simulation.milliseconds / 1000 + Int64(simulation.pick(1...20))
            job.sendAt = time * 1000
            job.tokens = [token(number, 0)]
            members += #","send_at":\#(time)"#
        case 750..<830:
            job.expires = true
            job.tokens = (0..<simulation.pick(1...3)).map { token(number, $0) }
            members += #","expiration":\#(simulation.milliseconds / 1000 + Int64(simulation.pick(1...20)))"#
        case 830..<920:
            hasID = false
            let id = "u\(number / 12)-\(queue)-\(simulation.pick(0...1))"
            job.uniqueID = id
            job.tokens = (0..<simulation.pick(1...2)).map { token(number, $0) }
            members += #","id":"\#(id)","unique_for":"30d""#
        default: job.tokens = ["dddddddd0000000\(simulation.pick(0...4))" + String(repeating: "b", count: 48)]
        }
        if hasID { members += #","id":"j\#(number)""# }
        if job.tokens.count == 1, simulation.chance(80) {
            members += #","token":"\#(job.tokens[0])""#
        } else {
            members += #","tokens":["\#(job.tokens.joined(separator: #"",""#))"]"#
        }
        job.body = "{\(members)}"
        // A wrapper that a producer has made, and may.
        if kind == 10 { job.body = #"{"apns_worker":1,"attempt":2,"job":\#(job.body)}"# }
        return job
    }

    private static func token(_ job: Int, _ index: Int) -> String {
        func hex(_ number: Int) -> String {
            let text = String(number, radix: 16)
            return String(repeating: "0", count: 8 - text.count) + text
        }
        return hex(job) + hex(index) + String(repeating: "a", count: 48)
    }

    private static func broken(_ job: SimulatedJob, _ members: String, _ kind: Int) -> SimulatedJob {
        var job = job
        job.isBroken = true
        job.body =
            switch kind {
            case 0: "{\(members)"
            case 1: "{\(members)}"
            case 2: #"{"apns_worker":1,"attempt":-3,"job":{\#(members),"token":"zz"}}"#
            case 3: #"{"apns_worker":1,"reclaims":1e99,"job":{\#(members)}}"#
            case 4:
                #"{"apns_worker":1,"claim":"\"reclaims\":","reclaims":2,"tokens":[],"job":{\#(members),"token":"ab"}}"#
            default: #"{"apns_worker":1,"job":"job":\#(members)}"#
            }
        return job
    }
}

/// What producers have pushed, what APNs has accepted, and where each notification is.
final class SimulationLedger {
    private struct State {
        let job: Int
        var accepted = 0
        var isFound = false
        /// True once Redis has lost it with the time after a snapshot.
        var isForgotten = false
        var id: String?
    }

    private(set) var jobs: [SimulatedJob] = []
    private var states: [State] = []
    /// The tokens that APNs calls invalid.
    private var refused: [String: APNSReason] = [:]
    private var uniqueJobs: [String: [Int]] = [:]
    /// The notifications that were accepted after the first time.
    private(set) var duplicates = 0
    private(set) var openCount = 0

    var notificationCount: Int { states.count }
    var needsInvalidTokens: Bool { !refused.isEmpty }

    func add(_ job: SimulatedJob) {
        var job = job
        job.first = states.count
        for _ in 0..<job.count { states.append(State(job: job.number)) }
        if let id = job.uniqueID { uniqueJobs[id, default: []].append(job.number) }
        jobs.append(job)
    }

    /// Notes that Redis has lost the jobs after the first ones.
    func forget(after count: Int) {
        for job in jobs[count...] {
            for index in job.first..<job.first + job.count { states[index].isForgotten = true }
        }
    }

    /// The job with most of the notifications that were accepted again.
    var mostDuplicated: String {
        let most = jobs.map { job in
            (job, (0..<job.count).reduce(0) { $0 + max(0, states[job.first + $1].accepted - 1) })
        }
        .max { $0.1 < $1.1 }
        return most.map { "\($0.1) of the job \($0.0.number), \($0.0.body.prefix(200))" } ?? ""
    }

    func refuse(_ token: String, _ reason: APNSReason) { refused[token] = reason }

    func refusal(of token: String) -> APNSReason? { refused[token] }

    func accept(_ number: Int) {
        if states[number].accepted > 0 { duplicates += 1 }
        states[number].accepted += 1
    }

    /// The notification of a request.
    func notification(_ token: String, _ payload: ByteBuffer) -> (SimulatedJob, Int)? {
        guard let number = Self.marker(payload), number < jobs.count else { return nil }
        let job = jobs[number]
        guard let index = Self.index(of: token, in: job) else { return nil }
        return (job, job.first + index)
    }

    /// Each resend carries the same id.
    func checkID(_ id: String?, of number: Int) -> String? {
        guard let known = states[number].id else {
            states[number].id = id
            return nil
        }
        return known == id ? nil : "the job \(states[number].job) was sent with the ids \(known) and \(id ?? "none")"
    }

    private static func index(of token: some StringProtocol, in job: SimulatedJob) -> Int? {
        if token.hasPrefix("dd") { return job.tokens.firstIndex { $0 == token } }
        guard let index = Int(token.dropFirst(8).prefix(8), radix: 16), index < job.tokens.count else { return nil }
        return job.tokens[index] == token ? index : nil
    }

    /// The job's number, which is between two `#`.
    private static func marker(_ body: ByteBuffer) -> Int? {
        body.withUnsafeReadableBytes { bytes in
            guard let start = bytes.firstIndex(of: UInt8(ascii: "#")) else { return nil }
            var number = 0
            for byte in bytes[(start + 1)...] {
                guard byte != UInt8(ascii: "#") else { return number }
                guard (48...57).contains(byte) else { return nil }
                number = number * 10 + Int(byte) - 48
            }
            return nil
        }
    }

    // MARK: Audits

    func begin() {
        for index in states.indices { states[index].isFound = false }
        openCount = 0
    }

    /// Notes a body that was found in a place.
    /// - Returns: the mistake, if any.
    func found(_ body: ByteBuffer, queue: Int, isDead: Bool) -> String? {
        guard let number = Self.marker(body), number < jobs.count else {
            return "a job that no producer has pushed: \(String(buffer: body).prefix(300))"
        }
        let job = jobs[number]
        guard job.queue == queue else { return "the job \(number) is in another queue" }
        var indexes = Array(0..<job.count)
        if !job.isBroken, let tokens = Self.tokens(body) {
            indexes = tokens.compactMap { Self.index(of: $0, in: job) }
            guard indexes.count == tokens.count else { return "the job \(number) has another's tokens" }
        }
        for index in indexes {
            let state = job.first + index
            if states[state].isFound { return "the notification \(index) of the job \(number) is in two places" }
            states[state].isFound = true
            if !isDead { openCount += 1 }
        }
        return isDead && !job.isBroken ? unexpected(body, job) : nil
    }

    /// A good job may only be a dead letter because it had no attempt left.
    private func unexpected(_ body: ByteBuffer, _ job: SimulatedJob) -> String? {
        let text = String(buffer: body)
        let reasons = ["AttemptsExhausted", "Poison", "BadDeviceToken"]
        return reasons.contains { text.hasPrefix(#"{"v":1,"reason":"\#($0)""#) }
            ? nil : "the good job \(job.number) became a dead letter: \(text.prefix(300))"
    }

    /// The tokens that a wrapper or a dead letter names; `nil` for all of the job.
    private static func tokens(_ body: ByteBuffer) -> [Substring]? {
        let text = String(buffer: body)
        let head: Substring
        if text.hasPrefix(#"{"apns_worker":1,"#) {
            head = text[..<(text.firstRange(of: #""job":"#)?.lowerBound ?? text.startIndex)]
        } else if text.hasPrefix(#"{"v":1,"#) {
            head = text.prefix { $0 != "\n" }
        } else {
            return nil
        }
        guard let start = head.firstRange(of: #""tokens":["#)?.upperBound,
            let end = head[start...].firstIndex(of: "]")
        else { return nil }
        return head[start..<end].split(separator: ",").map { $0.dropFirst().dropLast() }
    }

    /// Checks all that were not found.
    /// - Parameters:
    ///   - invalid: the set of invalid tokens; `nil` if it need not be complete.
    ///   - isDurable: true if Redis has forgotten nothing.
    /// - Returns: the mistake, if any.
    func end(invalid: Set<String>?, isDurable: Bool) -> String? {
        for job in jobs {
            for index in 0..<job.count {
                let state = states[job.first + index]
                if state.isFound || state.accepted > 0 || state.isForgotten { continue }
                if job.isBroken { return "the broken job \(job.number) is nowhere: \(job.body)" }
                if job.expires { continue }
                if let id = job.uniqueID, let others = uniqueJobs[id], others.count > 1 {
                    if others.contains(where: { $0 != job.number && isKnown(jobs[$0]) }) { continue }
                    if refused[job.tokens[index]] == nil {
                        return "all jobs with the id \(id) have ended as duplicates"
                    }
                }
                if refused[job.tokens[index]] != nil {
                    if let invalid, !invalid.contains(job.tokens[index]) {
                        return "the job \(job.number) was settled, and its invalid token is not in the set: \(job.body)"
                    }
                    continue
                }
                return "the notification \(index) of the job \(job.number) is nowhere, and was not sent: \(job.body)"
            }
        }
        guard isDurable else { return nil }
        for (id, numbers) in uniqueJobs.sorted(by: { $0.key < $1.key }) {
            let sent = numbers.filter { number in
                (0..<jobs[number].count).contains { states[jobs[number].first + $0].accepted > 0 }
            }
            if sent.count > 1 { return "several jobs with the id \(id) were sent: \(sent)" }
        }
        return nil
    }

    /// True if a job is somewhere, or has ended otherwise than as a duplicate.
    private func isKnown(_ job: SimulatedJob) -> Bool {
        (0..<job.count).contains { index in
            let state = states[job.first + index]
            return state.isFound || state.accepted > 0 || state.isForgotten || refused[job.tokens[index]] != nil
        }
    }
}

// MARK: - Mutations

/// A rule of the protocol that is taken out.
enum Mutation: String, CaseIterable, Sendable {
    // Rules of the scripts.
    case constantStamp
    case settlesAnyClaim
    case reclaimIgnoresLease
    case reservesWithoutNX
    case retryLosesBody
    case claimGivesNumbersAgain
    case lateClaimTakesJobs
    // Rules of the engine.
    case settlesBeforeMarkingInvalid
    case dropsResentSettlements
    case skipsRecovery
    case confirmsFailedSettlements

    /// The text in a script and what takes its place.
    var patch: (find: String, by: String)? {
        switch self {
        case .constantStamp: ("local stamp = string.format('%s%x', nonce, now_in_us)", "local stamp = 'same'")
        case .settlesAnyClaim:
            (
                "own = own + redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, last)))",
                """
                for i = start, math.min(start + CHUNK - 1, last) do
                    local field = ARGV[i]
                    if redis.call('HEXISTS', claimed, field) == 0 then field = redis.call('HKEYS', claimed)[1] end
                    if field then own = own + redis.call('HDEL', claimed, field) end
                end
                """
            )
        case .reclaimIgnoresLease: ("if not lease or tonumber(lease) >= now then", "if not lease then")
        case .reservesWithoutNX: ("'NX', 'PX', ttl", "'PX', ttl")
        case .retryLosesBody:
            ("redis.call('ZADD', retry, due, head .. original_of(body, start, length) .. '}')", "")
        case .lateClaimTakesJobs: ("elseif next_number and first < tonumber(next_number) then", "elseif false then")
        case .claimGivesNumbersAgain:
            ("local known, seen = limit > 0 and redis.pcall('GET', next_key), nil", "local known, seen = nil, nil")
        case .settlesBeforeMarkingInvalid, .dropsResentSettlements, .skipsRecovery, .confirmsFailedSettlements: nil
        }
    }
}
