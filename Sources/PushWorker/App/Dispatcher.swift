import APNS
import NIOCore
import PushJob
import PushQueue

/// The way of one app's waiting notifications to requests in flight.
///
/// Belongs to the lane's event loop.
final class Dispatcher {
    /// The maximum number of notifications that are submitted for one job before another job's turn.
    private static let turn = 32
    /// The time after which a job that waits is checked for its expiration before it is submitted.
    private static let freshness = TimeAmount.seconds(1)

    private let app: AppContext
    private let lane: LaneContext
    private let ledger: Ledger
    private let fleet: Fleet
    private let faults: FaultHandler
    private let rate: AppRate
    private let waiting: WaitingNotifications

    init(_ app: AppContext, _ faults: FaultHandler, _ rate: AppRate, _ waiting: WaitingNotifications) {
        self.app = app
        lane = app.lane
        ledger = app.ledger
        fleet = app.fleet
        self.faults = faults
        self.rate = rate
        self.waiting = waiting
    }

    /// Submits all that can be submitted now.
    func dispatch() {
        guard app.credential.canSend else { return }
        let now = lane.now
        if waiting.line.isolatedCount > 0 {
            dispatchResends(in: .withFew, now: now)
            dispatchResends(in: .alone, now: now)
        }
        if app.transport.isDormant {
            // The lane dispatches again once there is a connection.
            if !waiting.line.ready.isEmpty || waiting.line.resendCount > 0 { app.transport.requestCapacity() }
            return
        }
        waiting.line.gatherResends(in: app.inFlight)
        dispatchResends(in: .shared, now: now)
        guard !waiting.line.ready.isEmpty else { return }
        faults.gate.recordConnection(isUsable: app.isConnected, now: now)
        switch faults.gate.decide(now: now) {
        case .send: dispatchReady(now: now)
        case .probe(let probe): dispatchProbe(probe, now: now)
        case .ask: faults.askForProbe()
        case .wait(.noConnection, _): app.transport.requestCapacity()
        case .wait: break
        }
    }

    private func dispatchReady(now: NIODeadline) {
        var free = min(app.transport.capacity, rate.available(now: now))
        while free > 0, let id = waiting.line.ready.removeFirst(in: lane.jobs) {
            let submission = submit(id, atMost: min(Self.turn, free), now: now)
            free -= submission.submitted
            rate.spent(submission.submitted)
            // Despite its capacity, for example because a connection was lost and the loss is not yet reported.
            if submission.isRefused { break }
        }
        guard !waiting.line.ready.isEmpty else { return }
        rate.reserve(waiting: waiting.line.unsubmitted)
        // Jobs claimed ahead will have a stream soon, even if the pace has fallen since, so they need no other
        // connection.
        if app.transport.capacity == 0, waiting.line.unsubmitted > 2 * waiting.line.pace.ahead {
            app.transport.requestCapacity()
        }
    }

    /// Submits one notification, which finds out whether an obstacle remains.
    private func dispatchProbe(_ probe: InFlight.Probe, now: NIODeadline) {
        var jobsToTry = waiting.line.ready.count
        while jobsToTry > 0, app.transport.capacity > 0, faults.gate.decide(now: now) == .probe(probe),
            let id = waiting.line.ready.removeFirst(in: lane.jobs)
        {
            jobsToTry -= 1
            if submit(id, atMost: 1, as: probe, now: now).isRefused { return }
        }
        if app.transport.capacity == 0, faults.gate.decide(now: now) == .probe(probe) {
            app.transport.requestCapacity()
        }
    }

    /// The result of an attempt to submit notifications of a job.
    private struct Submission {
        var submitted = 0
        /// True if the transport refused one. The job is then the first of the line again.
        var isRefused = false
    }

    /// Submits notifications of a job that was removed from the line.
    /// - Parameters:
    ///   - limit: the maximum number of notifications.
    ///   - probe: the question that they answer.
    private func submit(_ id: JobID, atMost limit: Int, as probe: InFlight.Probe? = nil, now: NIODeadline) -> Submission
    {
        if hasExpired(id, now: now) {
            waiting.expireUnsubmitted(id, Reason(.expired))
            return Submission()
        }
        let submission =
            lane.jobs[id].fanOut == nil ? submitOnly(id, as: probe) : submitSome(id, atMost: limit, as: probe)
        if submission.submitted > 0, let probe { faults.gate.recordProbe(probe) }
        return submission
    }

