import APNS
import NIOCore
import PushQueue
import TLS

/// Sends the notifications of one app on one lane. Owns the parts that do so, and changes their configuration.
///
///     waiting → dispatcher → transport → answers → ledger
///
/// Belongs to the lane's event loop.
final class AppSender {
    let app: AppContext
    let faults: FaultHandler
    let waiting: WaitingNotifications
    let dispatcher: Dispatcher
    let answers: AnswerHandler
    let tokens: ProviderTokenKeeper
    private let rate: AppRate
    /// Replaced transports that still await answers.
    private var retiring: [any Transport] = []
    /// The failed connections of replaced transports, by code.
    private var pastFailures: [String: Int] = [:]

    init(
        _ configuration: AppConfiguration, id: AppID, transport: any Transport, lane: LaneContext, ledger: Ledger,
        fleet: Fleet
    ) {
        app = AppContext(configuration, id: id, transport: transport, lane: lane, ledger: ledger, fleet: fleet)
        faults = FaultHandler(app)
        rate = AppRate(app)
        tokens = ProviderTokenKeeper(app)
        waiting = WaitingNotifications(app, faults, rate)
        dispatcher = Dispatcher(app, faults, rate, waiting)
        answers = AnswerHandler(app, faults, waiting, tokens)
        transport.delegate = answers
    }

    var id: AppID { app.id }
    var name: String { app.name }
    var configuration: AppConfiguration { app.configuration }
    var isRemoved: Bool { app.isRemoved }
    var transport: any Transport { app.transport }
    var gate: Gate { faults.gate }

    // MARK: Capacity

    /// The number of isolated notifications beyond which fewer jobs are claimed.
    private static let manyIsolated = 1000

    /// The number of notifications that the app could accept now.
    var capacity: Int {
        guard app.credential.canSend, !app.isRemoved else { return 0 }
        let ahead = app.transport.usableConnections > 0 ? waiting.line.pace.ahead : 0
        // The first notification opens a connection.
        let streams = app.transport.isDormant ? 1 : app.transport.capacity
        // Notifications that are sent apart from the rest hold it up only if they are many.
        let isolated = max(0, waiting.line.isolatedCount - Self.manyIsolated)
        var free = max(0, streams + ahead - waiting.line.unsubmitted - waiting.line.resendCount - isolated)
        // As many as the rate allows in half a second; the rest stays in the queue.
        if let budget = rate.budget {
            free = min(free, max(0, max(1, budget.perSecond / 2) - waiting.line.unsubmitted))
        }
        guard !gate.sendsFreely else { return free }
        // Only a probe would be sent; the rest stays in the queue.
        return waiting.line.unsubmitted == 0 && gate.wantsProbe(now: app.lane.now) ? min(free, 1) : 0
    }

    /// True if the app has nothing to send, could send, and needs no frequent checks.
    var isAtRest: Bool {
        waiting.line.unsubmitted == 0 && waiting.line.isEmpty && retiring.isEmpty && gate.sendsFreely
            && app.credential.canSend
            && !app.isRemoved && app.isConnected
    }

    // MARK: Ticks

    /// Enforces deadlines, maintains the credential and the connections, and defers jobs that can't be sent.
    /// - Parameter isFullSecond: true about once per second.
    func check(isFullSecond: Bool) {
        let now = app.lane.now
        waiting.line.pace.measure(now: now)
        // Slow changes need no check ten times per second, except that nothing is sent without a token.
        if isFullSecond || !app.credential.canSend { tokens.keep() }
        if isFullSecond {
            faults.reportBlock()
            rate.probeIfRefused(waiting: waiting.line.unsubmitted)
        }
        app.transport.check(now: now)
        for transport in retiring { transport.check(now: now) }
        faults.watchAnswers()
        if waiting.line.isEmpty { faults.closeIdleEndpoint() }
        if app.isRemoved, waiting.line.unsubmitted == 0, waiting.line.isEmpty,
            app.transport.statistics.streamsInUse == 0
        {
            // Closing it repeatedly is harmless.
            _ = app.transport.close()
        }
        waiting.deferWhatCannotBeSent()
    }

