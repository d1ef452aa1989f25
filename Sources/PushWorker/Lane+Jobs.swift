import APNS
import NIOCore
import PushQueue

/// From a claimed body to notifications: decode, route, check. What cannot be sent ends here, with its reason.
extension Lane {
    /// A job with more tokens is split.
    private static let maximumTokens = 1000

    /// - Parameter isRecovered: whether the job may have been sent before, under the same claim.
    func accept(_ body: ByteBuffer, claim: Int, from queue: QueueLane, isRecovered: Bool = false) {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body)
        } catch {
            let envelope = Envelope.read(body)
            counters.dead += 1
            queue.settlement.bury(
                claim, reason: error.reason, attempts: envelope.attempt - 1,
                members: DeadLetter.members(detail: "\(error)"), original: envelope.original)
            return queue.settlementGrew()
        }
        do throws(Unsendable) {
            try accept(job, claim: claim, from: queue, isRecovered: isRecovered)
        } catch {
            bury(job, claim: claim, in: queue, reason: error.reason, detail: error.detail)
        }
    }

    private func accept(_ job: Job, claim: Int, from queue: QueueLane, isRecovered: Bool) throws(Unsendable) {
        let now = queue.now
        if let reservation = Reservation(of: job, claim: claim) {
            return queue.reserve(reservation, isRecovered: isRecovered)
        }
        if let sendAt = job.sendAt, sendAt > now { return hold(job, claim: claim, in: queue, until: sendAt) }
        var entry = JobEntry(claim: claim, body: job.body)
        entry.queue = queue.index
        entry.generation = queue.generation
        entry.firstSeen = job.envelope.enqueued ?? now
        if let expiration = job.expirationSecond(firstSeen: entry.firstSeen), expiration > 0, expiration * 1000 <= now {
            counters.expired += job.tokenCount
            queue.settlement.end(claim, .expired, notifications: job.tokenCount)
            return queue.settlementGrew()
        }
        entry.app = try route(job)
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
        let notification = try notification(for: job, app: app, identity: identity, firstSeen: entry.firstSeen)
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
    private func split(_ job: Job, claim: Int, in queue: QueueLane, firstSeen: Int64) {
        let writer = envelope(
            of: job, claim: claim, in: queue, attempt: job.envelope.attempt, firstSeen: firstSeen, namesClaim: false)
        queue.settlement.split(
            claim, prefix: writer.prefix(), pieces: job.tokenPieces(of: Self.maximumTokens), cut: job.tokensMember,
            original: job.original)
        // The pieces are due as soon as this is written, and for every lane.
        queue.flushSettlement()
        queue.window.wake()
        onBacklog?(queue.index)
    }

    /// A job that must not be sent yet waits among the retries.
    private func hold(_ job: Job, claim: Int, in queue: QueueLane, until time: Int64) {
        counters.scheduled += 1
        var writer = envelope(of: job, claim: claim, in: queue, attempt: job.envelope.attempt, firstSeen: queue.now)
        if job.envelope.overridesTokens, let tokens = job.tokens { writer.write(tokens: tokens.map(job.text)) }
        queue.settlement.retry(
            claim, due: .at(milliseconds: time), head: writer.head(), counter: "scheduled", reason: nil,
            original: job.original)
        queue.settlementGrew()
    }

    private func route(_ job: Job) throws(Unsendable) -> Int {
        if let field = job.app {
            let name = job.text(field)
            guard let index = apps.firstIndex(where: { $0.name == name }) else {
                throw Unsendable(
                    reason: "UnknownApp", detail: "this worker has no app of the name that the job's `app` gives")
            }
            return index
        }
        if apps.count == 1 { return 0 }
        guard let field = job.topic else {
            throw Unsendable(
                reason: "NoApp", detail: "the job has neither `app` nor `topic`, and there are several apps")
        }
        let topic = job.text(field)
        guard let index = apps.firstIndex(where: { $0.hasTopic(topic) }) else {
            throw Unsendable(reason: "UnknownApp", detail: "this worker has no app with the job's `topic`")
        }
        return index
    }

    /// The notification of a job with one token, or what the notifications of a job with many share.
    func notification(
        for job: Job, app: AppLane, identity: ByteBuffer, firstSeen: Int64
    ) throws(Unsendable) -> Notification {
        let isOnChannel = job.channel != nil
        let pushType = try pushType(of: job)
        let given = job.priority.map(UInt8.init(clamping:))
        let payload = try payload(of: job, limit: NotificationRules.sizeLimit(pushType, isOnChannel: isOnChannel))
        if let refusal = NotificationRules.refusal(
            pushType, isInferred: job.pushType == nil, priority: given, isOnChannel: isOnChannel, payload: payload)
        {
            throw refusal
        }
        var notification = Notification(
            deviceToken: .none, payload: payload,
            topic: job.topic.map { pushType.topic(job.text($0)) } ?? app.topic(for: pushType), pushType: pushType,
            priority: NotificationRules.priority(given, pushType, isOnChannel: isOnChannel),
            expiration: NotificationRules.expiration(
                job.expirationSecond(firstSeen: firstSeen), isOnChannel: isOnChannel),
            collapseID: job.collapseID.map(job.text))
        if job.collapsesDuplicates, notification.collapseID == nil {
            // The same for all devices, and for all times that it is sent.
            notification.collapseID = ByteBuffer(
                string: APNSID(jobID: identity, token: ByteBuffer(string: "collapse")).description)
        }
        if let field = job.token, job.tokens == nil {
            do throws(DeviceToken.Invalid) {
                notification.deviceToken = try DeviceToken(job.text(field))
            } catch {
                throw Unsendable(reason: "MalformedToken", detail: "\(error)")
            }
            notification.apnsID =
                job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) }
                ?? APNSID(jobID: identity, token: notification.deviceToken.hex)
        }
        if let field = job.channel { try address(&notification, of: job, to: job.text(field), identity) }
        return notification
    }

    private func address(
        _ notification: inout Notification, of job: Job, to channelID: ByteBuffer, _ identity: ByteBuffer
    ) throws(Unsendable) {
        do throws(BroadcastTarget.Invalid) {
            notification.broadcast = try BroadcastTarget(channelID: channelID, topic: notification.topic)
        } catch {
            throw Unsendable(reason: error.reason.rawValue, detail: "\(error)")
        }
        notification.apnsID =
            job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) }
            ?? APNSID(jobID: identity, token: channelID)
    }

    private func payload(of job: Job, limit: Int) throws(Unsendable) -> ByteBuffer {
        guard job.makesPayload else { return job.bytes(job.payload) }
        do throws(JobError) {
            return try job.payload(limit: limit)
        } catch {
            throw Unsendable(reason: error.reason, detail: "\(error)")
        }
    }

    private func pushType(of job: Job) throws(Unsendable) -> PushType {
        guard let field = job.pushType else { return .inferred(for: job) }
        let text = job.text(field)
        guard let type = text.withUnsafeReadableBytes({ PushType(bytes: $0) }) else {
            let known = PushType.allCases.map(\.rawValue).joined(separator: ", ")
            throw Unsendable(
                reason: Reason.invalidPushType.rawValue, detail: "the job's `push_type` is none of \(known)")
        }
        return type
    }

    /// What `apns-id`s are derived from: the job's id or, for a job without one, its first claim.
    /// - Parameter generation: that in which it was claimed; the queue's own without it.
    func identity(of job: Job, claim: Int, in queue: QueueLane, generation: Int? = nil) -> ByteBuffer {
        if let id = job.id ?? job.envelope.origin { return job.text(id) }
        let worker = generation.map { queue.name($0) } ?? queue.worker
        return ByteBuffer(string: "\(worker):\(claim)")
    }

    /// The head of the wrapper for the next attempt.
    func envelope(
        of job: Job, claim: Int, in queue: QueueLane, attempt: Int, firstSeen: Int64, namesClaim: Bool = true
    ) -> EnvelopeWriter {
        var writer = EnvelopeWriter(attempt: attempt)
        if let id = job.id {
            writer.write(id: job.text(id))
        } else {
            writer.write(origin: identity(of: job, claim: claim, in: queue))
        }
        writer.write(enqueued: firstSeen)
        writer.write(reserved: job.envelope.isReserved)
        // Makes the wrapped job unlike any other: equal members of a sorted set would be one.
        if namesClaim { writer.write(claim: ByteBuffer(string: "\(queue.worker):\(claim)")) }
        return writer
    }

    private func bury(_ job: Job, claim: Int, in queue: QueueLane, reason: String, detail: String) {
        counters.dead += job.tokenCount
        queue.settlement.bury(
            claim, reason: reason, attempts: job.envelope.attempt - 1,
            members: DeadLetter.members(job: job, detail: detail), original: job.original)
        if job.tokenCount > 1 {
            queue.settlement.addCount("dead", job.tokenCount - 1)
            queue.settlement.addCount("dead:\(reason)", job.tokenCount - 1)
        }
        queue.settlementGrew()
    }
}

/// Why a job that is well-formed cannot be sent.
struct Unsendable: Error {
    var reason: String
    var detail: String
}

extension Job {
    /// `apns-expiration` in seconds since 1970; `nil` where the job does not say.
    func expirationSecond(firstSeen: Int64) -> Int64? {
        switch expiration {
        case nil: nil
        case .epoch(let second): second
        case .after(let seconds): (enqueuedAt ?? firstSeen) / 1000 + seconds
        }
    }
}
