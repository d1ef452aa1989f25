import NIOCore
import Operations
import PushQueue
import Redis
import Sockets

/// Hands the results of one queue to a receiver, each at least once, as a consumer of a group.
///
/// A batch that the receiver does not accept is handed over again, with growing pauses. If the receiver answers but never accepts the
/// batch, its results are handed over one by one, so that one bad result does not hold up the others. A result that is not accepted on its
/// own either is parked. A receiver that refuses all results ends the process, and no result is skipped.
///
/// Consumers share the stream's entries, each of which has the results of many notifications, and an entry is acknowledged once all of its
/// results were accepted or parked. After a crash, the results of an entry that was handed over in part are handed over again.
struct ResultDelivery {
    struct Limits: Sendable {
        /// The maximum number of results in a batch.
        var batch = 100
        /// The number of times that a result is handed over alone before it is parked.
        var tries = 10
        /// The milliseconds after which the results of a silent consumer are reclaimed.
        var claimAfter = 60_000
        /// True to end when no results are left.
        var once = false
    }

    /// The number of times that a batch is handed over before its results are handed over alone.
    private static let triesTogether = 3
    /// The number of consecutive failures of single results that indicate a problem of the receiver itself. It then gets a pause.
    private static let failuresInRow = 3

    private static let backoff = Backoff(first: .milliseconds(500), longest: .seconds(60), least: 0.8)

    /// While this number of results wait to be handed over alone, new results are taken one at a time.
    private static let maximumSingles = 1000

    enum Ending: Sendable {
        /// All results were accepted.
        case complete
        /// Some results were parked, or were not accepted.
        case incomplete
        /// The receiver has ended, or refuses all results.
        case closed
    }

    private struct ReceiverClosed: Error {}

    private struct Single {
        let result: StoredResult
        let since = ContinuousClock.now
        /// True if the receiver's last answer was that it will never accept this result.
        var isRefused = false
        var tries = 0
        var due = ContinuousClock.now
    }

    /// Decides if failures are due to the receiver or to a result: while the receiver accepts other results, they are due to the result.
    private struct Blame {
        private var accepted: ContinuousClock.Instant?
        /// Results that failed alone since the receiver last accepted one, up to ``failuresInRow`` of them.
        private var failed: Set<String> = []

        /// True if the receiver has accepted results, and fewer than ``failuresInRow`` results have failed since.
        var isReceiverSound: Bool { accepted != nil && failed.count < ResultDelivery.failuresInRow }

        mutating func receiverAccepts() {
            accepted = .now
            failed = []
        }

        mutating func fails(_ single: Single) {
            if failed.count < ResultDelivery.failuresInRow { failed.insert(single.result.id) }
        }

        mutating func forget(_ result: StoredResult) { failed.remove(result.id) }

        /// Returns true if the failure is due to the result: the receiver refused it, and few others failed; or this result failed while
        /// the receiver accepted others.
        func isAtFault(_ single: Single) -> Bool {
            if single.isRefused { return failed.count < ResultDelivery.failuresInRow }
            guard let accepted else { return false }
            return isReceiverSound && accepted >= single.since
        }
    }

    let queue: String
    let group: ResultGroup
    let consumer: String
    let receiver: any ResultReceiver
    let filter: ResultFilter
    let limits: Limits
    /// The time from which a new consumer group gets results, in milliseconds since 1970; `nil` to start with the next result.
    let since: Int64?
    let stop: StopSignal

    private var log: DeliveryLog
    private var blame = Blame()
    /// The entries that this consumer is working on, with the number of results that are left in each entry.
    private var held: [String: Int] = [:]
    /// The handled entries whose acknowledgement is uncertain, because Redis did not answer or the group was lost.
    private var unconfirmed: Set<String> = []
    /// The entries that this consumer had when the group was lost. The reopened group delivers them again.
    private var lost: Set<String> = []
    /// The group's last known position.
    private var position: ResultGroup.Position?
    /// The time at which this consumer last confirmed that it is working on its entries.
    private var renewed = ContinuousClock.now
    /// The entries that were read last.
    private var lastPage: ResultPage?
    /// True if this consumer may have pending entries that it is not working on, because it was restarted or Redis did not answer.
    private var mayHaveLeftovers = true
    private var nextReclaim = ContinuousClock.now
    /// True if the receiver has accepted nothing for so long that a run with ``Limits/once`` no longer waits for it.
    private var hasGivenUp = false

