import APNS
import Logging
import NIOCore
import PushQueue
import Sockets
import TLS

/// Sends the notifications of one app on one lane. Owns its line, circuit breakers, credential, limits and transport.
///
///     accept → dispatch → transport → completed → ledger
///
/// Belongs to the lane's event loop.
final class AppSender {
    let lane: LaneContext
    let id: AppID
    let ledger: Ledger
    let fleet: Fleet
    private(set) var app: RoutedApp
    private(set) var transport: any Transport
    /// Replaced transports that still await answers.
    private(set) var retiring: [any Transport] = []
    /// True if the worker's configuration no longer has the app. It finishes what it has and gets no new jobs.
    private(set) var isRemoved = false
    var gate = Gate()
    var evidence: Evidence
    /// The budget of an app whose rate is limited.
    var budget: RateBudget?
    var line = SendLine()
    let inFlight = Table<FlightID, InFlight>()
    var credential: AppCredential
    /// The app's pause as this worker has recorded it in Redis.
    var fleetPause = FleetPause()
    /// True if answers have no `apns-id`, and that was logged.
    var lacksIDs = false
    /// The failed connections of replaced transports, by code.
    private var pastFailures: [String: Int] = [:]
    /// The notifications that the binary gateway has dropped after they had completed as confirmed.
    var dropped = 0

    /// The notifications of an app that are not in flight.
    struct SendLine {
        /// Jobs with notifications that have not been submitted.
        var ready = Line<JobID>()
        /// Notifications to resend at once, by ``Isolation``; see ``gatherResends(in:)``.
        var resends = [Line<FlightID>](repeating: Line(), count: Isolation.allCases.count)
        /// Notifications just returned by a shared connection, in the order in which they were sent.
        private var returned = Line<FlightID>()
        /// The time of the last progress of isolated notifications.
        var isolatedMoved = NIODeadline.distantPast
        /// The number of unsubmitted notifications of accepted jobs, including those whose tokens are being looked up.
        var waiting = 0
        var pace = SendPace()

        var isEmpty: Bool { ready.isEmpty && resendCount == 0 && isolatedCount == 0 }

        /// The number of notifications to resend over shared connections.
        var resendCount: Int { resends[0].count + returned.count }

        /// The number of notifications that wait to be sent over other connections.
        var isolatedCount: Int { resends[1].count + resends[2].count }

        mutating func sendAgain(_ flight: FlightID, in table: Table<FlightID, InFlight>, now: NIODeadline) {
            let isolation = table[flight].isolation
            guard isolation != .shared else { return returned.append(flight, in: table) }
            if isolatedCount == 0 { isolatedMoved = now }
            resends[isolation.rawValue].append(flight, in: table)
        }

        /// Moves returned notifications before those already waiting to be resent: they were resent earlier, so they
        /// were before them.
        mutating func gatherResends(in table: Table<FlightID, InFlight>) {
            guard !returned.isEmpty else { return }
            resends[0].prepend(contentsOf: returned, in: table)
            returned = Line()
        }
    }

    /// The pace at which an app's requests end. Notifications that will soon have a stream are claimed before it is
    /// free, so that no stream waits for Redis.
    struct SendPace {
        /// The time for which notifications are claimed ahead.
        private static let horizon = TimeAmount.milliseconds(20)
        private static let maximum = 512

        /// The number of notifications that may wait for a stream.
        private(set) var ahead = 0
        private var ended = 0
        private var since = NIODeadline.distantPast

        mutating func requestEnded() { ended += 1 }

        /// Measures the pace since the last call. Call this several times per second.
        mutating func measure(now: NIODeadline) {
            let elapsed = Int(max(1, (now - since).nanoseconds))
            ahead = min(Self.maximum, ended * Int(Self.horizon.nanoseconds) / elapsed)
            (ended, since) = (0, now)
        }
    }

    /// The app's pause as this worker has recorded or read it in Redis.
    struct FleetPause {
        /// The configuration that APNs refused; `nil` while this worker knows of no pause.
        var refused: ConfigurationDigest?
        /// The time at which the block was last written; `nil` if it was not.
        var blockWrittenAt: NIODeadline?
    }

