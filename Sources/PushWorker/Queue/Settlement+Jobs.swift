import NIOCore
import PushJob
import PushQueue

/// A job of which all notifications have ended, or some, on its way to a settlement.
struct EndedJob {
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

/// Settlements of jobs according to what became of their notifications.
extension Settlement {
    // MARK: Ended jobs

    /// Ends a job, or replaces it by what is left of it.
    /// - Parameters:
    ///   - fate: the job's; `nil` if notifications are left.
    ///   - app: the name of the job's app.
    mutating func add(
        _ ended: EndedJob, _ job: Job, _ tally: JobTally, _ fate: Fate?, of queue: QueueContext,
        app: @autoclosure () -> String
    ) {
        let (claim, original) = (ended.job.claim, ended.original ?? job.original)
        var counted = tally.outcomes.counted
        use(campaign: job.campaignName)
        invalidTokens += tally.invalidTokens
        if case .ended(let outcome) = fate, job.tokens == nil, !counted.isEmpty, tally.possibleDuplicates == 0 {
            return end(claim, outcome, results: tally.results)
        }
        let endsDead = fate != nil && tally.postponed.isEmpty && fate != .mixed && counted.isEmpty
        for (index, dead) in tally.dead.enumerated() {
            let members = DeadLetter.members(
                job: job, app: app(), firstSeen: ended.job.firstSeen, detail: dead.reason.detail, status: dead.status,
                error: dead.cause?.code.text, tokens: job.tokens == nil ? [] : dead.tokens)
            bury(
                claim, as: dead.outcome, dead.reason, attempts: job.envelope.attempt, members: members,
                original: original, count: dead.tokens.count, settles: endsDead && index == tally.dead.count - 1)
        }
        for (index, postponed) in tally.postponed.enumerated() {
            postpone(
                postponed, of: ended, job, in: queue, original: original,
                settles: fate != nil && index == tally.postponed.count - 1)
        }
        if let rest = ended.rest {
            keep(claim, as: rest.claim, head: rest.head, original: original)
        } else if case .ended(let outcome) = fate, let count = counted.first?.count {
            end(claim, outcome, notifications: count)
            counted = []
        } else if tally.postponed.isEmpty, !endsDead {
            endMixed(claim)
        }
        for (outcome, count) in counted { addCount(outcome.rawValue, count) }
        addResults(tally.results)
        if tally.possibleDuplicates > 0 { addCount("possible_duplicates", tally.possibleDuplicates) }
        if tally.reclaimed > 0 { addCount("possible_duplicates:reclaimed", tally.reclaimed) }
    }

    private mutating func postpone(
        _ postponed: JobTally.Postponed, of ended: EndedJob, _ job: Job, in queue: QueueContext,
        original: Range<Int>, settles: Bool
    ) {
        let claim = ended.job.claim
        var writer = queue.wrapper(
            of: job, claim: claim, firstClaim: ended.job.firstClaim,
            attempt: job.envelope.attempt + (postponed.spendsAttempt ? 1 : 0), firstSeen: ended.job.firstSeen)
        if job.tokens != nil { writer.write(tokens: postponed.tokens) }
        if postponed.kind == .deferred { writer.write(why: .deferred) }
        let code = postponed.reason.code.text
        writer.write(errorStatus: postponed.status, reason: code, at: queue.now)
        if settles {
            postpone(
                claim, postponed.kind, due: .after(milliseconds: postponed.delay), head: writer.head(), reason: code,
                original: original)
        } else {
            postponePart(of: claim, afterMilliseconds: postponed.delay, head: writer.head(), original: original)
        }
        // One notification is counted already if the retry settles its claim, and none otherwise.
        addCounts(postponed.kind.rawValue, code, postponed.tokens.count - (settles ? 1 : 0))
    }

