import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// Records how notifications end. Only the ledger writes to the counters, metrics, results, the log and the job's tally. It settles a job
/// once the last of its notifications has ended.
final class Ledger {
    private static let suppressed = Reason(.suppressed)
    /// A job with more tokens that ends before it is split has only one result.
    private static let maximumResultsOfJob = 1000

    private let lane: LaneContext
    private let queues: [QueueContext]
    /// The outboxes of the queues, by index.
    var outboxes: [Outbox] = []
    /// The end of a notification is written after this time, even if others of its job have not ended. So a crash forgets no older ends.
    var longestUnwritten = TimeAmount.milliseconds(900)
    /// Jobs by queue that have notifications with an unwritten end and others that have not ended, with the time of the first unwritten
    /// end. The oldest is first. Most of these jobs have been settled since.
    private var unwritten: [CircularBuffer<(job: JobID, tally: JobTally, since: NIODeadline)>]
    /// True if the unwritten results of a job have reached ``Outbox/resultBytes``.
    private var hasManyResults = false
    private var log: NotificationLog
    /// The pace of notifications that end without a request: replaced, suppressed, expired, refused or cancelled. They need no stream, so
    /// the lane claims more jobs than it could send. Otherwise a lane without a connection would claim one job after another.
    var unsentPace = EndPace()
    /// The most inclusive setting among the queues.
    private let resultsKept: ResultsKept

    init(_ lane: LaneContext, queues: [QueueContext]) {
        self.lane = lane
        self.queues = queues
        unwritten = Array(repeating: CircularBuffer(), count: queues.count)
        log = NotificationLog(lane)
        let kept = queues.map(\.limits.results)
        resultsKept = kept.contains(.all) ? .all : kept.contains(.failures) ? .failures : .off
    }

    func refresh() { log.refresh() }

    /// True if records of delivered notifications include details of APNs' answer.
    var wantsAnswers: Bool { log.logsEach || resultsKept == .all }

    /// True if a notification with this outcome needs a result or a log line. Called for each notification.
    private func describes(_ outcome: Outcome) -> Bool { log.logsEach || resultsKept.includes(outcome) }

    // MARK: Notifications

    /// Records the end of a notification of an accepted job.
    /// - Parameters:
    ///   - cause: the failure of the last attempt, if it is not the reason itself.
    ///   - status: the HTTP status, or the gateway's.
    ///   - recipient: the device token or channel.
    ///   - wasSent: true if it was sent in this attempt.
    ///   - uniqueID: the `apns-unique-id` of the answer.
    func record(
        _ outcome: Outcome, _ reason: Reason? = nil, cause: Reason? = nil, status: Int? = nil, of id: JobID,
        to recipient: @autoclosure () -> ByteBuffer?, wasSent: Bool, uniqueID: APNSID? = nil,
        replacedBy: ByteBuffer? = nil
    ) {
        if wasSent {
            lane.metrics.ended(queue: lane.jobs[id].queue.index, since: lane.jobs[id].queuedSince)
        } else {
            unsentPace.recordEnd()
        }
        if outcome == .delivered {
            lane.metrics.countDelivered(lane.jobs[id].series)
        } else {
            // Expired, suppressed and cancelled notifications have one series each, because their reasons add nothing.
            let label = outcome == .expired || outcome == .suppressed || outcome == .cancelled ? nil : reason
            lane.metrics.count(.ended(outcome), lane.jobs[id].series, 1, label)
        }
        let isDescribed = describes(outcome) || lane.jobs[id].keepsResult
        let recipient = outcome == .dead || isDescribed ? recipient() : nil
        if isDescribed {
            describe(
                outcome, reason, cause: cause, status: status, of: id, to: recipient, wasSent: wasSent,
                uniqueID: uniqueID, replacedBy: replacedBy)
        }
        switch outcome {
        // A plain delivery needs no tally. If it has a result, the job has a tally already.
        case .delivered:
            guard let tally = lane.jobs[id].tally else { return }
            tally.add(.delivered)
            if lane.jobs[id].hasCampaign, let time = latency(of: id) { tally.record(latency: time) }
        case .invalidToken, .expired, .dropped, .suppressed: tally(of: id).add(outcome)
        // ``recordCancelled(_:of:_:_:)`` keeps or discards it, as the command says.
        case .cancelled: break
        case .dead:
            guard let reason else { return }
            let token = recipient ?? ByteBuffer()
            tally(of: id).add(dead: .some([token]), reason: reason, cause: cause, status: status)
            log.writeDeadLetters(
                1, reason, cause: cause, lane.jobs[id].job, token: token, app: appName(of: id),
                queues[lane.jobs[id].queue.index])
        }
    }

