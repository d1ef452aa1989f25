import NIOCore
import PushJob
import PushQueue

/// The settlements of a queue's jobs on their way to Redis: collected into batches, written after the invalid tokens
/// that their jobs have found, and written again until they are confirmed.
final class Outbox {
    /// The number of claims at which a batch is written.
    static let batch = 256
    /// The bytes of results at which a batch, or a part of a job, is written. A job with 1,000 tokens has half as many.
    static let resultBytes = 1 << 18
    /// The bytes of copied jobs at which a batch is written: its script blocks Redis for some milliseconds.
    private static let batchBytes = 1 << 20
    /// The time after its first claim at which a batch is written. A busy lane claims within that time, and writes the batch
    /// with the claim.
    private static let batchDelay = TimeAmount.milliseconds(20)
    /// The maximum number of invalid tokens per write, unless the last job has more; the tokens of one job are not
    /// divided.
    private static let tokensBatch = 2000
    /// The number of unconfirmed settlements above which the lane claims no more jobs of the queue.
    private static let maximumUnconfirmed = 10_000
    /// The same limit in bytes, because settlements of jobs with many retried tokens are large.
    private static let maximumUnconfirmedSize = 64 << 20
    /// The interval at which settlements include the lane's counts for the history.
    private static let countsInterval = TimeAmount.seconds(1)

    let link: QueueLink
    private unowned let consumer: QueueConsumer
    /// The settlements to write next.
    private var settlement = Settlement()
    private var unconfirmed = UnconfirmedSettlements()
    private let flushSoon: SoonTask
    /// The time at which the current batch is written at the latest.
    private var flushAt = NIODeadline.distantFuture
    /// The due time of the first retry in ``settlement``.
    private var nextRetry = NIODeadline.distantFuture
    /// The number of parts of jobs that were settled. They number the claims of what is left: after a rollback, a job is
    /// processed again under a claim that it had before, and its parts must not meet those of then.
    private var parts = 0
    /// Ended jobs whose invalid tokens must be in the set before they are settled, and later parts of the same jobs.
    private var awaitingTokens: [EndedJob] = []
    /// Ended jobs whose invalid tokens are being written.
    private var writingTokens: [EndedJob] = []
    /// Parts of jobs that ended while the settlement of an earlier part was not confirmed. That settlement creates the
    /// claim which these end, and Redis may refuse the first of two that are in flight and execute the second.
    private var awaitingPart: [EndedJob] = []
    /// The time before which no invalid tokens are written, because Redis has refused them.
    private var tokensNotBefore = NIODeadline.distantPast
    /// The time at which the counts for the history were last written.
    private var countsWrittenAt = NIODeadline.distantPast
    /// The time at which they were last summed up.
    private var countsReadAt = NIODeadline.distantPast

    init(_ link: QueueLink, _ consumer: QueueConsumer) {
        self.link = link
        self.consumer = consumer
        flushSoon = SoonTask(link.lane.eventLoop)
    }

    /// The number of jobs whose settlement is not confirmed.
    var count: Int {
        unconfirmed.count + settlement.count + awaitingTokens.count + writingTokens.count + awaitingPart.count
    }

    /// The approximate size of the settlements in bytes.
    var size: Int { unconfirmed.size + settlement.size }

    var isFull: Bool { count >= Self.maximumUnconfirmed || size >= Self.maximumUnconfirmedSize }

    /// True once Redis has confirmed all settlements.
    var isEmpty: Bool { count == 0 }

