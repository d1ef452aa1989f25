import NIOCore
import PushJob
import PushQueue

/// Jobs that wait for answers to one kind of question, in the order of their claims. No I/O.
struct Pending<Question> {
    struct Entry {
        let job: UnsentJob
        let question: Question
    }

    private(set) var entries: [Entry] = []
    /// True while the questions of the first entries are in flight.
    private var isAsking = false

    mutating func append(_ job: UnsentJob, _ question: Question) {
        entries.append(Entry(job: job, question: question))
    }

    /// Returns the entries whose questions are asked next, if any. A call of ``recordAnswers(_:)`` must follow.
    /// - Parameter maximum: the maximum number; 0 while Redis can't be asked.
    mutating func next(_ maximum: Int) -> [Entry]? {
        guard !entries.isEmpty, maximum > 0, !isAsking else { return nil }
        isAsking = true
        return Array(entries.prefix(maximum))
    }

    /// Records the answers to the first entries. Entries without an answer stay.
    /// - Parameter areAnswered: true for each entry with an answer.
    mutating func recordAnswers(_ areAnswered: [Bool]) {
        isAsking = false
        let kept = zip(entries, areAnswered).filter { !$0.1 }.map(\.0)
        entries.replaceSubrange(..<areAnswered.count, with: kept)
    }
}

/// The decoded jobs of a queue that wait for an answer from Redis before they can be accepted.
///
/// They wait until there is an answer, the lease is lost, or a drain releases them with the lane's other claims. If a question is repeated,
/// Redis gives the same answer.
final class WaitingJobs {
    /// The maximum number of jobs per call.
    private static let maximumBatch = 256
    /// The maximum number of jobs whose turns are asked for together.
    private static let maximumTurns = 1000

    private let link: QueueLink
    private let ledger: Ledger
    private var reservations = Pending<Reservation>()
    private var newest = Pending<NewestJob>()
    private var turns = Pending<TurnQuestion>()
    private let soon: SoonTask
    private let intake: Intake

    init(_ ledger: Ledger, _ intake: Intake) {
        (link, self.ledger, self.intake) = (ledger.link, ledger, intake)
        soon = SoonTask(link.lane.eventLoop)
    }

    var isEmpty: Bool { count == 0 }
    var count: Int { reservations.entries.count + newest.entries.count + turns.entries.count }

    /// Calls the function with the claim of each waiting job.
    func forEachClaim(_ body: (ClaimID) -> Void) {
        for entry in reservations.entries { body(entry.job.claim) }
        for entry in newest.entries { body(entry.job.claim) }
        for entry in turns.entries { body(entry.job.claim) }
    }

    /// Discards all jobs, because their claims belong to other lanes now.
    /// - Returns: their number.
    func forget() -> Int {
        defer { (reservations, newest, turns) = (Pending(), Pending(), Pending()) }
        return count
    }

    /// Adds a job if it needs a step first. All jobs of a claim are asked for in the same call.
    func append(_ prerequisite: Prerequisite?) {
        switch prerequisite {
        case .reservation(let reservation, let job): reservations.append(job, reservation)
        case .newest(let question, let job): newest.append(job, question)
        case .turn(let turn, let job): turns.append(job, turn)
        case nil: return
        }
        guard !soon.isScheduled else { return }
        soon.schedule { [self] in ask() }
    }

    /// Asks all questions. Also called when the connection is restored.
    func ask() {
        reserve()
        askForNewest()
        takeTurns()
    }

    private func reserve() {
        askFor(\.reservations, .reservations, link.store.reserve, again: { [self] in reserve() }) { [self] in
            reserved($0, $1)
        }
    }

    private func askForNewest() {
        askFor(\.newest, .newest, link.store.newest, again: { [self] in askForNewest() }) { [self] in confirmed($0, $1)
        }
    }

    /// Asks all questions of one kind, in calls of limited size.
    private func askFor<Question, Answer>(
        _ pending: ReferenceWritableKeyPath<WaitingJobs, Pending<Question>>, _ request: QueueLink.Request,
        _ call: ([Question], @escaping (Result<[Answer], QueueFailure>) -> Void) -> Void, again: @escaping () -> Void,
        answered: @escaping (Pending<Question>.Entry, Answer) -> Void
    ) {
        let most = link.canAsk ? Self.maximumBatch : 0
        guard let batch = self[keyPath: pending].next(most) else { return }
        call(batch.map(\.question)) { [self, generation = link.queue.generation] result in
            let answers = link.value(of: result, to: request, of: generation) { link.lane.afterRefusal(again) }
            if generation == link.queue.generation {
                self[keyPath: pending].recordAnswers(batch.map { _ in answers != nil })
            }
            guard let answers else { return }
            for (entry, answer) in zip(batch, answers) { answered(entry, answer) }
            again()
            link.lane.schedulePump()
        }
    }