    init(
        _ configuration: AppConfiguration, id: AppID, transport: any Transport, lane: LaneContext, ledger: Ledger,
        fleet: Fleet
    ) {
        self.lane = lane
        self.id = id
        self.ledger = ledger
        self.fleet = fleet
        self.transport = transport
        app = RoutedApp(configuration)
        credential = AppCredential(configuration.credential, jitter: lane.random(in: 0...300))
        budget = configuration.maximumPerSecond.map(RateBudget.init(perSecond:))
        evidence = Evidence(maximumBadTokenShare: configuration.maximumBadTokenShare)
        gate.app.block(configuration.wrongCertificate(configuration.credential))
        transport.delegate = self
    }

    deinit { inFlight.deallocate() }

    var configuration: AppConfiguration { app.configuration }

    /// The digest of what can make APNs refuse the app. A pause is for workers that have the same.
    var refusable: ConfigurationDigest {
        ConfigurationDigest(
            routing: configuration.routing + [configuration.endpoint.description], rules: credential.identity)
    }

    var name: String { app.configuration.name }

    var logMetadata: Logger.Metadata {
        ["app": "\(name)", "endpoint": "\(app.configuration.endpoint)"]
    }

    // MARK: Capacity

    /// The number of isolated notifications beyond which fewer jobs are claimed.
    private static let manyIsolated = 1000

    /// The number of notifications that the app could accept now.
    var capacity: Int {
        guard credential.canSend, !isRemoved else { return 0 }
        let ahead = transport.usableConnections > 0 ? line.pace.ahead : 0
        // The first notification opens a connection.
        let streams = transport.isDormant ? 1 : transport.capacity
        // Notifications that are sent apart from the rest hold it up only if they are many.
        let isolated = max(0, line.isolatedCount - Self.manyIsolated)
        var free = max(0, streams + ahead - line.waiting - line.resendCount - isolated)
        // As many as the rate allows in half a second; the rest stays in the queue.
        if let budget { free = min(free, max(0, max(1, budget.perSecond / 2) - line.waiting)) }
        guard !gate.sendsFreely else { return free }
        // Only a probe would be sent; the rest stays in the queue.
        return line.waiting == 0 && gate.wantsProbe(now: lane.now) ? min(free, 1) : 0
    }

    /// True if a connection accepts requests or can be opened on demand.
    var isConnected: Bool { transport.usableConnections > 0 || transport.isDormant }

    /// True if the app has nothing to send, could send, and needs no frequent checks.
    var isAtRest: Bool {
        line.waiting == 0 && line.isEmpty && retiring.isEmpty && gate.sendsFreely && credential.canSend
            && !isRemoved && isConnected
    }

    // MARK: Ticks

    /// Enforces deadlines, maintains the credential and the connections, and defers jobs that can't be sent.
    /// - Parameter isFullSecond: true about once per second.
    func check(isFullSecond: Bool) {
        let now = lane.now
        line.pace.measure(now: now)
        // Slow changes need no check ten times per second, except that nothing is sent without a token.
        if isFullSecond || !credential.canSend { keepProviderToken() }
        if isFullSecond {
            reportBlock()
            if fleet.refusals[.rate(app: name)] != nil { probeRate() }
        }
        transport.check(now: now)
        for transport in retiring { transport.check(now: now) }
        watchAnswers()
        closeIdleEndpoint()
        if isRemoved, line.waiting == 0, line.isEmpty, transport.statistics.streamsInUse == 0 {
            // Closing it repeatedly is harmless.
            _ = transport.close()
        }
        deferWhatCannotBeSent()
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for transport in [transport] + retiring { transport.stoodStill(for: time, now: now) }
        gate.recordStandstill(of: time, now: now)
    }

    /// Opens another connection because there is more work than streams.
    func grow() { transport.requestCapacity() }

    /// Opens the endpoint's breaker if requests go unanswered, long before their deadlines.
    private func watchAnswers() {
        guard lane.isWorking, !isRemoved, transport.statistics.isUnanswered,
            gate.endpoint.foundUnanswered(
                longest: longestPause, now: lane.now, jitter: lane.jitter)
        else { return }
        logEndpointFailure()
    }

    /// Returns the tokens of the notifications that have not ended, for jobs with many tokens.
    func openTokens(of jobs: [JobID]) -> [JobID: [ByteBuffer]] {
        var open: [JobID: [ByteBuffer]] = [:]
        for job in jobs { open[job] = lane.jobs[job].fanOut.map { fanOut in fanOut.remaining.map(fanOut.job.text) } }
        guard !open.isEmpty else { return [:] }
        for flight in inFlight.entries {
            if let token = flight.deviceToken, open[flight.job] != nil { open[flight.job]?.append(token.hex) }
        }
        return open
    }

    // MARK: Observation

    var keepsUniqueIDs: Bool { ledger.wantsAnswers }

