import APNS
import LegacyAPNS
import Logging
import NIOCore
import PushJob
import PushQueue
import TLS

/// Sends the notifications of one app on one lane. They wait in a line until the gate lets them go. An answer ends a notification, or makes
/// it wait again.
///
///     accept → line → dispatch → transport → answer → ledger
///                ▲                             │
///                └───── resent at once ────────┘
///
/// Only the lane's ``Scopes`` count failures. Belongs to the lane's event loop.
final class AppSender: GatewayDelegate {
    let lane: LaneContext
    let id: AppID
    /// The ledgers of the queues, by index.
    private let ledgers: [Ledger]
    let fleet: Fleet
    /// The names that select the app, and the defaults for its requests.
    private(set) var rules: RoutedApp
    private(set) var transport: any Transport
    let credential: AppCredential
    /// True if the worker's configuration no longer has the app. The sender then finishes its jobs and gets no new ones.
    private(set) var isRemoved = false
    let inFlight = Table<FlightID, InFlight>()
    private(set) var line = SendLine()
    private(set) var gate = Gate()
    private let rate: AppRate
    /// Replaced transports that still await answers.
    private var retiring: [any Transport] = []
    /// The number of failed connections of replaced transports, by error code.
    private var pastFailures: [String: Int] = [:]
    /// True once the lack of an `apns-id` in answers was logged.
    private var lacksIDs = false
    /// The number of notifications that the binary gateway dropped after it had confirmed them.
    private var dropped = 0

    private let scopes: Scopes
    let ownScopes: AppScopes
    /// The number of the newest connection when APNs last refused a connection, and the time of that refusal.
    private var refused: (newest: Int, at: NIODeadline)?
    /// The time when a refused request was last sent again on a separate connection.
    private var triedAgainAt = NIODeadline.distantPast
    /// The time of the first job since the last proof of the endpoint and the credential.
    private var unprovedSince = Int64.min / 2
    /// The error of the credential, or of a file that should replace it.
    private var credentialProblem: String?
    /// The time of the last ``recordWork(now:)``.
    private var workedAt = Int64.min / 2

    init(
        _ configuration: AppConfiguration, id: AppID, transport: any Transport, lane: LaneContext, ledgers: [Ledger],
        fleet: Fleet
    ) {
        self.lane = lane
        self.id = id
        self.ledgers = ledgers
        self.fleet = fleet
        self.transport = transport
        scopes = lane.scopes.scopes
        rules = RoutedApp(configuration)
        credential = AppCredential(
            configuration.credential, of: configuration.name, transport, lane, fleet, queues: ledgers.map(\.queue),
            logMetadata: Self.logMetadata(configuration))
        ownScopes = AppScopes(
            configuration, credentials: credential.names, in: lane.scopes, now: lane.now.milliseconds)
        rate = AppRate(configuration.name, lane, fleet, perSecond: configuration.maximumPerSecond)
        gate.block = configuration.wrongCertificate(configuration.credential)
        transport.delegate = self
    }

    deinit { inFlight.deallocate() }

    var configuration: AppConfiguration { rules.configuration }

    var name: String { configuration.name }

    private var logMetadata: Logger.Metadata { Self.logMetadata(configuration) }

    private static func logMetadata(_ app: AppConfiguration) -> Logger.Metadata {
        ["app": "\(app.name)", "endpoint": "\(app.endpoint)"]
    }

    private func ledger(of id: JobID) -> Ledger { ledgers[lane.jobs[id].queue.index] }

    private func queue(of id: JobID) -> QueueContext { ledger(of: id).queue }

    /// True if a connection accepts requests or can be opened on demand.
    var isConnected: Bool { transport.usableConnections > 0 || transport.isDormant }

    // MARK: Scopes

    private func place(of id: JobID) -> ScopePlace {
        ownScopes.place(of: id, in: lane.jobs, key: credential.keyIndex)
    }

    /// True while the app, its credential or its endpoint is slow or silent, so that only probes are sent.
    private var isSlow: Bool { ownScopes.isSlow(key: credential.keyIndex) }

    /// True if no pause, block or slow scope limits sending.
    var sendsFreely: Bool { gate.pause == nil && gate.block == nil && !isSlow }

    private func decide(_ id: JobID, isFresh: Bool? = nil, now: NIODeadline) -> Gate.Decision {
        let isFresh = isFresh ?? lane.jobs[id].isFresh
        return gate.decide(scopes.decide(place(of: id), isFresh: isFresh, now: now.milliseconds), now: now)
    }

    // MARK: Capacity

    /// The maximum number of isolated notifications that do not reduce the app's capacity.
    private static let manyIsolated = 1000
    /// The maximum number of jobs that wait in the lane as candidates for probes while only probes may be sent. A candidate is deferred
    /// after ``turnOfCandidate``, so that good jobs behind many bad ones get their turn.
    private static let candidates = 200
    private static let turnOfCandidate = TimeAmount.seconds(1)

    /// The number of notifications that the app could accept now.
    var capacity: Int {
        guard credential.canSend, !isRemoved, gate.pause == nil, gate.block == nil else { return 0 }
        let ahead = transport.usableConnections > 0 ? line.pace.ahead : 0
        // The first notification opens a connection.
        let streams = transport.isDormant ? 1 : transport.capacity
        // Isolated notifications reduce the capacity only if there are many.
        let isolated = max(0, line.isolatedCount - Self.manyIsolated)
        var free = max(0, streams + ahead - line.unsubmitted - line.resendCount - isolated)
        if free == 0 { free = capacityBesideMany }
        // The lane holds at most as many notifications as the rate allows in half a second. Other jobs stay in the queue.
        if let budget = rate.budget { free = min(free, max(0, max(1, budget.perSecond / 2) - line.unsubmitted)) }
        return isSlow ? min(free, max(0, Self.candidates - line.unsubmitted)) : free
    }

    /// The number of streams that jobs with many tokens leave to other jobs. Otherwise one job without answers would hold all streams until
    /// its requests time out.
    private var streamsOfOthers: Int { transport.statistics.streamLimit / 8 }
    /// While at most this number of jobs with many tokens wait, other jobs are still claimed.
    private static let fewWithMany = 4

    /// The number of notifications that the app could accept if only jobs with many tokens wait before them.
    private var capacityBesideMany: Int {
        guard transport.capacity > 0 else { return 0 }
        var (next, many, unsubmitted) = (line.ready.fresh.first, 0, line.unsubmitted)
        while let id = next, many <= Self.fewWithMany, lane.jobs[id].hasManyTokens {
            many += 1
            unsubmitted -= lane.jobs[id].unsubmitted
            next = following(id)
        }
        guard (1...Self.fewWithMany).contains(many) else { return 0 }
        return max(0, min(transport.capacity, streamsOfOthers) - unsubmitted)
    }

    /// True if the app could send and has nothing to send, so that it needs no frequent checks.
    var isAtRest: Bool {
        line.unsubmitted == 0 && line.isEmpty && retiring.isEmpty && sendsFreely && credential.canSend && !isRemoved
            && isConnected
    }

    // MARK: Ticks

    /// Enforces deadlines, maintains the credential and the connections, and defers jobs that can't be sent.
    /// - Parameter isFullSecond: true about once per second.
    func check(isFullSecond: Bool) {
        let now = lane.now
        line.pace.measure(now: now)
        // A token lasts for long, so one check per second is enough. Without a token nothing is sent, so it is checked more often.
        if isFullSecond || !credential.canSend { credential.keep() }
        if isFullSecond {
            logBlock()
            rate.probeIfRefused(waiting: line.unsubmitted, isRemoved: isRemoved)
        }
        transport.check(now: now)
        for transport in retiring { transport.check(now: now) }
        watchAnswers(now: now)
        if isRemoved, line.unsubmitted == 0, line.isEmpty, transport.statistics.streamsInUse == 0 {
            // Closing a transport again is harmless.
            _ = transport.close()
        }
        deferWhatCannotBeSent()
    }

    /// Records the endpoint as silent while APNs answers no requests, long before their deadlines.
    private func watchAnswers(now: NIODeadline) {
        guard lane.isWorking, !isRemoved else { return }
        if transport.statistics.isUnanswered {
            scopes.recordSilence(of: ownScopes.endpoint, now: now.milliseconds)
            lane.reportScopes()
        } else if scopes.isIdleSilence(ownScopes.endpoint, now: now.milliseconds) {
            scopes.endSilence(ownScopes.endpoint)
            lane.reportScopes()
        }
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for transport in [transport] + retiring { transport.stoodStill(for: time, now: now) }
        gate.recordStandstill(of: time, now: now)
    }