    /// Passes each claim whose settlement is not confirmed.
    func forEachClaim(_ body: (ClaimID) -> Void) {
        settlement.claims.forEach(body)
        unconfirmed.claims.forEach(body)
        for ended in [awaitingTokens, writingTokens, awaitingPart].joined()
        where ended.generation == link.queue.generation {
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

    // MARK: Parts of jobs

    /// True if a part of a job waits to be written. Parts must be written in their order.
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

    /// Adds an ended job whose invalid tokens are in the set, or a part of one, to the next batch, once the settlement
    /// of an earlier part is confirmed.
    private func write(_ ended: EndedJob) {
        if mustAwaitPart(ended) { return awaitingPart.append(ended) }
        if let fate = ended.fate { link.lane.metrics.count(fate, queue: link.queue.id.index) }
        settlement.add(ended, of: link.queue)
        if case .scheduled(let time) = ended.replacement { expectRetry(in: time - link.queue.now) }
        guard ended.refusedBy.isEmpty else { return consumer.gaveBack() }
        for postponed in ended.tally.postponed { expectRetry(in: postponed.delay) }
    }

    /// Records that a retry in the settlement is due after a delay in milliseconds. The polling lane finds later ones.
    private func expectRetry(in delay: Int64) {
        guard delay < ClaimWindow.idlePoll.nanoseconds / 1_000_000 else { return }
        nextRetry = min(nextRetry, link.lane.now + .milliseconds(delay))
    }

    private func flushIfFull() {
        if settlement.count >= Self.batch || settlement.copiedBytes >= Self.batchBytes
            || settlement.resultBytes >= Self.resultBytes
        {
            return flush()
        }
        if flushAt == .distantFuture { flushAt = link.lane.now + Self.batchDelay }
        if !flushSoon.isScheduled { scheduleFlush() }
    }

    private func scheduleFlush() {
        flushSoon.schedule(in: flushAt - link.lane.now) { [self] in
            // A claim may have written that batch in the meantime.
            if flushAt > link.lane.now { if flushAt < .distantFuture { scheduleFlush() } } else { flush() }
        }
    }

    func flush() {
        flushAt = .distantFuture
        writeInvalidTokens()
        guard !settlement.isEmpty, link.store.isReady else { return }
        if link.lane.now - countsWrittenAt >= Self.countsInterval { settlement.minute = takeCounts() }
        let number = unconfirmed.append(settlement)
        settlement = Settlement()
        write(number, again: false)
        if nextRetry < .distantFuture { consumer.wake(at: nextRetry) }
        nextRetry = .distantFuture
    }

    private func write(_ number: Int, again: Bool) {
        guard let batch = unconfirmed[number] else { return }
        link.store.settle(batch) { [self, generation = link.queue.generation] result in
            // Redis reports it once, also to a lane that has lost its lease.
            if case .success(let settled) = result {
                for campaign in settled.stopped { consumer.stopped(campaign) }
                for exhausted in settled.exhausted { link.record(exhausted) }
            }
            let settled = link.value(of: result, to: .settlements, of: generation) {
                unconfirmed.recordRefusal(number)
                link.lane.afterRefusal { [self] in
                    // It may already have been written again over a new connection.
                    if unconfirmed.takeRefused(number) { write(number, again: true) }
                }
            }
            // It may have been written twice, in which case only the first answer counts.
            guard let settled, unconfirmed.recordConfirmation(number) != nil else { return }
            link.logEvictions(settled.evicted)
            if !again { link.lane.metrics.lostClaims += settled.lost }
            writeAwaitingParts()
            if link.lane.isDraining { link.lane.schedulePump() }
        }
    }

    /// Writes unconfirmed settlements again over a new connection. Those that were executed have no effect now.
    ///
    /// After a failover, another server may have a job as claimed but not its invalid tokens, although the previous
    /// server had confirmed them. So the tokens are written again too, and first.
    func writeUnconfirmed() {
        unconfirmed.recordRewrite()
        let tokens = unconfirmed.invalidTokens + settlement.invalidTokens
        // In a Cluster the set may be on a server that did not fail over.
        guard !tokens.isEmpty, link.store.holdsInvalidTokens else { return writeAllUnconfirmed() }
        link.fleet.invalidTokens.mark(tokens) { [self, generation = link.queue.generation] result in
            let marked = link.value(of: result, to: .invalidTokens, of: generation) {
                link.lane.afterRefusal { [self] in
                    if generation == link.queue.generation, link.store.isReady { writeUnconfirmed() }
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
        guard !awaitingTokens.isEmpty, writingTokens.isEmpty, link.lane.now >= tokensNotBefore else { return }
        var tokens: [InvalidToken] = []
        let last = awaitingTokens.firstIndex { ended in
            tokens += ended.tally.invalidTokens
            return tokens.count >= Self.tokensBatch
        }
        let count = last.map { $0 + 1 } ?? awaitingTokens.count
        writingTokens = Array(awaitingTokens.prefix(count))
        awaitingTokens.removeFirst(count)
        link.fleet.invalidTokens.mark(tokens) { [self] result in
            let batch = writingTokens
            writingTokens = []
            switch result {
            case .success:
                for ended in batch {
                    if ended.generation == link.queue.generation {
                        write(ended)
                    } else {
                        link.lane.metrics.lostClaims += 1
                    }
                    flushIfFull()
                }
                link.refusals.recordAcceptance(.invalidTokens)
                consumer.markedInvalid()
                writeInvalidTokens()
                if link.lane.isDraining { link.lane.schedulePump() }
            case .failure(let failure):
                awaitingTokens = batch + awaitingTokens
                guard failure.isAnswer else { return }
                link.refusals.recordRefusal(.invalidTokens, failure)
                tokensNotBefore = link.lane.now + link.lane.refusalPause
            }
        }
    }

    // MARK: History

    /// Returns and resets the counts for the history that must be written now.
    private func takeCounts() -> MinuteCounts? {
        countsReadAt = link.lane.now
        guard let counts = link.lane.metrics.takeMinute(ofQueue: link.queue.id.index, apps: link.lane.apps.map(\.name))
        else { return nil }
        countsWrittenAt = link.lane.now
        return counts
    }

    /// Writes the counts that no settlement has included for lack of settlements.
    func writeCountsIfDue() {
        guard link.lane.now - countsReadAt >= Self.countsInterval * 2, settlement.isEmpty else { return }
        writeCounts()
    }

    /// Writes the counts for the history without a settlement.
    ///
    /// They are not written again, because without a claim Redis could not detect a repetition. So they are lost if
    /// their connection is. Counts that Redis has refused are written later.
    func writeCounts() {
        guard link.store.isReady, let counts = takeCounts() else { return }
        var settlement = Settlement()
        settlement.minute = counts
        link.store.settle(settlement) { [self] result in
            guard case .failure(.redis(let error)) = result, !error.mayHaveBeenExecuted else { return }
            link.lane.metrics.minutes.putBack(counts, queue: link.queue.id.index)
        }
    }

    // MARK: Jobs

    /// Settles a job whose only notification was delivered and needs no record beyond that.
    /// - Parameter campaign: the name of the job's campaign, if it has one.
    /// - Parameter latency: the time from enqueueing to delivery in milliseconds, for the counters of the campaign.
    func settleDelivered(_ claim: ClaimID, campaign: ByteBuffer? = nil, latency: Int? = nil) {
        settlement.use(campaign: campaign)
        if let latency { settlement.addLatency(latency) }
        settlement.end(claim, .delivered)
        flushIfFull()
    }

    /// True if a part of a job can be written soon.
    var canSettlePart: Bool { link.store.isReady && !isFull }

    /// Returns the claim of the notifications of a job that have not ended, for a settlement of the others.
    func claimOfRest(of fanOut: FanOut) -> ClaimID {
        fanOut.parts += 1
        parts += 1
        return fanOut.claim.rest(afterPart: parts)
    }

    /// Settles a job, or a part of one.
    func settle(_ ended: EndedJob) {
        if !ended.tally.invalidTokens.isEmpty || hasWaitingPart(of: ended) {
            awaitingTokens.append(ended)
        } else {
            write(ended)
        }
        guard case .pieces = ended.replacement else { return flushIfFull() }
        // The pieces are due, for every lane, as soon as this is written.
        flush()
        consumer.split()
    }
}

/// Settlements that were written and not yet confirmed by Redis. No I/O.
///
/// They are written again over each new connection until they are confirmed; executing a settlement a second time has
/// no effect.
struct UnconfirmedSettlements {
    private var batches: [Int: Settlement] = [:]
    private var nextNumber = 0
    private var refused: Set<Int> = []
    /// The number of claims in them.
    private(set) var count = 0
    /// The approximate size of the settlements in bytes.
    private(set) var size = 0

    /// The numbers of all batches, in the order of their first write.
    var numbers: [Int] { batches.keys.sorted() }

    var claims: some Sequence<ClaimID> { batches.values.lazy.flatMap(\.claims) }

    /// True if a claim exists only once one of the batches has been executed.
    func creates(_ claim: ClaimID) -> Bool { batches.values.contains { $0.rests.contains(claim) } }

    /// The invalid tokens that must be in Redis before the batches, oldest first.
    var invalidTokens: [InvalidToken] { numbers.flatMap { batches[$0]?.invalidTokens ?? [] } }

    /// - Returns: the batch's number.
    mutating func append(_ settlement: Settlement) -> Int {
        defer { nextNumber += 1 }
        batches[nextNumber] = settlement
        count += settlement.count
        size += settlement.size
        return nextNumber
    }

    subscript(number: Int) -> Settlement? { batches[number] }

    /// Records that Redis has confirmed a batch, and removes it.
    /// - Returns: the batch; `nil` if it was already confirmed, because it may have been written twice.
    mutating func recordConfirmation(_ number: Int) -> Settlement? {
        refused.remove(number)
        guard let settlement = batches.removeValue(forKey: number) else { return nil }
        count -= settlement.count
        size -= settlement.size
        return settlement
    }

    /// Records that Redis refused a batch, which must be written again after a pause.
    mutating func recordRefusal(_ number: Int) { refused.insert(number) }

    /// Returns true, once, if a refused batch must still be written again.
    mutating func takeRefused(_ number: Int) -> Bool { refused.remove(number) != nil }

    /// Records that all batches are written again over a new connection.
    mutating func recordRewrite() { refused = [] }
}
