import APNS
import Logging
import NIOCore
import PushQueue
import Redis

/// A share-nothing worker on one event loop: claims jobs, sends them, settles them.
///
/// Its own Redis connections, its own APNs connections, its own claims; no locks and no hops between threads. Everything
/// here runs on ``eventLoop``, but for what says otherwise. What the parts decide is in value types (``ClaimWindow``,
/// ``AppBreaker``, ``Verdict``, ``RetryPolicy``); the lane carries it out:
///
///     claim → accept (decode, route, check) → dispatch → complete → settle
///
/// `@unchecked Sendable`: state is touched on the event loop only, which the entry points from outside see to.
final class Lane: @unchecked Sendable {
    enum Phase { case starting, running, draining, stopped }

    let eventLoop: any EventLoop
    let configuration: WorkerConfiguration
    let index: Int
    var logger: Logger
    /// The seconds since 1970, for provider tokens only: jobs go by Redis' clock.
    let wallClock: @Sendable () -> Int64
    /// Called when a claim was full, so that other lanes look for work too. From this lane's event loop.
    var onBacklog: (@Sendable () -> Void)?

    let client: RedisClient
    /// For the blocking wait; only one lane of a process has one.
    let waiter: RedisClient?
    var queue: QueueConnection
    var apps: [AppLane] = []
    let jobs = EntryTable<JobEntry>()
    let flights = EntryTable<FlightEntry>()
    var window = ClaimWindow()
    var counters = LaneCounters()
    private(set) var phase = Phase.starting

    /// What is to be settled next, and what was written and not yet confirmed.
    var settlement = Settlement()
    var unconfirmed: [Int: Settlement] = [:]
    var nextSettlement = 0
    var unconfirmedClaims = 0
    var isSettleScheduled = false
    /// Jobs whose invalid tokens have to be in the set before they are settled.
    var awaitingInvalidTokens: [JobEntry] = []
    var isWritingInvalidTokens = false

    /// Redis' clock: what it said, and when.
    var clock: (at: NIODeadline, milliseconds: Int64) = (.distantPast, 0)
    var isWaiting = false
    var waiterID: Int?
    var generation = 0
    var reapAfter: [String: NIODeadline] = [:]
    var lastRenewal = NIODeadline.distantPast
    var lastIncident: [String: NIODeadline] = [:]
    var hasBacklog = false
    private var ticker: RepeatedTask?
    private var threadClock = ThreadClock()
    private var isPumpScheduled = false
    private(set) var isPumping = false
    private var drained: EventLoopPromise<Void>?
    private var drainDeadline = NIODeadline.distantFuture
    private var isCutShort = false
    private var hasGivenUp = false

    private static let tickInterval = TimeAmount.milliseconds(100)
    /// What Redis is given at the end of a drain to take what has not been settled.
    private static let settlementTime = TimeAmount.seconds(2)

    init(
        configuration: WorkerConfiguration, index: Int, eventLoop: any EventLoop, logger: Logger,
        wallClock: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        self.index = index
        self.eventLoop = eventLoop
        self.logger = logger
        self.wallClock = wallClock
        var redis = RedisClientConfiguration()
        redis.clientName = "apns-worker:\(configuration.workerName):\(index)"
        client = RedisClient(
            endpoint: configuration.redis, eventLoop: eventLoop, configuration: redis, logger: logger)
        if index == 0 {
            redis.clientName = "apns-worker:\(configuration.workerName):wait"
            waiter = RedisClient(
                endpoint: configuration.redis, eventLoop: eventLoop, configuration: redis, logger: logger)
        } else {
            waiter = nil
        }
        queue = QueueConnection(
            client: client, keys: configuration.queueKeys, sharedKeys: configuration.sharedKeys,
            worker: "\(configuration.workerName).\(index)", limits: configuration.queueLimits)
    }

    /// Begins to connect and to work. From anywhere.
    /// - Throws: when an app's TLS configuration or signing key cannot be used.
    func start() async throws {
        let pools = try configuration.apps.map { try $0.poolConfiguration() }
        try await eventLoop.submit { try self.startOnLoop(pools) }.get()
    }

