import Foundation
import NIOCore

@testable import PushQueue
@testable import Redis

/// The fleet's Redis, with its faults: it can be unreachable, refuse every command, run out of memory, and return to an older state.
final class SimulatedRedis {
    let server: SimulatedServer
    let queues: [QueueKeys]
    let sharedKeys: SharedKeys
    private(set) var isUp = true
    /// True once Redis has lost changes that it had confirmed.
    private(set) var hasRolledBack = false
    /// The error of every command; `nil` if commands are executed.
    private(set) var refusal: String?
    /// The time when Redis last began or ended to refuse commands.
    private(set) var lastRefusal = NIODeadline.distantPast
    private var isMemoryFull = false
    /// The current time of the scripts' clock, in milliseconds since 1970.
    private var clock: Int64 = 0
    private var snapshot: [(key: String, dump: ByteBuffer)]?
    private var waits: [[SimulatedWait]]
    private unowned let simulation: FleetSimulation

    init(_ server: SimulatedServer, in simulation: FleetSimulation) throws {
        (self.server, self.simulation) = (server, simulation)
        queues = try ["a", "b"].map { try QueueKeys(queue: $0) }
        sharedKeys = SharedKeys()
        waits = queues.map { _ in [] }
        server.reset()
    }

    private var time: SimulatedTime { simulation.time }
    private var random: SimulatedRandom { simulation.random }

    /// True if a token is in the set of invalid tokens, and Redis never lost data.
    func hasInvalid(_ token: String) -> Bool {
        !hasRolledBack && server.run(RedisCommand("SISMEMBER", sharedKeys.invalidTokens, token)).root.number == 1
    }

    // MARK: Commands

    func execute(_ original: RedisCommand) -> Result<RESPReply, RedisError> {
        if let refusal { return .failure(.server(RedisServerError(text: refusal))) }
        let arguments = CommandArguments(original)
        let script = arguments.script
        var command = original
        if let patch = simulation.options.mutation?.patch {
            command = arguments.replacing(patch.find, by: patch.by, &server.mutated)
        }
        let reply = runOnTime(command)
        time.note(UInt64(reply.arena.readableBytes) << 16 ^ UInt64(reply.nodes.count))
        simulation.log(
            "\(script.map { "\($0) \(arguments.value(0) ?? "")" } ?? arguments[0]): \(reply.error.map { "\($0)" } ?? "\(reply)")"
        )
        if let error = reply.error {
            if let script, error.prefix == "OOM" { simulation.checks.refusedForMemory(script) }
            if !["OOM", "NOSCRIPT"].contains(error.prefix) { simulation.fail("Redis refuses \(command): \(error)") }
            return .failure(.server(error))
        }
        if let script {
            simulation.checks.executed(script, arguments, reply)
            if script == .reclaim || script == .release { serveWaits() }
        }
        return .success(reply)
    }

    /// Executes a producer's commands.
    /// - Returns: false if Redis is unreachable or refuses the last of them.
    func push(_ commands: [RedisCommand]) -> Bool {
        guard isUp, refusal == nil, server.run(commands).last?.error == nil else { return false }
        serveWaits()
        return true
    }

    /// True for a command that reclaims the claims of a lane.
    func isReclaim(_ command: RedisCommand) -> Bool {
        // Reads the digest of an EVALSHA in place.
        guard command.lengths.count > 2, command.lengths[0] == 7, command.lengths[1] == 40 else { return false }
        let digest = command.arguments.getString(at: command.arguments.readerIndex + 7, length: 40)
        return digest.map { SimulatedServer.scripts[$0] == .reclaim } ?? false
    }

    /// Executes a command after setting the scripts' clock to the current time.
    private func runOnTime(_ command: RedisCommand) -> RESPReply {
        let milliseconds = time.milliseconds
        guard clock != milliseconds else { return server.run(command) }
        clock = milliseconds
        let set = RedisCommand("SET", SimulatedServer.clock, "\(milliseconds)")
        guard isMemoryFull else { return server.run([set, command])[1] }
        return server.run([Self.limit(0), set, Self.limit(1), command])[3]
    }

