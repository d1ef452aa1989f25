import NIOCore
import PushJob
import PushQueue

/// Adds ended jobs to settlements.
extension Settlement {
    /// Ends a job, or replaces it by the rest of it.
    mutating func add(_ ended: EndedJob, of queue: QueueContext) {
        use(campaign: ended.job.campaignName)
        if let latency = ended.tally.latency { addLatency(latency) }
        if let latencies = ended.tally.latencies { addLatencies(latencies) }
        invalidTokens += ended.tally.invalidTokens
        switch ended.replacement {
        case .none, .rest: addNotifications(of: ended, queue)
        case .scheduled(let time):
            var writer = Self.wrapper(of: ended, queue)
            Self.write(.all(count: ended.job.tokenCount), of: ended, to: &writer)
            postpone(
                ended.claim, .scheduled, due: .at(milliseconds: time), head: writer.head(), reason: nil,
                original: ended.original)
        case .pieces(let size): split(ended, into: size, queue)
        }
    }

    private mutating func addNotifications(of ended: EndedJob, _ queue: QueueContext) {
        let (claim, tally, fate) = (ended.claim, ended.tally, ended.fate)
        var counted = tally.outcomes.counted
        let isFreed = ended.fate != nil && ended.job.uniqueFor != nil && !queue.keepsReservation(ended.job, tally)
        // The job has only one notification, and nothing but its outcome is counted.
        if case .ended(let outcome) = fate, ended.job.tokens == nil, !counted.isEmpty, tally.possibleDuplicates == 0,
            !isFreed, tally.superfluous == nil
        {
            return end(claim, outcome, results: tally.results)
        }
        let endsDead = fate != nil && tally.postponed.isEmpty && fate != .mixed && counted.isEmpty
        for (index, dead) in tally.dead.enumerated() {
            bury(dead, of: ended, queue, settles: endsDead && index == tally.dead.count - 1)
        }
        for (index, postponed) in tally.postponed.enumerated() {
            postpone(postponed, of: ended, queue, settles: fate != nil && index == tally.postponed.count - 1)
        }
        if isFreed, let reservation = queue.reservation(of: ended.job, claim: ended.firstClaim) {
            free(reservation, of: claim, ifExhausted: !tally.postponed.isEmpty)
        }
        if case .rest(let rest, let head) = ended.replacement {
            keep(claim, as: rest, head: head, original: ended.original)
        } else if case .ended(let outcome) = fate, let count = counted.first?.count {
            end(claim, outcome, notifications: count)
            counted = []
        } else if tally.postponed.isEmpty, !endsDead {
            endMixed(claim)
        }
        for (outcome, count) in counted { addCount(outcome.rawValue, count) }
        addResults(tally.results)
        if let (reason, count) = tally.superfluous { addCount("dropped:\(reason.code.text)", count) }
        if tally.possibleDuplicates > 0 { addCount("possible_duplicates", tally.possibleDuplicates) }
        if tally.reclaimed > 0 { addCount("possible_duplicates:reclaimed", tally.reclaimed) }
    }

    private mutating func postpone(
        _ postponed: JobTally.Postponed, of ended: EndedJob, _ queue: QueueContext, settles: Bool
    ) {
        guard postponed.kind != .retried else { return fail(postponed, of: ended, queue, settles: settles) }
        var writer = Self.wrapper(of: ended, queue)
        Self.write(postponed.recipients, of: ended, to: &writer)
        let code = postponed.reason.code.text
        writer.write(waitStatus: postponed.status, reason: code, at: queue.now)
        if settles {
            postpone(
                ended.claim, postponed.kind, due: .after(milliseconds: postponed.delay), head: writer.head(),
                reason: code, original: ended.original)
        } else {
            postponePart(
                of: ended.claim, afterMilliseconds: postponed.delay, head: writer.head(), original: ended.original)
        }
        // If the deferral settles the claim, Redis counts one of the notifications with it.
        addCounts(postponed.kind.rawValue, code, postponed.recipients.count - (settles ? 1 : 0))
    }