    init(
        _ queue: String, _ group: ResultGroup, consumer: String, to receiver: any ResultReceiver, filter: ResultFilter,
        limits: Limits, since: Int64?, stop: StopSignal
    ) {
        self.queue = queue
        self.group = group
        self.consumer = consumer
        self.receiver = receiver
        self.filter = filter
        self.limits = limits
        self.since = since
        self.stop = stop
        log = DeliveryLog(queue: queue, group: group.name, receiver: receiver.description)
    }

    /// Works until it is stopped or, with ``Limits/once``, until no results are left.
    /// - Parameter retriesParked: true to begin with parked results.
    mutating func run(retriesParked: Bool) async throws -> Ending {
        var (isClosed, retriesParked) = (false, retriesParked)
        while !stop.isStopped, !hasGivenUp, !isClosed {
            do {
                if position == nil { try await open() }
                if retriesParked {
                    try await retryParked()
                    retriesParked = false
                }
                let page = try await recovering { try await $0.nextPage() }
                if page.entries.isEmpty, limits.once, !mayHaveLeftovers { break }
                try await deliver(try await hold(page))
                log.redisAnswers()
            } catch is ReceiverClosed {
                isClosed = true
            } catch let error as RedisError {
                mayHaveLeftovers = true
                held = [:]
                if limits.once { throw error }
                log.redisFails(error)
                await pause(milliseconds: 1000)
            }
        }
        // A stopped consumer leaves its results to others, or to itself after a restart.
        do { try await recovering { try await $0.group.leave() } } catch let error as RedisError {
            log.redisFails(error)
        }
        log.finish()
        if isClosed { return .closed }
        return log.parked == 0 && held.isEmpty && !hasGivenUp ? .complete : .incomplete
    }

    // MARK: The group

    /// Opens the group, at the start and again after it was lost. The results that this consumer has are handed over in any case.
    private mutating func open() async throws {
        log.opened(try await group.open(since: since, after: position))
        lost = Set(held.keys).union(unconfirmed)
        position = try await group.acknowledge([])
    }

    /// The errors of Redis for a group that is lost, and for one that was lost during a blocking read.
    private static let lossCodes: Set = ["NOGROUP", "UNBLOCKED"]

    /// Runs `body`, and repeats it if the group was lost: the stream, and with it the group, can be deleted at any time.
    private mutating func recovering<Value>(_ body: (inout Self) async throws -> Value) async throws -> Value {
        do {
            return try await body(&self)
        } catch RedisError.server(let answer) where Self.lossCodes.contains(answer.prefix) {
            try await open()
            return try await body(&self)
        }
    }

    // MARK: Results to hand over

    /// The number of entries that have about as many results as a batch.
    private var pageSize: Int { ResultPage.size(for: limits.batch, after: lastPage) }

    private mutating func nextPage() async throws -> ResultPage {
        let count = pageSize
        if mayHaveLeftovers {
            let own = try await group.pending(of: consumer, count: count)
            mayHaveLeftovers = own.count == count
            let page = try await group.reclaim(own.map(\.entry), idle: 0)
            if !page.entries.isEmpty { return page }
        }
        if ContinuousClock.now >= nextReclaim {
            let others = try await silentConsumersPage(count)
            if !others.entries.isEmpty { return others }
            nextReclaim = .now + .milliseconds(max(100, limits.claimAfter / 4))
        }
        return try await group.take(count, waiting: limits.once ? nil : 1000)
    }

