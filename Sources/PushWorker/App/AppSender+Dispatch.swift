import APNS
import NIOCore
import PushJob
import PushQueue

/// The way from accepted jobs to requests in flight.
extension AppSender {
    /// The maximum number of notifications that are submitted for one job before another job's turn.
    private static let turn = 32
    /// The time after which a job that waits is checked for its expiration before it is submitted.
    private static let freshness = TimeAmount.seconds(1)

    // MARK: Accepting

    /// Reserves capacity for a job whose tokens are being looked up.
    func expect(_ notifications: Int) { line.waiting += notifications }

    /// Adds an expected job to the line, or defers it.
    func accept(_ id: JobID) {
        // A command or a pause may have arrived during the look-up.
        if applyCommand(to: id) { return }
        if ledger.queue(of: id).handsBack, lane.isWorking { return handBack(id) }
        // Jobs of a paused app must not fill the lane. One is kept if it may soon serve as a probe.
        if !gate.sendsFreely, !line.ready.isEmpty || !gate.wantsProbe(now: lane.now),
            let obstacle = gate.obstacle(now: lane.now)
        {
            return deferUnsubmitted(id, obstacle.reason, delay: deferral(because: obstacle))
        }
        if !fleet.throttles.isEmpty, let delay = throttleDelay(of: id) {
            return deferUnsubmitted(id, Reason(.throttled), delay: delay)
        }
        if let delay = rateDelay(of: id) { return deferUnsubmitted(id, Reason(.rateLimited), delay: delay) }
        line.ready.append(id, in: lane.jobs)
    }

    // MARK: Commands of operators