    /// Returns the tokens of the notifications that have not ended, for jobs with many tokens.
    func openTokens(of jobs: [JobID]) -> [JobID: [ByteBuffer]] {
        var open: [JobID: [ByteBuffer]] = [:]
        for job in jobs {
            open[job] = lane.jobs[job].fanOut.map { fanOut in fanOut.remaining.map(fanOut.job.text) }
        }
        guard !open.isEmpty else { return [:] }
        for flight in inFlight.entries {
            if let token = flight.deviceToken, open[flight.job] != nil { open[flight.job]?.append(token.hex) }
        }
        return open
    }

    // MARK: Observation

    /// The number of notifications that were dropped after their confirmation; `nil` for an app without a binary gateway.
    var droppedAfterConfirmation: Int? { configuration.usesGateway ? dropped : nil }

    var failureCounts: [String: Int] { pastFailures.merging(transport.failureCounts, uniquingKeysWith: +) }

    var state: WorkerReport.App.State {
        if gate.block != nil { return .blocked }
        if gate.pause != nil { return .paused }
        if scopes.isSlowOrSilent(ownScopes.endpoint) { return .unavailable }
        return sendsFreely ? .sending : .refused
    }

    /// The time in milliseconds without a proof after which an app with jobs counts as unable to send.
    private static let longestUnproved: Int64 = 30_000

    /// The problem that prevents the app from sending anything, if any. An operator's pause is not a problem. A slow scope is a problem
    /// only after 30 s without a proof of the endpoint and the credential.
    var problem: String? {
        if let block = gate.block { return "the app \(name) is blocked: \(block.explanation)" }
        // A lane that is ending has closed its connections.
        if !isConnected, lane.isWorking { return "the app \(name) has no connection to APNs" }
        let now = lane.now.milliseconds
        guard gate.pause == nil, isSlow, unprovedSince > provedAt, now - unprovedSince >= Self.longestUnproved else {
            return nil
        }
        let reason = ownScopes.failure
        let isUnanswered = reason == nil || reason == RequestFailure.Kind.timedOut.rawValue
        return scopes.isSilent(ownScopes.endpoint) || isUnanswered
            ? "the app \(name) gets no answers from APNs" : "APNs accepts nothing of the app \(name): \(reason ?? "")"
    }

    private var provedAt: Int64 { ownScopes.provedAt(key: credential.keyIndex) }

    /// The minimum interval between two records of work, in milliseconds. Not every job needs a record.
    private static let workInterval: Int64 = 100

    /// Records that there is a job to send.
    private func recordWork(now: NIODeadline) {
        let now = now.milliseconds
        guard now - workedAt >= Self.workInterval else { return }
        workedAt = now
        ownScopes.recordUse(now: now)
        if unprovedSince <= provedAt { unprovedSince = now }
    }

    var report: WorkerReport.App {
        let statistics = transport.statistics
        var report = WorkerReport.App()
        report.name = name
        report.endpoint = "\(configuration.endpoint)"
        report.topics = [configuration.topic] + configuration.otherTopics
        report.keyID = configuration.credential.tokenSources.first?.keyID
        report.usable = statistics.usable
        report.connecting = statistics.connecting
        report.streams = statistics.streamsInUse
        report.streamLimit = statistics.streamLimit
        report.isDormant = transport.isDormant
        report.state = state
        report.pause = (gate.block ?? gate.pause)?.explanation
        report.tokenIssuedAt = credential.providerToken.map { $0.issuedAt * 1000 }
        report.certificateExpiresAt = credential.certificateEnd.map { $0 * 1000 }
        report.credentialProblem = credentialProblem
        if statistics.usable == 0, !transport.isDormant { report.failure = transport.lastFailure.map { "\($0)" } }
        return report
    }

    // MARK: Configuration

    /// The parts of an app that are made before its sender, because making them can fail.
    struct Prepared: Sendable {
        let configuration: AppConfiguration
        let transport: TransportConfiguration
        let tls: TLSContext

        init(_ app: AppConfiguration) throws {
            configuration = app
            transport = try TransportConfiguration(app)
            tls = try app.tlsContext(for: app.credential)
        }
    }

    /// Switches to another configuration. Submitted notifications finish on the old connections, and waiting notifications use new ones.
    /// - Parameter makeTransport: makes a transport for the new configuration.
    func reload(_ prepared: Prepared, makeTransport: () -> any Transport) {
        let (old, new) = (configuration, prepared.configuration)
        let difference = AppDifference(from: old, to: new)
        guard difference.isChanged else { return }
        rules = RoutedApp(new)
        block(new.wrongCertificate(new.credential))
        if new.maximumPerSecond != old.maximumPerSecond { rate.limit(to: new.maximumPerSecond) }
        if difference.changesTransport { replaceTransport(by: makeTransport()) }
        if difference.changesCredential {
            replaceCredential(new.credential, prepared.tls)
        } else {
            forgetScopes()
        }
    }

    /// Forgets the answers about the app, because the app has changed. The next answers show if the change helped.
    private func forgetScopes() {
        ownScopes.reset(configuration, credentials: credential.names, now: lane.now.milliseconds)
        refused = nil
        triedAgainAt = .distantPast
        unprovedSince = Int64.min / 2
        lane.reportScopes()
        lane.schedulePump()
    }

    /// Stops giving jobs to the app.
    func remove() { isRemoved = true }

    private func replaceTransport(by new: any Transport) {
        let old = transport
        new.delegate = self
        credential.use(new, logMetadata: logMetadata)
        transport = new
        gate.recordOtherConnections()
        pastFailures.merge(old.failureCounts, uniquingKeysWith: +)
        retiring.append(old)
        old.close().assumeIsolated().whenComplete { [self] _ in retiring.removeAll { $0 === old } }
    }

    /// Switches to another credential. Working connections stay open if the signing key is the same. A certificate needs new connections,
    /// because it is presented only when a connection is made.
    func replaceCredential(_ new: Credential, _ tls: TLSContext) {
        transport.setTLS(tls)
        let isRefused = ownScopes.credentials.contains { scopes[$0].failing != nil }
        if new.tokenSources.isEmpty || credential.keyIDs != new.tokenSources.map(\.keyID) || isRefused {
            transport.replaceConnections(reason: "another credential")
        }
        rules.use(new)
        block(configuration.wrongCertificate(new))
        credential.replace(with: new)
        forgetScopes()
    }

    func recordCredential(problem: String?) {
        guard problem != credentialProblem else { return }
        credentialProblem = problem
        lane.reportSoon()
    }

    func recordPause(_ pause: PauseRecord?) {
        let reason = pause.map { Reason(.init(text: $0.reason), detail: $0.detail) }
        guard reason != gate.pause else { return }
        let was = gate.pause
        gate.pause = reason
        if let reason {
            lane.logOngoing(
                .warning, "app_paused",
                "the app is paused by an operator: \(reason.explanation); its jobs are deferred",
                of: "app \(name)", metadata: logMetadata)
        } else {
            lane.logEnd(
                "app_resumed", "the app is sending again", of: "app \(name)",
                metadata: logMetadata.merging(was.map { ["was": "\($0.explanation)"] } ?? [:]) { $1 })
            probeNow()
        }
        lane.reportSoon()
        lane.schedulePump()
    }

    /// Sends a probe at once, because an operator resumed the app.
    func probeNow() {
        scopes.probeNow(app: ownScopes.app, now: lane.now.milliseconds)
        lane.schedulePump()
    }

    private func block(_ reason: Reason?) {
        let was = gate.block
        gate.block = reason
        guard let was, reason == nil else { return }
        lane.logEnd(
            "app_resumed", "the app is sending again", of: "app \(name)",
            metadata: logMetadata.merging(["was": "\(was.explanation)"]) { $1 })
    }

    private func logBlock() {
        guard let reason = gate.block, !isRemoved else { return }
        lane.logOngoing(
            .error, "app_blocked",
            """
            nothing is sent for the app until its certificate or its topic is changed: \
            \(reason.explanation)
            """, of: "app \(name)", metadata: logMetadata)
    }

    // MARK: Drain

    /// Abandons unsubmitted notifications, and requests the outcomes of the submitted ones as soon as possible.
    func drain() {
        dropUnsent()
        _ = close()
    }

    /// Closes all connections; unanswered requests end as uncertain.
    func closeNow() { for transport in [transport] + retiring { transport.closeNow() } }

    func close() -> EventLoopFuture<Void> { transport.close() }

    // MARK: Notifications

    /// Recreates the notification of a job with one token from the claimed bytes, because the transport consumes each notification.
    /// - Returns: `nil` if the job can't be decoded.
    /// - Throws: the reason of a refusal, if the app's configuration has changed since the job was accepted.
    func notification(ofJob id: JobID) throws(Reason) -> Notification? {
        guard let job = lane.jobs[id].job else { return nil }
        let identity = queue(of: id).identity(
            of: job, claim: lane.jobs[id].claim, generation: lane.jobs[id].generation)
        return try rules.notification(for: job, identity: identity, firstSeen: lane.jobs[id].firstSeen)
    }