    /// Reclaims entries of silent consumers.
    private func silentConsumersPage(_ count: Int) async throws -> ResultPage {
        for other in try await group.holders() where other != consumer {
            let pending = try await group.pending(of: other, idle: limits.claimAfter, count: count)
            let page = try await group.reclaim(pending.map(\.entry), idle: limits.claimAfter)
            if !page.entries.isEmpty { return page }
        }
        return ResultPage()
    }

    private mutating func retryParked() async throws {
        var (last, count): (StoredResult?, Int) = (nil, 0)
        while !stop.isStopped, !hasGivenUp {
            let parked = try await group.parked(after: last, count: limits.batch)
            guard let end = parked.last else { break }
            last = end
            count += parked.count
            try await deliver(parked)
        }
        log.retried(count)
    }

    /// Records that this consumer is working on the entries of a page.
    /// - Returns: the results that it does not have yet.
    private mutating func hold(_ page: ResultPage) async throws -> [StoredResult] {
        if held.isEmpty { renewed = .now }
        if !page.entries.isEmpty { lastPage = page }
        lost.subtract(page.entries)
        let handled = page.entries.filter(unconfirmed.contains)
        if !handled.isEmpty { try await acknowledge(entries: handled) }
        let known = Set(handled).union(held.keys)
        let new = page.results.filter { !known.contains($0.entry) }
        for result in new { held[result.entry, default: 0] += 1 }
        return new
    }

    // MARK: Handing over

    private mutating func deliver(_ results: [StoredResult]) async throws {
        try await acknowledge(results.filter { !filter.matches($0) })
        var wanted = results.filter(filter.matches)[...]
        // The entry that was handed over in part. A process that is stopped still hands over the rest of it, so that the first part is not
        // repeated.
        var open: String?
        while let next = wanted.first, !hasGivenUp, !stop.isStopped || next.entry == open {
            let batch = Array(wanted.prefix(limits.batch))
            wanted = wanted.dropFirst(batch.count)
            open = try await deliverBatch(batch) ? batch.last?.entry : nil
            try await renewIfDue()
        }
    }

    /// - Returns: true if the receiver accepted the batch.
    private mutating func deliverBatch(_ wanted: [StoredResult]) async throws -> Bool {
        var (failures, rests) = (0, 0)
        while failures < Self.triesTogether {
            let reception = try await handOver(wanted)
            switch reception {
            case .accepted:
                try await acknowledge(wanted)
                return true
            case .refused: failures = Self.triesTogether
            case .failed: failures = wanted.count == 1 ? Self.triesTogether : failures + 1
            case .unavailable, .closed: break
            }
            if case .refused = reception { break }
            guard try await rest(&rests, after: reception) else { return false }
        }
        try await deliverOneByOne(wanted)
        return false
    }

    /// Hands over results one by one, each after its own pauses. In between, hands over new results together, because they show whether the
    /// receiver has a problem of its own.
    private mutating func deliverOneByOne(_ results: [StoredResult]) async throws {
        var left = results.map { Single(result: $0) }
        var rests = 0
        while !left.isEmpty {
            let problem = try await tryDue(&left)
            if stop.isStopped || left.isEmpty { return }
            if let problem {
                guard try await rest(&rests, after: problem) else { return }
            } else if blame.isReceiverSound {
                rests = 0
            }
            let next = left.map(\.due).min() ?? .now
            let wait = max(1, min(1000, Int((next - .now) / .milliseconds(1))))
            try await renewIfDue()
            let count = left.count < Self.maximumSingles ? pageSize : 1
            let more = try await recovering { try await $0.group.take(count, waiting: $0.limits.once ? nil : wait) }
            let new = try await hold(more)
            try await acknowledge(new.filter { !filter.matches($0) })
            var wanted = new.filter(filter.matches)[...]
            while !wanted.isEmpty {
                let batch = Array(wanted.prefix(limits.batch))
                wanted = wanted.dropFirst(batch.count)
                if try await handOver(batch) == .accepted {
                    try await acknowledge(batch)
                } else {
                    left += (batch + wanted).map { Single(result: $0) }
                    wanted = []
                }
            }
            if limits.once, more.entries.isEmpty {
                if left.contains(where: { $0.tries >= limits.tries && !blame.isAtFault($0) }) {
                    hasGivenUp = true
                    return
                }
                await pause(milliseconds: Int64(wait))
            }
        }
    }

