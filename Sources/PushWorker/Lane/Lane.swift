import APNS
import Logging
import NIOCore
import PushQueue
import Redis

/// A share-nothing worker on one event loop: claims jobs, sends them, settles them.
///
/// Its own Redis connections, its own APNs connections, its own claims; no locks and no hops between threads. Everything
/// here runs on ``eventLoop``, but for what says otherwise. What the parts decide is in value types (``ClaimWindow``,
/// ``QueueSchedule``, ``AppBreaker``, ``Verdict``, ``RetryPolicy``); the lane and its queues carry it out:
///
///     claim → accept (decode, route, check) → dispatch → complete → settle
///
/// `@unchecked Sendable`: state is touched on the event loop only, which the entry points from outside see to.
final class Lane: @unchecked Sendable {
    enum Phase { case starting, running, draining, stopped }

    let eventLoop: any EventLoop
    var configuration: WorkerConfiguration
    let index: Int
    /// How many lanes the process has.
    let laneCount: Int
    var logger: Logger
    /// What is wrong here and in the other lanes.
    let troubles: TroubleLog
    /// The seconds since 1970, for provider tokens only: jobs go by Redis' clock.
    let wallClock: @Sendable () -> Int64
    /// Called with what a person wants the process to do. From this lane's event loop.
    var onOrder: (@Sendable (WorkerOrder) -> Void)?
    /// The order that was last passed on: each is seen many times.
    var lastOrder: WorkerOrder?
    /// Whether nothing more is claimed, though the lane stays.
    var isQuiet = false
    var recentRate = RecentRate()
    let startedAt = NIODeadline.now()
    /// Called when a claim was full, so that other lanes look for work too. From this lane's event loop.
    var onBacklog: (@Sendable (_ queue: Int) -> Void)?
    /// Called with the time at which a retry becomes due, for the lane that polls. From this lane's event loop.
    var onDue: (@Sendable (_ queue: Int, _ time: NIODeadline) -> Void)?

    private let clients: RedisClients
    var queues: [QueueLane] = []
    var schedule: QueueSchedule
    var invalidTokens: InvalidTokenSet?
    var appPauses: AppPauses?
    /// How many tokens are in the set of invalid ones, as far as was read.
    var invalidTokenCount: Int?
    /// Accepted jobs whose tokens are to be looked up there.
    var toLookUp: [Int] = []
    var lookUpsUnderWay = 0
    var throttles = TokenThrottles()
    var throttledTokens: ThrottledTokens?
    var appRates: AppRates?
    var sharedTokens: SharedProviderTokens?
    /// When it was last asked what the fleet knows.
    var fleetStateReadAt = NIODeadline.distantPast
    var apps: [AppLane] = []
    /// Connections that others have taken the place of, with answers to come.
    var leavingTransports: [any Transport] = []
    var router: JobRouter
    let jobs = EntryTable<JobEntry>()
    let flights = EntryTable<FlightEntry>()
    var counters = LaneCounters()
    let metrics: LaneMetrics
    /// Whether the event loop turns. From anywhere.
    let pulse = LoopPulse()
    /// What of the queues is only in Redis, for whoever scrapes.
    var gauges = QueueGaugeReadings()
    /// Who wants to know how notifications end.
    var endings: Endings
    private(set) var phase = Phase.starting

    /// Jobs whose invalid tokens have to be in the set before they are settled.
    var awaitingInvalidTokens: [JobEntry] = []
    /// Those whose tokens are being written.
    var writingInvalidTokens: [JobEntry] = []
    /// Why Redis does not take them, as long as it does not.
    var invalidTokensRefusal: String?
    var invalidTokensNotBefore = NIODeadline.distantPast
    private var turn = 0
    private var lastFullSecond = NIODeadline.distantPast
    var readiness = Readiness()
    /// Since when each problem keeps the lane from its work.
    var problemsSince: [String: NIODeadline] = [:]
    private var nextTick: Scheduled<Void>?
    private var nextTickAt = NIODeadline.distantFuture
    private var ticksSlowly = false
    private var threadClock = ThreadClock()
    private var isPumpScheduled = false
    private(set) var isPumping = false
    private var drained: EventLoopPromise<Void>?
    private var drainDeadline = NIODeadline.distantFuture
    private var isCutShort = false
    private var hasGivenUp = false

    private static let tickInterval = TimeAmount.milliseconds(100)
    /// The same while there is nothing to do: each tick wakes a processor.
    private static let idleTickInterval = TimeAmount.seconds(1)
    /// What Redis is given at the end of a drain to take what has not been settled.
    private static let settlementTime = TimeAmount.seconds(2)

