import NIOCore
import PushJob
import PushQueue

/// A claimed job.
struct ClaimedJob {
    /// Its bytes, as Redis has them.
    var body: ByteBuffer
    var claim: ClaimID
    /// True if the job may have been sent before under the same claim.
    var isRecovered = false
    /// True if the job's turn within its campaign's rate has come.
    var hasTurn = false
    /// The number of bytes by which the producer's bytes have moved in ``body`` since the job was decoded, because the
    /// wrapper notes a reservation.
    var shift = 0

    /// Returns the range in ``body`` of a range of the decoded bytes.
    func place(_ range: Range<Int>) -> Range<Int> { range.lowerBound + shift..<range.upperBound + shift }
}

/// A step before a decoded job can be accepted.
///
/// Indirect, because nearly all jobs need none and their `nil` should be small.
indirect enum Prerequisite {
    /// It must be the only job with its id.
    case reservation(Reservation, of: UnsentJob)
    /// It needs a turn within its campaign's rate.
    case turn(Turn, of: UnsentJob)

    /// The rate within which a job needs a turn.
    struct Turn: Equatable {
        let campaign: String
        let perSecond: Int
        /// The time at which the limit was set, in milliseconds since 1970.
        let since: Int64
    }
}

/// The decoded jobs of a queue that wait for an answer from Redis before they can be accepted.
///
/// They wait until they are answered, the lease is lost, or a drain releases them with the lane's other claims.
final class WaitingJobs {
    private let link: QueueLink
    private let reservations: Pending<Reservation, ReservationResult>
    private let turns: Pending<Prerequisite.Turn, Int>
    private let accept: (UnsentJob) -> Prerequisite?
    /// Called when all answers of a call were handled.
    var report: () -> Void = {}

    /// - Parameter accept: accepts a job after a step, or ends it, and returns the next step.
    init(_ link: QueueLink, accept: @escaping (UnsentJob) -> Prerequisite?) {
        self.link = link
        self.accept = accept
        reservations = .reservations(link)
        turns = .turns(link)
        reservations.handle = { [unowned self] in reserved($0, $1) }
        reservations.report = { [unowned self] in report() }
        turns.handle = { [unowned self] in turned($0, wait: $1) }
        turns.report = { [unowned self] in report() }
    }

    var isEmpty: Bool { count == 0 }
    var count: Int { reservations.entries.count + turns.entries.count }

    /// Asks Redis for what a job needs first.
    func append(_ prerequisite: Prerequisite) {
        switch prerequisite {
        case .reservation(let reservation, let job): reservations.append(job, reservation)
        case .turn(let turn, let job): turns.append(job, turn)
        }
    }

    /// Asks again, because the connection was restored.
    func askAgain() {
        turns.ask()
        reservations.ask()
    }

    /// Passes each claim of a waiting job.
    func forEachClaim(_ body: (ClaimID) -> Void) {
        for entry in reservations.entries {
            body(entry.question.claim)
            body(entry.question.reservedClaim)
        }
        for entry in turns.entries { body(entry.job.claim) }
    }

    /// Discards all jobs, because their claims belong to other lanes now.
    /// - Returns: their number.
    func forget() -> Int {
        defer {
            reservations.forget()
            turns.forget()
        }
        return count
    }

    private func reserved(_ entry: Pending<Reservation, ReservationResult>.Entry, _ result: ReservationResult) {
        switch result {
        // In a drain the job is released with the lane's other claims and keeps its reservation.
        case .granted:
            guard link.lane.isWorking else { return }
            var job = entry.job
            job.recordReservation(entry.question)
            if let next = accept(job) { append(next) }
        case .duplicate: link.ledger.recordDuplicate(entry.job)
        case .lost: link.ledger.recordLostClaims(1)
        }
    }