    /// Records that notifications of an accepted job are not sent because an operator cancelled it.
    /// - Parameter tokens: their tokens or channels, as text.
    func recordCancelled(
        _ tokens: [ByteBuffer], of id: JobID, _ target: JobCommands.Target, _ command: JobCommands.Command
    ) {
        let reason = Reason(.cancelled, detail: command.detail)
        for token in tokens {
            record(.cancelled, reason, of: id, to: token, wasSent: false)
            if command.discards {
                tally(of: id).add(.cancelled)
            } else {
                tally(of: id).add(dead: .some([token]), as: .cancelled, reason: reason)
            }
        }
        log.writeCancelled(tokens.count, target, queues[lane.jobs[id].queue.index])
    }

    /// Records that notifications of an accepted job are not sent because a newer job has its `replaces`.
    /// - Parameters:
    ///   - tokens: their tokens or channels, as text.
    ///   - other: the id of that job, or the name of its campaign.
    func recordReplaced(_ tokens: [ByteBuffer], by other: ByteBuffer, of id: JobID) {
        guard let job = lane.jobs[id].job else { return }
        let reason = Reason(replaced: job)
        for token in tokens { record(.dropped, reason, of: id, to: token, wasSent: false, replacedBy: other) }
        tally(of: id).recordSuperfluous(tokens.count, reason)
    }

    func record(invalid token: InvalidToken, _ reason: Reason, status: Int?, of id: JobID) {
        record(.invalidToken, reason, status: status, of: id, to: token.token, wasSent: true)
        tally(of: id).invalidTokens.append(token)
    }

    /// Records that a notification is not sent because its token is known to be invalid.
    func recordSuppressed(of id: JobID, to recipient: @autoclosure () -> ByteBuffer?) {
        record(.suppressed, Self.suppressed, of: id, to: recipient(), wasSent: false)
    }

    /// Records that notifications of an accepted job are returned to Redis.
    /// - Parameters:
    ///   - count: the number of notifications.
    ///   - tokens: their tokens as text; may be empty for a job with one token.
    ///   - delay: the delay in milliseconds.
    ///   - recipients: the recipients to log.
    ///   - attempt: decides if the failure spends an attempt; `nil` for the default: only a retry does.
    func record(
        _ postponement: Postponement, _ count: Int, _ reason: Reason, status: Int? = nil, tokens: [ByteBuffer],
        of id: JobID, delay: Int64, recipients: @autoclosure () -> [ByteBuffer],
        attempt: Settlement.AttemptRule? = nil
    ) {
        lane.metrics.count(.postponed(postponement), lane.jobs[id].series, count, reason)
        if log.logsEach {
            for recipient in recipients() { write(postponement, reason, status, recipient, id, delay) }
        }
        tally(of: id).add(
            postponed: .some(tokens), postponement, reason: reason, status: status, delay: delay, attempt: attempt,
            results: resultsIfLast(attempt, tokens, reason, status: status, of: id))
    }

    /// Returns the results to write if a failure spends the last attempt of notifications. Redis decides that.
    private func resultsIfLast(
        _ attempt: Settlement.AttemptRule?, _ tokens: [ByteBuffer], _ reason: Reason, status: Int?, of id: JobID
    ) -> PackedResults {
        var results = PackedResults()
        guard case .judged(_, let maximum, _) = attempt, keeps(.dead, of: id), let job = lane.jobs[id].job,
            job.envelope.attempt >= maximum
        else { return results }
        for token in tokens {
            results.append(
                result(
                    .dead, Reason(.attemptsExhausted), status: status, of: job, id, to: token, wasSent: true,
                    uniqueID: nil))
        }
        return results
    }