    private func startOnLoop(_ pools: [ConnectionPool.Configuration]) throws {
        for (app, pool) in zip(configuration.apps, pools) {
            let appLane = AppLane(app, pool: ConnectionPool(pool, eventLoop: eventLoop, logger: logger))
            appLane.pool.delegate = self
            try appLane.refreshProviderToken(now: wallClock())
            apps.append(appLane)
        }
        phase = .running
        client.onStateChange = { [self] state in redisChanged(state) }
        client.start()
        waiter?.onStateChange = { [self] state in waiterChanged(state) }
        waiter?.start()
        for app in apps { app.pool.check(now: eventLoop.now) }
        ticker = eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: Self.tickInterval) { [self] _ in tick() }
    }

    /// What the lane does when nothing else makes it do something.
    private func tick() {
        guard phase != .stopped else { return }
        let now = eventLoop.now
        for app in apps {
            do {
                try app.refreshProviderToken(now: wallClock())
            } catch {
                incident("signing a provider token failed: \(error)", key: "sign", metadata: app.logMetadata)
            }
            app.pool.check(now: now)
            parkWhatCannotBeSent(app, now: now)
        }
        if now - lastRenewal > .milliseconds(Int64(configuration.queueLimits.lease) / 5) { renewLease() }
        writeInvalidTokens()
        if phase == .draining, now >= drainDeadline { cutDrainShort() }
        growIfStarved()
        pump()
    }

    /// Does whatever can be done now. To be called when something has changed; it is cheap when nothing has.
    func pump() {
        isPumping = true
        defer { isPumping = false }
        if phase == .draining { return finishDrainIfDone() }
        for app in apps { dispatch(app) }
        claimIfWorthwhile()
        if flights.count == 0 { flushSettlement() }
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
    func wake() {
        eventLoop.execute { [self] in
            window.wake()
            schedulePump()
        }
    }

    /// Redis' time in milliseconds since 1970.
    var now: Int64 { clock.milliseconds + (eventLoop.now - clock.at).nanoseconds / 1_000_000 }

    /// How many notifications could be under way in addition to those that are.
    var room: Int {
        let now = eventLoop.now
        return apps.reduce(0) { $0 + $1.room(now: now) }
    }

    /// Tells of something that went wrong: once, and then once a minute at the most.
    func incident(_ message: String, key: String, metadata: Logger.Metadata = [:]) {
        let now = eventLoop.now
        if let last = lastIncident[key], now - last < .seconds(60) { return }
        lastIncident[key] = now
        logger.error("\(message)", metadata: metadata)
    }

    /// Opens another connection where there is more work than streams, and time to do it in: when each answer takes long,
    /// a connection's streams are all busy while the processor is not.
    private func growIfStarved() {
        let used = threadClock.sinceLast()
        guard hasBacklog, phase == .running, room <= flights.count, used < Self.tickInterval.nanoseconds / 2 else {
            return
        }
        apps.filter { !$0.breaker.isOpen }.min { $0.pool.freeStreams < $1.pool.freeStreams }?.pool.wantStreams()
    }

    // MARK: Drain

    /// Stops claiming, finishes what is under way within a limit, gives the rest back, and closes everything. From
    /// anywhere.
    func drain(within limit: TimeAmount) -> EventLoopFuture<Void> {
        eventLoop.flatSubmit { [self] in
            if let drained { return drained.futureResult }
            let promise = eventLoop.makePromise(of: Void.self)
            drained = promise
            phase = .draining
            drainDeadline = eventLoop.now + limit
            stopWaiting()
            dropUnsent()
            pump()
            return promise.futureResult
        }
    }

    /// Leaves what has not been submitted: a job with one token is still among the worker's claims, which are given back;
    /// of a job with many, the tokens that are left go back to the queue.
    private func dropUnsent() {
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
        for app in apps { app.pool.closeNow() }
    }

    private func finishDrainIfDone() {
        guard flights.count == 0 || hasGivenUp else { return }
        flushSettlement()
        let isSettled =
            settlement.isEmpty && unconfirmed.isEmpty && awaitingInvalidTokens.isEmpty && !isWritingInvalidTokens
        guard isSettled && !isWaiting || hasGivenUp else { return }
        phase = .stopped
        ticker?.cancel()
        queue.release { [self] result in
            switch result {
            case .success(let released):
                if released > 0 { logger.info("gave unsent jobs back", metadata: ["jobs": "\(released)"]) }
            case .failure(let error):
                logger.warning(
                    "could not give unsent jobs back; another worker takes them when the lease ends: \(error)")
            }
            let closing = apps.map { $0.pool.close() } + [client.close()] + (waiter.map { [$0.close()] } ?? [])
            EventLoopFuture.andAllComplete(closing, on: eventLoop).assumeIsolated().whenComplete { _ in
                self.drained?.succeed(())
            }
        }
    }
}