    /// Ends or defers the unsubmitted notifications of a queue's jobs that operators have cancelled or paused.
    func applyCommands(of queue: QueueContext) {
        if !queue.commands.isEmpty {
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
    /// - Parameter leaves: ends or defers one; returns false if it stays.
    func filterResends(_ leaves: (FlightID) -> Bool) {
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
            deferUnsubmitted(id, Reason(.campaignPaused), delay: expires(id, job, within: delay) ? 1000 : delay)
        }
        return true
    }

    /// Removes a job's unsubmitted notifications from the line's count.
    /// - Returns: the number of notifications and, for a job with many tokens, the tokens as text.
    private func takeUnsubmitted(_ id: JobID) -> (count: Int, tokens: [ByteBuffer]) {
        let count = lane.jobs[id].unsubmitted
        line.waiting -= count
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
        guard let job = lane.jobs[id].job, let (target, command) = ledger.queue(of: id).commands.command(for: job)
        else { return abandon(flight) }
        endProbeWithoutAnswer(flight)
        let recipient = recipient(of: flight) ?? ByteBuffer()
        if !fleet.throttles.isEmpty { fleet.throttles.ended(recipient, now: ledger.queue(of: id).now) }
        ledger.recordCancelled([recipient], of: id, target, command)
        inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Ends a notification that waited to be resent.
    private func endResend(_ flight: FlightID, as outcome: Outcome, _ reason: Reason) {
        let id = inFlight[flight].job
        endProbeWithoutAnswer(flight)
        ledger.record(outcome, reason, of: id, to: recipient(of: flight), wasSent: true)
        inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Ends an expected job whose only token is known to be invalid.
    func suppress(_ id: JobID) {
        ledger.recordSuppressed(of: id, to: lane.jobs[id].job.flatMap(\.recipient))
        line.waiting -= 1
        lane.jobs[id].notification = nil
        lane.jobs[id].unsubmitted = 0
        ledger.close(1, of: id)
    }

    // MARK: Submitting

    /// Submits all that can be submitted now.
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
        switch gate.decide(now: now) {
        case .send: dispatchReady(now: now)
        case .probe(let probe): dispatchProbe(probe, now: now)
        case .ask: askForProbe()
        case .wait(.noConnection, _): transport.requestCapacity()
        case .wait: break
        }
    }

    private func dispatchReady(now: NIODeadline) {
        var free = min(transport.capacity, budget?.available(now: now) ?? .max)
        while free > 0, let id = line.ready.removeFirst(in: lane.jobs) {
            let submission = submit(id, atMost: min(Self.turn, free), now: now)
            free -= submission.submitted
            budget?.spent(submission.submitted)
            // Despite its capacity, for example because a connection was lost and the loss is not yet reported.
            if submission.isRefused { break }
        }
        guard !line.ready.isEmpty else { return }
        if budget != nil { reserveRate() }
        // Jobs claimed ahead will have a stream soon, even if the pace has fallen since, so they need no other
        // connection.
        if transport.capacity == 0, line.waiting > 2 * line.pace.ahead { transport.requestCapacity() }
    }

    /// Submits one notification, which finds out whether an obstacle remains.
    private func dispatchProbe(_ probe: InFlight.Probe, now: NIODeadline) {
        var jobsToTry = line.ready.count
        while jobsToTry > 0, transport.capacity > 0, gate.decide(now: now) == .probe(probe),
            let id = line.ready.removeFirst(in: lane.jobs)
        {
            jobsToTry -= 1
            if submit(id, atMost: 1, as: probe, now: now).isRefused { return }
        }
        if transport.capacity == 0, gate.decide(now: now) == .probe(probe) { transport.requestCapacity() }
    }

    /// The result of an attempt to submit notifications of a job.
    struct Submission {
        var submitted = 0
        /// True if the transport refused one. The job is then the first of the line again.
        var isRefused = false
    }

    /// Submits notifications of a job that was removed from the line.
    /// - Parameters:
    ///   - limit: the maximum number of notifications.
    ///   - probe: the question that they answer.
    func submit(_ id: JobID, atMost limit: Int, as probe: InFlight.Probe? = nil, now: NIODeadline) -> Submission {
        if hasExpired(id, now: now) {
            expireUnsubmitted(id, Reason(.expired))
            return Submission()
        }
        let submission =
            lane.jobs[id].fanOut == nil ? submitOnly(id, as: probe) : submitSome(id, atMost: limit, as: probe)
        if submission.submitted > 0, let probe { gate.recordProbe(probe) }
        return submission
    }

    /// Submits the notification of a job with one token, or ends the job if the app, whose configuration may have changed
    /// since, refuses it now.
    private func submitOnly(_ id: JobID, as probe: InFlight.Probe?) -> Submission {
        var submission = Submission()
        do throws(Reason) {
            var next = lane.jobs[id].notification.take()
            // An earlier refusal consumed it.
            if next == nil { next = try notification(ofJob: id) }
            if let notification = next.take() {
                guard submit(consume notification, of: id, token: nil, as: probe) else {
                    line.ready.prepend(id, in: lane.jobs)
                    return Submission(isRefused: true)
                }
                submission.submitted = 1
            } else {
                // It was decoded when it was claimed. Should decoding fail now, the claim is left to be recovered.
                lane.jobs[id].isAbandoned = true
            }
        } catch {
            ledger.record(.dead, error, of: id, to: lane.jobs[id].job.flatMap(\.recipient), wasSent: false)
        }
        lane.jobs[id].unsubmitted = 0
        line.waiting -= 1
        if submission.submitted == 0 { ledger.close(1, of: id) }
        return submission
    }

    /// Submits some notifications of a job with many tokens and ends those with invalid tokens. The rest of the job
    /// moves to the end of the line, so that small jobs need not wait for it.
    private func submitSome(_ id: JobID, atMost limit: Int, as probe: InFlight.Probe?) -> Submission {
        guard let fanOut = lane.jobs[id].fanOut else { return Submission() }
        var (submission, ended) = (Submission(), 0)
        while submission.submitted < limit {
            guard let field = fanOut.remaining.next() else { break }
            let text = fanOut.job.text(field)
            if !fanOut.suppressed.isEmpty, fanOut.suppressed.contains(fanOut.position) {
                ledger.recordSuppressed(of: id, to: DeviceToken.plain(text))
                ended += 1
            } else {
                do throws(Reason) {
                    let token = try app.deviceToken(text)
                    if !fleet.throttles.isEmpty, let delay = throttleDelay(of: token.hex, id) {
                        deferNotification(token.hex, of: id, fanOut.job, Reason(.throttled), delay: delay)
                        ended += 1
                    } else {
                        let notification = fanOut.notification(to: token)
                        guard submit(consume notification, of: id, token: token, as: probe) else {
                            fanOut.remaining.putBack(field)
                            submission.isRefused = true
                            break
                        }
                        submission.submitted += 1
                    }
                } catch {
                    ledger.record(.dead, error, of: id, to: text, wasSent: false)
                    ended += 1
                }
            }
            fanOut.position += 1
        }
        line.waiting -= submission.submitted + ended
        lane.jobs[id].unsubmitted -= submission.submitted + ended
        if submission.isRefused {
            line.ready.prepend(id, in: lane.jobs)
        } else if lane.jobs[id].unsubmitted > 0 {
            line.ready.append(id, in: lane.jobs)
        }
        ledger.close(ended, of: id)
        return submission
    }

    private func submit(
        _ notification: consuming Notification, of id: JobID, token: DeviceToken?, as probe: InFlight.Probe?
    ) -> Bool {
        let flight = inFlight.insert()
        inFlight[flight].job = id
        inFlight[flight].deviceToken = token
        if lane.jobs[id].isolation != .shared, probe == nil {
            // It is made again when it is its turn on a connection apart.
            inFlight[flight].isolation = lane.jobs[id].isolation
            line.sendAgain(flight, in: inFlight, now: lane.now)
            lane.schedulePump()
            return true
        }
        inFlight[flight].probe = probe
        stamp(&inFlight[flight])
        guard transport.submit(consume notification, tag: UInt64(flight.index), in: .shared) else {
            inFlight.remove(flight)
            return false
        }
        ledger.recordSubmission(of: id, isFirst: true)
        return true
    }

    /// Records that a probe will not be answered.
    func endProbeWithoutAnswer(_ flight: FlightID) {
        if let probe = inFlight[flight].probe { gate.recordInconclusive(probe, now: lane.now) }
    }

    private func dispatchResends(in isolation: Isolation, now: NIODeadline) {
        while let flight = line.resends[isolation.rawValue].first {
            let probe: InFlight.Probe?
            switch gate.decide(resending: inFlight[flight].probe, now: now) {
            case .send, .wait(.noConnection, _): probe = nil
            case .probe(.ofEndpoint): probe = .ofEndpoint
            // The rest is deferred with the app's other jobs.
            case .probe(.ofApp), .ask, .wait: return
            }
            let hasExpired = hasExpired(inFlight[flight].job, now: now)
            guard hasExpired || transport.capacity(in: isolation) > 0 else {
                return transport.requestCapacity(in: isolation)
            }
            _ = line.resends[isolation.rawValue].removeFirst(in: inFlight)
            guard !hasExpired else {
                endResend(flight, as: .expired, Reason(.expired))
                continue
            }
            guard let notification = notificationToResend(flight) else { continue }
            guard transport.submit(notification, tag: UInt64(flight.index), in: isolation) else {
                return line.resends[isolation.rawValue].prepend(flight, in: inFlight)
            }
            line.isolatedMoved = now
            stamp(&inFlight[flight])
            if let probe {
                inFlight[flight].probe = probe
                gate.recordProbe(probe)
            }
            ledger.recordSubmission(of: inFlight[flight].job, isFirst: false)
        }
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
    /// - Throws: the reason for which the app, whose configuration may have changed, refuses it now.
    private func notification(of flight: FlightID) throws(Reason) -> Notification? {
        let id = inFlight[flight].job
        if let fanOut = lane.jobs[id].fanOut { return inFlight[flight].deviceToken.map(fanOut.notification(to:)) }
        return try notification(ofJob: id)
    }

    /// Recreates the notification of a job with one token from the claimed bytes, because the transport consumes what
    /// it is given.
    /// - Returns: `nil` if the job can't be decoded.
    /// - Throws: the reason for which the app, whose configuration may have changed, refuses it now.
    func notification(ofJob id: JobID) throws(Reason) -> Notification? {
        guard let job = lane.jobs[id].job else { return nil }
        let identity = ledger.queue(of: id).identity(
            of: job, claim: lane.jobs[id].claim, generation: lane.jobs[id].generation)
        return try app.notification(for: job, identity: identity, firstSeen: lane.jobs[id].firstSeen)
    }

    // MARK: Deferring

    /// Defers jobs if the app can't send, so that they do not occupy the lane's capacity for other apps.
    func deferWhatCannotBeSent() {
        let now = lane.now
        gate.recordConnection(isUsable: isConnected, now: now)
        guard lane.isWorking, !line.isEmpty else { return }
        guard let obstacle = gate.obstacle(now: now) else { return deferIsolated(now: now) }
        let (reason, delay) = (obstacle.reason, deferral(because: obstacle))
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
            guard inFlight[flight].isolation != .shared else { return false }
            deferResend(flight, reason, delay: lane.random(in: 2000...10_000))
            return true
        }
    }

    /// Defers all unsubmitted notifications of a job, or ends them if they would expire first.
    func deferUnsubmitted(_ id: JobID, _ reason: Reason, delay: Int64) {
        guard let job = lane.jobs[id].job, !expires(id, job, within: delay) else {
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
    private func expireUnsubmitted(_ id: JobID, _ reason: Reason) {
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
    func deferNotification(_ token: ByteBuffer, of id: JobID, _ job: Job, _ reason: Reason, delay: Int64) {
        guard !expires(id, job, within: delay) else {
            return ledger.record(.expired, reason, of: id, to: token, wasSent: false)
        }
        putBack(.deferred, 1, reason, tokens: [token], of: id, delay: delay, recipients: [token])
    }

    /// Returns notifications to the queue; see
    /// ``Ledger/record(_:_:_:status:tokens:of:delay:recipients:spendsAttempt:)``.
    func putBack(
        _ postponement: Postponement, _ count: Int, _ reason: Reason, status: Int? = nil, tokens: [ByteBuffer],
        of id: JobID, delay: Int64, recipients: @autoclosure () -> [ByteBuffer], spendsAttempt: Bool? = nil
    ) {
        if reason.concernsEndpoint || status ?? 0 >= 500 {
            gate.endpoint.postponed(until: lane.now + .milliseconds(delay))
        }
        ledger.record(
            postponement, count, reason, status: status, tokens: tokens, of: id, delay: delay,
            recipients: recipients(), spendsAttempt: spendsAttempt)
    }

    /// True if a job has expired while it waited in this process. APNs would still deliver a call, whose `apns-expiration`
    /// is 0.
    private func hasExpired(_ id: JobID, now: NIODeadline) -> Bool {
        guard now - lane.jobs[id].readySince > Self.freshness, let job = lane.jobs[id].job else { return false }
        return expires(id, job, within: 0)
    }

    /// True if a job expires before it could be sent again.
    func expires(_ id: JobID, _ job: Job, within delay: Int64) -> Bool {
        guard let end = app.end(of: job, firstSeen: lane.jobs[id].firstSeen) else { return false }
        return ledger.queue(of: id).now + delay >= end
    }

    // MARK: Limits

    private func throttleDelay(of id: JobID) -> Int64? {
        guard !lane.jobs[id].isOnChannel, let token = lane.jobs[id].notification?.deviceToken.hex else { return nil }
        return throttleDelay(of: token, id)
    }

    /// Returns the milliseconds for which a notification must wait for its device; `nil` if it need not.
    private func throttleDelay(of token: ByteBuffer, _ id: JobID) -> Int64? {
        let now = ledger.queue(of: id).now
        let isReturning = lane.jobs[id].job?.envelope.isWrapped ?? false
        switch fleet.throttles.decide(token, isReturning: isReturning, now: now) {
        case .send: return nil
        case .wait(let until): return until - now
        }
    }

    /// Returns the milliseconds for which to defer a job that exceeds the app's rate; `nil` if it does not.
    private func rateDelay(of id: JobID) -> Int64? {
        guard let budget, line.waiting - lane.jobs[id].open >= budget.maximumWaiting else { return nil }
        let delay = self.budget?.deferral(of: lane.jobs[id].open, now: lane.now) ?? .seconds(1)
        return delay.nanoseconds / 1_000_000
    }

    /// Finds out whether Redis still refuses the app's rate. Without jobs nothing else would.
    func probeRate() {
        guard budget != nil, !isRemoved else { return fleet.refusals.accepted(.rate(app: name)) }
        reserveRate(minimum: 1)
    }

    /// Reserves a portion of the app's rate if one is needed.
    private func reserveRate(minimum: Int = 0) {
        guard let count = budget?.reserve(waiting: max(minimum, line.waiting), now: lane.now),
            let perSecond = budget?.perSecond
        else { return }
        fleet.store.rates.reserve(count, of: name, perSecond: perSecond) { [self] result in
            fleet.refusals.note(.rate(app: name), result)
            switch result {
            case .success(let wait):
                budget?.reserved(count, wait: .milliseconds(wait), now: lane.now)
                guard wait > 0 else { return lane.schedulePump() }
                lane.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(wait)) { [self] in lane.schedulePump() }
            case .failure: budget?.failed(now: lane.now)
            }
        }
    }
}
