import APNS
import APNSSimulator
import Logging
import NIOCore
import NIOEmbedded
import PushJob
import TLS
import TestSupport
import Testing

import struct Foundation.Data
import struct Foundation.URL

@testable import PushQueue
@testable import PushWorker
@testable import Redis

/// A lane of its real parts on an embedded event loop, with a fake transport per app and a fake queue. There is no server and no socket,
/// and time passes only when the test advances it.
///
/// `@unchecked Sendable`, because a test uses it on one thread.
final class EngineScene: @unchecked Sendable {
    let loop = EmbeddedEventLoop()
    let stores: FakeStores
    let context: LaneContext
    let lane: Lane
    let log = RecordedLog()

    /// - Parameters:
    ///   - apps: the names of the apps. With only one app, jobs need not name it.
    ///   - change: changes the configuration before the start.
    init(
        apps: [String] = ["shop"], isStarted: Bool = true, change: (inout WorkerConfiguration) -> Void = { _ in }
    ) throws {
        var configuration = WorkerConfiguration(
            redis: try RedisTopology(url: "redis://127.0.0.1:1"),
            queues: [.init(keys: try QueueKeys(queue: "default"))],
            sharedKeys: try SharedKeys(), apps: try apps.map(Self.app), workerName: "w")
        configuration.retry.base = 1000
        change(&configuration)
        loop.advanceTime(by: .hours(1))
        let stores = FakeStores(loop, time: { [loop] in Self.time(loop.now) })
        self.stores = stores
        context = LaneContext(
            configuration: configuration, index: 0, eventLoop: loop, logger: log.logger(), issues: IssueLog(),
            metrics: LaneMetrics(
                apps: configuration.apps.count, queues: configuration.queues.count, measuresTimes: false),
            generator: FixedGenerator(), wallClock: { 1_800_000_000 })
        let made = TransportBox()
        lane = Lane(
            context, of: 1, stores: stores,
            makeTransport: { _, eventLoop, _ in
                let transport = FakeTransport(eventLoop)
                made.transports.append(transport)
                return transport
            })
        box = made
        if isStarted { try start() }
    }

    private let box: TransportBox

    private final class TransportBox: @unchecked Sendable { var transports: [FakeTransport] = [] }

    func start() throws {
        lane.start(try context.configuration.apps.map { try AppSender.Prepared($0) })
        // The lane reads the division of the invalid tokens, and then claims.
        run(.milliseconds(2))
    }

    static func app(_ name: String) throws -> AppConfiguration {
        // Without signing keys, requests need no provider token.
        var app = AppConfiguration(name: name, topic: "com.example.\(name)", credential: .providerTokens([]))
        // Reading the system's many certificates takes a tenth of a second.
        app.trust = .pem(try authority.get())
        return app
    }

    private static let authority = Result { try SimulatedAuthority().certificatePEM }

    /// Returns Redis' time for a time of the loop, in milliseconds since 1970.
    static func time(_ now: NIODeadline) -> Int64 {
        1_800_000_000_000 + Int64(now.uptimeNanoseconds / 1_000_000)
    }

    var queue: FakeQueue { stores.queues[0] }

    var transport: FakeTransport { transport(0) }

    func transport(_ app: Int) -> FakeTransport {
        guard let transport = lane.senders[app].transport as? FakeTransport else {
            preconditionFailure("the scene makes all transports")
        }
        return transport
    }

    /// All transports, in the order of their creation.
    var allTransports: [FakeTransport] { box.transports }

    func run(_ time: TimeAmount = .milliseconds(200)) { loop.advanceTime(by: time) }

    /// Pushes jobs and makes the lane claim them.
    func push(_ bodies: String...) {
        add(bodies)
        run(.milliseconds(20))
    }