    /// - Parameter wait: the milliseconds until the job may be sent.
    private func turned(_ entry: Pending<Prerequisite.Turn, Int>.Entry, wait: Int) {
        // In a drain the job is released with the lane's other claims.
        guard link.lane.isWorking else { return }
        guard wait == 0 else {
            return link.ledger.record(.deferred(Reason(.campaignLimited), delay: Int64(wait)), of: entry.job)
        }
        var job = entry.job
        job.claimed.hasTurn = true
        if let next = accept(job) { append(next) }
    }
}

/// Jobs that wait for answers of one kind, in the order of their claims.
final class Pending<Question, Answer> {
    struct Entry {
        let job: UnsentJob
        let question: Question
    }

    typealias Send = ([Entry], @escaping (Result<[Answer], QueueConnection.Failure>) -> Void) -> Void

    private let link: QueueLink
    private let request: QueueLink.Request
    private let next: ([Entry]) -> ArraySlice<Entry>
    private let send: Send
    private let soon: SoonTask
    /// Called with each answer.
    var handle: (Entry, Answer) -> Void = { _, _ in }
    /// Called when all answers of a call were handled.
    var report: () -> Void = {}
    private(set) var entries: [Entry] = []
    private var isAsking = false

    /// - Parameters:
    ///   - next: returns the first entries that one call asks for.
    ///   - send: sends the call.
    init(
        _ link: QueueLink, _ request: QueueLink.Request, next: @escaping ([Entry]) -> ArraySlice<Entry>,
        send: @escaping Send
    ) {
        self.link = link
        self.request = request
        self.next = next
        self.send = send
        soon = SoonTask(link.lane.eventLoop)
    }

    /// Adds a job. All jobs of a claim are asked for in the same call.
    func append(_ job: UnsentJob, _ question: Question) {
        entries.append(Entry(job: job, question: question))
        guard !soon.isScheduled else { return }
        soon.schedule { [self] in ask() }
    }

    /// Asks for the jobs that have waited longest. A question that was answered before gets the same answer.
    func ask() {
        guard !entries.isEmpty, !isAsking, link.canAsk else { return }
        isAsking = true
        let (batch, generation) = (Array(next(entries)), link.queue.generation)
        send(batch) { [self] result in
            if generation == link.queue.generation { isAsking = false }
            let answers = link.value(of: result, to: request, of: generation) {
                link.lane.afterRefusal { [self] in ask() }
            }
            guard let answers else { return }
            entries.removeFirst(batch.count)
            for (entry, answer) in zip(batch, answers) { handle(entry, answer) }
            ask()
            report()
        }
    }

    func forget() { (entries, isAsking) = ([], false) }
}

extension Pending<Reservation, ReservationResult> {
    /// The maximum number of reservations per call.
    private static var maximumCount: Int { 256 }
    /// The maximum bytes of jobs that a call copies, unless the first job alone is larger.
    private static var maximumBytes: Int { 1 << 20 }

    /// Jobs that must be the only ones with their ids.
    static func reservations(_ link: QueueLink) -> Pending {
        Pending(
            link, .reservations,
            next: { entries in
                var bytes = 0
                return entries.prefix(maximumCount).prefix { entry in
                    defer { bytes += entry.job.claimed.body.readableBytes }
                    return bytes < maximumBytes
                }
            },
            send: { link.store.reserve($0.map(\.question), completion: $1) })
    }
}

extension Pending<Prerequisite.Turn, Int> {
    /// The maximum number of jobs per call.
    private static var maximumCount: Int { 1000 }

    /// Jobs of campaigns whose rate is limited. An answer is the milliseconds until the job may be sent.
    static func turns(_ link: QueueLink) -> Pending {
        Pending(
            link, .turns,
            next: { entries in entries.prefix(maximumCount).prefix { $0.question == entries[0].question } },
            send: { entries, completion in
                guard let turn = entries.first?.question else { return completion(.success([])) }
                link.store.limit(
                    campaign: turn.campaign, perSecond: turn.perSecond, since: turn.since,
                    amounts: entries.map(\.job.notifications), completion: completion)
            })
    }
}
