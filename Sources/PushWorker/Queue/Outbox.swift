import NIOCore
import PushJob
import PushQueue

/// The settlements of a queue's jobs on their way to Redis. They are collected into batches, written after the invalid tokens of their
/// jobs, and written again until Redis confirms them.
final class Outbox {
    /// A batch with this number of claims is written.
    static let batch = 256
    /// A batch, or a part of a job, with this many bytes of results is written. A job with 1,000 tokens has about half as many.
    static let resultBytes = 1 << 18
    /// A batch with this many bytes of copied jobs is written, because its script blocks Redis for some milliseconds.
    private static let batchBytes = 1 << 20
    /// A batch is written this long after its first job. A busy lane claims earlier, and writes the batch with the claim.
    private static let batchDelay = TimeAmount.milliseconds(20)
    /// The maximum number of invalid tokens per write. The last job may exceed it, because the tokens of one job are not divided.
    private static let tokensBatch = 2000
    /// The lane claims no more jobs of the queue while this number of settlements is unconfirmed.
    private static let maximumUnconfirmed = 10_000
    /// The same limit in bytes, because settlements of jobs with many retried tokens are large.
    private static let maximumUnconfirmedSize = 64 << 20
    /// The interval between settlements that include the lane's counts for the history.
    private static let countsInterval = TimeAmount.seconds(1)

    let link: QueueLink
    private unowned let consumer: QueueConsumer
    /// The settlements to write next.
    private var settlement = Settlement()
    private var unconfirmed = UnconfirmedSettlements()
    private let flushSoon: SoonTask
    /// The latest time to write the current batch.
    private var flushAt = NIODeadline.distantFuture
    /// The due time of the first retry in ``settlement``.
    private var nextRetry = NIODeadline.distantFuture
    /// The number of settled parts of jobs. It numbers the claims of the rests of jobs. After a rollback a job is processed again under an
    /// old claim, and its new parts must not have the numbers of the old ones.
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

    var isEmpty: Bool { count == 0 }

    /// Calls the function with each claim whose settlement is not confirmed.
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

    /// Adds an ended job, or a part of one, to the next batch. Its invalid tokens are in the set. A part waits until the settlement of the
    /// part before is confirmed.
    private func write(_ ended: EndedJob) {
        if mustAwaitPart(ended) { return awaitingPart.append(ended) }
        if let fate = ended.fate { link.lane.metrics.count(fate, queue: link.queue.id.index) }
        settlement.add(ended, of: link.queue)
        if case .scheduled(let time) = ended.replacement { expectRetry(in: time - link.queue.now) }
        guard ended.refusedBy.isEmpty else { return consumer.gaveBack() }
        for postponed in ended.tally.postponed { expectRetry(in: postponed.delay) }
    }

    /// Records that a retry in the settlement is due after a delay in milliseconds. Later retries need no record, because the polling lane
    /// finds them.
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
            // A claim may have written the batch in the meantime.
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
            // Redis reports these once, even to a lane that has lost its lease.
            if case .success(let settled) = result {
                for campaign in settled.stopped { consumer.stopped(campaign) }
                for exhausted in settled.exhausted { link.record(exhausted) }
            }
            let settled = link.value(of: result, to: .settlements, of: generation) {
                unconfirmed.recordRefusal(number)
                link.lane.afterRefusal { [self] in
                    // It may have been written again over a new connection in the meantime.
                    if unconfirmed.takeRefused(number) { write(number, again: true) }
                }
            }
            // If it was written twice, only the first answer counts.
            guard let settled, unconfirmed.recordConfirmation(number) != nil else { return }
            link.logEvictions(settled.evicted)
            if !again { link.lane.metrics.lostClaims += settled.lost }
            writeAwaitingParts()
            if link.lane.isDraining { link.lane.schedulePump() }
        }
    }

    /// Writes unconfirmed settlements again over a new connection. Those that Redis has executed have no effect now.
    ///
    /// After a failover, the new server may have neither a settlement nor the invalid tokens that the old server confirmed. So the tokens
    /// are written again too, before the settlements.
    func writeUnconfirmed() {
        unconfirmed.recordRewrite()
        let tokens = unconfirmed.invalidTokens + settlement.invalidTokens
        // In a Cluster the set of invalid tokens may be on another server, which did not fail over.
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

    /// Returns and resets the counts for the history.
    private func takeCounts() -> MinuteCounts? {
        countsReadAt = link.lane.now
        guard let counts = link.lane.metrics.takeMinute(ofQueue: link.queue.id.index, apps: link.lane.apps.map(\.name))
        else { return nil }
        countsWrittenAt = link.lane.now
        return counts
    }

    /// Writes the counts alone if there was no settlement to include them for some time.
    func writeCountsIfDue() {
        guard link.lane.now - countsReadAt >= Self.countsInterval * 2, settlement.isEmpty else { return }
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
            link.lane.metrics.minutes.putBack(counts, queue: link.queue.id.index)
        }
    }

    // MARK: Jobs

    /// Settles a job whose only notification was delivered, and that has no tally.
    /// - Parameters:
    ///   - campaign: the name of the job's campaign, if it has one.
    ///   - latency: the time from enqueueing to delivery in milliseconds, for the counters of the campaign.
    func settleDelivered(_ claim: ClaimID, campaign: ByteBuffer? = nil, latency: Int? = nil) {
        settlement.use(campaign: campaign)
        if let latency { settlement.addLatency(latency) }
        settlement.end(claim, .delivered)
        flushIfFull()
    }

    /// True if a part of a job can be written soon.
    var canSettlePart: Bool { link.store.isReady && !isFull }

    /// Returns a claim for the notifications of a job that have not ended, because the others are settled.
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
        // The pieces are due for every lane as soon as this is written.
        flush()
        consumer.split()
    }
}

/// Settlements that were written and that Redis has not confirmed. No I/O.
///
/// They are written again over each new connection, because executing a settlement twice has no effect.
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

    /// True if one of the batches creates the claim.
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
    /// - Returns: the batch; `nil` if it was confirmed before, because it was written twice.
    mutating func recordConfirmation(_ number: Int) -> Settlement? {
        refused.remove(number)
        guard let settlement = batches.removeValue(forKey: number) else { return nil }
        count -= settlement.count
        size -= settlement.size
        return settlement
    }

    /// Records that Redis refused a batch. It must be written again after a pause.
    mutating func recordRefusal(_ number: Int) { refused.insert(number) }

    /// Returns true if a refused batch must still be written again. Then it returns false.
    mutating func takeRefused(_ number: Int) -> Bool { refused.remove(number) != nil }

    /// Records that all batches are written again over a new connection.
    mutating func recordRewrite() { refused = [] }
}
