import APNS
import NIOCore
import PushJob
import PushQueue

/// The notifications of one app on one lane that wait to be sent, or to be sent again, and the ways in which they leave
/// without that: cancelled, deferred, expired, suppressed, abandoned.
///
/// Belongs to the lane's event loop.
final class WaitingNotifications {
    private let app: AppContext
    private let lane: LaneContext
    private let ledger: Ledger
    private let fleet: Fleet
    private let faults: FaultHandler
    private let rate: AppRate
    var line = SendLine()

    init(_ app: AppContext, _ faults: FaultHandler, _ rate: AppRate) {
        self.app = app
        lane = app.lane
        ledger = app.ledger
        fleet = app.fleet
        self.faults = faults
        self.rate = rate
    }

    // MARK: Accepting

    /// Reserves capacity for a job whose tokens are being looked up.
    func expect(_ notifications: Int) { line.unsubmitted += notifications }

    /// Adds an expected job to the line, or defers it.
    func accept(_ id: JobID) {
        // A command or a pause may have arrived during the look-up.
        if applyCommand(to: id) { return }
        if ledger.queue(of: id).handsBack, lane.isWorking { return handBack(id) }
        // Jobs of a paused app must not fill the lane. One is kept if it may soon serve as a probe.
        if !faults.gate.sendsFreely, !line.ready.isEmpty || !faults.gate.wantsProbe(now: lane.now),
            let obstacle = faults.gate.obstacle(now: lane.now)
        {
            return deferUnsubmitted(id, obstacle.reason, delay: faults.deferral(because: obstacle))
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

    // MARK: Commands of operators

    /// Ends or defers the unsubmitted notifications of a queue's jobs that operators have cancelled or paused.
    func applyCommands(of queue: QueueContext) {
        if !queue.commands.isEmpty {
            for flight in app.inFlight.entries where flight.job.index >= 0 && isCancelled(flight.job, of: queue) {
                queue.cancelledInFlight += 1
            }
        }
        filterLine(of: queue) { applyCommand(to: $0) }
        filterResends { flight in
            guard isCancelled(app.inFlight[flight].job, of: queue) else { return false }
            queue.cancelledInFlight -= 1
            cancelResend(flight)
            return true
        }
    }

    /// Removes notifications that wait to be resent.
    /// - Parameter leaves: ends or defers one; returns false if it stays.
    private func filterResends(_ leaves: (FlightID) -> Bool) {
        line.gatherResends(in: app.inFlight)
        for isolation in line.resends.indices where !line.resends[isolation].isEmpty {
            var resends = line.resends[isolation]
            line.resends[isolation] = Line()
            while let flight = resends.removeFirst(in: app.inFlight) {
                if !leaves(flight) { line.resends[isolation].append(flight, in: app.inFlight) }
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
        line.ready = Line()
        while let id = jobs.removeFirst(in: lane.jobs) {
            if lane.jobs[id].queue == queue.id, leaves(id) { continue }
            line.ready.append(id, in: lane.jobs)
        }
    }

    private func isCancelled(_ id: JobID, of queue: QueueContext) -> Bool {
        guard lane.jobs[id].queue == queue.id, let job = lane.jobs[id].job,
            let (_, command) = queue.commands.command(for: job)
        else { return false }
        return command.cancels(job)
    }

    /// Ends or defers the unsubmitted notifications of a job that operators have cancelled or paused.
    /// - Returns: false if the job may be sent.
    private func applyCommand(to id: JobID) -> Bool {
        let queue = ledger.queue(of: id)
        guard !queue.commands.isEmpty, lane.isWorking, let job = lane.jobs[id].job,
            let (target, command) = queue.commands.command(for: job)
        else { return false }
        switch command.state {
        case .running: return false
        case .cancelled where !command.cancels(job): return false
        case .cancelled:
            let isFanOut = lane.jobs[id].fanOut != nil
            let (count, tokens) = takeUnsubmitted(id)
            ledger.recordCancelled(isFanOut ? tokens : [job.recipient ?? ByteBuffer()], of: id, target, command)
            ledger.close(count, of: id)
        case .paused:
            let delay = lane.random(in: RetryPolicy.campaignPause)
            // A job that would expire first is deferred in smaller steps, because the pause may end sooner.
            deferUnsubmitted(id, Reason(.campaignPaused), delay: app.expires(id, job, within: delay) ? 1000 : delay)
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
        let id = app.inFlight[flight].job
        guard let job = lane.jobs[id].job, let (target, command) = ledger.queue(of: id).commands.command(for: job)
        else { return abandon(flight) }
        endProbeWithoutAnswer(flight)
        let recipient = app.recipient(of: flight) ?? ByteBuffer()
        if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(recipient, now: ledger.queue(of: id).now) }
        ledger.recordCancelled([recipient], of: id, target, command)
        app.inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Ends a notification that waited to be resent.
    func endResend(_ flight: FlightID, as outcome: Outcome, _ reason: Reason) {
        let id = app.inFlight[flight].job
        endProbeWithoutAnswer(flight)
        ledger.record(outcome, reason, of: id, to: app.recipient(of: flight), wasSent: true)
        app.inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Ends an expected job whose only token is known to be invalid.
    func suppress(_ id: JobID) {
        ledger.recordSuppressed(of: id, to: lane.jobs[id].job.flatMap(\.recipient))
        line.unsubmitted -= 1
        lane.jobs[id].notification = nil
        lane.jobs[id].unsubmitted = 0
        ledger.close(1, of: id)
    }

    /// Records that a probe will not be answered.
    private func endProbeWithoutAnswer(_ flight: FlightID) {
        if let probe = app.inFlight[flight].probe { faults.gate.recordInconclusive(probe, now: lane.now) }
    }

    // MARK: Deferring

    /// Defers jobs if the app can't send, so that they do not occupy the lane's capacity for other apps.
    func deferWhatCannotBeSent() {
        let now = lane.now
        faults.gate.recordConnection(isUsable: app.isConnected, now: now)
        guard lane.isWorking, !line.isEmpty else { return }
        guard let obstacle = faults.gate.obstacle(now: now) else { return deferIsolated(now: now) }
        let (reason, delay) = (obstacle.reason, faults.deferral(because: obstacle))
        filterResends { flight in
            endProbeWithoutAnswer(flight)
            deferResend(flight, reason, delay: delay)
            return true
        }
        while let id = line.ready.first, now - lane.jobs[id].readySince > Gate.patience {
            _ = line.ready.removeFirst(in: lane.jobs)
            deferUnsubmitted(id, reason, delay: delay)
        }
    }

    /// Defers isolated notifications if no connection for them can be made, or those that have one get no answers.
    private func deferIsolated(now: NIODeadline) {
        guard line.isolatedCount > 0, now - line.isolatedMoved > Gate.patience else { return }
        let reason = Reason(RequestFailure.lostWithOthers("its next connection is not ready yet"))
        filterResends { flight in
            guard app.inFlight[flight].isolation != .shared else { return false }
            deferResend(flight, reason, delay: lane.random(in: 2000...10_000))
            return true
        }
    }

    /// Defers all unsubmitted notifications of a job, or ends them if they would expire first.
    private func deferUnsubmitted(_ id: JobID, _ reason: Reason, delay: Int64) {
        guard let job = lane.jobs[id].job, !app.expires(id, job, within: delay) else {
            return expireUnsubmitted(id, reason)
        }
        let (count, tokens) = takeUnsubmitted(id)
        putBack(
            .deferred, count, reason, tokens: tokens, of: id, delay: delay,
            recipients: recipients(of: id, tokens: tokens))
        ledger.close(count, of: id)
    }

    /// Ends all unsubmitted notifications of a job, because it has expired or would before it could be sent.
    /// - Parameter reason: the reason for which it waits.
    func expireUnsubmitted(_ id: JobID, _ reason: Reason) {
        let (count, tokens) = takeUnsubmitted(id)
        let recipients = recipients(of: id, tokens: tokens)
        for index in 0..<count {
            let recipient = recipients.indices.contains(index) ? recipients[index] : nil
            ledger.record(.expired, reason, of: id, to: recipient, wasSent: false)
        }
        ledger.close(count, of: id)
    }

    /// Returns the recipients of a job's unsubmitted notifications.
    /// - Parameter tokens: the tokens of a job with many, as text.
    private func recipients(of id: JobID, tokens: [ByteBuffer]) -> [ByteBuffer] {
        guard lane.jobs[id].fanOut == nil else { return tokens.map(DeviceToken.plain) }
        return lane.jobs[id].job.flatMap(\.recipient).map { [$0] } ?? []
    }

    /// Defers one notification of a job, or ends it if it would expire first.
    /// - Parameter isolation: that of a notification that was in flight when a connection was lost. Any lane must isolate it
    ///   again, so it returns with this failure, which spends no attempt, and not with the reason of the deferral.
    func deferNotification(
        _ token: ByteBuffer, of id: JobID, _ job: Job, _ reason: Reason, delay: Int64, isolation: Isolation = .shared
    ) {
        guard !app.expires(id, job, within: delay) else {
            return ledger.record(.expired, reason, of: id, to: token, wasSent: false)
        }
        guard isolation == .shared else {
            return putBack(
                .retried, 1, Reason(RequestFailure.lostWithOthers("")), tokens: [token], of: id, delay: delay,
                recipients: [token], attempt: .never)
        }
        putBack(.deferred, 1, reason, tokens: [token], of: id, delay: delay, recipients: [token])
    }

    /// Returns notifications to the queue; see
    /// ``Ledger/record(_:_:_:status:tokens:of:delay:recipients:attempt:)``.
    func putBack(
        _ postponement: Postponement, _ count: Int, _ reason: Reason, status: Int? = nil, tokens: [ByteBuffer],
        of id: JobID, delay: Int64, recipients: @autoclosure () -> [ByteBuffer],
        attempt: Settlement.AttemptRule? = nil
    ) {
        if reason.concernsEndpoint || status ?? 0 >= 500 {
            faults.gate.endpoint.recordPostponement(until: lane.now + .milliseconds(delay))
        }
        ledger.record(
            postponement, count, reason, status: status, tokens: tokens, of: id, delay: delay,
            recipients: recipients(), attempt: attempt)
    }

    /// Defers a notification that waited to be resent.
    private func deferResend(_ flight: FlightID, _ reason: Reason, delay: Int64) {
        let id = app.inFlight[flight].job
        guard let job = lane.jobs[id].job else { return abandon(flight) }
        let token = app.token(of: flight, job)
        if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(token, now: ledger.queue(of: id).now) }
        deferNotification(token, of: id, job, reason, delay: delay, isolation: app.inFlight[flight].isolation)
        app.inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Gives back a notification that was sent, and must be sent again, because the lane is ending. A job with one token
    /// keeps its identity, even if the server said that it had not processed it, in case that was wrong; and its count of
    /// possible duplicates. The gateway knows no identities: if it certainly accepted nothing, the claim is released.
    func abandon(_ flight: FlightID) {
        let id = app.inFlight[flight].job
        let mayBeAccepted = lane.jobs[id].tally?.possibleDuplicates ?? 0 > 0
        let isReleased = app.configuration.usesGateway && lane.jobs[id].fanOut == nil && !mayBeAccepted
        if !isReleased, let job = lane.jobs[id].job {
            deferNotification(
                app.token(of: flight, job), of: id, job, Reason(.drained), delay: 0,
                isolation: app.inFlight[flight].isolation)
        } else {
            lane.jobs[id].isAbandoned = true
        }
        app.inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Abandons unsubmitted notifications. A job with one token is still among the lane's claims, which are released;
    /// of a job with many, the remaining tokens are returned to the queue.
    func dropUnsent() {
        while let id = line.ready.removeFirst(in: lane.jobs) {
            if lane.jobs[id].fanOut != nil {
                deferUnsubmitted(id, Reason(.drained), delay: 0)
            } else {
                line.unsubmitted -= 1
                lane.jobs[id].isAbandoned = true
                ledger.close(1, of: id)
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

    /// Returns the milliseconds for which a notification must wait for its device; `nil` if it need not.
    func throttleDelay(of token: ByteBuffer, _ id: JobID) -> Int64? {
        let now = ledger.queue(of: id).now
        let isReturning = lane.jobs[id].job?.envelope.isWrapped ?? false
        switch fleet.throttles.decide(token, isReturning: isReturning, now: now) {
        case .send: return nil
        case .wait(let until): return until - now
        }
    }
}
