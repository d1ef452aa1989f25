import NIOCore
import PushJob
import PushQueue

/// From what became of jobs to Redis.
extension QueueLane {
    /// A batch leaves when it has so many claims, or this long after its first, or when the lane has nothing under way.
    private static let batch = 256
    private static let batchDelay = TimeAmount.milliseconds(10)
    /// A batch leaves when its script would copy so many bytes of jobs: it blocks Redis for some milliseconds.
    private static let batchBytes = 1 << 20

    /// Settles a job, all of whose notifications have ended, and whose invalid tokens are in the set.
    func settle(_ entry: JobEntry) {
        guard let tally = entry.tally, let job = entry.job else { return }
        let claim = entry.claim
        settlement.invalidTokens += tally.invalidTokens
        lane.metrics.count(tally.jobOutcome(isAlone: job.tokens == nil), queue: index)
        let isOnlyDead = tally.retry == nil && tally.kinds == 0
        for (index, dead) in tally.dead.enumerated() {
            let settles = isOnlyDead && index == tally.dead.count - 1
            bury(entry, job, dead, settles: settles)
            // The script counts one for a letter that settles its claim, and none for another.
            let uncounted = dead.tokens.count - (settles ? 1 : 0)
            if uncounted > 0 {
                settlement.addCount("dead", uncounted)
                settlement.addCount("dead:\(dead.reason)", uncounted)
            }
        }
        if let retry = tally.retry {
            self.retry(entry, job, retry)
        } else if tally.kinds > 0, job.tokens == nil {
            settlement.end(claim, tally.ending, results: tally.results)
        } else if tally.kinds > 0 {
            settlement.end(claim, .fannedOut)
        }
        if job.tokens != nil {
            for (ending, count) in tally.endings where count > 0 { settlement.addCount(ending.rawValue, count) }
        }
        // What has ended with its only notification has its result with it.
        if !(tally.retry == nil && tally.kinds > 0 && job.tokens == nil) { settlement.addResults(tally.results) }
        if tally.possibleDuplicates > 0 { settlement.addCount("possible_duplicates", tally.possibleDuplicates) }
        if tally.reclaimed > 0 { settlement.addCount("possible_duplicates:reclaimed", tally.reclaimed) }
    }

    private func retry(_ entry: JobEntry, _ job: Job, _ retry: JobTally.Retry) {
        var writer = lane.envelope(
            of: job, claim: entry.claim, in: self, attempt: job.envelope.attempt + (retry.spendsAttempt ? 1 : 0),
            firstSeen: entry.firstSeen)
        if job.tokens != nil { writer.write(tokens: retry.tokens) }
        writer.write(errorStatus: retry.status, reason: retry.reason, at: now)
        retries(in: retry.delay)
        let counter: StaticString = retry.spendsAttempt ? "retried" : "parked"
        settlement.retry(
            entry.claim, due: .after(milliseconds: retry.delay), head: writer.head(), counter: counter,
            reason: retry.reason, original: job.original)
        if retry.tokens.count > 1 {
            settlement.addCount("\(counter)", retry.tokens.count - 1)
            settlement.addCount("\(counter):\(retry.reason)", retry.tokens.count - 1)
        }
    }

    /// Notes that a retry in ``settlement`` is due in so many milliseconds. Later ones are found by the lane that polls.
    func retries(in delay: Int64) {
        guard delay < ClaimWindow.idlePoll.nanoseconds / 1_000_000 else { return }
        nextRetry = min(nextRetry, eventLoop.now + .milliseconds(delay))
    }

    private func bury(_ entry: JobEntry, _ job: Job, _ dead: JobTally.Dead, settles: Bool) {
        settlement.bury(
            entry.claim, reason: dead.reason, attempts: job.envelope.attempt,
            members: DeadLetter.members(
                job: job, app: lane.apps[entry.app].configuration.name, firstSeen: entry.firstSeen,
                status: dead.status, error: dead.error, tokens: job.tokens == nil ? [] : dead.tokens),
            original: job.original, settles: settles)
    }

    func settlementGrew() {
        if settlement.count >= Self.batch || settlement.copiedBytes >= Self.batchBytes { return flushSettlement() }
        guard !isSettleScheduled else { return }
        isSettleScheduled = true
        eventLoop.scheduleTask(in: Self.batchDelay) { [self] in
            isSettleScheduled = false
            flushSettlement()
        }
    }

    func flushSettlement() {
        lane.writeInvalidTokens()
        guard !settlement.isEmpty, client.isReady else { return }
        let number = unconfirmed.append(settlement)
        settlement = Settlement()
        write(number, again: false)
        if nextRetry < .distantFuture { wake(at: nextRetry) }
        nextRetry = .distantFuture
    }

    /// Redis is back: what it had not confirmed is written again. What it had done all the same does nothing now.
    ///
    /// After a failover it may be another Redis that has a job as claimed and not its invalid tokens, although the one
    /// before had confirmed them. So they are written again too, and first.
    func resendUnconfirmed() {
        unconfirmed.areWrittenAgain()
        let tokens = unconfirmed.invalidTokens + settlement.invalidTokens
        // In a Cluster the set may be with a server that was there all the time.
        guard !tokens.isEmpty, let set = lane.invalidTokens, set.isWith(client) else { return writeUnconfirmed() }
        let generation = generation
        set.mark(tokens) { [self] result in
            guard generation == self.generation else { return }
            switch result {
            case .success:
                lane.invalidTokensAccepted()
                writeUnconfirmed()
            case .failure(let failure) where !failure.isAnswer:
                break  // Written again when the connection is back.
            case .failure(let failure):
                lane.invalidTokensRefused(failure)
                eventLoop.scheduleTask(in: Self.refusalPause) { [self] in
                    if generation == self.generation, client.isReady { resendUnconfirmed() }
                }
            }
        }
    }

    private func writeUnconfirmed() {
        for number in unconfirmed.numbers { write(number, again: true) }
    }

    private func write(_ number: Int, again: Bool) {
        guard let batch = unconfirmed[number] else { return }
        let generation = generation
        connection.settle(batch) { [self] result in
            guard generation == self.generation else { return }
            if case .success = result { accepted(.settlements) }
            switch result {
            case .success(let settled):
                // It may have been written twice: then only the first answer counts.
                guard unconfirmed.confirmed(number) != nil else { return }
                tellOfEvictions(settled.evicted)
                if !again { lane.counters.lostClaims += settled.lost }
                if lane.phase == .draining { lane.schedulePump() }
            case .failure(.redis(let error)) where !error.isAnswer:
                break  // Written again when the connection is back.
            case .failure(let failure):
                refused(.settlements, failure)
                unconfirmed.wasRefused(number)
                eventLoop.scheduleTask(in: Self.refusalPause) {
                    // A new connection may have written it in the meantime: once is enough.
                    if self.unconfirmed.takeRefused(number) { self.write(number, again: true) }
                }
            }
        }
    }
}