    /// Pushes a job with one token.
    func pushOne(token: String = "ab", _ members: String = #""alert":"hi""#) { push(Self.job(token, members)) }

    static func job(_ token: String = "ab", _ members: String = #""alert":"hi""#) -> String {
        #"{"token":"\#(token)",\#(members)}"#
    }

    static func fanOut(_ tokens: [String], _ members: String = #""alert":"hi""#) -> String {
        #"{"id":"f","tokens":["\#(tokens.joined(separator: #"",""#))"],\#(members)}"#
    }

    /// Ends the oldest unanswered request of the first app.
    func answer(_ result: RequestResult) {
        transport.answer(result)
        run(.milliseconds(20))
    }

    func answer(_ reason: APNSReason, status: Int? = nil, retryAfter: Int? = nil) {
        answer(.response(Response(status: status ?? reason.status, reason: reason, retryAfter: retryAfter)))
    }

    /// Ends the oldest unanswered request with an answer that makes its connection unusable.
    func answer(_ reason: APNSReason, on connection: Int) {
        var response = Response(status: reason.status, reason: reason)
        response.connection = .init(number: connection, newest: transport.newestConnection)
        answer(.response(response))
    }

    static let delivered = RequestResult.response(Response(status: 200))

    /// The counters in Redis, except those by reason.
    var stats: [String: Int] { queue.stats.filter { !$0.key.contains(":") } }

    var counters: LaneCounters { lane.context.metrics.counters }

    var fleet: FakeFleet { stores.fakeFleet }

    var sender: AppSender { lane.senders[0] }

    var records: [ScopeRecord] { context.scopes.records(now: loop.now.milliseconds, offset: 0) }

    /// True if no postponed job has spent an attempt.
    var spentNoAttempt: Bool { queue.postponed.allSatisfy { $0.body.contains(#""attempt":1"#) } }

    /// True if the lane and the queue have finished all jobs.
    var isDone: Bool { queue.held.isEmpty && lane.intake.inFlight == 0 && context.jobs.count == 0 }

    /// Makes the lane claim jobs.
    func wake() { lane.wake(QueueID(index: 0)) }

    /// Adds jobs to the queue and makes the lane claim them, without passing time.
    func add(_ jobs: [String]) {
        queue.jobs += jobs
        wake()
    }

    /// Returns due postponed jobs to the queue.
    func returnDue() { if queue.returnDue() { wake() } }

    /// A token that was invalid for a topic before any job was made.
    static func invalid(_ token: String, topic: String = "com.example.shop") -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: 5000, reason: "Unregistered", topic: ByteBuffer(string: topic),
            environment: "production", source: .apns)
    }
}

extension RequestResult {
    /// The answer of APNs with a reason.
    static func answer(_ reason: APNSReason, status: Int? = nil) -> RequestResult {
        .response(Response(status: status ?? reason.status, reason: reason))
    }
}

/// A generator that always returns the same number. It gives the middle of each range of integers, and the end of each range of `Double`.
struct FixedGenerator: RandomNumberGenerator {
    mutating func next() -> UInt64 { UInt64.max / 2 }
}

/// A transport that holds submitted notifications until the test answers them. Like the real ones it may have no connection, refuse
/// notifications despite its capacity, and connect late.
final class FakeTransport: Transport {
    var delegate: (any TransportDelegate)?
    /// The free streams of the shared connections.
    var streams = 100
    /// The free streams of isolated connections; none before a connection is requested.
    var isolatedStreams: [Isolation: Int] = [:]
    /// The number of streams of a new isolated connection; 0 if none can be made.
    var isolatedLimits: [Isolation: Int] = [.withFew: 4, .alone: 1]
    var usableConnections = 1
    /// True if the transport has no connection until one is requested. See ``goDormant()``.
    private(set) var isDormant = false
    /// The number of submissions to refuse despite the capacity, as if the end of a connection were not reported yet.
    var refusals = 0
    /// The time that a requested connection takes.
    var connectTime = TimeAmount.milliseconds(50)
    var isUnanswered = false
    var lastFailure: (any Error)?
    var failureCounts: [String: Int] = [:]
    private(set) var submitted: [(notification: Notification, tag: UInt64, isolation: Isolation)] = []
    /// All notifications ever submitted.
    private(set) var sent: [Notification] = []
    /// All provider tokens that were set, in order.
    private(set) var providerTokens: [String] = []
    private(set) var calls: [String] = []
    private var closing: EventLoopPromise<Void>?
    private let eventLoop: any EventLoop
    /// The number of refusals at one time, to find a caller that submits again and again without end.
    private var refused = (count: 0, at: NIODeadline.distantPast)
    static let maximumRefusals = 1000

    init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.usable = usableConnections
        statistics.streamsInUse = submitted.count
        statistics.isUnanswered = isUnanswered
        return statistics
    }

    var tokens: [String] { sent.map { String(buffer: $0.deviceToken.hex) } }

    /// Closes the only connection. Another is opened on request.
    func goDormant() { (usableConnections, isDormant) = (0, true) }

    func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        guard isolation == .shared else {
            guard capacity(in: isolation) > 0 else { return false }
            isolatedStreams[isolation, default: 0] -= 1
            sent.append(notification)
            submitted.append((sent[sent.count - 1], tag, isolation))
            return true
        }
        guard capacity > 0, refusals <= 0 else {
            refusals -= 1
            refused = (refused.at == eventLoop.now ? refused.count + 1 : 1, eventLoop.now)
            precondition(refused.count < Self.maximumRefusals, "the caller submits again and again what is refused")
            return false
        }
        streams -= 1
        sent.append(notification)
        submitted.append((sent[sent.count - 1], tag, .shared))
        return true
    }

