import NIOCore
import PushJob
import PushQueue

extension QueueConsumer {
    /// Settlements on their way to Redis.
    struct Outbox {
        /// The number of claims at which a batch is written.
        static let batch = 256
        /// The number of results per write: each is an entry of a stream, and Redis must not be busy for long.
        static let resultBatch = 128
        /// The bytes of copied jobs at which a batch is written: its script blocks Redis for some milliseconds.
        static let batchBytes = 1 << 20
        /// The time after its first claim at which a batch is written.
        static let batchDelay = TimeAmount.milliseconds(10)
        /// The number of unconfirmed settlements above which the lane claims no more jobs of the queue.
        private static let maximumUnconfirmed = 10_000
        /// The same limit in bytes, because settlements of jobs with many retried tokens are large.
        private static let maximumUnconfirmedSize = 64 << 20
        /// The interval at which settlements include the lane's counts for the history.
        static let countsInterval = TimeAmount.seconds(1)

        /// The settlements to write next.
        var settlement = Settlement()
        var unconfirmed = UnconfirmedSettlements()
        let flush: SoonTask
        /// The due time of the first retry in ``settlement``.
        var nextRetry = NIODeadline.distantFuture
        /// The number of parts of jobs that were settled. They number the claims of what is left: after a rollback, a
        /// job is processed again under a claim that it had before, and its parts must not meet those of then.
        var parts = 0
        /// Ended jobs whose invalid tokens must be in the set before they are settled, and what ended of them later.
        var awaitingTokens: [Ended] = []
        /// Ended jobs whose invalid tokens are being written.
        var writingTokens: [Ended] = []
        /// What ended of jobs while the settlement of an earlier part was not confirmed. That settlement creates the claim
        /// which these end, and Redis may refuse the first of two that are in flight and execute the second.
        var awaitingPart: [Ended] = []
        /// The time before which no invalid tokens are written, because Redis has refused them.
        var tokensNotBefore = NIODeadline.distantPast
        /// The time at which the counts for the history were last written.
        var countsWrittenAt = NIODeadline.distantPast

        /// A job of which all notifications have ended, or some.
        struct Ended {
            let job: ActiveJob
            /// The range of the producer's bytes in the claimed job.
            let original: Range<Int>?
            /// The notifications that have not ended; `nil` if all have.
            var rest: Rest?

            /// The job of those notifications of a job that have not ended.
            struct Rest {
                let claim: ClaimID
                /// The head of its wrapper.
                let head: ByteBuffer
            }

            init(_ job: ActiveJob, rest: Rest? = nil) {
                self.job = job
                self.rest = rest
                // A part that is written later changes it.
                original = job.fanOut?.original
            }
        }

        /// What has ended and is in no settlement yet.
        var unwritten: [Ended] { awaitingTokens + writingTokens + awaitingPart }

        /// True if a part of a job waits to be written. Parts must be written in their order.
        func hasWaitingPart(of job: ActiveJob) -> Bool {
            guard job.fanOut?.parts ?? 0 > 0 else { return false }
            return unwritten.contains { $0.job.fanOut === job.fanOut }
        }

        /// True if the settlement that creates a job's claim is not confirmed.
        func mustAwaitPart(_ job: ActiveJob) -> Bool {
            guard job.fanOut?.parts ?? 0 > 0 else { return false }
            return unconfirmed.creates(job.claim) || awaitingPart.contains { $0.job.fanOut === job.fanOut }
        }

        /// The number of jobs whose settlement is not confirmed.
        var count: Int {
            unconfirmed.count + settlement.count + awaitingTokens.count + writingTokens.count + awaitingPart.count
        }

        /// The approximate size of the settlements in bytes.
        var size: Int { unconfirmed.size + settlement.size }

        var isFull: Bool { count >= Self.maximumUnconfirmed || size >= Self.maximumUnconfirmedSize }

        /// Discards all settlements, because the claims belong to other lanes now. Invalid tokens are still written.
        /// - Returns: the number of settlements.
        mutating func forget() -> Int {
            defer {
                settlement = Settlement()
                unconfirmed = UnconfirmedSettlements()
                awaitingPart = []
            }
            return settlement.count + unconfirmed.count + awaitingPart.count
        }
    }