    /// Hands over the results whose pauses have passed, until the receiver itself seems to have a problem.
    /// - Returns: that problem, if any.
    private mutating func tryDue(_ left: inout [Single]) async throws -> ResultReception? {
        var failuresInRow = 0
        let now = ContinuousClock.now
        for var single in left where single.due <= now {
            if stop.isStopped { return nil }
            let reception = try await handOver([single.result])
            if case .unavailable = reception { return reception }
            // Both IDs count: a parked result may also be in an entry that was handed over in part before a crash.
            left.removeAll { $0.result.id == single.result.id && $0.result.parkedAs == single.result.parkedAs }
            if reception == .accepted {
                failuresInRow = 0
                try await acknowledge([single.result])
                continue
            }
            single.tries += 1
            single.isRefused = reception.isRefusal
            if !single.isRefused { failuresInRow += 1 }
            blame.fails(single)
            if single.tries >= limits.tries, blame.isAtFault(single) {
                try await park(single.result, reception, tries: single.tries)
            } else {
                single.due = .now + .milliseconds(Self.pause(after: reception, failures: single.tries))
                left.append(single)
            }
            if failuresInRow == Self.failuresInRow { return reception }
            try await renewIfDue()
        }
        return nil
    }

    /// - Throws: ``ReceiverClosed``.
    private mutating func handOver(_ results: [StoredResult]) async throws -> ResultReception {
        let reception = await receiver.hand(over: ResultBatch(queue: queue, results: results))
        if case .closed(let problem) = reception {
            log.closed(problem)
            throw ReceiverClosed()
        }
        if let problem = reception.problem {
            log.failed(problem)
        } else {
            log.accepted(results.count)
            blame.receiverAccepts()
        }
        return reception
    }

    private mutating func acknowledge(_ results: [StoredResult]) async throws {
        try await group.removeParked(results)
        var complete: [String] = []
        for result in results where result.parkedAs == nil {
            guard let left = held[result.entry] else { continue }
            held[result.entry] = left > 1 ? left - 1 : nil
            if left == 1 { complete.append(result.entry) }
        }
        if !complete.isEmpty { try await acknowledge(entries: complete) }
    }

    private mutating func acknowledge(entries: [String]) async throws {
        unconfirmed.formUnion(entries)
        position = try await recovering { try await $0.group.acknowledge(entries) }
        unconfirmed.subtract(entries.filter { !lost.contains($0) })
    }

    private mutating func park(_ result: StoredResult, _ reception: ResultReception, tries: Int) async throws {
        try await group.park(result)
        blame.forget(result)
        if result.parkedAs == nil { try await acknowledge([result]) }
        log.parked(result.id, reception.problem ?? "", tries: tries)
    }

    // MARK: Pauses

    /// Pauses before the next try, and keeps the results claimed in the meantime.
    /// - Returns: false if the process must end; the results stay pending.
    private mutating func rest(_ rests: inout Int, after reception: ResultReception) async throws -> Bool {
        hasGivenUp = limits.once && rests >= limits.tries
        guard !hasGivenUp else { return false }
        rests += 1
        var milliseconds = Self.pause(after: reception, failures: rests)
        while milliseconds > 0, !stop.isStopped {
            let part = min(milliseconds, renewal)
            await pause(milliseconds: part)
            milliseconds -= part
            try await renewIfDue()
        }
        return !stop.isStopped
    }

    /// Returns the milliseconds to wait before the next try: at least the pause that the receiver requested.
    private static func pause(after reception: ResultReception, failures: Int) -> Int64 {
        let requested = TimeAmount.milliseconds(reception.retryAfter ?? 0)
        let pause = backoff.pause(failures: failures, requested: requested, random: .random(in: 0...1))
        return pause.nanoseconds / 1_000_000
    }