    func capacity(in isolation: Isolation) -> Int {
        isolation == .shared ? (usableConnections > 0 ? streams : 0) : isolatedStreams[isolation] ?? 0
    }

    func requestCapacity(in isolation: Isolation) {
        guard isolation != .shared else { return requestShared() }
        guard isolatedStreams[isolation] == nil, let limit = isolatedLimits[isolation], limit > 0 else { return }
        isolatedStreams[isolation] = 0
        eventLoop.assumeIsolated().scheduleTask(in: connectTime) { [self] in
            isolatedStreams[isolation] = limit
            delegate?.transportChanged(self)
        }
    }

    /// Loses a connection with all requests in flight in an isolation. The next connection is made at once.
    func lose(_ isolation: Isolation = .shared) {
        let lost = submitted.filter { $0.isolation == isolation }.map(\.tag)
        let failure = lost.count > 1 ? RequestFailure.lostWithOthers("cut") : .connectionLost("cut")
        for tag in lost {
            guard let index = submitted.firstIndex(where: { $0.tag == tag && $0.isolation == isolation }) else {
                continue
            }
            answer(.uncertain(failure), at: index)
        }
    }

    func answer(_ result: RequestResult, at index: Int = 0) {
        guard submitted.indices.contains(index) else {
            Issue.record("there is no request to answer")
            return
        }
        let (_, tag, isolation) = submitted.remove(at: index)
        if isolation == .shared { streams += 1 } else { isolatedStreams[isolation, default: 0] += 1 }
        delegate?.transport(self, completed: tag, with: result)
        delegate?.transportChanged(self)
        if submitted.isEmpty { closing?.succeed(()) }
    }

    private func requestShared() {
        calls.append("requestCapacity")
        guard isDormant else { return }
        isDormant = false
        eventLoop.assumeIsolated().scheduleTask(in: connectTime) { [self] in
            usableConnections = 1
            delegate?.transportChanged(self)
        }
    }

    func check(now: NIODeadline) {}
    func stoodStill(for time: TimeAmount, now: NIODeadline) {}
    func setProviderToken(_ providerToken: String?) { if let providerToken { providerTokens.append(providerToken) } }
    func setTLS(_: TLSContext) { calls.append("setTLS") }
    func replaceConnections(reason: String) { calls.append("replace") }
    func retireConnections(reason: String) { calls.append("retire") }

    var newestConnection = 0

    func close() -> EventLoopFuture<Void> {
        calls.append("close")
        let promise = closing ?? EmbeddedEventLoop().makePromise(of: Void.self)
        closing = promise
        if submitted.isEmpty { promise.succeed(()) }
        return promise.futureResult
    }

    func closeNow() {
        calls.append("closeNow")
        while !submitted.isEmpty { answer(.uncertain(.connectionLost("closed"))) }
    }
}

/// A lane's access to a fake Redis.
final class FakeStores: LaneStores {
    private let loop: EmbeddedEventLoop
    private let time: () -> Int64
    private(set) var queues: [FakeQueue] = []
    let fakeFleet: FakeFleet
    var fleet: FleetStore {
        FleetStore(
            pauses: fakeFleet, rates: fakeFleet, guardAudit: fakeFleet, throttledTokens: fakeFleet.throttledTokens,
            providerTokens: fakeFleet, invalidTokens: fakeFleet)
    }

    init(_ loop: EmbeddedEventLoop, time: @escaping () -> Int64) {
        self.loop = loop
        self.time = time
        fakeFleet = FakeFleet(loop)
    }

    func store(of queue: QueueContext, waits: Bool) -> any QueueStore {
        let store = FakeQueue(loop, time: time)
        fakeFleet.queues.append(store)
        queues.append(store)
        return store
    }

    func start(_ consumers: [QueueConsumer]) { for consumer in consumers { consumer.redisChanged(.ready) } }

    func close() -> EventLoopFuture<Void> { loop.makeSucceededVoidFuture() }
}