    /// The maximum number of invalid tokens per write, unless the last job has more; the tokens of one job are not
    /// divided.
    private static let tokensBatch = 2000

    /// True once Redis has confirmed all settlements.
    var isSettled: Bool { outbox.count == 0 }
}

extension QueueConsumer: JobSettler {
    // MARK: Ended jobs

    func settleDelivered(_ claim: ClaimID, campaign: ByteBuffer?) {
        outbox.settlement.use(campaign: campaign)
        outbox.settlement.end(claim, .delivered)
        flushIfFull()
    }

    func settle(_ job: ActiveJob) { settle(Outbox.Ended(job)) }

    var canSettlePart: Bool { store.isReady && !outbox.isFull }

    func settlePart(of job: ActiveJob, rest tokens: [ByteBuffer]) -> ClaimID {
        guard let fanOut = job.fanOut else { return job.claim }
        let envelope = fanOut.job.envelope
        var writer = queue.wrapper(
            of: fanOut.job, claim: job.claim, firstClaim: fanOut.claim, attempt: envelope.attempt,
            firstSeen: job.firstSeen, namesClaim: false)
        if envelope.reclaims > 0 { writer.write(reclaims: envelope.reclaims) }
        if let error = envelope.error { writer.write(error: fanOut.job.bytes(error)) }
        writer.write(tokens: tokens)
        let head = writer.head()
        fanOut.parts += 1
        outbox.parts += 1
        let rest = Outbox.Ended.Rest(claim: fanOut.claim.rest(afterPart: outbox.parts), head: head)
        settle(Outbox.Ended(job, rest: rest))
        fanOut.original = head.readableBytes..<head.readableBytes + fanOut.original.count
        return rest.claim
    }

    private func settle(_ ended: Outbox.Ended) {
        if ended.job.tally?.invalidTokens.isEmpty == false || outbox.hasWaitingPart(of: ended.job) {
            outbox.awaitingTokens.append(ended)
        } else {
            write(ended)
        }
        flushIfFull()
    }

    /// Writes the settlement of a job, or of a part of it, whose invalid tokens are in the set, once that of an earlier
    /// part is confirmed.
    private func write(_ ended: Outbox.Ended) {
        if outbox.mustAwaitPart(ended.job) { return outbox.awaitingPart.append(ended) }
        // It was decoded when it was claimed. Should decoding fail now, the claim is left to be recovered.
        guard let tally = ended.job.tally, let job = ended.job.job else { return }
        let claim = ended.job.claim
        var counted = tally.outcomes.counted
        outbox.settlement.use(campaign: job.campaignName)
        outbox.settlement.invalidTokens += tally.invalidTokens
        let fate = ended.rest == nil ? tally.fate : nil
        if let fate { lane.metrics.count(fate, queue: queue.id.index) }
        if case .ended(let outcome) = fate, job.tokens == nil, !counted.isEmpty, tally.possibleDuplicates == 0 {
            return outbox.settlement.end(claim, outcome, results: tally.results)
        }
        let endsDead = fate != nil && tally.postponed.isEmpty && fate != .mixed && counted.isEmpty
        for (index, dead) in tally.dead.enumerated() {
            bury(ended, job, dead, settles: endsDead && index == tally.dead.count - 1)
        }
        for (index, postponed) in tally.postponed.enumerated() {
            write(postponed, of: ended, job, settles: fate != nil && index == tally.postponed.count - 1)
        }
        if let rest = ended.rest {
            outbox.settlement.keep(claim, as: rest.claim, head: rest.head, original: ended.original ?? job.original)
        } else if case .ended(let outcome) = fate, let count = counted.first?.count {
            outbox.settlement.end(claim, outcome, notifications: count)
            counted = []
        } else if tally.postponed.isEmpty, !endsDead {
            outbox.settlement.endMixed(claim)
        }
        for (outcome, count) in counted { outbox.settlement.addCount(outcome.rawValue, count) }
        outbox.settlement.addResults(tally.results)
        if tally.possibleDuplicates > 0 {
            outbox.settlement.addCount("possible_duplicates", tally.possibleDuplicates)
        }
        if tally.reclaimed > 0 { outbox.settlement.addCount("possible_duplicates:reclaimed", tally.reclaimed) }
    }