    /// The milliseconds after which this consumer confirms again that it is working on its results.
    private var renewal: Int64 { Int64(max(100, limits.claimAfter / 3)) }

    private mutating func renewIfDue() async throws {
        guard ContinuousClock.now - renewed >= .milliseconds(renewal) else { return }
        try await recovering { try await $0.group.renew(Array($0.held.keys)) }
        // The position includes the number of unread entries.
        position = try await group.acknowledge([])
        renewed = .now
    }

    private func pause(milliseconds: Int64) async {
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while ContinuousClock.now < end, !stop.isStopped {
            do {
                try await Task.sleep(for: min(.milliseconds(100), end - .now))
            } catch {
                // Cancelled: there is no need to wait.
                return
            }
        }
    }
}

/// Lines on standard error about the results of a queue. They never contain a result's contents.
private struct DeliveryLog {
    private static let interval = Duration.seconds(60)

    let queue: String
    let group: String
    let receiver: String
    private var delivered = 0
    private(set) var parked = 0
    private var failingSince: ContinuousClock.Instant?
    private var lastLine: ContinuousClock.Instant?
    private var isRedisFailing = false

    init(queue: String, group: String, receiver: String) {
        self.queue = queue
        self.group = group
        self.receiver = receiver
    }

    func opened(_ opening: ResultGroup.Opening) {
        let action: String
        switch opening {
        case .existing, .new(skipped: 0): return
        case .new(let skipped):
            action = """
                is new and begins with the next result; the stream has \(Self.entries(skipped)) before it, which --since hands \
                over
                """
        case .continued(let position):
            action =
                "was lost and continues \(position.isHandled ? "after" : "with") \(position.entry), so nothing is skipped"
        case .restarted(let lost):
            let waiting = lost?.waiting.map(Self.entries) ?? "an unknown number"
            action = """
                was lost, and so were entries of the stream (\(waiting) unread when they were last counted); it continues with \
                the first entry that is left
                """
        }
        Terminal.note("queue \(queue): group \(group) \(action)\n")
    }

    private static func entries(_ count: Int) -> String { count == 1 ? "1 entry" : "\(Words.number(count)) entries" }

    mutating func accepted(_ count: Int) {
        delivered += count
        guard let since = failingSince else { return }
        failingSince = nil
        lastLine = nil
        let milliseconds = (ContinuousClock.now - since) / .milliseconds(1)
        Terminal.note(
            "queue \(queue): \(receiver) accepts results again, after \(Words.duration(Int64(milliseconds)))\n")
    }

    /// Reports the first failure, and then at most one per minute.
    mutating func failed(_ problem: String) {
        failingSince = failingSince ?? .now
        if let lastLine, ContinuousClock.now - lastLine < Self.interval { return }
        lastLine = .now
        Terminal.note("queue \(queue): \(receiver) does not accept results: \(problem); trying again\n")
    }

    func closed(_ problem: String) {
        Terminal.note(
            """
            queue \(queue): \(receiver) refuses all results: \(problem); stopping. No result is skipped: start again when the \
            receiver accepts them

            """)
    }

    mutating func parked(_ entry: String, _ problem: String, tries: Int) {
        parked += 1
        Terminal.note("queue \(queue): parked result \(entry) after \(tries) tries: \(problem)\n")
    }

    func retried(_ count: Int) { Terminal.note("queue \(queue): retried \(count) parked results\n") }

    mutating func redisFails(_ error: RedisError) {
        if !isRedisFailing { Terminal.note("queue \(queue): \(error); trying again\n") }
        isRedisFailing = true
    }

    mutating func redisAnswers() {
        if isRedisFailing { Terminal.note("queue \(queue): Redis answers again\n") }
        isRedisFailing = false
    }

    func finish() {
        let rest = parked > 0 ? "; parked \(parked), which `--retry-parked` hands over again" : ""
        Terminal.note("queue \(queue): handed over \(delivered) result\(delivered == 1 ? "" : "s")\(rest)\n")
    }
}