/// A fake queue with the parts of claims and settlements that these tests need.
final class FakeQueue: QueueStore {
    private let loop: EmbeddedEventLoop
    private let time: () -> Int64
    var isReady = true
    var canWait = false
    var holdsInvalidTokens = true
    var jobs: [String] = []
    /// The error that all requests get, if any.
    var refusal: QueueFailure?
    var leaseIsLost = false
    var isPaused = false
    var handsBack = false
    /// The next results of reservations. They outrank ``unique``.
    var reservations: [ReservationResult] = []
    /// The origins of the jobs that have reserved ids.
    var unique: [String: String] = [:]
    /// The IDs of the newest jobs, by key.
    var newest: [String: String] = [:]
    private var announced: Set<String> = []
    /// The number of jobs in each question about the newest.
    private(set) var newestQuestions: [Int] = []
    /// The number of deliveries at the last failure of each job.
    private var seenDeliveries: [String: Int] = [:]
    var commands = JobCommands()
    /// The configurations of other workers.
    var otherConfigurations: Set<ConfigurationDigest> = []
    /// The `sort` argument of each claim.
    private(set) var sorts: [Bool] = []
    /// The number of claims, including renewals of the lease.
    private(set) var claims = 0
    private(set) var held: [ClaimID: String] = [:]
    /// The counters by campaign.
    private(set) var campaigns: [String: [String: Int]] = [:]
    private(set) var stats: [String: Int] = [:]
    /// The postponed jobs in their wrappers, with their due times: `+500` in milliseconds from then, or `@` and a time.
    private(set) var postponed: [(body: String, due: String)] = []
    /// The postponed jobs, with their due times in milliseconds since 1970.
    private var waiting: [(body: String, due: Int64)] = []
    /// The reasons and the JSON members of dead letters.
    private(set) var dead: [(reason: String, members: String)] = []
    private(set) var splits = 0
    /// The pieces of split jobs.
    private(set) var pieces: [String] = []
    /// The number of delivery times that settlements added to the counters of each campaign.
    private(set) var times: [String: Int] = [:]
    private(set) var results = 0
    /// The results of jobs that were settled one by one.
    private(set) var resultTexts: [String] = []
    private(set) var holders: [String] = []
    /// The number of results in all settlements.
    private(set) var resultCount = 0
    /// The sizes of the results in the settlements, in bytes.
    private(set) var resultSizes: [Int] = []
    private(set) var settlements = 0
    /// The sums for the history, and the number of claims in the same settlement.
    private(set) var minutes: [(counts: MinuteCounts, claims: Int)] = []
    private(set) var released = false
    /// The campaigns that the next settlement reports as paused by their guards.
    var stops: [StoppedCampaign] = []
    private(set) var stoppedCampaigns: [StoppedCampaign] = []
    private var stamp = 0

    init(_ loop: EmbeddedEventLoop, time: @escaping () -> Int64) {
        self.loop = loop
        self.time = time
    }

    private func reply<Value>(_ completion: @escaping Completion<Value>, _ body: @escaping () -> Value) {
        if let refusal { return later { completion(.failure(refusal)) } }
        guard isReady else { return completion(.failure(.redis(.notConnected(address: "fake", reason: "gone")))) }
        later { completion(.success(body())) }
    }

    /// Calls the function after a millisecond, as if an answer arrived.
    private func later(_ body: @escaping () -> Void) {
        loop.assumeIsolated().scheduleTask(in: .milliseconds(1), body)
    }

    func use(worker: String) {
        holders.append(worker)
        leaseIsLost = false
    }

    func claim(_ request: ClaimRequest, completion: @escaping Completion<Claimed>) {
        reply(completion) { [self] in
            claims += 1
            sorts.append(request.sort)
            let before = held.count
            let taken = leaseIsLost || isPaused ? [] : Array(jobs.prefix(request.count))
            jobs.removeFirst(taken.count)
            stamp += 1
            for (offset, body) in taken.enumerated() {
                held[ClaimID(number: request.first + offset, stamp: "s\(stamp)")] = body
            }
            return Claimed(
                isPaused: isPaused, handsBack: handsBack, leaseLost: leaseIsLost, now: time(),
                nextDue: jobs.isEmpty ? nil : 0,
                hasLookedAround: true, expiredWorker: nil, evicted: 0, command: nil, stamp: "s\(stamp)", held: before,
                commands: request.knownCommands == commands.version ? nil : commands,
                otherConfigurations: otherConfigurations,
                bodies: taken.map { ByteBuffer(string: $0) })
        }
    }