    private mutating func fail(
        _ failed: JobTally.Postponed, of ended: EndedJob, _ queue: QueueContext, settles: Bool
    ) {
        var writer = Self.wrapper(of: ended, queue, fails: true)
        Self.write(failed.recipients, of: ended, to: &writer)
        let code = failed.reason.code.text
        writer.write(errorStatus: failed.status, reason: code, at: queue.now)
        var failure = Failure(
            rule: failed.attempt, reason: code, notifications: failed.recipients.count, delay: failed.delay,
            head: writer.head(), group: ended.group, original: ended.original)
        if case .judged = failed.attempt {
            failure.deadMembers.writeString(",\"attempts\":\(ended.attempts)")
            failure.deadMembers.writeImmutableBuffer(
                DeadLetter.members(
                    job: ended.job, app: ended.app, firstSeen: ended.firstSeen, status: failed.status, error: code,
                    tokens: Self.buriedTokens(failed.recipients, ended.job),
                    keepsReservation: queue.keepsReservation(ended.job, ended.tally)))
            failure.results = failed.results
        }
        fail(ended.claim, failure, settles: settles)
    }

    /// Returns the tokens that a dead letter names.
    private static func buriedTokens(_ recipients: JobTally.Recipients, _ job: Job) -> [ByteBuffer] {
        switch recipients {
        // A list of tokens in the wrapper replaces the producer's list.
        case .all: job.envelope.tokens(in: job.body)
        case .some(let tokens): job.tokens == nil ? [] : tokens
        }
    }

    private mutating func bury(_ dead: JobTally.Dead, of ended: EndedJob, _ queue: QueueContext, settles: Bool) {
        let job = ended.job
        let members = DeadLetter.members(
            job: job, app: ended.app, firstSeen: ended.firstSeen, detail: dead.reason.detail, status: dead.status,
            error: dead.cause?.code.text, tokens: Self.buriedTokens(dead.recipients, job),
            keepsReservation: queue.keepsReservation(job, ended.tally))
        let code = dead.reason.code.text
        bury(
            ended.claim, as: dead.outcome, reason: code, attempts: ended.attempts, members: members,
            original: ended.original, settles: settles)
        // If the dead letter settles the claim, Redis counts one of the notifications with it.
        let more = dead.recipients.count - (settles ? 1 : 0)
        guard dead.outcome == .cancelled else { return addCounts(dead.outcome.rawValue, code, more) }
        // A cancellation has only one reason, so reasons are not counted.
        if more > 0 { addCount(dead.outcome.rawValue, more) }
    }

    private mutating func addCounts(_ counter: String, _ reason: String, _ count: Int) {
        guard count > 0 else { return }
        addCount(counter, count)
        addCount("\(counter):\(reason)", count)
    }

    private mutating func split(_ ended: EndedJob, into size: Int, _ queue: QueueContext) {
        let job = ended.job
        let pieces = job.tokenPieces(of: size)
        split(
            ended.claim, prefix: Self.wrapper(of: ended, queue, namesClaim: false).prefix(),
            fair: job.isUrgent ? nil : job.fair.map(job.text) ?? ByteBuffer(),
            pieces: job.isRewritten ? pieces : pieces.map(ended.place), cut: ended.place(job.tokensMember),
            original: ended.original, text: job.isRewritten ? job.body : nil)
    }

    // MARK: Wrappers

    /// Returns the beginning of a wrapper.
    /// - Parameter fails: true if the caller writes a failure, which replaces the last one.
    private static func wrapper(
        of ended: EndedJob, _ queue: QueueContext, fails: Bool = false, namesClaim: Bool = true
    ) -> EnvelopeWriter {
        queue.wrapper(
            of: ended.job, claim: ended.claim, firstClaim: ended.firstClaim,
            attempt: ended.job.envelope.attempt, firstSeen: ended.firstSeen,
            refusedBy: ended.refusedBy, fails: fails, namesClaim: namesClaim,
            // A piece or a part of a job does not know how the other pieces or parts end.
            keepsReservation: queue.keepsReservation(ended.job, ended.tally)
                || ended.job.uniqueFor != nil && (ended.fate == nil || ended.fate == .split))
    }

    /// Writes the tokens of the recipients, unless they are the same as the producer's list.
    private static func write(
        _ recipients: JobTally.Recipients, of ended: EndedJob, to writer: inout EnvelopeWriter
    ) {
        let job = ended.job
        switch recipients {
        case .some(let tokens): if job.tokens != nil { writer.write(tokens: tokens) }
        case .all:
            guard job.envelope.overridesTokens else { return }
            // If the job can't be read, only its wrapper has the tokens.
            writer.write(tokens: job.tokens.map { $0.map(job.text) } ?? job.envelope.tokens(in: job.body))
        }
    }
}