    /// Records that a notification is resent at once.
    func recordResent(_ reason: Reason, of id: JobID) {
        lane.metrics.count(.resent, lane.jobs[id].series, 1, reason)
    }

    /// Records that APNs may have accepted a notification that is sent again.
    func recordPossibleDuplicate(of id: JobID) {
        lane.metrics.possibleDuplicates += 1
        tally(of: id).unanswered += 1
    }

    /// Records that APNs may have accepted a notification that ends for another reason.
    func recordPossibleDelivery(of id: JobID) { tally(of: id).mayBeDelivered = true }

    /// Records that an earlier holder of the job may have sent its notifications.
    func recordPossibleDuplicates(ofReclaimed id: JobID, reclaims: Int) {
        let tally = tally(of: id)
        tally.reclaimed = lane.jobs[id].open * reclaims
        lane.metrics.possibleDuplicates += tally.reclaimed
    }

    /// Records a job whose `expiration` is a duration without a start time.
    func recordUndatedExpiration() { lane.metrics.undatedExpirations += 1 }

    /// Records the submission of a request.
    /// - Parameter isFirst: false for a resend.
    func recordSubmission(of id: JobID, isFirst: Bool) {
        lane.metrics.submitted += 1
        guard isFirst, lane.metrics.measuresTimes else { return }
        lane.metrics.submitted(queue: lane.jobs[id].queue.index, since: lane.jobs[id].queuedSince)
    }

    /// Closes notifications of a job after their ends were recorded. Closing the last one settles the job.
    func close(_ count: Int, of id: JobID) {
        lane.jobs[id].open -= count
        guard lane.jobs[id].open == 0 else { return watchUnwritten(id) }
        defer { lane.remove(id) }
        let queue = queues[lane.jobs[id].queue.index]
        guard lane.jobs[id].generation == queue.generation else {
            lane.metrics.lostClaims += 1
            return
        }
        guard !lane.jobs[id].isAbandoned else { return }
        guard lane.jobs[id].tally == nil else {
            guard let ended = ended(id) else { return }
            return outboxes[queue.id.index].settle(ended)
        }
        lane.metrics.count(.ended(.delivered), queue: queue.id.index)
        guard lane.jobs[id].hasCampaign else {
            return outboxes[queue.id.index].settleDelivered(lane.jobs[id].claim)
        }
        outboxes[queue.id.index].settleDelivered(
            lane.jobs[id].claim, campaign: lane.jobs[id].job?.campaignName, latency: latency(of: id))
    }

    /// Returns the time from enqueueing until now, in milliseconds; `nil` if it must not be measured.
    private func latency(of id: JobID) -> Int? {
        lane.metrics.latency(queue: lane.jobs[id].queue.index, since: lane.jobs[id].queuedSince)
    }

    private func watchUnwritten(_ id: JobID) {
        guard let tally = lane.jobs[id].tally, !tally.isEmpty else { return }
        // Reading the size copies the results, so it is read only if there are any.
        if tally.results.count > 0, tally.results.size >= Outbox.resultBytes { hasManyResults = true }
        guard !tally.isWatched else { return }
        tally.isWatched = true
        unwritten[lane.jobs[id].queue.index].append((id, tally, lane.now))
    }

    /// Returns the jobs whose unwritten results are so large that they must be written before the rest of the job. Redis would be busy for
    /// too long if all were written together.
    func jobsWithManyResults() -> [JobID] {
        guard hasManyResults else { return [] }
        hasManyResults = false
        return unwritten.joined().filter { next in
            lane.jobs[next.job].tally === next.tally && next.tally.results.size >= Outbox.resultBytes
                && outboxes[lane.jobs[next.job].queue.index].canSettlePart
        }.map(\.job)
    }

