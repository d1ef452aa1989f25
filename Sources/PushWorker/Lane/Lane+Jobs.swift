import APNS
import NIOCore
import PushJob
import PushQueue

/// From a claimed body to notifications: decode, route, check. What cannot be sent ends here, with its reason.
extension Lane {
    /// A job with more tokens is split.
    private static let maximumTokens = 1000

    /// - Parameter isRecovered: whether the job may have been sent before, under the same claim.
    func accept(_ body: ByteBuffer, claim: ClaimID, from queue: QueueLane, isRecovered: Bool = false) {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: queue.format)
        } catch {
            let envelope = Envelope.read(body)
            counters.dead += 1
            count(.dead, .dead, nil, in: queue, reason: error.reason)
            queue.settlement.bury(
                claim, reason: error.reason, attempts: envelope.attempt - 1,
                members: DeadLetter.members(of: envelope, in: body, detail: "\(error)"), original: envelope.original)
            queue.settlement.addResults(resultsOfUnsent(nil, envelope, .dead, reason: error.reason, in: queue))
            tellOfDeadLetters(1, reason: error.reason, detail: "\(error)", nil, token: nil, app: nil, queue)
            return queue.settlementGrew()
        }
        do throws(Unsendable) {
            try accept(job, body, claim: claim, from: queue, isRecovered: isRecovered)
        } catch {
            bury(job, claim: claim, in: queue, reason: error.reason, detail: error.detail)
        }
    }

    private func accept(
        _ job: Job, _ body: ByteBuffer, claim: ClaimID, from queue: QueueLane, isRecovered: Bool
    ) throws(Unsendable) {
        let now = queue.now
        if var reservation = Reservation(of: job, claim: claim) {
            if queue.limits.results != .off {
                reservation.results = resultsOfUnsent(
                    job, job.envelope, .dropped, reason: Self.duplicate, in: queue, isCertain: false)
            }
            return queue.reserve(reservation, isRecovered: isRecovered)
        }
        if let sendAt = job.sendAt, sendAt > now { return hold(job, claim: claim, in: queue, until: sendAt) }
        var entry = JobEntry(claim: claim, body: body)
        entry.isSidekiq = queue.isSidekiq
        entry.queue = queue.index
        entry.generation = queue.generation
        entry.firstSeen = job.envelope.enqueued ?? now
        if let expiration = job.expirationSecond(firstSeen: entry.firstSeen), expiration > 0, expiration * 1000 <= now {
            counters.expired += job.tokenCount
            count(.expired, .expired, job, in: queue, reason: "")
            let results = resultsOfUnsent(job, job.envelope, .expired, reason: "Expired", in: queue)
            if job.tokenCount == 1 {
                queue.settlement.end(claim, .expired, results: results)
            } else {
                queue.settlement.end(claim, .expired, notifications: job.tokenCount)
                queue.settlement.addResults(results)
            }
            return queue.settlementGrew()
        }
        entry.app = try router.route(job)
        if job.tokenCount > Self.maximumTokens {
            return split(job, claim: claim, in: queue, firstSeen: entry.firstSeen)
        }
        entry.namesTopic = job.topic != nil
        entry.isOnChannel = job.channel != nil
        entry.readySince = eventLoop.now
        entry.open = job.tokenCount
        entry.unsubmitted = entry.open
        let app = apps[entry.app]
        let identity = identity(of: job, claim: claim, in: queue)
        let notification = try router.notification(
            for: job, app: entry.app, identity: identity, firstSeen: entry.firstSeen)
        prepareMetrics(of: &entry, job, notification.pushType, in: queue)
        if let tokens = job.tokens {
            entry.fanOut = FanOut(template: notification, identity: identity, job: job, tokens: tokens)
            entry.tally = JobTally()
        } else {
            entry.notification = notification
        }
        let predecessors = job.envelope.reclaims + (isRecovered ? 1 : 0)
        if predecessors > 0 {
            let tally = entry.tally ?? JobTally()
            tally.reclaimed = entry.open * predecessors
            counters.possibleDuplicates += tally.reclaimed
            entry.tally = tally
        }
        app.waiting += entry.open
        let index = jobs.insert(entry)
        // Unless there is no token, or it is known that none is invalid.
        if invalidTokenCount == 0 || job.channel != nil { makeReady(index) } else { toLookUp.append(index) }
    }

    /// Puts a job in the line of its app.
    func makeReady(_ index: Int) {
        let app = apps[jobs[index].app]
        // Jobs of a paused app must not fill the lane; one is kept where it may soon find out whether the pause is over.
        if app.breaker.isOpen, !app.ready.isEmpty || !app.breaker.wantsProbe(now: eventLoop.now) {
            return park(index, app, reason: Self.appPaused, delay: breakerDelay(app))
        }
        if !throttles.isEmpty, let delay = throttleDelay(of: index) {
            return park(index, app, reason: Self.throttled, delay: delay)
        }
        if app.budget != nil, let delay = rateDelay(of: index, app) {
            return park(index, app, reason: Self.rateLimited, delay: delay)
        }
        app.ready.append(index, in: jobs)
    }

    /// Replaces a job for many devices by pieces: so it spreads over the fleet, and a crash or a retry concerns a piece.
    private func split(_ job: Job, claim: ClaimID, in queue: QueueLane, firstSeen: Int64) {
        metrics.count(.split, queue: queue.index)
        let writer = envelope(
            of: job, claim: claim, in: queue, attempt: job.envelope.attempt, firstSeen: firstSeen, namesClaim: false)
        queue.settlement.split(
            claim, prefix: writer.prefix(), pieces: job.tokenPieces(of: Self.maximumTokens), cut: job.tokensMember,
            original: job.original, text: job.isRewritten ? job.body : nil)
        // The pieces are due as soon as this is written, and for every lane.
        queue.flushSettlement()
        queue.window.wake()
        onBacklog?(queue.index)
    }

    /// A job that must not be sent yet waits among the retries.
    private func hold(_ job: Job, claim: ClaimID, in queue: QueueLane, until time: Int64) {
        counters.scheduled += 1
        count(.scheduled, .scheduled, job, in: queue, reason: "")
        var writer = envelope(of: job, claim: claim, in: queue, attempt: job.envelope.attempt, firstSeen: queue.now)
        if job.envelope.overridesTokens, let tokens = job.tokens { writer.write(tokens: tokens.map(job.text)) }
        queue.retries(in: time - queue.now)
        queue.settlement.retry(
            claim, due: .at(milliseconds: time), head: writer.head(), counter: "scheduled", reason: nil,
            original: job.original)
        queue.settlementGrew()
    }

    /// What `apns-id`s are derived from: the job's id or, for a job without one, its first claim.
    /// - Parameter generation: that in which it was claimed; the queue's own without it.
    func identity(of job: Job, claim: ClaimID, in queue: QueueLane, generation: Int? = nil) -> ByteBuffer {
        if let id = job.id ?? job.envelope.origin { return job.text(id) }
        let worker = generation.map { queue.name($0) } ?? queue.worker
        return ByteBuffer(string: "\(worker):\(claim)")
    }

    /// The head of the wrapper for the next attempt.
    func envelope(
        of job: Job, claim: ClaimID, in queue: QueueLane, attempt: Int, firstSeen: Int64, namesClaim: Bool = true
    ) -> EnvelopeWriter {
        var writer = EnvelopeWriter(attempt: attempt)
        if let id = job.id {
            writer.write(id: job.text(id))
        } else {
            writer.write(origin: identity(of: job, claim: claim, in: queue))
        }
        writer.write(enqueued: firstSeen)
        writer.write(reserved: job.envelope.isReserved)
        writer.write(requeues: job.envelope.requeues)
        // Makes the wrapped job unlike any other: equal members of a sorted set would be one.
        if namesClaim { writer.write(claim: ByteBuffer(string: "\(queue.worker):\(claim)")) }
        return writer
    }

    private func bury(_ job: Job, claim: ClaimID, in queue: QueueLane, reason: String, detail: String) {
        counters.dead += job.tokenCount
        count(.dead, .dead, job, in: queue, reason: reason)
        queue.settlement.bury(
            claim, reason: reason, attempts: job.envelope.attempt - 1,
            members: DeadLetter.members(
                job: job, firstSeen: job.envelope.enqueued ?? queue.now, detail: detail,
                tokens: job.envelope.tokens(in: job.body)), original: job.original)
        if job.tokenCount > 1 {
            queue.settlement.addCount("dead", job.tokenCount - 1)
            queue.settlement.addCount("dead:\(reason)", job.tokenCount - 1)
        }
        queue.settlement.addResults(resultsOfUnsent(job, job.envelope, .dead, reason: reason, in: queue))
        tellOfDeadLetters(
            job.tokenCount, reason: reason, detail: detail, job, token: Self.recipient(of: job),
            app: appName(of: job), queue)
        queue.settlementGrew()
    }
}