    /// Returns the topic and the push type of a job's notifications.
    func address(of id: JobID) -> (topic: String, type: String) {
        if let template = lane.jobs[id].fanOut?.template {
            return (String(buffer: template.topic), template.pushType.name)
        }
        do throws(Reason) {
            if let notification = try notification(ofJob: id) {
                return (String(buffer: notification.topic), notification.pushType.name)
            }
        } catch {
            // The app's configuration has changed since the job was accepted.
        }
        return (String(buffer: rules.topic), "unknown")
    }

    /// True if a job expires before it could be sent again.
    func expires(_ id: JobID, _ job: Job, within delay: Int64) -> Bool {
        guard let end = rules.end(of: job, firstSeen: lane.jobs[id].firstSeen) else { return false }
        return queue(of: id).now + delay >= end
    }

    // MARK: Recipients

    /// Returns the token of a notification as text; empty for a broadcast.
    func token(of flight: FlightID, _ job: Job? = nil) -> ByteBuffer {
        if let token = inFlight[flight].deviceToken { return token.hex }
        guard let job = job ?? lane.jobs[inFlight[flight].job].job, let field = job.token else { return ByteBuffer() }
        return DeviceToken.plain(job.text(field))
    }

    func recipient(of flight: FlightID) -> ByteBuffer? {
        if let token = inFlight[flight].deviceToken { return token.hex }
        return lane.jobs[inFlight[flight].job].job.flatMap(\.recipient)
    }

    // MARK: Accepting

    /// Reserves capacity for a job whose tokens are being looked up.
    func expect(_ notifications: Int) { line.unsubmitted += notifications }

    /// Adds an expected job to the line, or defers it.
    func accept(_ id: JobID) {
        if leaves(id) { return }
        let now = lane.now
        recordWork(now: now)
        if !scopes.isQuiet || gate.pause != nil || gate.block != nil, case .wait(let obstacle) = decide(id, now: now),
            !keepsCandidate(obstacle)
        {
            return deferUnsubmitted(id, obstacle.reason, delay: deferral(of: id, obstacle))
        }
        if !fleet.throttles.isEmpty, let delay = throttleDelay(of: id) {
            return deferUnsubmitted(id, Reason(.throttled), delay: delay)
        }
        let count = lane.jobs[id].open
        if let delay = rate.deferral(of: count, behind: line.unsubmitted - count) {
            return deferUnsubmitted(id, Reason(.rateLimited), delay: delay)
        }
        line.ready.append(id, in: lane.jobs)
    }

    /// Ends or defers a job if a command or a pause arrived while the job was not in the line.
    /// - Returns: false if it may be sent.
    private func leaves(_ id: JobID) -> Bool {
        if applyCommand(to: id) { return true }
        guard queue(of: id).handsBack, lane.isWorking else { return false }
        handBack(id)
        return true
    }

    // MARK: The newest

    /// Redis' answer that a job is the newest of its key is valid for this time. Before a later submission Redis is asked again.
    private static let wordIsGood = TimeAmount.milliseconds(5)

    /// The number of notifications for which Redis is being asked if they are still the newest. Streams are kept free for them.
    private(set) var asked = 0

    private func mustAsk(_ id: JobID, now: NIODeadline) -> Bool { now - lane.jobs[id].confirmedAt > Self.wordIsGood }

    /// A notification or a job that was taken out of the line while Redis is asked.
    private enum Asked {
        case job(JobID)
        case resend(FlightID)
    }

    /// Asks Redis if jobs are still the newest of their keys. After the answer a job ends, or returns to the head of the line and is
    /// submitted.
    private func ask(_ all: [Asked]) {
        for (queue, some) in Dictionary(grouping: all, by: { lane.jobs[job(of: $0)].queue.index }).sorted(by: {
            $0.key < $1.key
        }) {
            let link = ledgers[queue].link
            let known = some.compactMap { entry in
                lane.jobs[job(of: entry)].job.flatMap { NewestJob($0, now: link.queue.now) }.map { (entry, $0) }
            }
            asked += known.count
            guard link.canAsk else {
                answered(known, nil, link)
                continue
            }
            link.store.newest(of: known.map(\.1)) { [self] result in
                link.refusals.record(.newest, result)
                let values = if case .success(let values) = result { values } else { [ByteBuffer?]?.none }
                answered(known, values, link)
            }
        }
    }

    private func job(of entry: Asked) -> JobID {
        switch entry {
        case .job(let id): id
        case .resend(let flight): inFlight[flight].job
        }
    }

    /// - Parameter values: the values of the keys in Redis; `nil` without an answer. The next tick then asks again.
    private func answered(_ all: [(Asked, NewestJob)], _ values: [ByteBuffer?]?, _ link: QueueLink) {
        asked -= all.count
        let now = lane.now
        for (place, (entry, question)) in all.enumerated().reversed() {
            let other = values.flatMap { question.replacement(by: $0[place]) }
            if values != nil { lane.jobs[job(of: entry)].confirmedAt = now }
            switch (entry, other) {
            case (.job(let id), let other?): replace(id, by: other)
            case (.job(let id), nil): if !leaves(id) { line.ready.prepend(id, in: lane.jobs) }
            case (.resend(let flight), let other?): replace(flight, by: other)
            case (.resend(let flight), nil):
                if lane.isWorking, isCancelled(inFlight[flight].job, of: link.queue) {
                    cancelResend(flight)
                } else {
                    line.resends[inFlight[flight].isolation.rawValue].prepend(flight, in: inFlight)
                }
            }
        }
        if lane.isDraining {
            dropUnsent()
        } else {
            guard values != nil else { return }
            dispatch()
        }
        lane.schedulePump()
    }

    /// Ends the unsubmitted notifications of a job that a newer job replaces.
    private func replace(_ id: JobID, by other: ByteBuffer) {
        let (count, tokens) = takeUnsubmitted(id)
        ledger(of: id).recordReplaced(recipients(of: id, tokens: tokens), by: other, of: id)
        ledger(of: id).close(count, of: id)
    }

    /// Ends a notification that waited to be resent and that a newer job replaces. If APNs may have accepted it, the reason is a timeout.
    private func replace(_ flight: FlightID, by other: ByteBuffer) {
        let id = inFlight[flight].job
        guard !inFlight[flight].mayBeAccepted else {
            ledger(of: id).recordPossibleDelivery(of: id)
            return endResend(flight, as: .dropped, Reason(.request(.timedOut)))
        }
        ledger(of: id).recordReplaced([recipient(of: flight) ?? ByteBuffer()], by: other, of: id)
        inFlight.remove(flight)
        ledger(of: id).close(1, of: id)
    }

    // MARK: Commands of operators

    /// Ends or defers the unsubmitted notifications of a queue's jobs that operators have cancelled or paused.
    func applyCommands(of queue: QueueContext) {
        if queue.hasCommands {
            for flight in inFlight.entries where flight.job.index >= 0 && isCancelled(flight.job, of: queue) {
                queue.cancelledInFlight += 1
            }
        }
        filterLine(of: queue) { applyCommand(to: $0) }
        filterResends { flight in
            guard isCancelled(inFlight[flight].job, of: queue) else { return false }
            queue.cancelledInFlight -= 1
            cancelResend(flight)
            return true
        }
    }

    /// Removes notifications that wait to be resent.
    /// - Parameter leaves: ends or defers a notification; returns false if it stays.
    private func filterResends(_ leaves: (FlightID) -> Bool) {
        line.gatherResends(in: inFlight)
        for isolation in line.resends.indices where !line.resends[isolation].isEmpty {
            var resends = line.resends[isolation]
            line.resends[isolation] = Line()
            while let flight = resends.removeFirst(in: inFlight) {
                if !leaves(flight) { line.resends[isolation].append(flight, in: inFlight) }
            }
        }
    }

    /// Defers the unsubmitted notifications of a paused queue's jobs.
    func handBack(jobsOf queue: QueueContext) {
        guard lane.isWorking else { return }
        filterLine(of: queue) { id in
            handBack(id)
            return true
        }
    }

    private func handBack(_ id: JobID) { deferUnsubmitted(id, Reason(.queuePaused), delay: 0) }

    /// Removes jobs of a queue from the line.
    /// - Parameter leaves: ends or defers a job; returns false if the job stays in the line.
    private func filterLine(of queue: QueueContext, _ leaves: (JobID) -> Bool) {
        var jobs = line.ready
        line.ready = ReadyLine()
        while let id = jobs.removeFirst(in: lane.jobs) {
            if lane.jobs[id].queue == queue.id, leaves(id) { continue }
            line.ready.append(id, in: lane.jobs)
        }
    }