    func reserve(_ all: [Reservation], completion: @escaping Completion<[ReservationResult]>) {
        reply(completion) { [self] in
            all.map { reservation in
                guard reservations.isEmpty else { return reservations.removeFirst() }
                guard held[reservation.claim] != nil else { return .lost }
                let (id, origin) = (String(buffer: reservation.id), String(buffer: reservation.origin))
                if unique[id] == nil { unique[id] = origin }
                return unique[id] == origin ? .granted : .duplicate
            }
        }
    }

    func newest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        reply(completion) { [self] in
            newestQuestions.append(jobs.count)
            return jobs.map { job in
                if job.isAnnounced, announced.insert(String(buffer: job.id)).inserted {
                    newest[String(buffer: job.key)] = String(buffer: job.id)
                }
                return newest[String(buffer: job.key)].map { ByteBuffer(string: $0) }
            }
        }
    }

    func stop(_ stopped: StoppedCampaign, completion: @escaping Completion<Bool>) {
        reply(completion) { [self] in
            stoppedCampaigns.append(stopped)
            return true
        }
    }

    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>) {
        reply(completion) { [self] in
            settlements += 1
            resultSizes.append(settlement.resultBytes)
            if let counts = settlement.minute { minutes.append((counts, settlement.count)) }
            defer { stops = [] }
            return QueueConnection.Settled(lost: apply(settlement), evicted: 0, stopped: stops)
        }
    }

    /// Applies a settlement's actions like `settle.lua`.
    private func apply(_ settlement: Settlement) -> Int {
        var command = RedisCommand("X")
        settlement.append(to: &command)
        var texts: [String] = []
        var bytes = command.arguments
        for length in command.lengths { texts.append(bytes.readString(length: length) ?? "") }
        var rest = texts.dropFirst()
        var (lost, isExhausted) = (0, false)
        func next() -> String { rest.removeFirst() }
        func range() -> (start: Int, length: Int) { (Int(next()) ?? 0, Int(next()) ?? 0) }
        var campaign = ""
        func count(_ name: String, _ amount: Int) {
            stats[name, default: 0] += amount
            if !campaign.isEmpty { campaigns[campaign, default: [:]][name, default: 0] += amount }
        }
        func take(_ claim: String) -> String? {
            let body = ClaimID(field: claim).flatMap { held.removeValue(forKey: $0) }
            if body == nil { lost += 1 }
            return body
        }
        func addFacts(_ isFound: Bool) {
            let (packed, number) = (next(), Int(next()) ?? 0)
            precondition(packed.isEmpty == (number == 0), "\(number) results: \(packed)")
            resultCount += number
            resultTexts.append(packed)
            if isFound, number > 0 { results += 1 }
            for _ in 0..<(Int(next()) ?? 0) {
                let (name, amount) = (next(), Int(next()) ?? 0)
                if isFound { count(name, amount) }
            }
        }
        while !rest.isEmpty {
            switch next() {
            case "campaign": campaign = next()
            case "times":
                precondition(!campaign.isEmpty, "times without a campaign")
                times[campaign, default: 0] += next().matches(of: /:(\d+)/).reduce(0) { $0 + (Int($1.1) ?? 0) }
            case "ack":
                let (outcome, number) = (next(), Int(next()) ?? 0)
                for _ in 0..<number where take(next()) != nil { count(outcome, 1) }
            case "report":
                let (outcome, _, number) = (next(), next(), Int(next()) ?? 0)
                resultCount += number
                for _ in 0..<number where take(next()) != nil {
                    count(outcome, 1)
                    results += 1
                }
            case "end": addFacts(take(next()) != nil)
            case "keep":
                let body = take(next())
                let (rest, head) = (next(), next())
                let range = (Int(next()) ?? 0, Int(next()) ?? 0)
                if let body, let rest = ClaimID(field: rest) { held[rest] = head + Self.part(range, of: body) + "}" }
                addFacts(body != nil)
            case "split":
                let body = ClaimID(field: next()).flatMap { held[$0] }
                splits += 1
                let prefix = next()
                _ = next()
                let (cut, original) = (range(), range())
                let rest = body.map {
                    Self.part((original.start, cut.start - original.start), of: $0)
                        + Self.part(
                            (cut.start + cut.length, original.start + original.length - cut.start - cut.length), of: $0)
                }
                for _ in 0..<(Int(next()) ?? 0) {
                    let (start, end) = (next(), next())
                    let tokens = start == "-" ? end : body.map { Self.part((Int(start) ?? 0, Int(end) ?? 0), of: $0) }
                    if let tokens, let rest { pieces.append(prefix + #","tokens":[\#(tokens)],"job":\#(rest)}"#) }
                }
            case "retry":
                let body = ClaimID(field: next()).flatMap { held[$0] }
                let (due, head) = (next(), next())
                let range = (Int(next()) ?? 0, Int(next()) ?? 0)
                if let body { postpone(body, head, range, due) }
            case "fail":
                let body = ClaimID(field: next()).flatMap { held[$0] }
                let (rule, reason, number) = (next(), next(), Int(next()) ?? 0)
                let (delay, head, original) = (next(), next(), range())
                _ = (next(), next())
                let members = next()
                _ = (next(), next())
                let letters = self.dead.count
                defer { isExhausted = self.dead.count > letters }
                if let body { fail(body, rule, reason, number, "+" + delay, head, original, members, count) }
            case "dead":
                let isFound = ClaimID(field: next()).map { held[$0] != nil } ?? false
                let (reason, members) = (next(), next())
                _ = (next(), next())
                if isFound { dead.append((reason, members)) }
            case "free":
                let isFound = ClaimID(field: next()).map { held[$0] != nil } ?? false
                let (id, origin, always) = (next(), next(), next())
                if isFound, always == "1" || isExhausted { free(id, origin) }
            case let other: preconditionFailure("unknown action \(other)")
            }
        }
        return lost
    }

    private func free(_ id: String, _ origin: String) { if unique[id] == origin { unique[id] = nil } }

    /// Applies a failure like `parts/attempts.lua`, as if all jobs were of one group.
    private func fail(
        _ body: String, _ rule: String, _ reason: String, _ number: Int, _ due: String, _ head: String,
        _ original: (start: Int, length: Int), _ members: String, _ count: (String, Int) -> Void
    ) {
        let parts = rule.split(separator: " ")
        let envelope = Envelope.read(ByteBuffer(string: body))
        let delivered = stats["delivered"] ?? 0
        let before = seenDeliveries.updateValue(delivered, forKey: Self.part(original, of: body))
        let spends = parts[0] == "always" || parts[0] == "own" && delivered > before ?? delivered
        let attempt = envelope.attempt + (spends ? 1 : 0)
        if spends, parts[0] != "always", attempt > Int(parts[1]) ?? 0 {
            dead.append(("AttemptsExhausted", members))
            return count("dead", number)
        }
        postpone(
            body, head.replacing("\"attempt\":\(envelope.attempt)", with: "\"attempt\":\(attempt)", maxReplacements: 1),
            original, due)
        count("retried", number)
        count("retried:\(reason)", number)
    }

    private func postpone(_ body: String, _ head: String, _ original: (start: Int, length: Int), _ due: String) {
        let job = head + Self.part(original, of: body) + "}"
        postponed.append((job, due))
        let number = Int64(due.dropFirst()) ?? 0
        waiting.append((job, due.hasPrefix("@") ? number : time() + number))
    }

    private static func part(_ range: (start: Int, length: Int), of body: String) -> String {
        String(decoding: Array(body.utf8)[range.start..<range.start + range.length], as: UTF8.self)
    }

    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>) {
        reply(completion) { nil }
    }

    func release(
        of configuration: ConfigurationDigest, endOf process: String?,
        completion: @escaping Completion<QueueConnection.Released>
    ) {
        reply(completion) { [self] in
            released = true
            let count = held.count
            jobs += held.values
            held = [:]
            return QueueConnection.Released(released: count, left: 0)
        }
    }

    func claims(completion: @escaping Completion<[ClaimID]>) { reply(completion) { [self] in Array(held.keys) } }

    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>) {
        reply(completion) { [self] in claims.map { held[$0].map { ByteBuffer(string: $0) } } }
    }

    func gauges(completion: @escaping Completion<QueueGauges>) {
        completion(.failure(.unexpectedReply("gauges")))
    }

    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>) {
        loop.assumeIsolated().scheduleTask(in: .seconds(Int64(seconds))) { completion(.success(false)) }
    }
    func stopWaiting() {}

    /// Returns due jobs to the queue.
    /// - Returns: true if there were any.
    func returnDue() -> Bool {
        let now = time()
        let due = waiting.filter { $0.due <= now }
        waiting.removeAll { $0.due <= now }
        jobs += due.map(\.body)
        return !due.isEmpty
    }

    /// True while postponed jobs wait.
    var hasWaiting: Bool { !waiting.isEmpty }

    /// Adds a claim that the lane does not know, as a failover does.
    func forget(_ body: String, number: Int) { held[ClaimID(number: number, stamp: "old")] = body }
}