    init(
        configuration: WorkerConfiguration, index: Int, of laneCount: Int = 1, eventLoop: any EventLoop, logger: Logger,
        troubles: TroubleLog, takesTimes: Bool, wallClock: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        self.index = index
        self.laneCount = laneCount
        self.eventLoop = eventLoop
        self.logger = logger
        self.troubles = troubles
        self.wallClock = wallClock
        metrics = LaneMetrics(
            apps: configuration.apps.count, queues: configuration.queues.count, takesTimes: takesTimes)
        endings = Endings(logger, configuration.queues)
        router = JobRouter(configuration.apps)
        schedule = QueueSchedule(
            weights: configuration.queues.map(\.weight), isStrict: configuration.queueOrder == .strict)
        var redis = configuration.redisClient
        redis.clientName = "apns-worker:\(configuration.workerName):\(index)"
        clients = RedisClients(
            topology: configuration.redis, eventLoop: eventLoop, configuration: redis,
            logger: Self.quietened(logger))
    }

    /// For an app's connections: an endpoint alone does not tell whose they are.
    func logger(of app: AppConfiguration) -> Logger {
        var logger = logger
        logger[metadataKey: "app"] = "\(app.name)"
        return logger
    }

    /// For clients of Redis: what becomes of their connections the lanes tell together, once for all of them.
    private static func quietened(_ logger: Logger) -> Logger {
        guard logger.logLevel > .debug else { return logger }
        var logger = logger
        logger.logLevel = max(logger.logLevel, .error)
        return logger
    }

    /// Begins to connect and to work. From anywhere.
    /// - Throws: when an app's TLS configuration or signing key cannot be used.
    func start() async throws {
        let transports = try configuration.apps.map { try $0.transportConfiguration() }
        try await eventLoop.submit { try self.startOnLoop(transports) }.get()
    }

    private func startOnLoop(_ transports: [TransportConfiguration]) throws {
        for (app, transport) in zip(configuration.apps, transports) {
            let appLane = AppLane(app, transport: transport.make(on: eventLoop, logger: logger(of: app)))
            appLane.transport.delegate = self
            apps.append(appLane)
        }
        phase = .running
        startQueues()
        for app in apps { app.transport.check(now: eventLoop.now) }
        scheduleTick(at: eventLoop.now)
    }

    private func startQueues() {
        clients.onStateChange = { [weak self] client, state in
            guard let self else { return }
            tellOfRedis(state, at: "\(ObjectIdentifier(client))")
            countRedis(state)
            for queue in queues where queue.client === client { queue.redisChanged(state) }
            if case .ready = state { writeInvalidTokens() }
        }
        for (number, queue) in configuration.queues.enumerated() {
            let waiter = polls ? makeWaiter(for: queue.keys) : nil
            let queueLane = QueueLane(
                queue, index: number, lane: self, client: clients.client(for: queue.keys.jobs), waiter: waiter)
            waiter?.start()
            queues.append(queueLane)
        }
        let sharedKeys = configuration.sharedKeys
        let client = clients.client(for: sharedKeys.invalidTokens)
        invalidTokens = InvalidTokenSet(
            client: client, keys: sharedKeys, maximumAge: configuration.invalidTokenAge)
        throttledTokens = ThrottledTokens(client: client, keys: sharedKeys)
        sharedTokens = SharedProviderTokens(client: client, keys: sharedKeys)
        appRates = AppRates(client: client, keys: sharedKeys)
        appPauses = AppPauses(
            client: client, keys: sharedKeys, worker: "\(configuration.workerName).\(index)",
            durations: configuration.appPause)
    }

    /// A blocked connection holds up what comes after, so each queue's wait has one of its own.
    private func makeWaiter(for keys: QueueKeys) -> RedisClient {
        var redis = configuration.redisClient
        redis.clientName = "apns-worker:\(configuration.workerName):wait:\(keys.queue)"
        return RedisClient(
            topology: configuration.redis, key: keys.jobs, eventLoop: eventLoop, configuration: redis,
            logger: Self.quietened(logger))
    }

    /// What the lane does when nothing else makes it do something.
    private func tick() {
        guard phase != .stopped else { return }
        let now = eventLoop.now
        pulse.beat(now)
        nextTickAt = .distantFuture
        defer { keepTicking() }
        // What changes slowly need not be looked at ten times a second; but without a token nothing is sent.
        let isFullSecond = now - lastFullSecond >= .seconds(1)
        if isFullSecond { lastFullSecond = now }
        for app in apps {
            if isFullSecond || !app.canSend { keepProviderToken(of: app) }
            if isFullSecond { reportBlock(app) }
            app.transport.check(now: now)
            watchAnswers(of: app)
            if app.isLeaving { leaveIfDone(app) }
            parkWhatCannotBeSent(app, now: now)
        }
        for transport in leavingTransports { transport.check(now: now) }
        if flights.count > 0 || apps.contains(where: \.breaker.isOpen) { readFleetStateIfDue() }
        for queue in queues {
            queue.renewLeaseIfDue()
            queue.lookForForgottenIfDue()
            if phase == .running, !isQuiet { queue.delegatePollIfDue() }
        }
        writeInvalidTokens()
        if isFullSecond {
            endings = Endings(logger, configuration.queues)
            if index == 0 { troubles.tellOverdue(logger) }
        }
        if isFullSecond || readiness.isTroubled { tellOfReadiness(now: now) }
        if phase == .draining, now >= drainDeadline { cutDrainShort() }
        growIfStarved()
        pump()
    }

