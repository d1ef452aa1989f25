import APNS
import NIOCore
import PushQueue

/// From what waits to what is under way.
extension Lane {
    /// Notifications of one job that are submitted before another job has its turn.
    private static let turn = 32

    /// What became of a notification whose turn it was.
    private enum Submission {
        case submitted
        /// Its token is none: it has ended.
        case malformed
        /// No stream was free: it still has its turn.
        case noStream
    }

    func dispatch(_ app: AppLane) {
        dispatchResends(app)
        guard !app.ready.isEmpty else { return }
        if app.breaker.isOpen { return dispatchProbe(app) }
        var free = app.pool.freeStreams
        while free > 0, case let index = app.ready.head, index >= 0 {
            var left = min(Self.turn, free)
            while left > 0, jobs[index].unsubmitted > 0 {
                let submission = submitNext(index, app: app, isProbe: false)
                if submission == .noStream { return }
                left -= 1
                if submission == .submitted { free -= 1 }
            }
            leaveLine(index, app)
        }
        if !app.ready.isEmpty { app.pool.wantStreams() }
    }

    /// The job at the head of the line has had its turn.
    private func leaveLine(_ index: Int, _ app: AppLane) {
        _ = app.ready.removeFirst(in: &jobs)
        if jobs[index].unsubmitted > 0 {
            // Between its turns a job with many tokens goes to the end, so that small ones need not wait.
            app.ready.append(index, in: &jobs)
        } else {
            // Nothing of it may be under way, if its tokens were none. Not before it has left the line, which goes on
            // through its entry.
            settleIfEnded(index)
        }
    }

    /// While the breaker is open, one notification at a time finds out whether the fault is gone.
    private func dispatchProbe(_ app: AppLane) {
        guard app.pool.freeStreams > 0, case .probe = app.breaker.decide(now: eventLoop.now) else { return }
        let index = app.ready.head
        let submission = submitNext(index, app: app, isProbe: true)
        if submission != .submitted { app.breaker.probeInconclusive() }
        if submission != .noStream { leaveLine(index, app) }
    }

    /// Submits the job's next notification. A token that is none ends here, but does not settle the job.
    private func submitNext(_ index: Int, app: AppLane, isProbe: Bool) -> Submission {
        guard let template = jobs[index].template else { return .noStream }
        var flight = FlightEntry(job: index)
        flight.isProbe = isProbe
        flight.providerToken = app.providerToken
        if let token = jobs[index].deviceToken {
            flight.deviceToken = token
            flight.apnsID = template.apnsID ?? APNSID(jobID: jobs[index].identity, token: token.hex)
        } else {
            var iterator = jobs[index].remaining
            guard let field = iterator?.next(), let text = jobs[index].job?.text(field) else { return .noStream }
            do throws(DeviceToken.Invalid) {
                let token = try DeviceToken(text)
                flight.deviceToken = token
                flight.apnsID = APNSID(jobID: jobs[index].identity, token: token.hex)
            } catch {
                jobs[index].remaining = iterator
                took(index, app)
                jobs[index].tally.add(dead: text, reason: "MalformedToken", status: nil)
                counters.dead += 1
                jobs[index].open -= 1
                return .malformed
            }
            let tag = flights.insert(flight)
            guard submit(tag, template, app) else {
                flights.release(tag, leaving: FlightEntry())
                return .noStream
            }
            jobs[index].remaining = iterator
            took(index, app)
            return .submitted
        }
        let tag = flights.insert(flight)
        guard submit(tag, template, app) else {
            flights.release(tag, leaving: FlightEntry())
            return .noStream
        }
        took(index, app)
        return .submitted
    }

    private func took(_ index: Int, _ app: AppLane) {
        jobs[index].unsubmitted -= 1
        app.waiting -= 1
    }

    private func submit(_ tag: Int, _ template: NotificationTemplate, _ app: AppLane) -> Bool {
        guard let token = flights[tag].deviceToken else { return false }
        guard app.pool.submit(template.notification(to: token, id: flights[tag].apnsID), tag: UInt64(tag)) else {
            return false
        }
        counters.submitted += 1
        return true
    }

    private func dispatchResends(_ app: AppLane) {
        while case let tag = app.resends.head, tag >= 0 {
            guard let template = jobs[flights[tag].job].template else { return }
            flights[tag].providerToken = app.providerToken
            guard submit(tag, template, app) else { return app.pool.wantStreams() }
            _ = app.resends.removeFirst(in: &flights)
        }
    }

    // MARK: What cannot be sent for now

    /// How long a job waits in this process for an app that takes none, before it goes back to the queue.
    private static let patience = TimeAmount.seconds(2)

    /// Puts off jobs whose app takes none, so that they do not keep the lane from others' jobs.
    func parkWhatCannotBeSent(_ app: AppLane, now: NIODeadline) {
        guard phase == .running, !app.ready.isEmpty || !app.resends.isEmpty else { return }
        let reason: String
        var delay = Int64.random(in: 2000...10_000)
        if let fault = app.breaker.reason {
            reason = fault
            if case .wait(let until) = app.breaker.peek(now: now) { delay += (until - now).nanoseconds / 1_000_000 }
        } else if app.pool.usableConnections == 0 {
            reason = "NoConnection"
        } else {
            return
        }
        while let tag = app.resends.removeFirst(in: &flights) {
            let index = flights[tag].job
            postpone(tag, reason: reason, delay: delay)
            flights.release(tag, leaving: FlightEntry())
            ended(index)
        }
        while case let index = app.ready.head, index >= 0, now - jobs[index].readySince > Self.patience {
            _ = app.ready.removeFirst(in: &jobs)
            park(index, app, reason: reason, delay: delay)
        }
    }

    /// Puts off all notifications of a job that have not been submitted, with no attempt spent.
    func park(_ index: Int, _ app: AppLane, reason: String, delay: Int64) {
        guard let job = jobs[index].job else { return }
        var tokens: [ByteBuffer] = []
        if let token = jobs[index].deviceToken {
            tokens.append(token.hex)
        } else {
            while let field = jobs[index].remaining?.next() { tokens.append(job.text(field)) }
        }
        let count = jobs[index].unsubmitted
        app.waiting -= count
        jobs[index].unsubmitted = 0
        jobs[index].open -= count
        counters.parked += count
        jobs[index].tally.add(retry: tokens, reason: reason, status: nil, delay: delay, spendsAttempt: false)
        settleIfEnded(index)
    }
}