    /// Records that the process did not run for some time.
    func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for transport in [app.transport] + retiring { transport.stoodStill(for: time, now: now) }
        faults.gate.recordStandstill(of: time, now: now)
    }

    /// Returns the tokens of the notifications that have not ended, for jobs with many tokens.
    func openTokens(of jobs: [JobID]) -> [JobID: [ByteBuffer]] {
        var open: [JobID: [ByteBuffer]] = [:]
        for job in jobs {
            open[job] = app.lane.jobs[job].fanOut.map { fanOut in fanOut.remaining.map(fanOut.job.text) }
        }
        guard !open.isEmpty else { return [:] }
        for flight in app.inFlight.entries {
            if let token = flight.deviceToken, open[flight.job] != nil { open[flight.job]?.append(token.hex) }
        }
        return open
    }

    // MARK: Observation

    /// The number of notifications that were dropped after their confirmation; `nil` for an app without a binary gateway.
    var droppedAfterConfirmation: Int? { configuration.usesGateway ? answers.dropped : nil }

    /// The number of failed connections, by code.
    var failureCounts: [String: Int] { pastFailures.merging(app.transport.failureCounts, uniquingKeysWith: +) }

    /// The problem that prevents the app from sending, if any.
    var problem: String? {
        // A lane that ends closes its connections.
        gate.problem(of: name, isConnected: app.isConnected || !app.lane.isWorking)
    }

    /// The app's part of the lane's heartbeat.
    var report: WorkerReport.App {
        let statistics = app.transport.statistics
        var report = WorkerReport.App()
        report.name = name
        report.endpoint = "\(configuration.endpoint)"
        report.usable = statistics.usable
        report.connecting = statistics.connecting
        report.streams = statistics.streamsInUse
        report.streamLimit = statistics.streamLimit
        report.isDormant = app.transport.isDormant
        if let reason = gate.endpoint.reason {
            report.isUnanswered = reason.isNoAnswer
            report.serverError = reason.isNoAnswer ? nil : reason.explanation
        }
        report.pause = gate.app.reason?.explanation
        report.tokenIssuedAt = app.credential.providerToken.map { $0.issuedAt * 1000 }
        report.certificateExpiresAt = configuration.credential.certificateEnd.map { $0 * 1000 }
        if statistics.usable == 0, !app.transport.isDormant {
            report.failure = app.transport.lastFailure.map { "\($0)" }
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
        app.rules = RoutedApp(new)
        faults.gate.app.block(new.wrongCertificate(new.credential))
        if new.maximumPerSecond != old.maximumPerSecond { rate.limit(to: new.maximumPerSecond) }
        if new.maximumBadTokenShare != old.maximumBadTokenShare {
            faults.evidence.changeMaximumBadTokenShare(new.maximumBadTokenShare)
        }
        if difference.changesTransport { replaceTransport(by: makeTransport()) }
        if difference.changesCredential {
            replaceCredential(new.credential, prepared.tls, pausedFor: reason)
        } else {
            faults.reopen(pausedFor: reason)
        }
    }

    /// Stops giving jobs to the app.
    func remove() { app.isRemoved = true }

    private func replaceTransport(by new: any Transport) {
        let old = transport
        new.delegate = answers
        new.setProviderToken(app.credential.providerToken?.jwt)
        app.transport = new
        faults.forgetConnections()
        pastFailures.merge(old.failureCounts, uniquingKeysWith: +)
        retiring.append(old)
        old.close().assumeIsolated().whenComplete { [self] _ in retiring.removeAll { $0 === old } }
    }

    /// Switches to another credential. Working connections stay open, except those that carry tokens of another key or
    /// whose certificate APNs has refused.
    /// - Parameter reason: the reason for which the app was paused before its configuration changed.
    func replaceCredential(
        _ new: AppConfiguration.Credential, _ tls: TLSContext, pausedFor reason: Reason? = nil
    ) {
        app.transport.setTLS(tls)
        // Connections with tokens of another key must close. A certificate was presented at connection time and remains
        // valid.
        if app.credential.keyIDs != new.tokenSources.map(\.keyID) || gate.app.isOpen {
            app.transport.replaceConnections(reason: "another credential")
        }
        let reason = reason ?? gate.app.reason
        app.credential = AppCredential(new, jitter: app.lane.random(in: 0...300))
        app.rules.use(new)
        faults.evidence.recordOtherCredential()
        faults.gate.app.block(configuration.wrongCertificate(new))
        if new.tokenSources.isEmpty { app.transport.setProviderToken(nil) }
        tokens.keep()
        // The next request shows whether the new credential has the fault of the old one.
        faults.reopen(pausedFor: reason)
    }

    // MARK: Drain

    /// Abandons unsubmitted notifications and requests the outcomes of the others as soon as possible.
    func drain() {
        waiting.dropUnsent()
        _ = close()
    }

    /// Closes all connections; unanswered requests end as uncertain.
    func closeNow() { for transport in [app.transport] + retiring { transport.closeNow() } }

    func close() -> EventLoopFuture<Void> { app.transport.close() }
}