    /// Returns the jobs whose first unwritten end is so old that it must be written now.
    func overdueJobs() -> [JobID] {
        var jobs: [JobID] = []
        // A queue whose server is not ready must not delay the others.
        for queue in unwritten.indices where outboxes[queue].canSettlePart {
            while let next = unwritten[queue].first, lane.now - next.since >= longestUnwritten {
                unwritten[queue].removeFirst()
                // The entry may be another job's by now.
                if lane.jobs[next.job].tally === next.tally { jobs.append(next.job) }
            }
        }
        return jobs
    }

    /// Writes the ends of a job's notifications so far.
    /// - Parameter tokens: the tokens of the notifications that have not ended.
    func settlePart(of id: JobID, rest tokens: [ByteBuffer]) {
        let queue = queue(of: id)
        guard lane.jobs[id].generation == queue.generation, let fanOut = lane.jobs[id].fanOut,
            var ended = ended(id)
        else { return }
        let head = queue.headOfRest(of: lane.jobs[id], fanOut, tokens: tokens)
        let claim = outboxes[queue.id.index].claimOfRest(of: fanOut)
        ended.replacement = .rest(claim, head: head)
        outboxes[queue.id.index].settle(ended)
        fanOut.original = head.readableBytes..<head.readableBytes + fanOut.original.count
        lane.jobs[id].claim = claim
        lane.jobs[id].tally = JobTally(after: ended.tally)
    }

    func queue(of id: JobID) -> QueueContext { queues[lane.jobs[id].queue.index] }

    private func ended(_ id: JobID) -> EndedJob? {
        EndedJob(lane.jobs[id], app: appName(of: id), pushType: lane.metrics.pushType(of: lane.jobs[id].series))
    }

    private func appName(of id: JobID) -> String { lane.apps[lane.jobs[id].app.index].name }

    /// True once Redis has answered a claim of any queue.
    var knowsTime: Bool { queues.contains(where: \.knowsTime) }

    private func tally(of id: JobID) -> JobTally {
        if let tally = lane.jobs[id].tally { return tally }
        let tally = JobTally()
        lane.jobs[id].tally = tally
        return tally
    }

    // MARK: Jobs that are not sent

    /// Records the end of an unsent job, and settles it.
    func record(_ end: UnsentEnd, of unsent: UnsentJob) {
        unsentPace.recordEnd()
        let tally = JobTally()
        tally.mayBeDelivered = unsent.claimed.isRecovered
        var ended = EndedJob(unsent, tally)
        let all = JobTally.Recipients.all(count: unsent.notifications)
        switch end {
        case .dead(let reason):
            count(.ended(.dead), reason, of: unsent)
            tally.add(dead: all, reason: reason)
            tally.results = results(.dead, reason, of: unsent)
            log.writeDeadLetters(
                unsent.notifications, reason, cause: nil, unsent.job, token: unsent.job.recipient,
                app: unsent.appName, unsent.queue)
        case .expired:
            count(.ended(.expired), nil, of: unsent)
            tally.add(.expired, count: unsent.notifications)
            tally.results = results(.expired, Reason(.expired), of: unsent)
        case .cancelled(let target, let command):
            let reason = Reason(.cancelled, detail: command.detail)
            count(.ended(.cancelled), nil, of: unsent)
            if command.discards {
                tally.add(.cancelled, count: unsent.notifications)
            } else {
                tally.add(dead: all, as: .cancelled, reason: reason)
            }
            tally.results = results(.cancelled, reason, of: unsent)
            log.writeCancelled(unsent.notifications, target, unsent.queue)
        case .deferred(let reason, let delay):
            count(.postponed(.deferred), reason, of: unsent)
            tally.add(postponed: all, .deferred, reason: reason, delay: delay)
        case .scheduled(let time):
            count(.postponed(.scheduled), nil, of: unsent)
            ended.replacement = .scheduled(until: time)
        case .split(let size): ended.replacement = .pieces(size: size)
        case .duplicate: drop(unsent, Reason(.duplicate), tally)
        case .replaced(let other): drop(unsent, Reason(replaced: unsent.job), tally, replacedBy: other)
        }
        outboxes[unsent.queue.id.index].settle(ended)
    }