    private mutating func bury(
        _ claim: ClaimID, as outcome: Outcome, _ reason: Reason, attempts: Int, members: ByteBuffer,
        original: Range<Int>, count: Int, settles: Bool = true
    ) {
        let code = reason.code.text
        bury(
            claim, as: outcome, reason: code, attempts: attempts, members: members, original: original,
            settles: settles)
        // One notification is counted already if the dead letter settles its claim, and none otherwise.
        let more = count - (settles ? 1 : 0)
        guard outcome == .cancelled else { return addCounts(outcome.rawValue, code, more) }
        // There is only one reason.
        if more > 0 { addCount(outcome.rawValue, more) }
    }

    private mutating func addCounts(_ counter: String, _ reason: String, _ count: Int) {
        guard count > 0 else { return }
        addCount(counter, count)
        addCount("\(counter):\(reason)", count)
    }

    // MARK: Jobs that are not sent

    mutating func add(_ unsent: UnsentJob, _ end: UnsentEnd, results: PackedResults) {
        use(campaign: unsent.job.campaignName)
        switch end {
        case .dead(let reason): bury(unsent, as: .dead, reason, results)
        case .cancelled(_, let command) where !command.discards:
            bury(unsent, as: .cancelled, Reason(.cancelled, detail: command.detail), results)
        case .expired: self.end(unsent, .expired, results)
        case .cancelled: self.end(unsent, .cancelled, results)
        case .deferred(let reason, let delay): deferJob(unsent, reason, delay: delay)
        case .scheduled(let time): schedule(unsent, at: time)
        case .split(let size): split(unsent, into: size)
        }
    }

    private mutating func bury(_ unsent: UnsentJob, as outcome: Outcome, _ reason: Reason, _ results: PackedResults) {
        let members = DeadLetter.members(
            job: unsent.job, firstSeen: unsent.firstSeen, detail: reason.detail,
            tokens: unsent.envelope.tokens(in: unsent.body))
        bury(
            unsent.claim, as: outcome, reason, attempts: unsent.envelope.attempt - 1, members: members,
            original: unsent.original, count: unsent.notifications)
        addResults(results)
    }

    private mutating func end(_ unsent: UnsentJob, _ outcome: Outcome, _ results: PackedResults) {
        if unsent.notifications == 1 { return end(unsent.claim, outcome, results: results) }
        end(unsent.claim, outcome, notifications: unsent.notifications)
        addResults(results)
    }

    private mutating func deferJob(_ unsent: UnsentJob, _ reason: Reason, delay: Int64) {
        let (job, queue) = (unsent.job, unsent.queue)
        var writer = queue.wrapper(
            of: job, claim: unsent.claim, attempt: job.envelope.attempt, firstSeen: unsent.firstSeen)
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
        postpone(
            unsent.claim, .deferred, due: .after(milliseconds: delay), head: writer.head(), reason: code,
            original: unsent.original)
        addCounts("deferred", code, unsent.notifications - 1)
    }

    private mutating func schedule(_ unsent: UnsentJob, at time: Int64) {
        let (job, queue) = (unsent.job, unsent.queue)
        var writer = queue.wrapper(
            of: job, claim: unsent.claim, attempt: job.envelope.attempt, firstSeen: queue.now)
        if job.envelope.overridesTokens, let tokens = job.tokens { writer.write(tokens: tokens.map(job.text)) }
        writer.write(why: .scheduled)
        postpone(
            unsent.claim, .scheduled, due: .at(milliseconds: time), head: writer.head(), reason: nil,
            original: unsent.original)
    }

    private mutating func split(_ unsent: UnsentJob, into size: Int) {
        let job = unsent.job
        let writer = unsent.queue.wrapper(
            of: job, claim: unsent.claim, attempt: job.envelope.attempt, firstSeen: unsent.firstSeen,
            namesClaim: false)
        let pieces = job.tokenPieces(of: size)
        split(
            unsent.claim, prefix: writer.prefix(), pieces: job.isRewritten ? pieces : pieces.map(unsent.claimed.place),
            cut: unsent.claimed.place(job.tokensMember), original: unsent.original,
            text: job.isRewritten ? job.body : nil)
    }
}