    /// Submits the notification of a job with one token, or ends the job if the app, whose configuration may have changed
    /// since, refuses it now.
    private func submitOnly(_ id: JobID, as probe: InFlight.Probe?) -> Submission {
        var submission = Submission()
        do throws(Reason) {
            var next = lane.jobs[id].notification.take()
            // An earlier refusal consumed it.
            if next == nil { next = try app.notification(ofJob: id) }
            if let notification = next.take() {
                guard submit(consume notification, of: id, token: nil, as: probe) else {
                    waiting.line.ready.prepend(id, in: lane.jobs)
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
        waiting.line.unsubmitted -= 1
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
                    let token = try app.rules.deviceToken(text)
                    if !fleet.throttles.isEmpty, let delay = waiting.throttleDelay(of: token.hex, id) {
                        waiting.deferNotification(token.hex, of: id, fanOut.job, Reason(.throttled), delay: delay)
                        ended += 1
                    } else {
                        guard submit(fanOut.notification(to: token), of: id, token: token, as: probe) else {
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
        waiting.line.unsubmitted -= submission.submitted + ended
        lane.jobs[id].unsubmitted -= submission.submitted + ended
        if submission.isRefused {
            waiting.line.ready.prepend(id, in: lane.jobs)
        } else if lane.jobs[id].unsubmitted > 0 {
            waiting.line.ready.append(id, in: lane.jobs)
        }
        ledger.close(ended, of: id)
        return submission
    }

    private func submit(
        _ notification: consuming Notification, of id: JobID, token: DeviceToken?, as probe: InFlight.Probe?
    ) -> Bool {
        let flight = app.inFlight.insert()
        app.inFlight[flight].job = id
        app.inFlight[flight].deviceToken = token
        if lane.jobs[id].isolation != .shared, probe == nil {
            // It is made again when it is its turn on a connection apart.
            app.inFlight[flight].isolation = lane.jobs[id].isolation
            waiting.line.sendAgain(flight, in: app.inFlight, now: lane.now)
            lane.schedulePump()
            return true
        }
        app.inFlight[flight].probe = probe
        stamp(&app.inFlight[flight])
        guard app.transport.submit(consume notification, tag: UInt64(flight.index), in: .shared) else {
            app.inFlight.remove(flight)
            return false
        }
        ledger.recordSubmission(of: id, isFirst: true)
        return true
    }

    private func dispatchResends(in isolation: Isolation, now: NIODeadline) {
        while let flight = waiting.line.resends[isolation.rawValue].first {
            let probe: InFlight.Probe?
            switch faults.gate.decide(resending: app.inFlight[flight].probe, now: now) {
            case .send, .wait(.noConnection, _): probe = nil
            case .probe(.ofEndpoint): probe = .ofEndpoint
            // The rest is deferred with the app's other jobs.
            case .probe(.ofApp), .ask, .wait: return
            }
            let hasExpired = hasExpired(app.inFlight[flight].job, now: now)
            guard hasExpired || app.transport.capacity(in: isolation) > 0 else {
                return app.transport.requestCapacity(in: isolation)
            }
            _ = waiting.line.resends[isolation.rawValue].removeFirst(in: app.inFlight)
            guard !hasExpired else {
                waiting.endResend(flight, as: .expired, Reason(.expired))
                continue
            }
            guard let notification = notificationToResend(flight) else { continue }
            guard app.transport.submit(notification, tag: UInt64(flight.index), in: isolation) else {
                return waiting.line.resends[isolation.rawValue].prepend(flight, in: app.inFlight)
            }
            waiting.line.isolatedMoved = now
            stamp(&app.inFlight[flight])
            if let probe {
                app.inFlight[flight].probe = probe
                faults.gate.recordProbe(probe)
            }
            ledger.recordSubmission(of: app.inFlight[flight].job, isFirst: false)
        }
    }

    /// Recreates a notification that was removed from the line, or ends it.
    private func notificationToResend(_ flight: FlightID) -> Notification? {
        do throws(Reason) {
            let again = try notification(of: flight)
            if again == nil { waiting.abandon(flight) }
            return again
        } catch {
            waiting.endResend(flight, as: .dead, error)
            return nil
        }
    }

    /// Records the credential and time of a submission.
    private func stamp(_ entry: inout InFlight) {
        entry.providerTokenIssuedAt = app.credential.providerTokenIssuedAt
        entry.key = UInt8(truncatingIfNeeded: app.credential.keyIndex)
        entry.submittedAt = lane.metrics.time()
    }

    /// Recreates a submitted notification.
    /// - Returns: `nil` if its job can't be decoded.
    /// - Throws: the reason for which the app, whose configuration may have changed, refuses it now.
    private func notification(of flight: FlightID) throws(Reason) -> Notification? {
        let id = app.inFlight[flight].job
        if let fanOut = lane.jobs[id].fanOut { return app.inFlight[flight].deviceToken.map(fanOut.notification(to:)) }
        return try app.notification(ofJob: id)
    }

    /// True if a job has expired while it waited in this process. APNs would still deliver a call, whose `apns-expiration`
    /// is 0.
    private func hasExpired(_ id: JobID, now: NIODeadline) -> Bool {
        guard now - lane.jobs[id].readySince > Self.freshness, let job = lane.jobs[id].job else { return false }
        return app.expires(id, job, within: 0)
    }
}
