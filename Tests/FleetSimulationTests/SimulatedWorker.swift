import APNS
import APNSSimulator
import Logging
import NIOCore
import TestSupport

@testable import PushQueue
@testable import PushWorker
@testable import Redis

final class SimulatedWorker {
    let name: String
    let loop: SimulatedLoop
    private(set) var lanes: [SimulatedLane] = []
    var isDraining = false
    var isDrained = false
    private var apps: [AppSender.Prepared] = []
    private let simulation: FleetSimulation

    var senders: [SimulatedSender] { lanes.map(\.sender) }
    var transports: [SimulatedTransport] { lanes.flatMap(\.transports) }

    init(_ name: String, lanes count: Int, seed: UInt64, in simulation: FleetSimulation) throws {
        self.name = name
        self.simulation = simulation
        loop = SimulatedLoop(simulation.time)
        apps = try SimulatedAPNS.apps.map { try AppSender.Prepared(Self.app($0)) }
        var configuration = WorkerConfiguration(
            redis: try RedisTopology(url: "redis://127.0.0.1:1"),
            queues: zip(simulation.redis.queues, [3, 1]).map { QueueConfiguration(keys: $0, weight: $1) },
            sharedKeys: simulation.redis.sharedKeys, apps: apps.map(\.configuration), workerName: name)
        for index in configuration.queues.indices {
            configuration.queues[index].limits.lease = ProtocolChecks.lease
            configuration.queues[index].limits.maximumClaimSize = ProtocolChecks.claimSize
        }
        configuration.retry.base = 500
        configuration.retry.cap = 8000
        var seeds = SeededGenerator(seed: seed)
        // The clocks of machines differ slightly.
        let lead = Int64(seeds.next() % 41) - 20
        let issues = IssueLog()
        let tokenFilters = TokenFilterSlot()
        for index in 0..<count {
            let context = LaneContext(
                configuration: configuration, index: index, eventLoop: loop,
                logger: Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }, issues: issues,
                metrics: LaneMetrics(apps: apps.count, queues: configuration.queues.count, measuresTimes: false),
                tokenFilters: tokenFilters, scopes: simulation.sharedScopes ?? ScopeRegister(),
                generator: SeededGenerator(seed: seeds.next()),
                wallClock: { [loop] in 1_800_000_000 + lead + Int64(loop.now.uptimeNanoseconds / 1_000_000_000) })
            simulation.options.mutation?.change(context.scopes.scopes)
            lanes.append(SimulatedLane(context, of: count, self, seed: seeds.next(), in: simulation))
        }
    }

    private static let authority = Result { try SimulatedAuthority().certificatePEM }
    private static let key = Result { try SigningKey(pem: SimulatedAPNS.key.utf8) }

    /// Returns an app whose provider tokens come from one source for all lanes of a worker.
    private static func app(_ name: String) throws -> AppConfiguration {
        let source = try ProviderTokenSource(key: key.get(), keyID: SimulatedAPNS.keyID, teamID: SimulatedAPNS.teamID)
        var app = AppConfiguration(name: name, topic: "com.example.\(name)", credential: .providerTokens([source]))
        // Reading the system's many certificates takes a tenth of a second.
        app.trust = .pem(try authority.get())
        if name == "chat" { app.maximumPerSecond = SimulatedAPNS.chatRate }
        return app
    }

    func start() {
        let lanes = lanes.map(\.lane)
        for (index, lane) in lanes.enumerated() {
            lane.context.callbacks.backlog = { queue in
                for (other, lane) in lanes.enumerated() where other != index { lane.wake(queue) }
            }
            lane.context.callbacks.due = { queue, time in lanes[0].wake(queue, at: time) }
            lane.start(apps)
        }
    }

    func drain(completion: @escaping () -> Void) {
        isDraining = true
        let drained = lanes.map { $0.lane.drain(within: .seconds(3)) }
        EventLoopFuture.andAllComplete(drained, on: loop).assumeIsolated().whenComplete { [self] _ in
            isDrained = true
            completion()
        }
    }

    /// Breaks the reference cycles.
    func dismantle() {
        loop.crash()
        for lane in lanes { lane.dismantle() }
    }
}

