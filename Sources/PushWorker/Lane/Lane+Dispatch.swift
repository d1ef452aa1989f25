import APNS
import NIOCore
import PushQueue

/// From what waits to what is under way.
extension Lane {
    /// Notifications of one job that are submitted before another job has its turn.
    private static let turn = 32

    func dispatch(_ app: AppLane) {
        guard app.canSend else { return }
        dispatchResends(app)
        guard !app.ready.isEmpty else { return }
        if app.breaker.isOpen { return dispatchProbe(app) }
        var free = min(app.transport.capacity, budget(of: app))
        while free > 0, let index = app.ready.removeFirst(in: jobs) {
            if jobs[index].fanOut == nil {
                guard submitOnly(index, app, isProbe: false) else { return app.ready.prepend(index, in: jobs) }
                free -= 1
                app.budget?.spent(1)
            } else {
                let submitted = submitSome(index, app, atMost: min(Self.turn, free), isProbe: false)
                // Where none was taken although there seemed to be room, a connection has gone that nobody has told of yet.
                free = submitted > 0 ? free - submitted : min(free, app.transport.capacity)
                app.budget?.spent(submitted)
            }
        }
        guard !app.ready.isEmpty else { return }
        if app.budget != nil { reserveRate(app) }
        if app.transport.capacity == 0 { app.transport.requestCapacity() }
    }

    /// While the breaker is open, one notification at a time finds out whether the fault is gone.
    private func dispatchProbe(_ app: AppLane) {
        askForProbe(app)
        var jobsToTry = app.ready.count
        while jobsToTry > 0, app.transport.capacity > 0, case .probe = app.breaker.decide(now: eventLoop.now),
            let index = app.ready.removeFirst(in: jobs)
        {
            jobsToTry -= 1
            if jobs[index].fanOut == nil {
                guard submitOnly(index, app, isProbe: true) else { return app.ready.prepend(index, in: jobs) }
                app.breaker.probeSent()
            } else if submitSome(index, app, atMost: 1, isProbe: true) > 0 {
                app.breaker.probeSent()
            }
        }
    }

    /// Submits the notification of a job with one token.
    /// - Returns: `false` where no stream was free.
    private func submitOnly(_ index: Int, _ app: AppLane, isProbe: Bool) -> Bool {
        guard let notification = jobs[index].notification.take() else { return false }
        guard submit(consume notification, of: index, token: nil, app, isProbe: isProbe) else {
            jobs[index].notification = remade(index)
            return false
        }
        jobs[index].unsubmitted = 0
        app.waiting -= 1
        return true
    }

    /// Submits some notifications of a job with many tokens. A token that is none ends here. If some are left, the job goes
    /// to the end of the line, so that small ones need not wait for its end.
    /// - Returns: how many were submitted.
    private func submitSome(_ index: Int, _ app: AppLane, atMost limit: Int, isProbe: Bool) -> Int {
        guard let fanOut = jobs[index].fanOut else { return 0 }
        var submitted = 0
        var ended = 0
        while submitted < limit {
            var remaining = fanOut.remaining
            guard let field = remaining.next() else { break }
            if !fanOut.suppressed.isEmpty, fanOut.suppressed.contains(fanOut.position) {
                counters.suppressed += 1
                count(.suppressed, of: index, reason: "")
                tell(
                    .invalidToken, reason: Self.suppressed, to: Self.plain(fanOut.job.text(field)), of: index,
                    wasSent: false)
                tally(of: index).suppressed += 1
                ended += 1
                fanOut.remaining = remaining
                fanOut.position += 1
                continue
            }
            let text = fanOut.job.text(field)
            do throws(DeviceToken.Invalid) {
                let token = try router.deviceToken(text, app: jobs[index].app)
                if !throttles.isEmpty, putsOff(token.hex, of: index) {
                    ended += 1
                    fanOut.remaining = remaining
                    fanOut.position += 1
                    continue
                }
                let notification = fanOut.notification(to: token)
                guard submit(notification, of: index, token: token, app, isProbe: isProbe) else { break }
                submitted += 1
            } catch {
                die(text, of: index, reason: "MalformedToken", status: nil, wasSent: false)
                ended += 1
            }
            fanOut.remaining = remaining
            fanOut.position += 1
        }
        app.waiting -= submitted + ended
        jobs[index].unsubmitted -= submitted + ended
        jobs[index].open -= ended
        if jobs[index].unsubmitted > 0 { app.ready.append(index, in: jobs) }
        settleIfEnded(index)
        return submitted
    }

    private func submit(
        _ notification: consuming Notification, of index: Int, token: DeviceToken?, _ app: AppLane, isProbe: Bool
    ) -> Bool {
        var flight = FlightEntry(job: index)
        flight.deviceToken = token
        flight.isProbe = isProbe
        flight.providerTokenIssuedAt = app.providerTokenIssuedAt
        flight.key = UInt8(truncatingIfNeeded: app.keyIndex)
        if metrics.takesTimes { flight.submittedAt = metrics.time() }
        let tag = flights.insert(flight)
        guard app.transport.submit(consume notification, tag: UInt64(tag)) else {
            flights.release(tag)
            return false
        }
        counters.submitted += 1
        noteSubmission(of: index)
        return true
    }

