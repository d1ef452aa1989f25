import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// Records how the notifications of a queue's jobs end, and settles the jobs in Redis. Only the ledger writes an end to the metrics,
/// results, log and tally.
///
/// A job is settled once the last of its notifications has ended. Settlements are collected into batches, written after the invalid tokens
/// of their jobs, and written again until Redis confirms them.
final class Ledger {
    /// A job with more tokens that ends before it is split has only one result.
    private static let maximumResultsOfJob = 1000
    /// A batch with this number of claims is written.
    static let batch = 256
    /// A batch, or a part of a job, with this many bytes of results is written. Results of 1,000 tokens have about half as many bytes.
    static let resultBytes = 1 << 18
    /// A batch with this many bytes of copied jobs is written, because its script blocks Redis for some milliseconds.
    private static let batchBytes = 1 << 20
    /// A batch is written this long after its first job. A busy lane claims earlier, and writes the batch with the claim.
    private static let batchDelay = TimeAmount.milliseconds(20)
    /// The maximum number of invalid tokens per write. The last job may exceed it, because the tokens of one job are not divided.
    private static let tokensBatch = 2000
    /// The lane claims no more jobs of the queue while this number of settlements is unconfirmed.
    private static let maximumUnconfirmed = 10_000
    /// The lane claims no more jobs while unconfirmed settlements have this many bytes. Many retried tokens make a settlement large.
    private static let maximumUnconfirmedSize = 64 << 20
    /// The interval between settlements that include the lane's counts for the history.
    private static let countsInterval = TimeAmount.seconds(1)

    let link: QueueLink
    let queue: QueueContext
    private let lane: LaneContext
    private let kept: ResultsKept
    private var log: NotificationLog
    /// The end of a notification is written after this time, even if others of its job have not ended. A crash loses only newer ends.
    var longestUnwritten = TimeAmount.milliseconds(900)
    /// Jobs with notifications that have ended but are not written, and the time of the first such end; the oldest is first. Most of these
    /// jobs have been settled since they were added.
    private var unwritten = CircularBuffer<(job: JobID, tally: JobTally, since: NIODeadline)>()
    /// True if the unwritten results of a job have reached ``resultBytes``.
    private var hasManyResults = false
    /// The pace of notifications that end without a request: replaced, suppressed, expired, refused or cancelled. They need no stream, so
    /// the lane claims more jobs than it could send. Otherwise a lane without a connection would claim one job after another.
    var unsentPace = EndPace()
    /// The settlements to write next.
    private var settlement = Settlement()
    private var unconfirmed = UnconfirmedSettlements()
    private let flushSoon: SoonTask
    /// The latest time to write the current batch.
    private var flushAt = NIODeadline.distantFuture
    /// The due time of the first retry in ``settlement``.
    private var nextRetry = NIODeadline.distantFuture
    /// The number of settled parts of jobs, which numbers the claims of the remaining notifications. After a rollback of Redis, a job is
    /// processed again under an old claim, and its new parts must not have the numbers of the old parts.
    private var parts = 0
    /// Ended jobs that are settled after their invalid tokens are in the set, and later parts of these jobs.
    private var awaitingTokens: [EndedJob] = []
    /// Ended jobs whose invalid tokens are being written.
    private var writingTokens: [EndedJob] = []
    /// Parts of jobs that wait until the settlement of an earlier part is confirmed. That settlement creates the claim that these parts
    /// end. If both were in flight, Redis could refuse the first and execute the second.
    private var awaitingPart: [EndedJob] = []
    /// The earliest time to write invalid tokens again after Redis has refused them.
    private var tokensNotBefore = NIODeadline.distantPast
    /// The time of the last write of the counts for the history.
    private var countsWrittenAt = NIODeadline.distantPast
    /// The time of the last reading of the counts.
    private var countsReadAt = NIODeadline.distantPast
    /// The campaigns that their guards have paused in this queue, until the lane takes them.
    private var stopped: [StoppedCampaign] = []

    init(_ link: QueueLink) {
        (self.link, queue, lane) = (link, link.queue, link.lane)
        kept = queue.limits.results
        log = NotificationLog(lane, queue)
        flushSoon = SoonTask(lane.eventLoop)
    }

    func refresh() { log.refresh() }

    /// True if records of delivered notifications include details of APNs' answer.
    var wantsAnswers: Bool { log.logsEach || kept == .all }

    private func keeps(_ outcome: Outcome, of id: JobID) -> Bool { kept.includes(outcome) || lane.jobs[id].keepsResult }