    /// Sees to the next tick: soon while there is something to do, and else when there may be.
    private func keepTicking() {
        guard phase != .stopped, phase != .starting else { return }
        let now = eventLoop.now
        var next = now + Self.tickInterval
        if isIdle {
            next = max(next, min(now + Self.idleTickInterval, nextPoll))
        }
        guard next < nextTickAt else { return }
        ticksSlowly = next - now > Self.tickInterval
        scheduleTick(at: next)
    }

    /// When the first of the queues wants to be asked for jobs, or a moment later where others do then: in one write they
    /// cost Redis half as much.
    private var nextPoll: NIODeadline {
        let times = queues.map(\.nextClaim)
        guard let first = times.min(), first < .distantFuture else { return .distantFuture }
        return times.filter { $0 <= first + Self.tickInterval }.max() ?? first
    }

    private func scheduleTick(at time: NIODeadline) {
        nextTick?.cancel()
        nextTickAt = time
        nextTick = eventLoop.assumeIsolated().scheduleTask(deadline: time) { self.tick() }
    }

    /// Whether nothing is under way, nothing waits, and nothing is wrong that would have to be looked at again soon.
    var isIdle: Bool {
        phase == .running && flights.count == 0 && jobs.count == 0 && !readiness.isTroubled && leavingTransports.isEmpty
            && awaitingInvalidTokens.isEmpty && writingInvalidTokens.isEmpty && toLookUp.isEmpty
            && apps.allSatisfy(\.isAtRest) && queues.allSatisfy(\.isAtRest)
    }

    /// Does whatever can be done now. To be called when something has changed; it is cheap when nothing has.
    func pump() {
        isPumping = true
        metrics.turned()
        defer {
            isPumping = false
            metrics.turned()
            // Something has come while it was not expected.
            if ticksSlowly { keepTicking() }
        }
        lookUpTokens()
        if phase == .draining { return finishDrainIfDone() }
        for app in apps { dispatch(app) }
        for queue in queues where !queue.forgotten.isEmpty { queue.takeForgotten() }
        claimIfWorthwhile()
        if flights.count == 0 { flushSettlements() }
    }

    /// Asks queues for jobs as long as there is room for some.
    private func claimIfWorthwhile() {
        guard phase == .running else { return }
        guard !isQuiet else { return claimOwn() }
        let now = eventLoop.now
        let busy = flights.count
        turn &+= 1
        while let next = schedule.next({ queues[$0].availability(turn: turn, now: now) }) {
            let reserved = queues.reduce(0) { $0 + $1.window.reserved(now: now) + $1.awaitingReservation.count }
            queues[next].lastTurn = turn
            queues[next].claim(free: max(0, room - reserved), busy: busy)
        }
    }

    private func flushSettlements() {
        for queue in queues { queue.flushSettlement() }
    }

    /// Pumps once when what is going on in this turn of the event loop is over.
    func schedulePump() {
        guard !isPumpScheduled else { return }
        isPumpScheduled = true
        eventLoop.execute { [self] in
            isPumpScheduled = false
            if phase == .running || phase == .draining { pump() }
        }
    }

    /// Another lane has found more work than it can take. From anywhere.
    func wake(queue: Int) {
        eventLoop.execute { [self] in
            // A lane that has not started claims when it does.
            guard queues.indices.contains(queue) else { return }
            queues[queue].window.wake()
            schedulePump()
        }
    }

    /// A retry becomes due. From anywhere.
    func wake(queue: Int, at time: NIODeadline) {
        eventLoop.execute { [self] in
            if queues.indices.contains(queue) { queues[queue].wake(at: time) }
        }
    }

    /// Whether this is the lane of its process that polls (see ``ClaimWindow``).
    var polls: Bool { index == 0 }

    /// How many notifications could be under way in addition to those that are.
    var room: Int {
        let now = eventLoop.now
        return apps.reduce(0) { $1.isLeaving ? $0 : $0 + $1.room(now: now) }
    }

    /// Tells of something that went wrong: once, and then once a minute at the most, with how many there were.
    /// - Returns: whether it was told.
    @discardableResult
    func incident(
        _ message: @autoclosure () -> String, key: String, count: Int = 1, _ logger: Logger? = nil,
        metadata: Logger.Metadata = [:]
    ) -> Bool {
        troubles.occurred(key, count: count, .error, message(), logger ?? self.logger, metadata: metadata)
    }