    private static func limit(_ bytes: Int) -> RedisCommand { RedisCommand("CONFIG", "SET", "maxmemory", "\(bytes)") }

    // MARK: Blocking waits

    func wait(_ wait: SimulatedWait) {
        waits[wait.queue].append(wait)
        serveWaits()
    }

    func stopWait(_ wait: SimulatedWait) { waits[wait.queue].removeAll { $0 === wait } }

    func stopWaits(of worker: SimulatedWorker) {
        for queue in waits.indices { waits[queue].removeAll { $0.worker === worker } }
    }

    private func serveWaits() {
        guard isUp, refusal == nil else { return }
        for (index, keys) in queues.enumerated() {
            while let wait = waits[index].first {
                let reply = server.run(RedisCommand("LMOVE", keys.jobs, keys.inbox, "LEFT", "RIGHT"))
                guard reply.error == nil, !reply.root.isNull else { break }
                waits[index].removeFirst()
                wait.served()
            }
        }
    }

    // MARK: Faults

    func goDown(for duration: TimeAmount) {
        guard isUp else { return }
        isUp = false
        simulation.log("no Redis for \(duration)")
        for worker in simulation.workers { for sender in worker.senders { sender.lose() } }
        for queue in waits.indices { waits[queue] = [] }
        time.schedule(in: duration) { [self] in isUp = true }
    }

    /// Refuses every command for some time, as Redis does while it loads its data or executes a slow script.
    func refuse(_ refusal: String, for duration: TimeAmount) {
        guard self.refusal == nil else { return }
        self.refusal = refusal
        lastRefusal = time.now
        simulation.log("Redis is \(refusal) for \(duration)")
        time.schedule(in: duration) { [self] in
            self.refusal = nil
            lastRefusal = time.now
            serveWaits()
        }
    }

    func setMemoryFull(_ isFull: Bool) {
        guard isFull != isMemoryFull else { return }
        isMemoryFull = isFull
        // The limit is below any server's use, because the actual use would differ from run to run.
        server.run(Self.limit(isFull ? 1 : 0))
    }

    func takeSnapshot() { snapshot = server.dump() }

    /// Returns to the snapshot, as after a failover to a lagging replica. Commands on their way to the old server reach the new one late.
    /// - Returns: false without a snapshot, or while Redis is down.
    func rollBack() -> Bool {
        guard let snapshot, isUp else { return false }
        goDown(for: random.delay(300...5000))
        let wasFull = isMemoryFull
        setMemoryFull(false)
        server.restore(snapshot)
        clock = 0
        setMemoryFull(wasFull)
        hasRolledBack = true
        return true
    }

    func heal() {
        setMemoryFull(false)
        refusal = nil
    }
}

/// A blocking wait of a worker for a job.
final class SimulatedWait {
    let queue: Int
    unowned let worker: SimulatedWorker
    var served: () -> Void = {}

    init(_ queue: Int, _ worker: SimulatedWorker) { (self.queue, self.worker) = (queue, worker) }
}

/// A lane's connection to Redis, which delivers in order after random delays, and can break.
final class SimulatedSender: RedisSender {
    private final class Pending {
        let command: RedisCommand
        let completion: RedisCommand.Completion
        var isExecuted = false
        /// True once the connection is lost, so that no answer will arrive.
        var isLost = false
        var isNeverExecuted = false

        init(_ command: RedisCommand, _ completion: @escaping RedisCommand.Completion) {
            (self.command, self.completion) = (command, completion)
        }
    }