    private func drop(_ unsent: UnsentJob, _ reason: Reason, _ tally: JobTally, replacedBy: ByteBuffer? = nil) {
        count(.ended(.dropped), reason, of: unsent)
        tally.recordSuperfluous(unsent.notifications, reason)
        tally.add(.dropped, count: unsent.notifications)
        tally.results = results(.dropped, reason, of: unsent, replacedBy: replacedBy)
    }

    private func count(_ fate: Fate, _ reason: Reason?, of unsent: UnsentJob) {
        lane.metrics.count(
            fate, app: unsent.app?.index, queue: unsent.queue.id.index, unsent.notifications, reason)
    }

    private func results(
        _ outcome: Outcome, _ reason: Reason, of unsent: UnsentJob, replacedBy: ByteBuffer? = nil
    ) -> PackedResults {
        var results = PackedResults()
        let keeps = unsent.queue.limits.results.includes(outcome) || unsent.job.keepsResult
        guard keeps || log.logsEach else { return results }
        let job = unsent.job
        var result = NotificationResult(
            outcome, reason, of: job, app: unsent.appName, attempt: unsent.envelope.attempt - 1)
        result.replacedBy = replacedBy
        func add() {
            if keeps { results.append(result) }
            if log.logsEach { log.write(result, unsent.queue) }
        }
        if let tokens = job.tokens, tokens.count <= Self.maximumResultsOfJob {
            for token in tokens {
                result.token = DeviceToken.plain(job.text(token))
                add()
            }
        } else {
            result.token = job.recipient
            add()
        }
        return results
    }

    // MARK: Results

    private func describe(
        _ outcome: Outcome, _ reason: Reason?, cause: Reason?, status: Int?, of id: JobID, to recipient: ByteBuffer?,
        wasSent: Bool, uniqueID: APNSID?, replacedBy: ByteBuffer?
    ) {
        let keeps = keeps(outcome, of: id)
        guard keeps || log.logsEach, let job = lane.jobs[id].job else { return }
        var result = result(
            outcome, reason, status: status, of: job, id, to: recipient, wasSent: wasSent, uniqueID: uniqueID)
        result.replacedBy = replacedBy
        if keeps { tally(of: id).results.append(result) }
        if log.logsEach {
            log.write(
                result, queues[lane.jobs[id].queue.index], more: cause.map { ["cause": "\($0.code.text)"] } ?? [:])
        }
    }

    private func keeps(_ outcome: Outcome, of id: JobID) -> Bool {
        queues[lane.jobs[id].queue.index].limits.results.includes(outcome) || lane.jobs[id].keepsResult
    }

    private func result(
        _ outcome: Outcome, _ reason: Reason?, status: Int?, of job: Job, _ id: JobID, to recipient: ByteBuffer?,
        wasSent: Bool, uniqueID: APNSID?
    ) -> NotificationResult {
        let app = lane.apps[lane.jobs[id].app.index]
        var result = NotificationResult(
            outcome, reason, status: status, of: job, app: app.name,
            attempt: job.envelope.attempt - (wasSent ? 0 : 1), to: recipient)
        // The gateway's requests carry no `apns-id`.
        if wasSent, !app.usesGateway, let token = recipient {
            let own = job.tokens == nil ? job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) } : nil
            let identity = queue(of: id).identity(
                of: job, claim: lane.jobs[id].firstClaim, generation: lane.jobs[id].generation)
            result.apnsID = (own ?? APNSID(jobID: identity, token: token)).description
        }
        result.apnsUniqueID = uniqueID?.description
        return result
    }

    private func write(
        _ postponement: Postponement, _ reason: Reason, _ status: Int?, _ recipient: ByteBuffer, _ id: JobID,
        _ delay: Int64
    ) {
        guard let job = lane.jobs[id].job else { return }
        // The outcome is not used: the postponement is logged instead.
        let result = NotificationResult(
            .dropped, reason, status: status, of: job, app: appName(of: id),
            attempt: job.envelope.attempt, to: recipient)
        log.write(
            result, queues[lane.jobs[id].queue.index], outcome: postponement.rawValue,
            more: ["retry_in_ms": "\(delay)"])
    }
}