/// A fake of the state that workers share. It is on the server of the queues.
final class FakeFleet: AppPauseStore, RateStore, GuardAuditStore, ProviderTokenStore, InvalidTokenStore {
    private let loop: EmbeddedEventLoop
    fileprivate(set) var queues: [FakeQueue] = []
    var isReady = true
    /// True if the set of invalid tokens can't be written.
    var refusesInvalidTokens = false
    /// An unfinished change of the number of shards of the invalid tokens.
    var resharding: TokenDivision?
    /// The tokens in the set.
    var invalid: [InvalidToken] = []
    var pauses: [String: PauseRecord] = [:]
    /// The apps that an operator has resumed since the last reading.
    var resumed: Set<String> = []
    private(set) lazy var throttledTokens = FakeThrottledTokens(self)
    private(set) var removed: [InvalidToken.Removal] = []
    private(set) var lookUps = 0
    var lookUpTime = TimeAmount.milliseconds(1)
    /// The milliseconds until a reserved portion of a rate may be used.
    var rateWait: Int64 = 0
    /// The delays of the next jobs with a limited campaign or key, in milliseconds. Further jobs have no delay.
    var turns: [Int] = []
    /// The limits that turns were asked for.
    private(set) var limits: [SharedRates.Limit] = []
    private(set) var lastAsked: [SharedRates.Turn] = []
    private(set) var recordedCampaigns: [StoppedCampaign] = []
    /// The fleet's provider token. Without one, the fleet accepts the token that a lane offers.
    var providerToken: String?