    private func bury(_ ended: Outbox.Ended, _ job: Job, _ dead: JobTally.Dead, settles: Bool) {
        let code = dead.reason.code.text
        outbox.settlement.bury(
            ended.job.claim, as: dead.outcome, reason: code, attempts: job.envelope.attempt,
            members: DeadLetter.members(
                job: job, app: ledger.apps[ended.job.app.index].name, firstSeen: ended.job.firstSeen,
                detail: dead.reason.detail, status: dead.status, error: dead.cause?.code.text,
                tokens: job.tokens == nil ? [] : dead.tokens),
            original: ended.original ?? job.original, settles: settles)
        // The script itself counts one notification if the dead letter settles its claim, and none otherwise.
        addCounts(dead.outcome, code, dead.tokens.count - (settles ? 1 : 0))
    }

    private func write(_ postponed: JobTally.Postponed, of ended: Outbox.Ended, _ job: Job, settles: Bool) {
        let (claim, original) = (ended.job.claim, ended.original ?? job.original)
        var writer = queue.wrapper(
            of: job, claim: claim, firstClaim: ended.job.firstClaim,
            attempt: job.envelope.attempt + (postponed.spendsAttempt ? 1 : 0), firstSeen: ended.job.firstSeen)
        if job.tokens != nil { writer.write(tokens: postponed.tokens) }
        if postponed.kind == .deferred { writer.write(why: .deferred) }
        let code = postponed.reason.code.text
        writer.write(errorStatus: postponed.status, reason: code, at: queue.now)
        expectRetry(in: postponed.delay)
        if settles {
            outbox.settlement.postpone(
                claim, postponed.kind, due: .after(milliseconds: postponed.delay), head: writer.head(), reason: code,
                original: original)
        } else {
            outbox.settlement.postponePart(
                of: claim, afterMilliseconds: postponed.delay, head: writer.head(), original: original)
        }
        // The script itself counts one notification if the retry settles its claim, and none otherwise.
        addCounts(postponed.kind.rawValue, code, postponed.tokens.count - (settles ? 1 : 0))
    }

    private func addCounts(_ outcome: Outcome, _ reason: String, _ count: Int) {
        guard outcome == .cancelled else { return addCounts(outcome.rawValue, reason, count) }
        // There is only one reason.
        if count > 0 { outbox.settlement.addCount(outcome.rawValue, count) }
    }

    private func addCounts(_ counter: String, _ reason: String, _ count: Int) {
        guard count > 0 else { return }
        outbox.settlement.addCount(counter, count)
        outbox.settlement.addCount("\(counter):\(reason)", count)
    }

    /// Records that a retry in the settlement is due after a delay in milliseconds. The polling lane finds later ones.
    private func expectRetry(in delay: Int64) {
        guard delay < ClaimWindow.idlePoll.nanoseconds / 1_000_000 else { return }
        outbox.nextRetry = min(outbox.nextRetry, lane.now + .milliseconds(delay))
    }

    // MARK: Jobs that are not sent

