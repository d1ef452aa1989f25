import APNS
import Logging
import NIOCore
import PushJob
import PushQueue
import Redis
import Sockets
import TLS

/// The work of one event loop: creates the parts that claim, send and settle jobs, connects them, and runs them.
///
/// A lane shares nothing with other lanes. It has its own connections to Redis and APNs and its own claims, so it needs no locks and no
/// hops between threads. A notification passes through each part once:
///
///     QueueConsumer → Intake → AppSender → Transport → AppSender → Ledger
///
/// `@unchecked Sendable`, because its state is accessed only on the event loop. The functions that other threads call ensure that.
final class Lane: LoopBound, @unchecked Sendable {
    let context: LaneContext
    let stores: any LaneStores
    let fleet: Fleet
    /// The ledgers of the queues, by index.
    let ledgers: [Ledger]
    let intake: Intake
    let consumers: [QueueConsumer]
    private var schedule: QueueSchedule
    let observer: LaneObserver
    /// The promise of the drain's end; `nil` before a drain begins.
    private var drained: EventLoopPromise<Void>?
    private var clock = TickClock()
    private let pumpSoon: SoonTask
    private let probeSoon: SoonTask
    /// The app whose turn it is.
    private var firstSender = 0
    private var isPumping = false
    /// The number of rounds of claims.
    private var turn = 0
    private let makeTransport: MakeTransport

    typealias MakeTransport = @Sendable (TransportConfiguration, any EventLoop, Logger) -> any Transport

    /// - Parameters:
    ///   - laneCount: the number of lanes of the worker.
    ///   - stores: the lane's access to Redis.
    init(
        _ context: LaneContext, of laneCount: Int, stores: any LaneStores,
        makeTransport: @escaping MakeTransport = { $0.make(on: $1, logger: $2) }
    ) {
        self.context = context
        self.stores = stores
        self.makeTransport = makeTransport
        fleet = Fleet(context, store: stores.fleet)
        ledgers = context.configuration.queues.enumerated().map { [fleet] index, queue in
            let queue = QueueContext(queue, id: QueueID(index: index), lane: context)
            let store = stores.store(of: queue, waits: context.polls)
            return Ledger(QueueLink(queue, store: store, fleet: fleet, lane: context))
        }
        intake = Intake(context, ledgers: ledgers, fleet: fleet)
        consumers = ledgers.map { [intake] in QueueConsumer($0, intake) }
        schedule = QueueSchedule(
            weights: context.configuration.queues.map(\.weight),
            isStrict: context.configuration.queueOrder == .strict)
        observer = LaneObserver(context, of: laneCount, consumers: consumers, intake: intake, fleet: fleet)
        pumpSoon = SoonTask(context.eventLoop)
        probeSoon = SoonTask(context.eventLoop)
    }

    var eventLoop: any EventLoop { context.eventLoop }

    var index: Int { context.index }

    var senders: [AppSender] { intake.senders }

    // MARK: Start

    /// Starts to connect and to work. Safe to call from any thread.
    /// - Throws: if an app's TLS configuration or signing key can't be used.
    func start() async throws {
        let apps = try context.configuration.apps.map { try AppSender.Prepared($0) }
        try await eventLoop.submit { self.start(apps) }.get()
    }

    func start(_ apps: [AppSender.Prepared]) {
        context.schedulePump = { [unowned self] in schedulePump() }
        context.pump = { [unowned self] in
            // A pump must not run inside another. Requests that it submits now are written when the connection flushes next.
            if isPumping || !(context.isWorking || context.isDraining) { schedulePump() } else { pump() }
        }
        context.isWaiting = { [unowned self] in senders.allSatisfy { $0.isRemoved || !$0.sendsFreely } }
        context.reportSoon = { [unowned self] in for consumer in consumers { consumer.reportSoon() } }
        route(to: apps.enumerated().map { sender(of: $1, id: AppID(index: $0)) })
        context.state = .running
        stores.start(consumers)
        for sender in senders { sender.transport.check(now: context.now) }
        scheduleTick(at: context.now)
    }

    private func sender(of app: AppSender.Prepared, id: AppID) -> AppSender {
        AppSender(
            app.configuration, id: id, transport: transport(of: app), lane: context, ledgers: ledgers, fleet: fleet)
    }