    /// The number of notifications that were dropped after their confirmation; `nil` for an app without a binary gateway.
    var droppedAfterConfirmation: Int? { configuration.usesGateway ? dropped : nil }

    /// The number of failed connections, by code.
    var failureCounts: [String: Int] { pastFailures.merging(transport.failureCounts, uniquingKeysWith: +) }

    /// The problem that prevents the app from sending, if any.
    var problem: String? {
        // A lane that ends closes its connections.
        gate.problem(of: name, isConnected: isConnected || !lane.isWorking)
    }

    /// The app's part of the lane's heartbeat.
    var report: WorkerReport.App {
        let statistics = transport.statistics
        var report = WorkerReport.App()
        report.name = name
        report.endpoint = "\(configuration.endpoint)"
        report.usable = statistics.usable
        report.connecting = statistics.connecting
        report.streams = statistics.streamsInUse
        report.streamLimit = statistics.streamLimit
        report.isDormant = transport.isDormant
        if let reason = gate.endpoint.reason {
            report.isUnanswered = reason.isNoAnswer
            report.serverError = reason.isNoAnswer ? nil : reason.explanation
        }
        report.pause = gate.app.reason?.explanation
        report.tokenIssuedAt = credential.providerToken.map { $0.issuedAt * 1000 }
        report.certificateExpiresAt = configuration.credential.certificateEnd.map { $0 * 1000 }
        if statistics.usable == 0, !transport.isDormant {
            report.failure = transport.lastFailure.map { "\($0)" }
        }
        return report
    }

    // MARK: Configuration

    /// An app's prepared parts, whose preparation can fail.
    struct Prepared: Sendable {
        let configuration: AppConfiguration
        let transport: TransportConfiguration
        let tls: TLSContext

        init(_ app: AppConfiguration) throws {
            configuration = app
            transport = try app.transportConfiguration()
            tls = try app.tlsContext(for: app.credential)
        }
    }

    /// Switches to another configuration. Submitted notifications finish on the old connections; others are sent on the
    /// new ones.
    /// - Parameter makeTransport: makes a transport for the new configuration.
    func reload(_ prepared: Prepared, makeTransport: () -> any Transport) {
        let (old, new) = (configuration, prepared.configuration)
        let difference = AppDifference(from: old, to: new)
        guard difference.isChanged else { return }
        let reason = gate.app.reason
        app = RoutedApp(new)
        gate.app.block(new.wrongCertificate(new.credential))
        if new.maximumPerSecond != old.maximumPerSecond {
            budget = new.maximumPerSecond.map(RateBudget.init(perSecond:))
        }
        if new.maximumBadTokenShare != old.maximumBadTokenShare {
            evidence.changeMaximumBadTokenShare(new.maximumBadTokenShare)
        }
        if difference.changesTransport { replaceTransport(by: makeTransport()) }
        if difference.changesCredential {
            replaceCredential(new.credential, prepared.tls, pausedFor: reason)
        } else {
            reopen(pausedFor: reason)
        }
    }

    /// Stops giving jobs to the app.
    func remove() { isRemoved = true }

    private func replaceTransport(by new: any Transport) {
        let old = transport
        new.delegate = self
        new.setProviderToken(credential.providerToken?.jwt)
        transport = new
        forgetConnections()
        pastFailures.merge(old.failureCounts, uniquingKeysWith: +)
        retiring.append(old)
        old.close().assumeIsolated().whenComplete { [self] _ in retiring.removeAll { $0 === old } }
    }

    // MARK: Drain

    /// Abandons unsubmitted notifications and requests the outcomes of the others as soon as possible.
    func drain() {
        dropUnsent()
        _ = close()
    }

    /// Abandons unsubmitted notifications. A job with one token is still among the lane's claims, which are released;
    /// of a job with many, the remaining tokens are returned to the queue.
    func dropUnsent() {
        while let id = line.ready.removeFirst(in: lane.jobs) {
            if lane.jobs[id].fanOut != nil {
                deferUnsubmitted(id, Reason(.drained), delay: 0)
            } else {
                line.waiting -= 1
                lane.jobs[id].isAbandoned = true
                ledger.close(1, of: id)
            }
        }
        filterResends { flight in
            abandon(flight)
            return true
        }
    }

    /// Closes all connections; unanswered requests end as uncertain.
    func closeNow() { for transport in [transport] + retiring { transport.closeNow() } }

    func close() -> EventLoopFuture<Void> { transport.close() }
}