    // MARK: Notifications

    /// Records the end of a notification of an accepted job.
    /// - Parameters:
    ///   - cause: the failure of the last attempt, if it is not the reason itself.
    ///   - status: the HTTP status, or the status of the gateway.
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
        let keeps = keeps(outcome, of: id)
        let isDescribed = keeps || log.logsEach
        let recipient = outcome == .dead || isDescribed ? recipient() : nil
        if isDescribed {
            describe(
                outcome, reason, cause: cause, status: status, of: id, to: recipient, wasSent: wasSent,
                uniqueID: uniqueID, replacedBy: replacedBy, keeps: keeps)
        }
        switch outcome {
        // A plain delivery needs no tally. If it has a result, the job has a tally already.
        case .delivered:
            guard let tally = lane.jobs[id].tally else { return }
            tally.add(.delivered)
            if lane.jobs[id].hasCampaign, let time = latency(of: id) { tally.record(latency: time) }
        case .invalidToken, .expired, .dropped, .suppressed: tally(of: id).add(outcome)
        // ``recordCancelled(_:of:_:_:)`` keeps or discards the notification, as the command says.
        case .cancelled: break
        case .dead:
            guard let reason else { return }
            let token = recipient ?? ByteBuffer()
            tally(of: id).add(dead: .some([token]), reason: reason, cause: cause, status: status)
            log.writeDeadLetters(1, reason, cause: cause, lane.jobs[id].job, token: token, app: appName(of: id))
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
        log.writeCancelled(tokens.count, target)
    }

    /// Records that notifications of an accepted job are not sent because a newer job has its `replaces`.
    /// - Parameters:
    ///   - tokens: their tokens or channels, as text.
    ///   - other: the id of the newer job, or the name of its campaign.
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
        record(.suppressed, Reason(.suppressed), of: id, to: recipient(), wasSent: false)
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

    // MARK: Jobs

    /// Closes notifications of a job after their ends were recorded. Closing the last one settles the job.
    func close(_ count: Int, of id: JobID) {
        lane.jobs[id].open -= count
        guard lane.jobs[id].open == 0 else { return watchUnwritten(id) }
        defer { lane.remove(id) }
        guard lane.jobs[id].generation == queue.generation else {
            lane.metrics.lostClaims += 1
            return
        }
        guard !lane.jobs[id].isAbandoned else { return }
        guard lane.jobs[id].tally == nil else {
            if let ended = ended(id) { settle(ended) }
            return
        }
        lane.metrics.count(.ended(.delivered), queue: queue.id.index)
        if lane.jobs[id].hasCampaign {
            settlement.use(campaign: lane.jobs[id].job?.campaignName)
            if let latency = latency(of: id) { settlement.addLatency(latency) }
        } else {
            settlement.use(campaign: nil)
        }
        settlement.end(lane.jobs[id].claim, .delivered)
        flushIfFull()
    }

    /// Returns the time from enqueueing until now, in milliseconds; `nil` if it must not be measured.
    private func latency(of id: JobID) -> Int? {
        lane.metrics.latency(queue: lane.jobs[id].queue.index, since: lane.jobs[id].queuedSince)
    }

    private func watchUnwritten(_ id: JobID) {
        guard let tally = lane.jobs[id].tally, !tally.isEmpty else { return }
        // Reading the size copies the results, so it is read only if there are any.
        if tally.results.count > 0, tally.results.size >= Self.resultBytes { hasManyResults = true }
        guard !tally.isWatched else { return }
        tally.isWatched = true
        unwritten.append((id, tally, lane.now))
    }

    /// Returns the jobs whose unwritten results are so large that they must be written before the rest of the job. Redis would be busy for
    /// too long if all were written together.
    func jobsWithManyResults() -> [JobID] {
        guard hasManyResults else { return [] }
        hasManyResults = false
        guard canSettlePart else { return [] }
        return unwritten.filter { lane.jobs[$0.job].tally === $0.tally && $0.tally.results.size >= Self.resultBytes }
            .map(\.job)
    }

    /// Returns the jobs whose first unwritten end is so old that it must be written now.
    func overdueJobs() -> [JobID] {
        guard canSettlePart else { return [] }
        var jobs: [JobID] = []
        while let next = unwritten.first, lane.now - next.since >= longestUnwritten {
            unwritten.removeFirst()
            // The entry may be another job's by now.
            if lane.jobs[next.job].tally === next.tally { jobs.append(next.job) }
        }
        return jobs
    }