/// A lane, with the simulation's knowledge about it.
final class SimulatedLane {
    let name: String
    let sender: SimulatedSender
    let checks: LaneChecks
    private(set) weak var worker: SimulatedWorker?
    /// The names under which the lane holds its leases, by queue.
    fileprivate(set) var holders: [String] = []
    fileprivate(set) var transports: [SimulatedTransport] = []
    private var made: Lane?

    init(_ context: LaneContext, of count: Int, _ worker: SimulatedWorker, seed: UInt64, in simulation: FleetSimulation)
    {
        self.worker = worker
        name = "\(worker.name).\(context.index)"
        sender = SimulatedSender(name, worker.loop, in: simulation)
        checks = LaneChecks(simulation)
        holders = simulation.redis.queues.map { [name] _ in name }
        let stores = SimulatedStores(context, self, worker, seed: seed, in: simulation)
        let maker = TransportMaker(self, worker.loop, simulation)
        let lane = Lane(context, of: count, stores: stores, makeTransport: { _, _, _ in maker.make() })
        if simulation.options.mutation == .settlesOnlyWholeJobs {
            for ledger in lane.ledgers { ledger.longestUnwritten = .hours(1) }
        }
        made = lane
    }

    var lane: Lane {
        guard let made else { preconditionFailure("a lane is used before it is made") }
        return made
    }

    var counters: LaneCounters { lane.context.metrics.counters }

    /// True if the lane may send a provider token that its worker signed, because a lane may have failed to request the fleet's token.
    var mayLackFleetToken: Bool {
        guard let worker else { return true }
        return worker.loop.wasStopped || worker.lanes.contains { $0.checks.mayLackFleetToken || $0.sender.losses > 0 }
    }

    private final class TransportMaker: @unchecked Sendable {
        private unowned let lane: SimulatedLane
        private let loop: SimulatedLoop
        private unowned let simulation: FleetSimulation

        init(_ lane: SimulatedLane, _ loop: SimulatedLoop, _ simulation: FleetSimulation) {
            (self.lane, self.loop, self.simulation) = (lane, loop, simulation)
        }

        func make() -> any Transport {
            let transport = SimulatedTransport(app: lane.transports.count, lane, loop, in: simulation)
            lane.transports.append(transport)
            return transport
        }
    }

    func dismantle() {
        for transport in transports { transport.dismantle() }
        sender.onStateChange = { _ in }
        lane.context.callbacks = LaneContext.Callbacks()
        lane.context.schedulePump = {}
        lane.context.pump = {}
    }
}

private final class SimulatedStores: LaneStores {
    private unowned let lane: SimulatedLane
    private unowned let worker: SimulatedWorker
    private unowned let simulation: FleetSimulation
    private let random: () -> UInt32
    let fleet: FleetStore

    init(
        _ context: LaneContext, _ lane: SimulatedLane, _ worker: SimulatedWorker, seed: UInt64,
        in simulation: FleetSimulation
    ) {
        (self.lane, self.worker, self.simulation) = (lane, worker, simulation)
        let store = FleetStore(lane.sender, of: context, clock: .key(SimulatedServer.clock))
        let simulated = SimulatedFleet(store, lane, worker.loop, in: simulation)
        fleet = FleetStore(
            pauses: simulated, rates: store.rates, guardAudit: store.guardAudit,
            throttledTokens: SimulatedThrottledTokens(
                store: store.throttledTokens, lane: lane, loop: worker.loop, mutation: simulation.options.mutation),
            providerTokens: simulated, invalidTokens: simulated,
            filterKeeper: store.filterKeeper)
        var generator = SeededGenerator(seed: seed)
        random = { UInt32(truncatingIfNeeded: generator.next()) }
        if simulation.options.mutation == .trustsOldFilters { trustOldFilters(context.tokenFilters) }
    }

    /// Makes lanes use a filter from before any token was invalid.
    private func trustOldFilters(_ slot: TokenFilterSlot, _ old: TokenFilter = TokenFilter(capacity: 4096)) {
        old.extend(until: .distantFuture)
        slot.replace(with: old)
        worker.loop.assumeIsolated().scheduleTask(in: .milliseconds(100)) { [weak self] in
            self?.trustOldFilters(slot, old)
        }
    }