    func settle(_ unsent: UnsentJob, _ end: UnsentEnd, results: PackedResults) {
        let (claim, count, original) = (unsent.claim, unsent.notifications, unsent.envelope.original)
        outbox.settlement.use(campaign: unsent.job.campaignName)
        switch end {
        case .dead(let reason): bury(unsent, as: .dead, reason, results)
        case .cancelled(_, let command) where !command.discards:
            bury(unsent, as: .cancelled, Reason(.cancelled, detail: command.detail), results)
        case .expired, .cancelled:
            let outcome = if case .expired = end { Outcome.expired } else { Outcome.cancelled }
            if count == 1 {
                outbox.settlement.end(claim, outcome, results: results)
            } else {
                outbox.settlement.end(claim, outcome, notifications: count)
                outbox.settlement.addResults(results)
            }
        case .deferred(let reason, let delay):
            let job = unsent.job
            var writer = queue.wrapper(
                of: job, claim: claim, attempt: job.envelope.attempt, firstSeen: unsent.firstSeen)
            if job.envelope.overridesTokens {
                // A job that can't be read has them only in its wrapper.
                let tokens = job.tokens.map { $0.map(job.text) } ?? unsent.envelope.tokens(in: unsent.body)
                writer.write(tokens: tokens)
            }
            writer.write(why: .deferred)
            let code = reason.code.text
            writer.write(
                errorStatus: nil, reason: code, at: queue.now,
                refusedBy: unsent.refusedBy.isEmpty ? nil : ConfigurationDigest.text(unsent.refusedBy))
            if unsent.refusedBy.isEmpty { expectRetry(in: delay) } else { giveWay() }
            outbox.settlement.postpone(
                claim, .deferred, due: .after(milliseconds: delay), head: writer.head(), reason: code,
                original: original)
            addCounts("deferred", code, count - 1)
        case .scheduled(let time):
            let job = unsent.job
            var writer = queue.wrapper(
                of: job, claim: claim, attempt: job.envelope.attempt, firstSeen: queue.now)
            if job.envelope.overridesTokens, let tokens = job.tokens { writer.write(tokens: tokens.map(job.text)) }
            writer.write(why: .scheduled)
            expectRetry(in: time - queue.now)
            outbox.settlement.postpone(
                claim, .scheduled, due: .at(milliseconds: time), head: writer.head(), reason: nil, original: original)
        case .split(let size):
            let job = unsent.job
            let writer = queue.wrapper(
                of: job, claim: claim, attempt: job.envelope.attempt, firstSeen: unsent.firstSeen, namesClaim: false)
            outbox.settlement.split(
                claim, prefix: writer.prefix(), pieces: job.tokenPieces(of: size), cut: job.tokensMember,
                original: original, text: job.isRewritten ? job.body : nil)
            // The pieces are due, for every lane, as soon as this is written.
            flush()
            wake()
            return report(.backlog)
        }
        flushIfFull()
    }

    private func bury(_ unsent: UnsentJob, as outcome: Outcome, _ reason: Reason, _ results: PackedResults) {
        let members = DeadLetter.members(
            job: unsent.job, firstSeen: unsent.firstSeen, detail: reason.detail,
            tokens: unsent.envelope.tokens(in: unsent.body))
        let code = reason.code.text
        outbox.settlement.bury(
            unsent.claim, as: outcome, reason: code, attempts: unsent.envelope.attempt - 1, members: members,
            original: unsent.envelope.original)
        addCounts(outcome, code, unsent.notifications - 1)
        outbox.settlement.addResults(results)
    }

    // MARK: Writing

    private func flushIfFull() {
        if outbox.settlement.count >= Outbox.batch || outbox.settlement.copiedBytes >= Outbox.batchBytes
            || outbox.settlement.resultCount >= Outbox.resultBatch
        {
            return flush()
        }
        guard !outbox.flush.isScheduled else { return }
        outbox.flush.schedule(in: Outbox.batchDelay) { [self] in flush() }
    }

    /// Writes all unwritten settlements.
    func flush() {
        writeInvalidTokens()
        guard !outbox.settlement.isEmpty, store.isReady else { return }
        if lane.now - outbox.countsWrittenAt >= Outbox.countsInterval { outbox.settlement.minute = takeCounts() }
        let number = outbox.unconfirmed.append(outbox.settlement)
        outbox.settlement = Settlement()
        write(number, again: false)
        if outbox.nextRetry < .distantFuture { wake(at: outbox.nextRetry) }
        outbox.nextRetry = .distantFuture
    }

    private func writeAwaitingParts() {
        guard !outbox.awaitingPart.isEmpty else { return }
        let waiting = outbox.awaitingPart
        outbox.awaitingPart = []
        for ended in waiting {
            write(ended)
            flushIfFull()
        }
    }

    private func write(_ number: Int, again: Bool) {
        guard let batch = outbox.unconfirmed[number] else { return }
        let generation = queue.generation
        store.settle(batch) { [self] result in
            guard generation == queue.generation else { return }
            switch result {
            case .success(let settled):
                refusals.accepted(.settlements)
                // It may have been written twice, in which case only the first answer counts.
                guard outbox.unconfirmed.confirmed(number) != nil else { return }
                logEvictions(settled.evicted)
                if !again { ledger.recordLostClaims(settled.lost) }
                writeAwaitingParts()
                if lane.isDraining { report(.changed) }
            case .failure(let failure) where !failure.isAnswer:
                break  // Written again when the connection is restored.
            case .failure(let failure):
                refusals.refused(.settlements, failure)
                outbox.unconfirmed.wasRefused(number)
                lane.afterRefusal { [self] in
                    // It may already have been written again over a new connection.
                    if outbox.unconfirmed.takeRefused(number) { write(number, again: true) }
                }
            }
        }
    }