    /// True if a part of a job can be written soon.
    private var canSettlePart: Bool { link.store.isReady && !isFull }

    /// Writes the ends of a job's notifications so far.
    /// - Parameter tokens: the tokens of the notifications that have not ended.
    func settlePart(of id: JobID, rest tokens: [ByteBuffer]) {
        guard lane.jobs[id].generation == queue.generation, let fanOut = lane.jobs[id].fanOut, var ended = ended(id)
        else { return }
        let head = queue.headOfRest(of: lane.jobs[id], fanOut, tokens: tokens)
        fanOut.parts += 1
        parts += 1
        let claim = fanOut.claim.rest(afterPart: parts)
        ended.replacement = .rest(claim, head: head)
        settle(ended)
        fanOut.original = head.readableBytes..<head.readableBytes + fanOut.original.count
        lane.jobs[id].claim = claim
        lane.jobs[id].tally = JobTally(after: ended.tally)
    }

    private func ended(_ id: JobID) -> EndedJob? {
        EndedJob(lane.jobs[id], app: appName(of: id), pushType: lane.metrics.pushType(of: lane.jobs[id].series))
    }

    private func appName(of id: JobID) -> String { lane.apps[lane.jobs[id].app.index].name }

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
                app: unsent.appName)
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
            log.writeCancelled(unsent.notifications, target)
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
        settle(ended)
    }

    private func drop(_ unsent: UnsentJob, _ reason: Reason, _ tally: JobTally, replacedBy: ByteBuffer? = nil) {
        count(.ended(.dropped), reason, of: unsent)
        tally.recordSuperfluous(unsent.notifications, reason)
        tally.add(.dropped, count: unsent.notifications)
        tally.results = results(.dropped, reason, of: unsent, replacedBy: replacedBy)
    }

    private func count(_ fate: Fate, _ reason: Reason?, of unsent: UnsentJob) {
        lane.metrics.count(
            fate, app: unsent.app?.index, queue: queue.id.index, unsent.notifications, reason)
    }

    private func results(
        _ outcome: Outcome, _ reason: Reason, of unsent: UnsentJob, replacedBy: ByteBuffer? = nil
    ) -> PackedResults {
        var results = PackedResults()
        let keeps = kept.includes(outcome) || unsent.job.keepsResult
        guard keeps || log.logsEach else { return results }
        let job = unsent.job
        var result = NotificationResult(
            outcome, reason, of: job, app: unsent.appName, attempt: unsent.envelope.attempt - 1)
        result.replacedBy = replacedBy
        func add() {
            if keeps { results.append(result) }
            if log.logsEach { log.write(result) }
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
        wasSent: Bool, uniqueID: APNSID?, replacedBy: ByteBuffer?, keeps: Bool
    ) {
        guard let job = lane.jobs[id].job else { return }
        var result = result(
            outcome, reason, status: status, of: job, id, to: recipient, wasSent: wasSent, uniqueID: uniqueID)
        result.replacedBy = replacedBy
        if keeps { tally(of: id).results.append(result) }
        if log.logsEach {
            log.write(result, more: cause.map { ["cause": "\($0.code.text)"] } ?? [:])
        }
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
            let identity = queue.identity(
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
        // `dropped` is only a placeholder: the log line has the postponement instead.
        let result = NotificationResult(
            .dropped, reason, status: status, of: job, app: appName(of: id),
            attempt: job.envelope.attempt, to: recipient)
        log.write(result, outcome: postponement.rawValue, more: ["retry_in_ms": "\(delay)"])
    }

    // MARK: Settlements

    /// The number of jobs whose settlement is not confirmed.
    var count: Int {
        unconfirmed.count + settlement.count + awaitingTokens.count + writingTokens.count + awaitingPart.count
    }

    /// The approximate size of the settlements in bytes.
    var size: Int { unconfirmed.size + settlement.size }

    var isFull: Bool { count >= Self.maximumUnconfirmed || size >= Self.maximumUnconfirmedSize }

    var isEmpty: Bool { count == 0 }

    /// Calls the function with each claim whose settlement is not confirmed.
    func forEachClaim(_ body: (ClaimID) -> Void) {
        settlement.claims.forEach(body)
        unconfirmed.claims.forEach(body)
        for ended in [awaitingTokens, writingTokens, awaitingPart].joined()
        where ended.generation == queue.generation {
            body(ended.claim)
        }
    }

    /// Discards all settlements, because the claims belong to other lanes now. Invalid tokens are still written.
    /// - Returns: the number of settlements.
    func forget() -> Int {
        defer {
            settlement = Settlement()
            unconfirmed = UnconfirmedSettlements()
            awaitingPart = []
        }
        return settlement.count + unconfirmed.count + awaitingPart.count
    }

    /// Settles a job, or a part of one.
    private func settle(_ ended: EndedJob) {
        if !ended.tally.invalidTokens.isEmpty || hasWaitingPart(of: ended) {
            awaitingTokens.append(ended)
        } else {
            write(ended)
        }
        guard case .pieces = ended.replacement else { return flushIfFull() }
        // The pieces are due for every lane as soon as the settlement is written.
        flush()
        link.window.wake()
        lane.callbacks.backlog(queue.id)
    }

    /// Returns the campaigns that their guards have paused in this queue since the last call.
    func takeStopped() -> [StoppedCampaign] {
        defer { stopped = [] }
        return stopped
    }

    // MARK: Parts of jobs

    /// True if an earlier part of the job waits to be written. Parts must be written in order.
    private func hasWaitingPart(of job: EndedJob) -> Bool {
        guard job.fanOut?.parts ?? 0 > 0 else { return false }
        return [awaitingTokens, writingTokens, awaitingPart].joined().contains { $0.fanOut === job.fanOut }
    }

    /// True if the settlement that creates a job's claim is not confirmed.
    private func mustAwaitPart(_ job: EndedJob) -> Bool {
        guard job.fanOut?.parts ?? 0 > 0 else { return false }
        return unconfirmed.creates(job.claim) || awaitingPart.contains { $0.fanOut === job.fanOut }
    }

    private func writeAwaitingParts() {
        guard !awaitingPart.isEmpty else { return }
        let waiting = awaitingPart
        awaitingPart = []
        for ended in waiting {
            write(ended)
            flushIfFull()
        }
    }

    // MARK: Writing

    /// Adds an ended job, or a part of one, to the next batch. Its invalid tokens must be in the set already. A part waits until the
    /// settlement of the part before is confirmed.
    private func write(_ ended: EndedJob) {
        if mustAwaitPart(ended) { return awaitingPart.append(ended) }
        if let fate = ended.fate { lane.metrics.count(fate, queue: queue.id.index) }
        settlement.add(ended, of: queue)
        if case .scheduled(let time) = ended.replacement { expectRetry(in: time - queue.now) }
        guard ended.refusedBy.isEmpty else { return link.window.recordReturn(now: lane.now) }
        for postponed in ended.tally.postponed { expectRetry(in: postponed.delay) }
    }

    /// Records that a retry in the settlement is due after a delay in milliseconds. A retry after the next idle poll needs no record,
    /// because that poll finds it.
    private func expectRetry(in delay: Int64) {
        guard delay < ClaimWindow.idlePoll.nanoseconds / 1_000_000 else { return }
        nextRetry = min(nextRetry, lane.now + .milliseconds(delay))
    }

    private func flushIfFull() {
        if settlement.count >= Self.batch || settlement.copiedBytes >= Self.batchBytes
            || settlement.resultBytes >= Self.resultBytes
        {
            return flush()
        }
        if flushAt == .distantFuture { flushAt = lane.now + Self.batchDelay }
        if !flushSoon.isScheduled { scheduleFlush() }
    }

    private func scheduleFlush() {
        flushSoon.schedule(in: flushAt - lane.now) { [self] in
            // A claim may have written the batch in the meantime.
            if flushAt > lane.now { if flushAt < .distantFuture { scheduleFlush() } } else { flush() }
        }
    }

    func flush() {
        flushAt = .distantFuture
        writeInvalidTokens()
        guard !settlement.isEmpty, link.store.isReady else { return }
        if lane.now - countsWrittenAt >= Self.countsInterval { settlement.minute = takeCounts() }
        let number = unconfirmed.append(settlement)
        settlement = Settlement()
        write(number, again: false)
        if nextRetry < .distantFuture { link.wake(at: nextRetry) }
        nextRetry = .distantFuture
    }

    private func write(_ number: Int, again: Bool) {
        guard let batch = unconfirmed[number] else { return }
        link.store.settle(batch) { [self, generation = queue.generation] result in
            // Redis reports these campaigns and failures once, even to a lane that has lost its lease.
            if case .success(let settled) = result {
                for campaign in settled.stopped { link.record(campaign) }
                stopped += settled.stopped
                if !stopped.isEmpty { lane.schedulePump() }
                for exhausted in settled.exhausted { link.record(exhausted) }
            }
            let settled = link.value(of: result, to: .settlements, of: generation) {
                unconfirmed.recordRefusal(number)
                lane.afterRefusal { [self] in
                    // The batch may have been written again over a new connection in the meantime.
                    if unconfirmed.takeRefused(number) { write(number, again: true) }
                }
            }
            // If the batch was written twice, only the first answer counts.
            guard let settled, unconfirmed.recordConfirmation(number) != nil else { return }
            link.logEvictions(settled.evicted)
            if !again { lane.metrics.lostClaims += settled.lost }
            writeAwaitingParts()
            if lane.isDraining { lane.schedulePump() }
        }
    }

    /// Writes unconfirmed settlements again over a new connection. A settlement that Redis has already executed has no second effect.
    ///
    /// After a failover, the new server may have neither a settlement nor the invalid tokens that the old server confirmed. So the tokens
    /// are written again too, before the settlements.
    func writeUnconfirmed() {
        unconfirmed.recordRewrite()
        let tokens = unconfirmed.invalidTokens + settlement.invalidTokens
        // In a Cluster the set of invalid tokens may be on another server, which did not fail over.
        guard !tokens.isEmpty, link.store.holdsInvalidTokens else { return writeAllUnconfirmed() }
        link.fleet.store.invalidTokens.mark(tokens) { [self, generation = queue.generation] result in
            let marked = link.value(of: result, to: .invalidTokens, of: generation) {
                lane.afterRefusal { [self] in
                    if generation == queue.generation, link.store.isReady { writeUnconfirmed() }
                }
            }
            if marked != nil { writeAllUnconfirmed() }
        }
    }

    private func writeAllUnconfirmed() {
        for number in unconfirmed.numbers { write(number, again: true) }
        writeInvalidTokens()
    }

    // MARK: Invalid tokens

    /// Writes tokens to the set of invalid tokens, and then settles their jobs.
    func writeInvalidTokens() {
        guard !awaitingTokens.isEmpty, writingTokens.isEmpty, lane.now >= tokensNotBefore else { return }
        var tokens: [InvalidToken] = []
        let last = awaitingTokens.firstIndex { ended in
            tokens += ended.tally.invalidTokens
            return tokens.count >= Self.tokensBatch
        }
        let count = last.map { $0 + 1 } ?? awaitingTokens.count
        writingTokens = Array(awaitingTokens.prefix(count))
        awaitingTokens.removeFirst(count)
        link.fleet.store.invalidTokens.mark(tokens) { [self] result in
            let batch = writingTokens
            writingTokens = []
            switch result {
            case .success:
                for ended in batch {
                    if ended.generation == queue.generation {
                        write(ended)
                    } else {
                        lane.metrics.lostClaims += 1
                    }
                    flushIfFull()
                }
                link.refusals.recordAcceptance(.invalidTokens)
                link.fleet.recordMarked()
                writeInvalidTokens()
                if lane.isDraining { lane.schedulePump() }
            case .failure(let failure):
                awaitingTokens = batch + awaitingTokens
                guard failure.isAnswer else { return }
                link.refusals.recordRefusal(.invalidTokens, failure)
                tokensNotBefore = lane.now + lane.refusalPause
            }
        }
    }

    // MARK: History

    /// Returns and resets the counts for the history.
    private func takeCounts() -> MinuteCounts? {
        countsReadAt = lane.now
        guard let counts = lane.metrics.takeMinute(ofQueue: queue.id.index, apps: lane.apps.map(\.name))
        else { return nil }
        countsWrittenAt = lane.now
        return counts
    }

    /// Writes the counts alone if there was no settlement to include them for some time.
    func writeCountsIfDue() {
        guard lane.now - countsReadAt >= Self.countsInterval * 2, settlement.isEmpty else { return }
        writeCounts()
    }

    /// Writes the counts for the history without a settlement.
    ///
    /// They are written only once, because without a claim Redis could not detect a repetition. So they are lost if their connection is
    /// lost. Counts that Redis has refused are written later.
    func writeCounts() {
        guard link.store.isReady, let counts = takeCounts() else { return }
        var settlement = Settlement()
        settlement.minute = counts
        link.store.settle(settlement) { [self] result in
            guard case .failure(.redis(let error)) = result, !error.mayHaveBeenExecuted else { return }
            lane.metrics.minutes.putBack(counts, queue: queue.id.index)
        }
    }
}