    func store(of queue: QueueContext, waits: Bool) -> any QueueStore {
        let store = QueueConnection(
            client: lane.sender, keys: queue.keys, worker: queue.holder, limits: queue.limits, holdsInvalidTokens: true,
            clock: .key(SimulatedServer.clock), random: random)
        return SimulatedQueueStore(store, queue, waits: waits, lane, worker, in: simulation)
    }

    func start(_ consumers: [QueueConsumer]) {
        lane.sender.onStateChange = { [weak self] state in
            guard self != nil else { return }
            for consumer in consumers { consumer.redisChanged(state) }
            if case .ready = state { for consumer in consumers { consumer.ledger.writeInvalidTokens() } }
        }
        lane.sender.connect()
    }

    func close() -> EventLoopFuture<Void> { lane.sender.eventLoop.makeSucceededVoidFuture() }
}

/// A queue's real store with a simulated blocking wait, checks of what the lane receives, and the mutations of the engine's rules.
private final class SimulatedQueueStore: QueueStore {
    private let store: QueueConnection
    private let queue: QueueContext
    private let waits: Bool
    private unowned let lane: SimulatedLane
    private unowned let worker: SimulatedWorker
    private unowned let simulation: FleetSimulation
    private var wait: SimulatedWait?
    private var sentSettlements: Set<String> = []
    private var renewals = Renewals()

    private struct Renewals {
        /// The maximum time between two renewals that is not a gap: half the lease.
        private static let longestGap = TimeAmount.milliseconds(Int64(ProtocolChecks.lease) / 2)
        /// A lane may reclaim only after it has renewed its lease without a gap for this time.
        private static let steadyTime = TimeAmount.seconds(15)

        private var last = NIODeadline.distantPast
        private var steadySince = NIODeadline.distantFuture

        mutating func renewed(now: NIODeadline) {
            if now - last > Self.longestGap { steadySince = now }
            last = now
        }

        mutating func lost() { last = .distantPast }

        func allowsReclaim(now: NIODeadline) -> Bool {
            now - last <= Self.longestGap && steadySince + Self.steadyTime <= now
        }
    }

    init(
        _ store: QueueConnection, _ queue: QueueContext, waits: Bool, _ lane: SimulatedLane, _ worker: SimulatedWorker,
        in simulation: FleetSimulation
    ) {
        (self.store, self.queue, self.waits) = (store, queue, waits)
        (self.lane, self.worker, self.simulation) = (lane, worker, simulation)
    }

    private var mutation: Mutation? { simulation.options.mutation }
    /// The name under which the lane holds its lease.
    private var holder: String { lane.holders[queue.id.index] }
    private var claimed: String { queue.keys.claimed(holder) }

    var isReady: Bool { store.isReady }
    var canWait: Bool { waits && lane.sender.isReady }
    var holdsInvalidTokens: Bool { store.holdsInvalidTokens }

    func use(worker: String) {
        lane.holders[queue.id.index] = worker
        store.use(worker: worker)
    }

    func claim(_ request: ClaimRequest, completion: @escaping Completion<Claimed>) {
        let (holder, claimed) = (holder, claimed)
        store.claim(request) { [self, simulation, lane, mutation] result in
            var result = result
            if case .success(var answer) = result {
                if answer.leaseLost { renewals.lost() } else { renewals.renewed(now: simulation.time.now) }
                if mutation == .reclaimsAtOnce, let other = answer.expiredWorker { reclaim(other) { _ in } }
                for (offset, body) in answer.bodies.enumerated() {
                    simulation.checks.receive(ClaimID(number: request.first + offset, stamp: answer.stamp), of: claimed)
                    lane.checks.receive(body, under: holder, at: answer.now)
                }
                if let mutation, mutation.plan != nil {
                    answer.bodies = answer.bodies.map(mutation.change)
                    result = .success(answer)
                }
                if mutation == .goesByOwnClock {
                    answer.now += 5000
                    result = .success(answer)
                }
            }
            completion(result)
        }
    }