    private func dispatchResends(_ app: AppLane) {
        app.gatherResends(in: flights)
        while case let tag = app.resends.head, tag >= 0 {
            // What is left is put off with the app's other jobs.
            guard app.breaker.allows(isProbe: flights[tag].isProbe) else { return }
            guard let notification = notification(of: tag), app.transport.submit(notification, tag: UInt64(tag)) else {
                return app.transport.requestCapacity()
            }
            flights[tag].providerTokenIssuedAt = app.providerTokenIssuedAt
            flights[tag].key = UInt8(truncatingIfNeeded: app.keyIndex)
            if metrics.takesTimes { flights[tag].submittedAt = metrics.time() }
            counters.submitted += 1
            _ = app.resends.removeFirst(in: flights)
        }
    }

    /// A notification that was submitted before, made again.
    private func notification(of tag: Int) -> Notification? {
        let index = flights[tag].job
        if let fanOut = jobs[index].fanOut { return flights[tag].deviceToken.map(fanOut.notification(to:)) }
        return remade(index)
    }

    /// The notification of a job with one token, made again from what was claimed: the pool keeps what it is given.
    func remade(_ index: Int) -> Notification? {
        guard let job = jobs[index].job else { return nil }
        return try? router.notification(
            for: job, app: jobs[index].app,
            identity: identity(
                of: job, claim: jobs[index].claim, in: queues[jobs[index].queue], generation: jobs[index].generation),
            firstSeen: jobs[index].firstSeen)
    }

    // MARK: What cannot be sent for now

    /// Why a job of a paused app is put off. What paused the app is in Redis and in the log.
    static let appPaused = "AppPaused"

    /// How long a job waits in this process for an app that takes none, before it goes back to the queue.
    private static let patience = TimeAmount.seconds(2)

    /// Puts off jobs whose app takes none, so that they do not keep the lane from others' jobs.
    func parkWhatCannotBeSent(_ app: AppLane, now: NIODeadline) {
        app.unconnectedSince = app.transport.usableConnections == 0 ? app.unconnectedSince ?? now : nil
        app.gatherResends(in: flights)
        guard phase == .running, !app.ready.isEmpty || !app.resends.isEmpty else { return }
        let reason: String
        var delay = Int64.random(in: 2000...10_000)
        if app.breaker.isOpen {
            reason = Self.appPaused
            delay = breakerDelay(app)
        } else if let since = app.unconnectedSince, now - since > Self.patience {
            // Not sooner: after a GOAWAY there is another connection within a moment, which what is left can wait for.
            reason = "NoConnection"
        } else {
            return
        }
        while let tag = app.resends.removeFirst(in: flights) {
            let index = flights[tag].job
            if flights[tag].isProbe { app.breaker.probeInconclusive(now: now) }
            if !throttles.isEmpty { throttles.ended(token(of: tag), now: queues[jobs[index].queue].now) }
            postpone(tag, reason: reason, delay: delay)
            flights.release(tag)
            ended(index)
        }
        while case let index = app.ready.head, index >= 0, now - jobs[index].readySince > Self.patience {
            _ = app.ready.removeFirst(in: jobs)
            park(index, app, reason: reason, delay: delay)
        }
    }

    /// Puts off all notifications of a job that have not been submitted, with no attempt spent; or ends them, if they would
    /// expire meanwhile.
    func park(_ index: Int, _ app: AppLane, reason: String, delay: Int64) {
        let count = jobs[index].unsubmitted
        app.waiting -= count
        jobs[index].notification = nil
        jobs[index].unsubmitted = 0
        jobs[index].open -= count
        var tokens: [ByteBuffer] = []
        if let fanOut = jobs[index].fanOut {
            while let field = fanOut.remaining.next() { tokens.append(fanOut.job.text(field)) }
        }
        func recipients() -> [ByteBuffer] {
            guard jobs[index].fanOut == nil else { return tokens.map(Self.plain) }
            return jobs[index].job.flatMap(Self.recipient).map { [$0] } ?? []
        }
        if let job = jobs[index].job, !expires(index, job, within: delay) {
            counters.parked += count
            self.count(.parked, of: index, count, reason: reason)
            if endings.areLogged {
                for recipient in recipients() {
                    tellPutOff("parked", reason: reason, status: nil, to: recipient, of: index, delay: delay)
                }
            }
            tally(of: index).add(retry: tokens, reason: reason, status: nil, delay: delay, spendsAttempt: false)
        } else {
            expire(count, of: index, reason: reason, to: recipients(), wasSent: false)
        }
        settleIfEnded(index)
    }
}