    private func transport(of app: AppSender.Prepared) -> any Transport {
        // The endpoint alone does not identify the app.
        var logger = context.logger
        logger[metadataKey: "app"] = "\(app.configuration.name)"
        return makeTransport(app.transport, eventLoop, logger)
    }

    private func route(to senders: [AppSender]) {
        intake.route(to: senders)
        let apps = senders.filter { !$0.isRemoved }.map(\.configuration)
        for consumer in consumers { consumer.queue.accept(by: apps) }
        context.apps = senders.map { ($0.name, $0.configuration.usesGateway) }
    }

    // MARK: Ticks

    /// Does the periodic work.
    private func tick() {
        guard !context.isStopped else { return }
        let now = context.now
        observer.pulse.beat(now)
        let (standstill, isFullSecond) = clock.recordTick(now: now)
        if let standstill { stoodStill(for: standstill, now: now) }
        defer { keepTicking() }
        for sender in senders { sender.check(isFullSecond: isFullSecond) }
        for ledger in ledgers { ledger.unsentPace.measure(now: now) }
        if isFullSecond { context.scopes.scopes.check(now: now.milliseconds) }
        if intake.inFlight > 0 || senders.contains(where: { !$0.sendsFreely }) || !fleet.refusals.isEmpty {
            intake.readFleetState()
        }
        stores.fleet.filterKeeper?.run()
        for consumer in consumers {
            settleParts(of: consumer.ledger.overdueJobs(), in: consumer.ledger)
            consumer.renewLeaseIfDue(isAtRest: isIdle, report: observer.heartbeat(for: consumer.queue))
            consumer.listClaimsIfDue()
            if case .running = context.state { consumer.delegatePollIfDue() }
            consumer.ledger.writeInvalidTokens()
            consumer.ledger.writeCountsIfDue()
        }
        if isFullSecond {
            for ledger in ledgers { ledger.refresh() }
            if index == 0 { context.issues.logOverdue(context.logger, now: now) }
        }
        if isFullSecond || observer.hasProblem { observer.logReadiness() }
        advanceDrain()
        growIfStarved()
        pump()
    }