    func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>) {
        store.reserve(reservations, completion: completion)
    }

    func newest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        store.newest(of: jobs) { [lane, mutation] result in
            guard case .success(let values) = result else { return completion(result) }
            for (job, value) in zip(jobs, values) { lane.checks.confirmed(job, value) }
            switch mutation {
            case .sendsReplaced: completion(.success(values.map { _ in nil }))
            case .dropsNewest: completion(.success(values.map { $0 == nil ? nil : ByteBuffer(string: "another") }))
            default: completion(result)
            }
        }
    }

    func stop(_ stopped: StoppedCampaign, completion: @escaping Completion<Bool>) {
        store.stop(stopped, completion: completion)
    }

    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>) {
        let claimed = claimed
        let confirm: Completion<QueueConnection.Settled> = { [simulation] result in
            // A settlement that found no claim confirms nothing. After a rollback of Redis, the job may be recovered, and another claim may
            // have the same ID.
            if case .success(let settled) = result, settled.lost == 0 {
                simulation.checks.confirm(settlement, of: claimed)
            }
            completion(result)
        }
        let nothing = QueueConnection.Settled(lost: 0, evicted: 0)
        switch mutation {
        case .dropsResentSettlements:
            guard sentSettlements.insert("\(claimed) \(settlement.claims)").inserted else {
                return confirm(.success(nothing))
            }
            store.settle(settlement, completion: confirm)
        case .confirmsFailedSettlements:
            store.settle(settlement) { result in
                if case .failure = result { confirm(.success(nothing)) } else { confirm(result) }
            }
        case .confirmsRefusedSettlements:
            store.settle(settlement) { result in
                if case .failure(let failure) = result, failure.isAnswer {
                    confirm(.success(nothing))
                } else {
                    confirm(result)
                }
            }
        default: store.settle(settlement, completion: confirm)
        }
    }

    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>) {
        if !renewals.allowsReclaim(now: simulation.time.now) {
            simulation.fail("\(lane.name) reclaims \(other), and has not renewed its own lease for long enough")
        }
        store.reclaim(other, completion: completion)
    }

    func release(
        of configuration: ConfigurationDigest, endOf process: String?,
        completion: @escaping Completion<QueueConnection.Released>
    ) { store.release(of: configuration, endOf: process, completion: completion) }

    func claims(completion: @escaping Completion<[ClaimID]>) {
        if mutation == .skipsRecovery { return completion(.success([])) }
        asOther { store.claims(completion: completion) }
    }

    /// If the mutation is active, reads the claims of another lane instead of the lane's own.
    private func asOther(_ read: () -> Void) {
        let holders = simulation.workers.flatMap(\.lanes).map { $0.holders[queue.id.index] }
        let own = holder
        guard mutation == .recoversOthersClaims, let other = holders.first(where: { $0 != own }) else { return read() }
        store.use(worker: other)
        read()
        store.use(worker: own)
    }

    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>) {
        let (holder, claimed) = (holder, claimed)
        asOther {
            store.bodies(of: claims) { [simulation, lane] result in
                if case .success(let bodies) = result {
                    for (claim, body) in zip(claims, bodies) {
                        guard let body else { continue }
                        simulation.checks.receive(claim, of: claimed)
                        lane.checks.receive(body, under: holder)
                    }
                }
                completion(result)
            }
        }
    }

    func gauges(completion: @escaping Completion<QueueGauges>) { store.gauges(completion: completion) }

    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>) {
        guard lane.sender.isReady, wait == nil else { return completion(.success(false)) }
        let wait = SimulatedWait(queue.id.index, worker)
        self.wait = wait
        var isDone = false
        let finish: (Bool) -> Void = { [weak self] hasCome in
            guard !isDone else { return }
            isDone = true
            if self?.wait === wait { self?.wait = nil }
            completion(.success(hasCome))
        }
        let (loop, time, random, isCalm) = (worker.loop, simulation.time, simulation.random, simulation.blame != nil)
        wait.served = {
            // The answer may be lost: the job is in the inbox, where every claim finds it.
            guard isCalm || !random.chance(3) else { return }
            time.schedule(in: random.delay(0...4), on: loop) { finish(true) }
        }
        time.schedule(in: random.delay(0...4)) { [simulation] in simulation.redis.wait(wait) }
        time.schedule(in: .seconds(Int64(seconds)), on: loop) { [simulation] in
            simulation.redis.stopWait(wait)
            finish(false)
        }
    }

    func stopWaiting() { if let wait { simulation.redis.stopWait(wait) } }
}