    private func confirmed(_ entry: Pending<NewestJob>.Entry, _ newest: ByteBuffer?) {
        if let other = entry.question.replacement(by: newest) {
            return ledger.record(.replaced(by: other), of: entry.job)
        }
        // In a drain the job is released with the lane's other claims.
        guard link.lane.isWorking else { return }
        var job = entry.job
        job.claimed.confirmedAt = link.lane.now
        append(intake.accept(job))
    }

    private func reserved(_ entry: Pending<Reservation>.Entry, _ result: ReservationResult) {
        var job = entry.job
        switch result {
        // In a drain the job is released with the lane's other claims.
        case .granted:
            guard link.lane.isWorking else { return }
            job.claimed.hasReservation = true
            append(intake.accept(job))
        case .duplicate: ledger.record(.duplicate, of: job)
        case .lost: link.lane.metrics.lostClaims += 1
        }
    }

    private func takeTurns() {
        guard let batch = turns.next(link.canAsk ? Self.maximumTurns : 0) else { return }
        // One call for each limit, in the same write.
        var calls: [(limit: SharedRates.Limit, entries: [Int])] = []
        var places: [SharedRates.Limit: Int] = [:]
        for (index, entry) in batch.enumerated() {
            if let place = places[entry.question.limit] {
                calls[place].entries.append(index)
            } else {
                places[entry.question.limit] = calls.count
                calls.append((entry.question.limit, [index]))
            }
        }
        let asked = AskedTurns(batch, calls: calls.count)
        for call in calls {
            link.fleet.store.rates.take(call.entries.map { batch[$0].question.turn }, of: call.limit) {
                [self, generation = link.queue.generation] result in
                let waits = link.value(of: result, to: .turns, of: generation) { asked.isRefused = true }
                for (entry, wait) in zip(call.entries, waits ?? []) { asked.waits[entry] = wait }
                asked.unanswered -= 1
                if asked.unanswered == 0, generation == link.queue.generation { answered(asked) }
            }
        }
    }

    private func answered(_ asked: AskedTurns) {
        let areAnswered = asked.waits.map { $0 != nil }
        turns.recordAnswers(areAnswered)
        for (entry, wait) in zip(asked.entries, asked.waits) {
            if let wait { turned(entry.job, entry.question.limit, wait: wait) }
        }
        if asked.isRefused {
            link.lane.afterRefusal { [self] in takeTurns() }
        } else if !areAnswered.contains(false) {
            takeTurns()
        }
        link.lane.schedulePump()
    }

    /// - Parameter wait: 0 if the job may be sent now. Otherwise it asks again after this number of milliseconds.
    private func turned(_ waiting: UnsentJob, _ limit: SharedRates.Limit, wait: Int) {
        // In a drain the job is released with the lane's other claims.
        guard link.lane.isWorking else { return }
        var job = waiting
        let reason: Reason.Own
        switch limit {
        case .campaign: (job.claimed.hasTurn, reason) = (true, .campaignLimited)
        case .fair: (job.claimed.hasFairTurn, reason) = (true, .fairLimited)
        }
        if wait > 0 { return ledger.record(.deferred(Reason(reason), delay: Int64(wait)), of: waiting) }
        append(intake.accept(job))
    }
}

/// The jobs whose turns are asked for together.
private final class AskedTurns {
    let entries: [Pending<TurnQuestion>.Entry]
    /// For each job 0 if it may be sent now, or the milliseconds until it asks again; `nil` without an answer.
    var waits: [Int?]
    /// The number of unanswered calls.
    var unanswered: Int
    /// True if Redis has refused a call.
    var isRefused = false

    init(_ entries: [Pending<TurnQuestion>.Entry], calls: Int) {
        (self.entries, unanswered) = (entries, calls)
        waits = Array(repeating: nil, count: entries.count)
    }
}