    private func isCancelled(_ id: JobID, of queue: QueueContext) -> Bool {
        guard lane.jobs[id].queue == queue.id, let job = lane.jobs[id].job,
            let (_, command) = queue.commands.command(for: job)
        else { return false }
        return command.state == .cancelled
    }

    /// Ends or defers the unsubmitted notifications of a job that operators have cancelled or paused.
    /// - Returns: false if the job may be sent.
    private func applyCommand(to id: JobID) -> Bool {
        let queue = queue(of: id)
        guard queue.hasCommands, lane.isWorking, let job = lane.jobs[id].job,
            let (target, command) = queue.commands.command(for: job)
        else { return false }
        switch command.state {
        case .running: return false
        case .cancelled:
            let (count, tokens) = takeUnsubmitted(id)
            ledger(of: id).recordCancelled(recipients(of: id, tokens: tokens), of: id, target, command)
            ledger(of: id).close(count, of: id)
        case .paused:
            let delay = lane.random(in: RetryPolicy.campaignPause)
            // A job that would expire first is deferred in smaller steps, because the pause may end sooner.
            deferUnsubmitted(id, Reason(.campaignPaused), delay: expires(id, job, within: delay) ? 1000 : delay)
        }
        return true
    }

    /// Removes a job's unsubmitted notifications from the line's count.
    /// - Returns: the number of notifications and, for a job with many tokens, the tokens as text.
    private func takeUnsubmitted(_ id: JobID) -> (count: Int, tokens: [ByteBuffer]) {
        let count = lane.jobs[id].unsubmitted
        line.unsubmitted -= count
        lane.jobs[id].notification = nil
        lane.jobs[id].unsubmitted = 0
        var tokens: [ByteBuffer] = []
        if let fanOut = lane.jobs[id].fanOut {
            while let field = fanOut.remaining.next() { tokens.append(fanOut.job.text(field)) }
        }
        return (count, tokens)
    }