/// The real stores of the fleet's state, with checks of what the lane learns, and the mutations of the engine's rules.
private final class SimulatedFleet: AppPauseStore, ProviderTokenStore, InvalidTokenStore {
    private let store: FleetStore
    private unowned let lane: SimulatedLane
    private let loop: SimulatedLoop
    private unowned let simulation: FleetSimulation

    init(_ store: FleetStore, _ lane: SimulatedLane, _ loop: SimulatedLoop, in simulation: FleetSimulation) {
        (self.store, self.lane, self.loop, self.simulation) = (store, lane, loop, simulation)
    }

    private var mutation: Mutation? { simulation.options.mutation }

    func read(_ apps: [String], completion: @escaping Completion<[AppPauses.State]>) {
        store.pauses.read(apps, completion: completion)
    }

    // MARK: Tokens

    func share(_ offer: SharedProviderTokens.Offer, completion: @escaping Completion<SharedProviderTokens.Answer>) {
        lane.checks.askedForToken()
        store.providerTokens.share(offer) { [lane, mutation] result in
            switch result {
            case .success(.taken), .success(.other): lane.checks.receivedToken(true)
            case .success(.clocksDiffer), .failure: lane.checks.receivedToken(false)
            }
            completion(mutation == .ignoresFleetToken ? .success(.taken) : result)
        }
    }

    // MARK: Invalid tokens

    var isReady: Bool { store.isReady }

    func count(completion: @escaping Completion<Int>) { store.invalidTokens.count(completion: completion) }

    func countIfUndivided(completion: @escaping Completion<Int?>) {
        store.invalidTokens.countIfUndivided(completion: completion)
    }

    func mark(_ tokens: [InvalidToken], completion: @escaping Completion<[InvalidToken.Marking]>) {
        guard mutation == .settlesBeforeMarkingInvalid else {
            let marked = tokens.map { String(buffer: $0.token) }
            for token in marked { simulation.fleet.lastMarked[token] = simulation.time.now }
            return store.invalidTokens.mark(tokens) { [simulation] result in
                for token in marked {
                    simulation.fleet.lastMarked[token] = simulation.time.now
                    guard case .success = result else { continue }
                    simulation.fleet.markedInvalid[token] =
                        simulation.fleet.markedInvalid[token] ?? simulation.time.milliseconds
                }
                completion(result)
            }
        }
        completion(.success(tokens.map { _ in .added }))
        loop.assumeIsolated().scheduleTask(in: .milliseconds(200)) { [store] in
            store.invalidTokens.mark(tokens) { _ in }
        }
    }

    func find(_ tokens: TokenList, completion: @escaping Completion<[InvalidToken.Found]>) {
        store.invalidTokens.find(tokens) { [lane] result in
            if case .failure = result { lane.checks.couldNotLookUp() }
            completion(result)
        }
    }

    func remove(_ removals: [InvalidToken.Removal], completion: @escaping Completion<Int>) {
        guard mutation != .leavesAcceptedTokens else { return completion(.success(0)) }
        let tokens = removals.map { String(buffer: $0.token) }
        lane.checks.removes(tokens)
        store.invalidTokens.remove(removals) { [lane] result in
            lane.checks.removed(tokens, result)
            completion(result)
        }
    }
}

/// The tokens that APNs throttles, as a simulated lane knows them.
private struct SimulatedThrottledTokens: ThrottledTokenStore {
    let store: any ThrottledTokenStore
    unowned let lane: SimulatedLane
    let loop: SimulatedLoop
    let mutation: Mutation?

    func add(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>) {
        lane.checks.throttled(String(buffer: token), until: until)
        if mutation == .forgetsThrottles {
            loop.assumeIsolated().execute { [lane] in lane.lane.fleet.throttles = TokenThrottles() }
        }
        store.add(token, until: until, completion: completion)
    }

    func count(completion: @escaping Completion<Int>) {
        store.count(completion: completion)
    }

    func find(_ tokens: TokenList, completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>) {
        store.find(tokens) { [lane, mutation] result in
            guard case .success(let found) = result else { return completion(result) }
            lane.checks.learned(found)
            completion(mutation == .hidesThrottles ? .success([]) : result)
        }
    }
}