    init(_ loop: EmbeddedEventLoop) { self.loop = loop }

    fileprivate func later<Value>(
        _ completion: @escaping Completion<Value>, in time: TimeAmount = .milliseconds(1),
        _ value: @escaping () -> Value
    ) {
        guard isReady else { return completion(.failure(.redis(.notConnected(address: "fake", reason: "gone")))) }
        loop.assumeIsolated().scheduleTask(in: time) { completion(.success(value())) }
    }

    func read(_ apps: [String], completion: @escaping Completion<[AppPauses.State]>) {
        later(completion) { [self] in
            defer { resumed = [] }
            return apps.map { AppPauses.State(pause: pauses[$0], isResumed: resumed.contains($0)) }
        }
    }

    func reserve(_ count: Int, of app: String, perSecond: Int, completion: @escaping Completion<Int64>) {
        later(completion) { [self] in rateWait }
    }

    func take(_ asked: [SharedRates.Turn], of limit: SharedRates.Limit, completion: @escaping Completion<[Int]>) {
        likeQueues(completion) { [self] in
            limits.append(limit)
            lastAsked = asked
            return asked.map { _ in turns.isEmpty ? 0 : turns.removeFirst() }
        }
    }

    func record(_ stopped: StoppedCampaign, completion: @escaping Completion<Void>) {
        likeQueues(completion) { [self] in recordedCampaigns.append(stopped) }
    }

    /// Replies only if the queues do, because they are on the same server.
    private func likeQueues<Value>(
        _ completion: @escaping Completion<Value>, refusal: QueueFailure? = nil, _ value: @escaping () -> Value
    ) {
        if let refusal = refusal ?? queues.compactMap(\.refusal).first {
            loop.assumeIsolated().scheduleTask(in: .milliseconds(1)) { completion(.failure(refusal)) }
            return
        }
        guard queues.allSatisfy(\.isReady) else {
            return completion(.failure(.redis(.notConnected(address: "fake", reason: "gone"))))
        }
        later(completion, value)
    }

    func share(_ offer: SharedProviderTokens.Offer, completion: @escaping Completion<SharedProviderTokens.Answer>) {
        later(completion) { [self] in providerToken.map { .other(ByteBuffer(string: $0)) } ?? .taken }
    }

    func count(completion: @escaping Completion<Int>) { later(completion) { [self] in invalid.count } }

    func countIfUndivided(completion: @escaping Completion<Int?>) {
        guard let resharding else { return later(completion) { [self] in invalid.count } }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(1)) { completion(.failure(.resharding(resharding))) }
    }

    func mark(_ tokens: [InvalidToken], completion: @escaping Completion<[InvalidToken.Marking]>) {
        let refusal = refusesInvalidTokens ? QueueFailure.unexpectedReply("addInvalidTokens") : nil
        likeQueues(completion, refusal: refusal) { [self] in
            invalid += tokens
            return tokens.map { _ in .added }
        }
    }

    func find(_ tokens: TokenList, completion: @escaping Completion<[InvalidToken.Found]>) {
        lookUps += 1
        later(completion, in: lookUpTime) { [self] in
            tokens.asked.enumerated().compactMap { index, token in
                guard let place = tokens.place(of: index), let known = invalid.first(where: { $0.token == token })
                else { return nil }
                let marks = invalid.filter { $0.token == token }.map {
                    InvalidToken.Found.Mark(at: $0.at, facts: $0.facts)
                }
                return .init(
                    place: place, token: token, sets: known.environment == "sandbox" ? .sandbox : .production,
                    marks: marks)
            }
        }
    }

    func remove(_ removals: [InvalidToken.Removal], completion: @escaping Completion<Int>) {
        removed += removals
        later(completion) { removals.count }
    }
}