    /// Ends a cancelled notification that waited to be resent.
    func cancelResend(_ flight: FlightID) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job, let (target, command) = queue(of: id).commands.command(for: job)
        else { return abandon(flight) }
        let recipient = recipient(of: flight) ?? ByteBuffer()
        if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(recipient, now: queue(of: id).now) }
        ledger(of: id).recordCancelled([recipient], of: id, target, command)
        inFlight.remove(flight)
        ledger(of: id).close(1, of: id)
    }

    /// Ends a notification that waited to be resent.
    func endResend(_ flight: FlightID, as outcome: Outcome, _ reason: Reason) {
        let id = inFlight[flight].job
        ledger(of: id).record(outcome, reason, of: id, to: recipient(of: flight), wasSent: true)
        inFlight.remove(flight)
        ledger(of: id).close(1, of: id)
    }

    /// Ends an expected job whose only token is known to be invalid.
    func suppress(_ id: JobID) {
        ledger(of: id).recordSuppressed(of: id, to: lane.jobs[id].job.flatMap(\.recipient))
        line.unsubmitted -= 1
        lane.jobs[id].notification = nil
        lane.jobs[id].unsubmitted = 0
        ledger(of: id).close(1, of: id)
    }

    // MARK: Deferring

    /// Defers jobs if the app can't send, so that they do not occupy the lane's capacity for other apps.
    func deferWhatCannotBeSent() {
        let now = lane.now
        gate.recordConnection(isUsable: isConnected, now: now)
        guard lane.isWorking, !line.isEmpty else { return }
        recordWork(now: now)
        guard gate.obstacle(now: now) != nil || !scopes.isQuiet else { return deferIsolated(now: now) }
        filterResends { flight in
            let id = inFlight[flight].job
            let isFresh = lane.jobs[id].isFresh && !inFlight[flight].hasFailed
            guard case .wait(let obstacle) = decide(id, isFresh: isFresh, now: now) else { return false }
            deferResend(flight, obstacle.reason, delay: deferral(of: id, obstacle))
            return true
        }
        let patience = isSlow ? Self.turnOfCandidate : Gate.patience
        for first in [\ReadyLine.fresh.first, \ReadyLine.failed.first] {
            while let id = line.ready[keyPath: first], now - lane.jobs[id].readySince > patience,
                case .wait(let obstacle) = decide(id, now: now)
            {
                line.ready.remove(id, in: lane.jobs)
                deferUnsubmitted(id, obstacle.reason, delay: deferral(of: id, obstacle))
            }
        }
    }

    /// True if a job waits in the lane as a candidate for a probe. A slow job or group has no candidates, because they would take places
    /// from other jobs. A wide scope has candidates, because one of them may be good.
    private func keepsCandidate(_ obstacle: Gate.Obstacle) -> Bool {
        guard case .scope(let kind) = obstacle, kind > .group else { return false }
        return line.ready.count < Self.candidates
    }

    /// Returns the delay in milliseconds of a job that an obstacle defers.
    private func deferral(of id: JobID, _ obstacle: Gate.Obstacle) -> Int64 {
        guard case .scope(let kind) = obstacle else { return lane.random(in: obstacle.deferral) }
        // The lane can send only probes, so other jobs stay in the queue. Few jobs are deferred, and they may return soon.
        if kind > .group, line.ready.count <= Self.candidates, lane.isWaiting() {
            return lane.random(in: obstacle.deferral)
        }
        return scopes.setAside(
            place(of: id)[kind], age: queue(of: id).now - lane.jobs[id].firstSeen, now: lane.now.milliseconds,
            share: lane.jitter)
    }

    /// Defers isolated notifications that get no connection, or no answers on a connection.
    private func deferIsolated(now: NIODeadline) {
        let patience = Gate.patience + transport.confirmationTime
        guard line.isolatedCount > 0, now - line.isolatedMoved > patience else { return }
        let reason = Reason(RequestFailure.lostWithOthers("the next connection is not ready yet"))
        filterResends { flight in
            guard inFlight[flight].isolation != .shared else { return false }
            deferResend(flight, reason, delay: lane.random(in: 2000...10_000))
            return true
        }
    }

    /// Defers all unsubmitted notifications of a job, or ends them if they would expire first.
    private func deferUnsubmitted(_ id: JobID, _ reason: Reason, delay: Int64) {
        guard let job = lane.jobs[id].job, !expires(id, job, within: delay) else {
            return expireUnsubmitted(id, reason)
        }
        let (count, tokens) = takeUnsubmitted(id)
        ledger(of: id).record(
            .deferred, count, reason, tokens: tokens, of: id, delay: delay,
            recipients: recipients(of: id, tokens: tokens))
        ledger(of: id).close(count, of: id)
    }

    /// Ends all unsubmitted notifications of a job that expires before it could be sent.
    /// - Parameter reason: the reason of its wait.
    func expireUnsubmitted(_ id: JobID, _ reason: Reason) {
        let (count, tokens) = takeUnsubmitted(id)
        let recipients = recipients(of: id, tokens: tokens)
        for index in 0..<count {
            let recipient = recipients.indices.contains(index) ? recipients[index] : nil
            ledger(of: id).record(.expired, reason, of: id, to: recipient, wasSent: false)
        }
        ledger(of: id).close(count, of: id)
    }

    /// Returns the recipients of a job's unsubmitted notifications.
    /// - Parameter tokens: the tokens of a job with many, as text.
    private func recipients(of id: JobID, tokens: [ByteBuffer]) -> [ByteBuffer] {
        guard lane.jobs[id].fanOut == nil else { return tokens.map(DeviceToken.plain) }
        return lane.jobs[id].job.flatMap(\.recipient).map { [$0] } ?? []
    }

    /// Defers one notification of a job, or ends it if it would expire first.
    /// - Parameter isolation: not `shared` for a notification that was in flight when a connection was lost. It returns to Redis with that
    ///   failure instead of the given reason, so that any lane isolates it again. The failure spends no attempt.
    func deferNotification(
        _ token: ByteBuffer, of id: JobID, _ job: Job, _ reason: Reason, delay: Int64, isolation: Isolation = .shared
    ) {
        guard !expires(id, job, within: delay) else {
            return ledger(of: id).record(.expired, reason, of: id, to: token, wasSent: false)
        }
        guard isolation == .shared else {
            return ledger(of: id).record(
                .retried, 1, Reason(RequestFailure.lostWithOthers("")), tokens: [token], of: id, delay: delay,
                recipients: [token], attempt: .never)
        }
        ledger(of: id).record(.deferred, 1, reason, tokens: [token], of: id, delay: delay, recipients: [token])
    }

    /// The isolation of a notification that was in flight when a connection was lost. A second try counts as `shared`, because it is
    /// isolated for another reason.
    private func lostIsolation(of flight: FlightID) -> Isolation {
        inFlight[flight].isSecondTry ? .shared : inFlight[flight].isolation
    }

    /// Defers a notification that waited to be resent.
    private func deferResend(_ flight: FlightID, _ reason: Reason, delay: Int64) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job else { return abandon(flight) }
        let token = token(of: flight, job)
        if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(token, now: queue(of: id).now) }
        deferNotification(token, of: id, job, reason, delay: delay, isolation: lostIsolation(of: flight))
        inFlight.remove(flight)
        ledger(of: id).close(1, of: id)
    }

    /// Gives back a notification that must be sent again, because the lane is ending. A deferred job keeps its identity and its count of
    /// possible duplicates. A job for the gateway has no identity to keep, so its claim is released if the gateway accepted nothing.
    func abandon(_ flight: FlightID) {
        let id = inFlight[flight].job
        let mayBeAccepted = lane.jobs[id].tally?.possibleDuplicates ?? 0 > 0
        let isReleased = configuration.usesGateway && lane.jobs[id].fanOut == nil && !mayBeAccepted
        if !isReleased, let job = lane.jobs[id].job {
            deferNotification(
                token(of: flight, job), of: id, job, Reason(.drained), delay: 0, isolation: lostIsolation(of: flight))
        } else {
            lane.jobs[id].isAbandoned = true
        }
        inFlight.remove(flight)
        ledger(of: id).close(1, of: id)
    }

    /// Abandons unsubmitted notifications. A job with one token is released with the lane's other claims. The remaining tokens of a job
    /// with many return to the queue.
    func dropUnsent() {
        while let id = line.ready.removeFirst(in: lane.jobs) {
            if lane.jobs[id].fanOut != nil {
                deferUnsubmitted(id, Reason(.drained), delay: 0)
            } else {
                line.unsubmitted -= 1
                lane.jobs[id].isAbandoned = true
                ledger(of: id).close(1, of: id)
            }
        }
        filterResends { flight in
            abandon(flight)
            return true
        }
    }

    // MARK: Throttled devices

    private func throttleDelay(of id: JobID) -> Int64? {
        guard !lane.jobs[id].isOnChannel, let token = lane.jobs[id].notification?.deviceToken.hex else { return nil }
        return throttleDelay(of: token, id)
    }

    /// Returns the delay in milliseconds of a notification that must wait for its device; `nil` if it need not wait.
    func throttleDelay(of token: ByteBuffer, _ id: JobID) -> Int64? {
        let now = queue(of: id).now
        let isReturning = lane.jobs[id].job?.envelope.isWrapped ?? false
        return fleet.throttles.nextTry(token, isReturning: isReturning, now: now).map { $0 - now }
    }

    // MARK: Dispatching

    /// The maximum number of notifications that are submitted for one job before another job's turn.
    private static let turn = 32
    /// A job that has waited for longer is checked for its expiration before it is submitted.
    private static let freshness = TimeAmount.seconds(1)
    /// The maximum number of waiting jobs that are examined to choose a probe.
    private static let longestSearch = 200

    func dispatch() {
        guard credential.canSend else { return }
        let now = lane.now
        if line.isolatedCount > 0 {
            dispatchResends(in: .withFew, now: now)
            dispatchResends(in: .alone, now: now)
        }
        if transport.isDormant {
            // The lane dispatches again once there is a connection.
            if !line.ready.isEmpty || line.resendCount > 0 { transport.requestCapacity() }
            return
        }
        line.gatherResends(in: inFlight)
        dispatchResends(in: .shared, now: now)
        guard !line.ready.isEmpty else { return }
        gate.recordConnection(isUsable: isConnected, now: now)
        switch gate.obstacle(now: now) {
        case nil:
            isSlow ? dispatchProbes(now: now) : dispatchReady(now: now)
        case .noConnection: transport.requestCapacity()
        case .paused, .blocked, .scope: break
        }
    }

    /// Submits the ready jobs. A slow job or group sends one probe at a time, and its other notifications are set aside.
    private func dispatchReady(now: NIODeadline) {
        var (streams, allowed) = (transport.capacity - asked, rate.available(now: now))
        // Lazy, because it examines each connection, and only jobs with many tokens need it.
        lazy var kept = streamsOfOthers
        // The jobs with many tokens that find only streams kept for other jobs.
        var passed: [JobID] = []
        var asking: [Asked] = []
        defer { if !asking.isEmpty { ask(asking) } }
        while min(streams, allowed) > 0, let id = line.ready.removeFirst(in: lane.jobs) {
            let decision = scopes.isQuiet ? .send : decide(id, now: now)
            if case .wait(let obstacle) = decision {
                deferUnsubmitted(id, obstacle.reason, delay: deferral(of: id, obstacle))
                continue
            }
            let free = min(allowed, lane.jobs[id].hasManyTokens ? streams - kept : streams)
            guard free > 0 else {
                passed.append(id)
                continue
            }
            guard !mustAsk(id, now: now) else {
                asking.append(.job(id))
                streams -= 1
                continue
            }
            let submission = submit(id, atMost: decision == .probe ? 1 : min(Self.turn, free), now: now)
            streams -= submission.submitted
            allowed -= submission.submitted
            rate.spent(submission.submitted)
            // A transport may refuse despite its capacity, for example before the loss of a connection is reported.
            if submission.isRefused { break }
        }
        let isFull = transport.capacity == 0 || !passed.isEmpty
        for id in passed.reversed() { line.ready.prepend(id, in: lane.jobs) }
        guard !line.ready.isEmpty else { return }
        rate.reserve(waiting: line.unsubmitted)
        // Jobs claimed ahead will soon have a stream and need no other connection. The factor 2 allows for a pace that has fallen.
        if isFull, line.unsubmitted > 2 * line.pace.ahead { transport.requestCapacity() }
    }

    /// Submits probes of the app, its credential or its endpoint: alternately the newest fresh notification and the one that has waited
    /// longest. If no fresh notification can be sent, a retry is sent.
    private func dispatchProbes(now: NIODeadline) {
        while min(transport.capacity - asked, rate.available(now: now)) > 0, let id = takeProbe(now: now) {
            guard !mustAsk(id, now: now) else { return ask([.job(id)]) }
            let submission = submit(id, atMost: 1, now: now)
            rate.spent(submission.submitted)
            if submission.isRefused { break }
        }
        guard !line.ready.isEmpty else { return }
        rate.reserve(waiting: line.unsubmitted)
        if transport.capacity == 0 { transport.requestCapacity() }
    }

    /// Removes the job of the next probe from the line.
    /// - Returns: `nil` if no probe may be sent now.
    private func takeProbe(now: NIODeadline) -> JobID? {
        var candidates: [Scopes.Candidate] = []
        var ends: [(oldest: JobID, newest: JobID)] = []
        var (next, left) = (line.ready.fresh.first, Self.longestSearch)
        while let id = next, left > 0 {
            next = following(id)
            left -= 1
            let (place, at) = (place(of: id), lane.jobs[id].readySince.milliseconds)
            if let known = candidates.firstIndex(where: { $0.place == place }) {
                candidates[known].newest = at
                ends[known].newest = id
            } else {
                candidates.append(Scopes.Candidate(place: place, oldest: at, newest: at))
                ends.append((id, id))
            }
        }
        let id: JobID
        if let (index, newest) = scopes.choose(candidates, now: now.milliseconds) {
            id = newest ? ends[index].newest : ends[index].oldest
        } else {
            (next, left) = (line.ready.failed.first, Self.longestSearch)
            while let failed = next, left > 0, decide(failed, now: now) != .probe {
                next = following(failed)
                left -= 1
            }
            guard let next, left > 0 else { return nil }
            id = next
        }
        line.ready.remove(id, in: lane.jobs)
        return id
    }

    /// The next job in the same line.
    private func following(_ id: JobID) -> JobID? {
        lane.jobs[id].next < 0 ? nil : JobID(index: lane.jobs[id].next)
    }

    private struct Submission {
        var submitted = 0
        /// True if the transport refused a notification. The job is then the first of the line again.
        var isRefused = false
    }

    /// Submits notifications of a job that was removed from the line.
    private func submit(_ id: JobID, atMost limit: Int, now: NIODeadline) -> Submission {
        if hasExpired(id, now: now) {
            expireUnsubmitted(id, Reason(.expired))
            return Submission()
        }
        return lane.jobs[id].fanOut == nil ? submitOnly(id) : submitSome(id, atMost: limit)
    }

    /// Submits the notification of a job with one token. Ends the job if the app refuses it, because the app's configuration has changed.
    private func submitOnly(_ id: JobID) -> Submission {
        var submission = Submission()
        do throws(Reason) {
            var next = lane.jobs[id].notification.take()
            // The transport consumed the notification although it refused it.
            if next == nil { next = try notification(ofJob: id) }
            if let notification = next.take() {
                guard submit(consume notification, of: id, token: nil) else {
                    line.ready.prepend(id, in: lane.jobs)
                    return Submission(isRefused: true)
                }
                submission.submitted = 1
            } else {
                // Not expected, because the job was decoded when it was claimed. The claim is left to be recovered.
                lane.jobs[id].isAbandoned = true
            }
        } catch {
            ledger(of: id).record(.dead, error, of: id, to: lane.jobs[id].job.flatMap(\.recipient), wasSent: false)
        }
        lane.jobs[id].unsubmitted = 0
        line.unsubmitted -= 1
        if submission.submitted == 0 { ledger(of: id).close(1, of: id) }
        return submission
    }

    /// Submits some notifications of a job with many tokens. Notifications to invalid tokens end unsent. The rest of the job moves to the
    /// end of the line, so that small jobs need not wait for it.
    private func submitSome(_ id: JobID, atMost limit: Int) -> Submission {
        guard let fanOut = lane.jobs[id].fanOut else { return Submission() }
        var (submission, ended) = (Submission(), 0)
        while submission.submitted < limit {
            guard let field = fanOut.remaining.next() else { break }
            let text = fanOut.job.text(field)
            if !fanOut.suppressed.isEmpty, fanOut.suppressed.contains(fanOut.position) {
                ledger(of: id).recordSuppressed(of: id, to: DeviceToken.plain(text))
                ended += 1
            } else {
                do throws(Reason) {
                    let token = try rules.deviceToken(text)
                    if !fleet.throttles.isEmpty, let delay = throttleDelay(of: token.hex, id) {
                        deferNotification(token.hex, of: id, fanOut.job, Reason(.throttled), delay: delay)
                        ended += 1
                    } else {
                        guard submit(fanOut.notification(to: token), of: id, token: token) else {
                            fanOut.remaining.putBack(field)
                            submission.isRefused = true
                            break
                        }
                        submission.submitted += 1
                    }
                } catch {
                    ledger(of: id).record(.dead, error, of: id, to: text, wasSent: false)
                    ended += 1
                }
            }
            fanOut.position += 1
        }
        line.unsubmitted -= submission.submitted + ended
        lane.jobs[id].unsubmitted -= submission.submitted + ended
        if submission.isRefused {
            line.ready.prepend(id, in: lane.jobs)
        } else if lane.jobs[id].unsubmitted > 0 {
            line.ready.append(id, in: lane.jobs)
        }
        ledger(of: id).close(ended, of: id)
        return submission
    }

    private func submit(_ notification: consuming Notification, of id: JobID, token: DeviceToken?) -> Bool {
        let flight = inFlight.insert()
        inFlight[flight].job = id
        inFlight[flight].deviceToken = token
        if lane.jobs[id].isolation != .shared {
            // The notification is recreated when a separate connection is free for it.
            inFlight[flight].isolation = lane.jobs[id].isolation
            line.sendAgain(flight, in: inFlight, now: lane.now)
            lane.schedulePump()
            return true
        }
        stamp(&inFlight[flight])
        guard transport.submit(consume notification, tag: UInt64(flight.index), in: .shared) else {
            inFlight.remove(flight)
            return false
        }
        if !scopes.isQuiet { recordProbe(flight) }
        lane.metrics.recordFirstSubmission(queue: lane.jobs[id].queue.index, since: lane.jobs[id].queuedSince)
        return true
    }

    private func dispatchResends(in isolation: Isolation, now: NIODeadline) {
        var asking: [Asked] = []
        defer { if !asking.isEmpty { ask(asking) } }
        while let flight = line.resends[isolation.rawValue].first {
            let isFresh = lane.jobs[inFlight[flight].job].isFresh && !inFlight[flight].hasFailed
            switch decide(inFlight[flight].job, isFresh: isFresh, now: now) {
            case .send, .probe, .wait(.noConnection): break
            // ``deferWhatCannotBeSent()`` defers the remaining resends with the app's other jobs.
            case .wait: return
            }
            let hasExpired = hasExpired(inFlight[flight].job, now: now)
            guard hasExpired || transport.capacity(in: isolation) > asking.count else {
                return transport.requestCapacity(in: isolation)
            }
            _ = line.resends[isolation.rawValue].removeFirst(in: inFlight)
            guard !hasExpired else {
                endResend(flight, as: .expired, Reason(.expired))
                continue
            }
            guard !mustAsk(inFlight[flight].job, now: now) else {
                asking.append(.resend(flight))
                continue
            }
            guard let notification = notificationToResend(flight) else { continue }
            guard transport.submit(notification, tag: UInt64(flight.index), in: isolation) else {
                return line.resends[isolation.rawValue].prepend(flight, in: inFlight)
            }
            line.isolatedMoved = now
            stamp(&inFlight[flight])
            if !scopes.isQuiet { recordProbe(flight) }
            rate.spent(1)
            lane.metrics.submitted += 1
        }
    }

    /// Records the slow scopes that a submitted notification probes.
    private func recordProbe(_ flight: FlightID) {
        let id = inFlight[flight].job
        inFlight[flight].probed = scopes.recordSubmission(
            at: place(of: id), isFresh: lane.jobs[id].isFresh && !inFlight[flight].hasFailed, now: lane.now.milliseconds
        )
    }

    /// Recreates a notification that was removed from the line, or ends it.
    private func notificationToResend(_ flight: FlightID) -> Notification? {
        do throws(Reason) {
            let again = try notification(of: flight)
            if again == nil { abandon(flight) }
            return again
        } catch {
            endResend(flight, as: .dead, error)
            return nil
        }
    }

    /// Records the credential and time of a submission.
    private func stamp(_ entry: inout InFlight) {
        entry.providerTokenIssuedAt = credential.providerTokenIssuedAt
        entry.key = UInt8(truncatingIfNeeded: credential.keyIndex)
        entry.submittedAt = lane.metrics.time()
    }

    /// Recreates a submitted notification.
    /// - Returns: `nil` if its job can't be decoded.
    /// - Throws: the reason of a refusal, if the app's configuration has changed since the job was accepted.
    private func notification(of flight: FlightID) throws(Reason) -> Notification? {
        let id = inFlight[flight].job
        if let fanOut = lane.jobs[id].fanOut { return inFlight[flight].deviceToken.map(fanOut.notification(to:)) }
        return try notification(ofJob: id)
    }

    /// True if a job has expired while it waited in this process. APNs delivers even late calls, because their `apns-expiration` is 0.
    private func hasExpired(_ id: JobID, now: NIODeadline) -> Bool {
        guard now - lane.jobs[id].readySince > Self.freshness, let job = lane.jobs[id].job else { return false }
        return expires(id, job, within: 0)
    }

    // MARK: Answers

    /// The beginning of 2008, before APNs existed, in milliseconds since 1970.
    private static let firstYear: Int64 = 1_199_145_600_000
    /// The maximum difference of APNs' clock and Redis', in milliseconds.
    private static let clockDifference: Int64 = 1000
    /// The minimum interval between two tries on a separate connection. Further refusals within this time have the same cause.
    private static let secondTryInterval = TimeAmount.minutes(1)

    /// A notification whose request has ended, with its job decoded.
    private struct Attempt {
        let flight: FlightID
        let id: JobID
        let job: Job
        let status: Int?
        let uniqueID: APNSID?
        /// The token as text; empty for a broadcast.
        let token: ByteBuffer
        var recipient: ByteBuffer? { token.readableBytes > 0 ? token : job.recipient }
    }

    var keepsUniqueIDs: Bool { ledgers.contains(where: \.wantsAnswers) }

    func transportChanged(_: any Transport) { lane.pump() }

    func gateway(dropped count: Int, refusing token: ByteBuffer?, with status: GatewayStatus) {
        dropped += count
        // The notification counts as delivered already; all that remains is to stop sending to the token.
        guard let token, case .tokenSuspect(let reason) = Verdict(.refused(status), topic: .app) else { return }
        let address = lane.scopes.address(rules.topic, .alert, of: ownScopes.app, now: lane.now.milliseconds)
        let place = ScopePlace(group: address, app: ownScopes.app, endpoint: ownScopes.endpoint)
        scopes.recordBadToken(token.hashValue, at: place)
        guard scopes.judgeToken(at: place, now: lane.now.milliseconds) == .believed else { return }
        let invalid = InvalidToken(
            token: token, at: InvalidToken.now, reason: reason.code.text, topic: rules.topic,
            environment: configuration.environment, source: .gateway)
        fleet.store.invalidTokens.mark([invalid]) { [self] in fleet.recordWrite(.invalidTokens, $0) }
    }

    func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
        let flight = FlightID(index: Int(tag))
        let id = inFlight[flight].job
        line.pace.recordEnd()
        let verdict = Verdict(result, topic: lane.jobs[id].topicSource, isOnChannel: lane.jobs[id].isOnChannel)
        let time = lane.metrics.time() &- inFlight[flight].submittedAt
        if lane.jobs[id].isTraced { trace(flight, result, time: time) }
        if result.isAnswer {
            if lane.metrics.measuresTimes { lane.metrics.sendTimes.record(time, row: self.id.index) }
            lane.metrics.minutes.record(answer: Int(time / 1000), queue: lane.jobs[id].queue.index)
        }
        let place = ownScopes.place(of: id, in: lane.jobs, key: Int(inFlight[flight].key))
        let isFresh = lane.jobs[id].isFresh && !inFlight[flight].hasFailed
        if !scopes.isQuiet { endProbe(flight, place, isFresh: isFresh, result) }
        if case .delivered = verdict {
            scopes.recordDelivery(at: place, isFresh: isFresh, now: lane.metrics.milliseconds)
            if scopes.hasChanges { lane.reportScopes() }
            if !lacksIDs, result.lacksID { logMissingID() }
            if inFlight[flight].isSecondTry {
                // The older connections are at fault, because APNs accepted the refused request on a younger one.
                transport.retireConnections(reason: "APNs refuses requests on this connection")
            }
            if !fleet.throttles.isEmpty {
                fleet.throttles.recordEnd(token(of: flight), now: queue(of: id).now)
            }
            if !fleet.doubted.isEmpty, address(of: id).topic == configuration.topic {
                fleet.recordAcceptance(token(of: flight), topic: rules.topic, environment: rules.environment)
            }
            let ledger = ledger(of: id)
            ledger.record(
                .delivered, status: result.status, of: id, to: recipient(of: flight), wasSent: true,
                uniqueID: result.uniqueID)
            inFlight.remove(flight)
            return ledger.close(1, of: id)
        }
        // Not expected, because the job was decoded when it was claimed. The claim is left to be recovered.
        guard let job = lane.jobs[id].job else { return abandon(flight) }
        let attempt = Attempt(
            flight: flight, id: id, job: job, status: result.status, uniqueID: result.uniqueID,
            token: token(of: flight, job))
        let finding = finding(verdict, result, of: attempt, place, isFresh: isFresh)
        let concerned = hear(verdict, finding, of: attempt, place, isFresh: isFresh)
        let explained = explained(verdict, of: id)
        log(explained, finding, of: attempt)
        if carryOut(Disposition(explained, facts(of: attempt, finding, place)), for: attempt, concerned, place) {
            inFlight.remove(flight)
            ledger(of: id).close(1, of: id)
        }
        if scopes.hasChanges { lane.reportScopes() }
    }

    private func trace(_ flight: FlightID, _ result: RequestResult, time: UInt32) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job else { return }
        let (topic, pushType) = address(of: id)
        // The wait is recorded only once, although a notification may be sent several times.
        let hasWaited = lane.jobs[id].queuedSince >= 0 && inFlight[flight].resends == 0
        RequestTrace(
            job: job, queue: queue(of: id).name, app: configuration, appID: self.id, topic: topic, pushType: pushType,
            queuedSince: hasWaited ? lane.jobs[id].queuedSince : nil
        ).record(result, time: time, in: lane)
    }

    /// Records the end of a request that may have been a probe.
    private func endProbe(_ flight: FlightID, _ place: ScopePlace, isFresh: Bool, _ result: RequestResult) {
        if !inFlight[flight].probed.isEmpty {
            scopes.recordEnd(inFlight[flight].probed, at: place, isFresh: isFresh)
            inFlight[flight].probed = []
        }
        // An answer ends the silence, whatever it says.
        if result.isAnswer, scopes.isSilent(ownScopes.endpoint) { scopes.endSilence(ownScopes.endpoint) }
        lane.schedulePump()
    }

    /// Passes an answer to the scopes.
    /// - Returns: the scopes that the answer may concern.
    private func hear(
        _ verdict: Verdict, _ finding: Disposition.Finding, of attempt: Attempt, _ place: ScopePlace, isFresh: Bool
    ) -> ScopeSet {
        let now = lane.metrics.milliseconds
        var bearing = Bearing(verdict)
        // If another connection is refused as well, the credential is at fault.
        if case .retireConnection(let reason) = verdict, finding == .none {
            bearing = Bearing(.refused(reason: reason))
        }
        // Only the second try shows if more than the connection or the key is at fault.
        if finding == .secondTry { bearing.concerns = [] }
        let wasSlow = place.credential >= 0 && scopes[place.credential].fresh.isSlow
        if !bearing.proves.isEmpty { scopes.recordProof(bearing.proves, at: place, isFresh: isFresh, now: now) }
        guard !bearing.concerns.isEmpty else { return [] }
        scopes.recordFailure(bearing.concerns, at: place, isFresh: isFresh, now: now)
        // APNs ties a connection to its first use, so the end of a fault may show only on a new connection (Apple, "Establishing a
        // token-based connection to APNs").
        guard bearing.concerns.contains(.credential), place.credential >= 0, scopes[place.credential].fresh.isSlow,
            !configuration.usesGateway
        else { return bearing.concerns }
        if !wasSlow || isFresh { transport.retireConnections(reason: "the credential is refused") }
        if !wasSlow, case .refused(let reason) = verdict, reason.concernsKey {
            credential.changeKey(from: inFlight[attempt.flight].key, reason)
        }
        return bearing.concerns
    }

    // MARK: Facts

    private func facts(
        of attempt: Attempt, _ finding: Disposition.Finding, _ place: ScopePlace
    ) -> Disposition.Facts {
        let (id, entry) = (attempt.id, inFlight[attempt.flight])
        let isKeyProved =
            place.credential >= 0 && scopes[place.credential].fresh.provedAt > lane.metrics.milliseconds - 10_000
        return Disposition.Facts(
            job: attempt.job, policy: lane.configuration.retry, jitter: lane.jitter, now: queue(of: id).now,
            firstSeen: lane.jobs[id].firstSeen,
            hasEnd: rules.end(of: attempt.job, firstSeen: lane.jobs[id].firstSeen) != nil, isWayGood: isWayGood(place),
            isEndpointSlow: scopes.isSlowOrSilent(ownScopes.endpoint) || gate.pause != nil,
            isWorking: lane.isWorking, resends: Int(entry.resends), isolation: entry.isolation,
            hasOtherKey: !isKeyProved && entry.resends < Disposition.maximumResends
                && credential.hasKey(otherThan: entry.key), finding: finding)
    }

    /// After this number of failures in a row, the lane's own way to APNs may be at fault.
    private static let doubtful = 8

    /// True if the lane's last answers include proofs of the credential and the endpoint. Then deliveries of other lanes show that a
    /// failure is the notification's own.
    private func isWayGood(_ place: ScopePlace) -> Bool {
        [place.credential, place.endpoint].allSatisfy { id in
            id < 0 || !scopes.isSlowOrSilent(id) && scopes[id].fresh.failuresSinceProof < Self.doubtful
        }
    }

    /// Returns the lane's conclusion from an answer and the answers before it.
    private func finding(
        _ verdict: Verdict, _ result: RequestResult, of attempt: Attempt, _ place: ScopePlace, isFresh: Bool
    ) -> Disposition.Finding {
        switch verdict {
        case .tokenSuspect:
            // A second report of the same token says nothing new.
            if isFresh { scopes.recordBadToken(attempt.token.hashValue, at: place) }
            let now = lane.metrics.milliseconds
            let elapsed = attempt.job.envelope.failure(in: attempt.job.body)?.at.map {
                max(0, queue(of: attempt.id).now - $0)
            }
            return .badToken(scopes.judgeToken(at: place, failedAt: elapsed.map { now - $0 }, now: now))
        case .pushTypeRefused: return .pushType(isPlainAccepted: ownScopes.isPlainTopicAccepted)
        case .retireConnection(let reason): return refusedConnection(of: attempt, result, reason)
        case .refused: return mayTryAgain(attempt, place) ? .secondTry : .none
        case .delivered, .tokenInvalid, .retry, .serverError, .throttled, .resend, .resendApart, .resendUncertain,
            .misconfigured, .deferred, .unknown, .unexplained, .dead:
            return .none
        }
    }

    /// True if a refused request is sent again on a separate connection: at most one per minute, and none once the credential is slow.
    private func mayTryAgain(_ attempt: Attempt, _ place: ScopePlace) -> Bool {
        guard !configuration.usesGateway, lane.isWorking, !inFlight[attempt.flight].isSecondTry,
            place.credential < 0 || !scopes[place.credential].fresh.isSlow,
            lane.now - triedAgainAt >= Self.secondTryInterval
        else { return false }
        triedAgainAt = lane.now
        inFlight[attempt.flight].isSecondTry = true
        return true
    }

    /// Records that APNs refused a connection, and renews the provider token if it has expired.
    /// - Returns: `.none` if another connection does not help.
    private func refusedConnection(
        of attempt: Attempt, _ result: RequestResult, _ reason: Reason
    ) -> Disposition.Finding {
        let isExpired = reason.code == .apns(.expiredProviderToken)
        let isRenewed = isExpired && credential.renew(issuedAt: inFlight[attempt.flight].providerTokenIssuedAt)
        // A notification changes its connection only once. If the new connection does not help, the credential is refused.
        guard inFlight[attempt.flight].resends == 0, case .response(let response) = result else { return .none }
        let number = response.connection?.number ?? 0
        if let refused, number <= refused.newest { return .connectionRetired }
        if let refused, lane.now - refused.at < Self.secondTryInterval { return .none }
        refused = (response.connection?.newest ?? 0, lane.now)
        lane.logThrottled(
            .warning, "connection_refused", "APNs refuses all requests on a connection; replacing it",
            kind: "connection \(name) \(reason.code.text)",
            metadata: logMetadata.merging(["reason": "\(reason.code.text)"]) { $1 })
        return isExpired && !isRenewed ? .none : .connectionRetired
    }

    /// Returns a verdict whose reason names the topic and the push type that APNs refuses.
    private func explained(_ verdict: Verdict, of id: JobID) -> Verdict {
        guard case .pushTypeRefused(let reason) = verdict else { return verdict }
        let (topic, type) = address(of: id)
        return .pushTypeRefused(
            reason: Reason(
                reason.code,
                detail:
                    "APNs refuses the topic \(topic) of the push type \(type); is the credential for this push type?"))
    }

    // MARK: Consequences

    /// - Returns: false if the notification has not ended, because it is resent at once or abandoned.
    private func carryOut(
        _ disposition: Disposition, for attempt: Attempt, _ concerned: ScopeSet, _ place: ScopePlace
    ) -> Bool {
        let (flight, id) = (attempt.flight, attempt.id)
        if let reason = disposition.changesKey { credential.changeKey(from: inFlight[flight].key, reason) }
        let now = queue(of: id).now
        var due = now
        switch disposition.device {
        case .keep: break
        case .release: if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(attempt.token, now: now) }
        case .throttle(let delay):
            due = fleet.throttles.recordThrottle(attempt.token, retryAt: now + delay, now: now)
            fleet.store.throttledTokens.add(attempt.token, until: due) { [self] in
                fleet.recordWrite(.throttledTokens, $0)
            }
        }
        switch disposition.notification {
        case .end(let outcome, let reason, let cause):
            ledger(of: id).record(
                outcome, reason, cause: cause, status: attempt.status, of: id,
                to: outcome == .dead ? attempt.token : attempt.recipient, wasSent: true, uniqueID: attempt.uniqueID)
        case .markInvalid(let reason, let since): markInvalid(attempt, reason, since: since)
        case .postpone(let kind, let reason, let delay, let rule):
            let milliseconds =
                switch delay {
                case .milliseconds(let milliseconds): milliseconds
                case .behindDevice: due - now
                }
            guard !expires(id, attempt.job, within: milliseconds) else {
                if disposition.isUncertain { ledger(of: id).recordPossibleDelivery(of: id) }
                ledger(of: id).record(
                    .expired, reason, status: attempt.status, of: id, to: attempt.recipient, wasSent: true)
                break
            }
            if disposition.isUncertain { ledger(of: id).recordPossibleDuplicate(of: id) }
            describe(attempt, reason, concerned, place)
            ledger(of: id).record(
                kind, 1, reason, status: attempt.status, tokens: [attempt.token], of: id, delay: milliseconds,
                recipients: attempt.recipient.map { [$0] } ?? [], attempt: rule)
        case .resend(let reason, let isolation, let counts):
            if let isolation {
                inFlight[flight].isolation = isolation
            }
            if disposition.isUncertain {
                inFlight[flight].mayBeAccepted = true
                ledger(of: id).recordPossibleDuplicate(of: id)
            }
            resend(attempt, reason, counts: counts)
            return false
        }
        return true
    }

    // MARK: Outcomes

    /// Marks a token as invalid.
    /// - Parameter since: the time given by APNs, in milliseconds since 1970. It is ignored if it is before APNs existed. It is also
    ///   ignored if it is more than a second in the future, because no registration could be later.
    private func markInvalid(_ attempt: Attempt, _ reason: Reason, since: Int64?) {
        let id = attempt.id
        let now = queue(of: id).now
        let latest = max(Self.firstYear, now + Self.clockDifference)
        let at = since.flatMap { (Self.firstYear...latest).contains($0) ? $0 : nil } ?? now
        let topic = ByteBuffer(string: address(of: id).topic)
        var invalid = InvalidToken(
            token: attempt.token, at: at, reason: reason.code.text, topic: topic,
            environment: configuration.environment, source: configuration.usesGateway ? .gateway : .apns)
        invalid.isOfOwnTopic = topic == rules.topic
        invalid.registeredAt = attempt.job.registeredAt
        ledger(of: id).record(invalid: invalid, reason, status: attempt.status, of: id)
    }

    // MARK: Resending

    /// Resends a notification at once.
    /// - Parameter counts: false if the resend does not count towards the maximum.
    private func resend(_ attempt: Attempt, _ reason: Reason, counts: Bool = true) {
        guard lane.isWorking else { return abandon(attempt.flight) }
        if counts { inFlight[attempt.flight].resends += 1 }
        let queue = queue(of: attempt.id)
        if queue.hasCommands, queue.commands.command(for: attempt.job)?.command.state == .cancelled {
            return cancelResend(attempt.flight)
        }
        ledger(of: attempt.id).recordResent(reason, of: attempt.id)
        line.sendAgain(attempt.flight, in: inFlight, now: lane.now)
        lane.schedulePump()
    }

    // MARK: Log

    private func logMissingID() {
        lacksIDs = true
        lane.logThrottled(
            .warning, "answers_without_id",
            """
            the server's answers have no apns-id, unlike those of APNs; a proxy may remove it. They count as delivered
            """, kind: "no apns-id \(name)", metadata: logMetadata)
    }

    /// Logs an answer if operators should know more than its outcome.
    private func log(_ verdict: Verdict, _ finding: Disposition.Finding, of attempt: Attempt) {
        switch verdict {
        case .retry(let reason, _, _) where reason.isLostConnection && inFlight[attempt.flight].isolation == .alone:
            lane.logThrottled(
                .warning, "notification_cuts_connection",
                """
                APNs, or a proxy on the way, closed the connection on which a notification was sent alone; it is \
                retried, always alone
                """, kind: "cuts \(name)", metadata: logMetadata, example: example(attempt))
        case .pushTypeRefused(let reason):
            guard finding == .pushType(isPlainAccepted: true) else { return }
            let (topic, type) = address(of: attempt.id)
            lane.logThrottled(
                .error, "push_type_refused", "\(reason.explanation); the app's other jobs are sent",
                kind: "push type \(name) \(type)",
                metadata: logMetadata.merging(
                    ["reason": "\(reason.code.text)", "push_type": "\(type)", "topic": "\(topic)"]
                ) { $1 },
                example: example(attempt))
        case .deferred(let reason) where reason.concernsBroadcasts:
            lane.logThrottled(
                .error, "broadcasts_not_enabled",
                """
                APNs does not accept broadcasts for this app (\(reason.code.text)): its jobs with a `channel` wait, and \
                are tried again every minute. Enable the app's broadcast capability on Apple's developer site
                """, kind: "broadcasts \(name)", metadata: logMetadata)
        case .unknown(let reason):
            lane.logThrottled(
                .error, "unknown_reason",
                "APNs gave an unknown reason; notifications with this reason are tried up to three times",
                kind: "unknown reason \(name) \(reason.code.text)",
                metadata: logMetadata.merging(["reason": "\(reason.code.text)", "status": "\(attempt.status ?? 0)"]) {
                    $1
                })
        default: break
        }
    }

    private func example(_ attempt: Attempt) -> Logger.Metadata {
        attempt.job.id.map { ["job": "\(String(buffer: attempt.job.text($0)))"] } ?? [:]
    }

    /// Records a failure for operators, because its notification waits for another attempt.
    private func describe(_ attempt: Attempt, _ reason: Reason, _ concerned: ScopeSet, _ place: ScopePlace) {
        scopes.describe(
            // The app is always suspected too, even if its credential or its jobs may be at fault.
            concerned.union([.group, .app]), at: place, reason: reason.code.text, status: attempt.status,
            job: attempt.job.id.map { String(buffer: attempt.job.text($0)) },
            isFresh: lane.jobs[attempt.id].isFresh, now: lane.metrics.milliseconds)
    }
}