    /// Tells of a trouble that lasts until it is over: once, and then rarely, with how often it was met.
    /// - Parameters:
    ///   - subject: what it is about.
    ///   - source: who has it.
    ///   - form: what tells it from others about the same; each is told.
    func trouble(
        _ level: Logger.Level, _ message: @autoclosure () -> String, _ subject: String, at source: String,
        form: String = "", _ logger: Logger? = nil, metadata: @autoclosure () -> Logger.Metadata = [:]
    ) {
        guard let count = troubles.began(subject, at: source, form: form) else { return }
        var metadata = metadata()
        if count > 1 { metadata["count"] = "\(count)" }
        (logger ?? self.logger).log(level: level, "\(message())", metadata: metadata)
    }

    /// Opens another connection where there is more work than streams, and time to do it in: when each answer takes long,
    /// a connection's streams are all busy while the processor is not.
    private func growIfStarved() {
        let used = threadClock.sinceLast()
        guard queues.contains(where: \.hasBacklog), phase == .running, room <= flights.count,
            used < Self.tickInterval.nanoseconds / 2
        else {
            return
        }
        apps.filter { !$0.breaker.isOpen && !$0.isLeaving }.min { $0.transport.capacity < $1.transport.capacity }?
            .transport
            .requestCapacity()
    }

    /// The claims of a queue that are being worked on, under the name that the queue has now.
    func claims(of queue: QueueLane) -> [ClaimID] {
        let waiting = awaitingInvalidTokens + writingInvalidTokens
        // Entries that hold nothing have no claim.
        return (jobs.entries + waiting).filter {
            $0.claim.number > 0 && $0.queue == queue.index && $0.generation == queue.generation
        }.map(\.claim)
    }

    // MARK: Drain

    /// Stops claiming, finishes what is under way within a limit, gives the rest back, and closes everything. From
    /// anywhere.
    func drain(within limit: TimeAmount) -> EventLoopFuture<Void> {
        eventLoop.flatSubmit { [self] in
            if let drained { return drained.futureResult }
            let promise = eventLoop.makePromise(of: Void.self)
            drained = promise
            // What was wrong and is over is not left open in the log.
            tellOfReadiness(now: eventLoop.now)
            phase = .draining
            drainDeadline = eventLoop.now + limit
            for queue in queues {
                // A wait that is still blocked would move a job of which this lane wants to know nothing.
                _ = queue.waiter?.close()
                queue.tellSoon()
            }
            dropUnsent()
            keepTicking()
            for transport in apps.map(\.transport) + leavingTransports { transport.flushConfirmations() }
            pump()
            return promise.futureResult
        }
    }

    /// Leaves what has not been submitted: a job with one token is still among the worker's claims, which are given back;
    /// of a job with many, the tokens that are left go back to the queue.
    func dropUnsent() {
        for app in apps {
            while let index = app.ready.removeFirst(in: jobs) {
                if jobs[index].fanOut != nil {
                    park(index, app, reason: "Drained", delay: 0)
                } else {
                    app.waiting -= 1
                    jobs[index].isCutShort = true
                    ended(index)
                }
            }
            app.gatherResends(in: flights)
            while let flight = app.resends.removeFirst(in: flights) { abandon(flight) }
        }
    }

    /// The time for answers is up: what has none counts as uncertain, and is settled as that in the time that is left.
    private func cutDrainShort() {
        guard !isCutShort else {
            hasGivenUp = true
            return
        }
        isCutShort = true
        drainDeadline = eventLoop.now + Self.settlementTime
        guard flights.count > 0 else { return }
        logger.warning(
            "the drain's time is up; unanswered notifications will be sent again",
            metadata: ["in_flight": "\(flights.count)"])
        for transport in apps.map(\.transport) + leavingTransports { transport.closeNow() }
    }

    private func finishDrainIfDone() {
        guard flights.count == 0 && lookUpsUnderWay == 0 || hasGivenUp else { return }
        flushSettlements()
        guard queues.allSatisfy(\.isSettled) || hasGivenUp else { return }
        phase = .stopped
        pulse.stop()
        nextTick?.cancel()
        EventLoopFuture.andAllComplete(queues.map { $0.release() }, on: eventLoop).assumeIsolated().whenComplete { _ in
            let closing =
                self.apps.map { $0.transport.close() } + [self.clients.close()]
                + self.queues.compactMap { $0.waiter?.close() }
            EventLoopFuture.andAllComplete(closing, on: self.eventLoop).assumeIsolated().whenComplete { _ in
                self.drained?.succeed(())
            }
        }
    }
}