/// A fake of the tokens that APNs throttles.
final class FakeThrottledTokens: ThrottledTokenStore {
    private unowned let fleet: FakeFleet
    /// The tokens in the order of their addition.
    private(set) var added: [String] = []
    /// The end of each token's throttle.
    var ends: [String: Int64] = [:]
    private(set) var lookUps = 0
    var lookUpTime = TimeAmount.milliseconds(1)

    init(_ fleet: FakeFleet) { self.fleet = fleet }

    func add(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>) {
        added.append(String(buffer: token))
        ends[String(buffer: token)] = until
        fleet.later(completion) {}
    }

    func count(completion: @escaping Completion<Int>) { fleet.later(completion) { [self] in ends.count } }

    func find(_ tokens: TokenList, completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>) {
        lookUps += 1
        fleet.later(completion, in: lookUpTime) { [self] in
            tokens.asked.compactMap { token in
                ends[String(buffer: token)].map { (token, $0) }
            }
        }
    }
}

extension Reason: ExpressibleByStringLiteral {
    public init(stringLiteral code: String) { self.init(.init(text: code)) }
}

extension LaneCounters {
    func postponed(_ postponement: Postponement) -> Int {
        switch postponement {
        case .retried: retried
        case .deferred: deferred
        case .scheduled: scheduled
        }
    }
}

extension EngineScene {
    /// Ends the oldest unanswered request, and settles its job.
    func finish(_ result: RequestResult = delivered) {
        answer(result)
        run()
    }

    func finish(_ reason: APNSReason, retryAfter: Int? = nil) {
        answer(reason, retryAfter: retryAfter)
        run()
    }

    /// Pushes jobs with these tokens, and ends each request before the next.
    func finishEach(_ tokens: Range<Int>, _ result: RequestResult = delivered) {
        for token in tokens {
            pushOne(token: String(token))
            answer(result)
        }
    }

    /// Delivers the notifications in flight until there are none.
    func deliverAll() {
        while !transport.submitted.isEmpty { answer(Self.delivered) }
        run()
    }

    /// Advances time. Jobs return when they are due. Requests of the first app are answered at once, or time out after 20 s.
    func pass(_ time: TimeAmount, answer: () -> RequestResult?) { passByToken(time) { _ in answer() } }

    /// Advances time like ``pass(_:answer:)``.
    /// - Parameter answer: gets the device token of each request.
    func passByToken(_ time: TimeAmount, answer: (String) -> RequestResult?) {
        let end = loop.now + time
        var since: [UInt64: NIODeadline] = [:]
        while loop.now < end {
            run(.milliseconds(200))
            if queue.returnDue() { lane.wake(QueueID(index: 0)) }
            let now = loop.now
            for index in transport.submitted.indices.reversed() {
                if let result = answer(String(buffer: transport.submitted[index].notification.deviceToken.hex)) {
                    transport.isUnanswered = false
                    transport.answer(result, at: index)
                    continue
                }
                let began = since[transport.submitted[index].tag] ?? now
                since[transport.submitted[index].tag] = began
                if now - began >= .seconds(5) { transport.isUnanswered = true }
                guard now - began >= .seconds(20) else { continue }
                since[transport.submitted[index].tag] = nil
                transport.answer(.uncertain(.timedOut), at: index)
            }
        }
    }

    /// A signing key, so that requests need a provider token.
    static func keyCredential() throws -> Credential {
        let key = try SigningKey(pem: Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        return .providerTokens([try ProviderTokenSource(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")])
    }

    /// Makes the lane claim postponed jobs. Some must be due.
    func claimPostponed(after time: TimeAmount, _ sourceLocation: SourceLocation = #_sourceLocation) {
        run(time)
        #expect(queue.returnDue(), sourceLocation: sourceLocation)
        lane.wake(QueueID(index: 0))
        run()
    }
}

extension JobCommands.Command {
    init(_ change: (inout JobCommands.Command) -> Void) {
        self.init()
        change(&self)
    }
}