    private unowned let simulation: FleetSimulation
    private let name: String
    private let loop: SimulatedLoop
    /// Called with each change, before the commands that were lost with the connection fail.
    var onStateChange: (RedisClient.State) -> Void = { _ in }
    private(set) var isReady = false
    private(set) var losses = 0
    private var isConnecting = false
    private var pending: [Pending] = []
    private var commandsUntilLoss = 0
    /// The time when Redis executed the last command.
    private(set) var lastContact = NIODeadline.distantPast
    private var lastArrival = NIODeadline.distantPast
    private var lastAnswer = NIODeadline.distantPast

    init(_ name: String, _ loop: SimulatedLoop, in simulation: FleetSimulation) {
        (self.name, self.loop, self.simulation) = (name, loop, simulation)
    }

    var eventLoop: any EventLoop { loop }

    private var time: SimulatedTime { simulation.time }
    private var random: SimulatedRandom { simulation.random }

    private static let lost = RedisError.connectionLost(address: "simulation", sent: true, reason: "lost")

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisCommand.Completion) {
        guard isReady else {
            return completion(.failure(.notConnected(address: "simulation", reason: "no connection")))
        }
        let entry = Pending(command, completion)
        pending.append(entry)
        // A slow reclaim meets lanes that have resumed.
        let isSlow = simulation.blame == nil && random.chance(simulation.redis.isReclaim(command) ? 50 : 2)
        lastArrival = max(lastArrival, time.now + random.delay(isSlow ? 20...3000 : simulation.latency))
        if commandsUntilLoss > 0 {
            commandsUntilLoss -= 1
            if commandsUntilLoss == 0 { time.schedule(in: random.delay(0...3)) { [self] in lose() } }
        }
        time.schedule(at: lastArrival) { [self] in arrive(entry) }
    }

    private func arrive(_ entry: Pending) {
        guard !entry.isNeverExecuted, !entry.isExecuted else { return }
        entry.isExecuted = true
        lastContact = time.now
        let result = simulation.redis.execute(entry.command)
        guard !entry.isLost else { return }
        let isSlow = simulation.blame == nil && random.chance(2)
        lastAnswer = max(lastAnswer, time.now + random.delay(isSlow ? 20...800 : simulation.latency))
        time.schedule(at: lastAnswer, on: loop) { [self] in
            guard !entry.isLost, pending.first === entry else { return }
            pending.removeFirst()
            entry.completion(result)
        }
    }

    func connect() {
        guard !isReady, !isConnecting else { return }
        isConnecting = true
        time.schedule(in: random.delay(5...3000), on: loop) { [self] in
            isConnecting = false
            guard simulation.redis.isUp else { return connect() }
            isReady = true
            onStateChange(.ready)
        }
    }

    /// Loses the connection while one of the next commands is in transit.
    func loseSoon() { commandsUntilLoss = random.pick(1...4) }

    /// Loses the connection. Of the commands that Redis has not executed, it still executes some, executes others later, and never executes
    /// the rest.
    func lose() {
        guard isReady else { return }
        isReady = false
        losses += 1
        simulation.log("\(name) loses its connection to Redis")
        let entries = pending
        pending = []
        let waiting = entries.filter { !$0.isExecuted }
        for entry in entries { entry.isLost = true }
        let executed = random.chance(50) ? 0 : random.pick(0...waiting.count)
        let late = random.pick(0...waiting.count - executed)
        for entry in waiting[executed...] { entry.isNeverExecuted = true }
        var arrival = time.now + random.delay(10...(random.chance(50) ? 12_000 : 2000))
        for entry in waiting[executed..<executed + late] {
            arrival = arrival + random.delay(0...20)
            time.schedule(at: arrival) { [self] in
                entry.isNeverExecuted = false
                arrive(entry)
            }
        }
        time.schedule(at: time.now, on: loop) { [self] in
            onStateChange(.disconnected(Self.lost, retryIn: .milliseconds(100)))
            for entry in entries { entry.completion(.failure(Self.lost)) }
            connect()
        }
    }
}