    /// Writes unconfirmed settlements again over a new connection. Those that were executed have no effect now.
    ///
    /// After a failover, another server may have a job as claimed but not its invalid tokens, although the previous
    /// server had confirmed them. So the tokens are written again too, and first.
    func resendUnconfirmed() {
        outbox.unconfirmed.areWrittenAgain()
        let tokens = outbox.unconfirmed.invalidTokens + outbox.settlement.invalidTokens
        // In a Cluster the set may be on a server that did not fail over.
        guard !tokens.isEmpty, store.holdsInvalidTokens else { return writeUnconfirmed() }
        let generation = queue.generation
        invalidTokens.mark(tokens) { [self] result in
            guard generation == queue.generation else { return }
            switch result {
            case .success:
                refusals.accepted(.invalidTokens)
                writeUnconfirmed()
            case .failure(let failure) where !failure.isAnswer:
                break  // Written again when the connection is restored.
            case .failure(let failure):
                refusals.refused(.invalidTokens, failure)
                lane.afterRefusal { [self] in
                    if generation == queue.generation, store.isReady { resendUnconfirmed() }
                }
            }
        }
    }

    private func writeUnconfirmed() {
        for number in outbox.unconfirmed.numbers { write(number, again: true) }
        writeInvalidTokens()
    }

    // MARK: History

    /// Returns and resets the counts for the history that must be written now.
    private func takeCounts() -> MinuteCounts? {
        guard let counts = lane.metrics.minutes.take(queue: queue.id.index) else { return nil }
        outbox.countsWrittenAt = lane.now
        return counts
    }

    /// Writes the counts that no settlement has included for lack of settlements.
    func writeCountsIfDue() {
        guard lane.now - outbox.countsWrittenAt >= Outbox.countsInterval * 2, outbox.settlement.isEmpty else { return }
        writeCounts()
    }

    /// Writes the counts for the history without a settlement.
    ///
    /// They are not written again, because without a claim Redis could not detect a repetition. So they are lost if
    /// their connection is. Counts that Redis has refused are written later.
    func writeCounts() {
        guard store.isReady, let counts = takeCounts() else { return }
        var settlement = Settlement()
        settlement.minute = counts
        store.settle(settlement) { [self] result in
            guard case .failure(.redis(let error)) = result, !error.mayHaveBeenExecuted else { return }
            lane.metrics.minutes.putBack(counts, queue: queue.id.index)
        }
    }

    // MARK: Invalid tokens

    /// Writes tokens to the set of invalid tokens, and then settles their jobs.
    func writeInvalidTokens() {
        guard !outbox.awaitingTokens.isEmpty, outbox.writingTokens.isEmpty, lane.now >= outbox.tokensNotBefore else {
            return
        }
        var tokens: [InvalidToken] = []
        let last = outbox.awaitingTokens.firstIndex { ended in
            tokens += ended.job.tally?.invalidTokens ?? []
            return tokens.count >= Self.tokensBatch
        }
        let count = last.map { $0 + 1 } ?? outbox.awaitingTokens.count
        outbox.writingTokens = Array(outbox.awaitingTokens.prefix(count))
        outbox.awaitingTokens.removeFirst(count)
        invalidTokens.mark(tokens) { [self] result in
            let batch = outbox.writingTokens
            outbox.writingTokens = []
            switch result {
            case .success:
                for ended in batch {
                    if ended.job.generation == queue.generation { write(ended) } else { ledger.recordLostClaims(1) }
                    flushIfFull()
                }
                refusals.accepted(.invalidTokens)
                report(.markedInvalid)
                writeInvalidTokens()
                if lane.isDraining { report(.changed) }
            case .failure(let failure):
                outbox.awaitingTokens = batch + outbox.awaitingTokens
                guard failure.isAnswer else { return }
                refusals.refused(.invalidTokens, failure)
                outbox.tokensNotBefore = lane.now + lane.refusalPause
            }
        }
    }
}