    /// Moves all times that were measured by the lane's own clock, because the process did not run for some time. Leases, rates and the
    /// times of jobs follow Redis' clock, which continued.
    private func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for sender in senders { sender.stoodStill(for: time, now: now) }
        for consumer in consumers { consumer.stoodStill(for: time, now: now) }
        observer.stoodStill(for: time, now: now)
        guard case .draining(var drain) = context.state else { return }
        drain.stoodStill(for: time)
        context.state = .draining(drain)
    }

    /// Settles the notifications that have ended, if other notifications of their jobs have not.
    private func settleParts(of jobs: [JobID], in ledger: Ledger) {
        guard !jobs.isEmpty else { return }
        for sender in senders {
            let jobs = jobs.filter { context.jobs[$0].app == sender.id }
            for (job, tokens) in sender.openTokens(of: jobs) { ledger.settlePart(of: job, rest: tokens) }
        }
    }

    /// Schedules the next tick: soon while there is work, otherwise for the time of the next possible work.
    private func keepTicking() {
        guard context.isWorking || context.isDraining else { return }
        if let next = clock.next(now: context.now, polls: isIdle ? consumers.map(\.nextClaim) : nil) {
            scheduleTick(at: next)
        }
    }

    private func scheduleTick(at time: NIODeadline) { clock.schedule(at: time, on: eventLoop) { self.tick() } }

    /// Opens another connection if there is more work than streams, and the processor has time. With slow answers all streams can be busy
    /// while the processor is idle.
    private func growIfStarved() {
        let hasTime = clock.hasProcessorTime()
        guard consumers.contains(where: \.hasBacklog), context.isWorking, hasTime else { return }
        let sending = senders.filter { $0.sendsFreely && !$0.isRemoved }
        guard sending.reduce(0, { $0 + $1.transport.capacity }) <= intake.inFlight else { return }
        sending.min { $0.transport.capacity < $1.transport.capacity }?.transport.requestCapacity()
    }

    // MARK: Pumping

    /// Does all work that is possible now. Called after each change. Costs little if there is nothing to do.
    func pump() {
        isPumping = true
        context.metrics.turned()
        defer {
            isPumping = false
            context.metrics.turned()
            // Work has arrived while the lane ticked slowly.
            if clock.isSlow { keepTicking() }
        }
        for ledger in ledgers { settleParts(of: ledger.jobsWithManyResults(), in: ledger) }
        intake.lookUpTokens()
        passOnStops()
        if context.isDraining { return finishDrainIfDone() }
        dispatch()
        for consumer in consumers { consumer.readForgotten(capacity: capacity) }
        claimIfWorthwhile()
        if intake.inFlight == 0 { for ledger in ledgers { ledger.flush() } }
    }

    /// Pauses a campaign in all other queues after its guard has paused it in one queue.
    private func passOnStops() {
        for ledger in ledgers {
            for campaign in ledger.takeStopped() {
                for other in ledgers where other !== ledger { other.link.stop(campaign) }
            }
        }
    }

    /// Submits the notifications that may be sent now. If the apps share a slow scope, they take turns.
    private func dispatch() {
        guard !context.scopes.scopes.isQuiet else {
            for sender in senders { sender.dispatch() }
            return
        }
        firstSender = (firstSender + 1) % max(1, senders.count)
        for index in senders.indices { senders[(firstSender + index) % senders.count].dispatch() }
        scheduleProbe()
    }

    /// Dispatches again when the next probe may be sent.
    private func scheduleProbe() {
        let now = context.now
        guard !probeSoon.isScheduled, senders.contains(where: { !$0.line.isEmpty }),
            let next = context.scopes.scopes.nextProbe(after: now.milliseconds)
        else { return }
        probeSoon.schedule(in: .milliseconds(max(1, next - now.milliseconds))) { [self] in schedulePump() }
    }

    /// Claims jobs from queues as long as there is capacity for some.
    private func claimIfWorthwhile() {
        for (index, consumer) in consumers.enumerated() {
            guard let answer = consumer.takeAnswer() else { continue }
            schedule.recordAnswer(index, received: answer.received, isDry: answer.isDry)
        }
        switch context.state {
        case .running: break
        case .quiet:
            // A claim without an answer may have claimed jobs, which no other lane handles while this lane has its lease.
            for consumer in consumers { consumer.repeatClaim(report: observer.heartbeat(for: consumer.queue)) }
            return
        case .starting, .draining, .stopped: return
        }
        let busy = intake.inFlight
        turn &+= 1
        while let next = schedule.next({ consumers[$0].availability(turn: turn) }) {
            let expected = consumers.reduce(0) { $0 + $1.expected }
            consumers[next].claim(
                free: max(0, capacity - expected), busy: busy, turn: turn,
                report: observer.heartbeat(for: consumers[next].queue))
        }
    }

    private func schedulePump() {
        guard !pumpSoon.isScheduled else { return }
        pumpSoon.schedule { [self] in if context.isWorking || context.isDraining { pump() } }
    }

    // MARK: Other lanes

    /// Wakes the lane to look for jobs, because another lane has found more than it can claim. Safe to call from any
    /// thread.
    func wake(_ queue: QueueID) {
        eventLoop.execute { [self] in
            // A lane that has not started will claim jobs when it starts.
            ledgers[queue.index].link.window.wake()
            schedulePump()
        }
    }

    /// Schedules a claim for the due time of a retry. Safe to call from any thread.
    func wake(_ queue: QueueID, at time: NIODeadline) {
        eventLoop.execute { [self] in ledgers[queue.index].link.wake(at: time) }
    }

    // MARK: Commands and configuration

    /// Stops or resumes claiming. Requests in flight continue, and leases are kept. Safe to call from any thread.
    func setQuiet(_ quiet: Bool) {
        eventLoop.execute { [self] in
            guard context.isWorking, quiet != context.isQuiet else { return }
            context.state = quiet ? .quiet : .running
            for consumer in consumers {
                if !quiet { consumer.link.window.wake() }
                consumer.reportSoon()
            }
            schedulePump()
        }
    }

    /// Returns the sender that currently accepts an app's jobs.
    private func sender(named name: String) -> AppSender? { senders.first { $0.name == name && !$0.isRemoved } }

    /// Switches to another credential. Safe to call from any thread.
    func replaceCredential(of app: String, with credential: Credential, _ tls: TLSContext) {
        eventLoop.execute { [self] in
            guard context.isWorking else { return }
            sender(named: app)?.replaceCredential(credential, tls)
        }
    }

    /// Records the error of an app's credential; `nil` if the error has ended. Safe to call from any thread.
    func recordCredential(of app: String, problem: String?) {
        eventLoop.execute { [self] in sender(named: app)?.recordCredential(problem: problem) }
    }

    /// Switches to another configuration. Submitted notifications finish on the old connections, and waiting notifications use new ones.
    /// Safe to call from any thread.
    /// - Parameters:
    ///   - configuration: a configuration that differs only in settings that a running worker can change.
    ///   - prepared: its apps.
    func reload(_ configuration: WorkerConfiguration, _ prepared: [AppSender.Prepared]) -> EventLoopFuture<Void> {
        eventLoop.submit { [self] in
            guard context.isWorking else { return }
            context.configuration = configuration
            var senders = senders
            for app in prepared {
                if let known = sender(named: app.configuration.name) {
                    known.reload(app) { transport(of: app) }
                } else {
                    let new = sender(of: app, id: AppID(index: senders.count))
                    senders.append(new)
                    new.credential.keep()
                }
            }
            let names = Set(prepared.map(\.configuration.name))
            for sender in senders where !names.contains(sender.name) { sender.remove() }
            route(to: senders)
            for sender in senders where !sender.isRemoved { sender.transport.check(now: context.now) }
            schedulePump()
        }
    }

    // MARK: Drain

    /// Stops claiming, finishes the notifications in flight within a time limit, releases the other jobs, and closes everything. Safe to
    /// call from any thread.
    func drain(within limit: TimeAmount) -> EventLoopFuture<Void> {
        eventLoop.flatSubmit { [self] in
            if let drained { return drained.futureResult }
            let promise = eventLoop.makePromise(of: Void.self)
            drained = promise
            // Logs the end of problems that have ended.
            observer.logReadiness()
            context.state = .draining(Drain(within: limit, now: context.now))
            for consumer in consumers { consumer.stopWaiting() }
            for sender in senders { sender.drain() }
            keepTicking()
            pump()
            return promise.futureResult
        }
    }

    private func advanceDrain() {
        guard case .draining(var drain) = context.state else { return }
        let step = drain.advance(now: context.now)
        context.state = .draining(drain)
        guard step == .settling, intake.inFlight > 0 else { return }
        context.logger.warning(
            "the drain has timed out; unanswered notifications will be sent again",
            metadata: ["event": "drain_cut_short", "in_flight": "\(intake.inFlight)"])
        for sender in senders { sender.closeNow() }
    }

    private func finishDrainIfDone() {
        guard case .draining(let drain) = context.state else { return }
        guard drain.isGivenUp || (intake.inFlight == 0 && intake.lookUpsInFlight == 0 && !intake.isAsking) else {
            return
        }
        for ledger in ledgers { ledger.flush() }
        guard drain.isGivenUp || ledgers.allSatisfy(\.isEmpty) else { return }
        context.state = .stopped
        observer.pulse.stop()
        clock.cancel()
        EventLoopFuture.andAllComplete(consumers.map { $0.release() }, on: eventLoop).assumeIsolated().whenComplete {
            _ in
            let closing = self.senders.map { $0.close() } + [self.stores.close()]
            EventLoopFuture.andAllComplete(closing, on: self.eventLoop).assumeIsolated().whenComplete { _ in
                self.drained?.succeed(())
            }
        }
    }
}

extension Lane {
    /// The number of further notifications that could be in flight.
    var capacity: Int {
        let free = senders.reduce(0) { $0 + $1.capacity }
        return free > 0 ? ledgers.reduce(free) { $0 + $1.unsentPace.ahead } : 0
    }

    /// True while nothing is in flight, nothing waits, and no problem needs to be checked again soon.
    var isIdle: Bool {
        context.isWorking && intake.inFlight == 0 && context.jobs.count == 0 && !observer.hasProblem
            && intake.isIdle && senders.allSatisfy(\.isAtRest) && consumers.allSatisfy(\.isAtRest)
    }
}
