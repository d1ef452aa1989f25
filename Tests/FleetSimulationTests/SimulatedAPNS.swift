import APNS
import NIOCore
import PushQueue
import TLS

@testable import APNSSimulator
@testable import PushWorker

/// A lane's connections to APNs, for one app.
final class SimulatedTransport: Transport {
    fileprivate final class Request {
        let tag: UInt64
        let notification: Int
        let token: String
        let isolation: Isolation
        let sentAt: NIODeadline
        /// The time when the request's connection was opened.
        let opened: NIODeadline
        /// The time when the lane gives up the request, unless it has the answer by then.
        var deadline: NIODeadline
        var isOpen = true
        var gaveUp = false

        init(
            _ tag: UInt64, _ notification: Int, _ token: String, _ isolation: Isolation, sentAt: NIODeadline,
            opened: NIODeadline, deadline: NIODeadline
        ) {
            (self.tag, self.notification, self.token, self.isolation) = (tag, notification, token, isolation)
            (self.sentAt, self.opened, self.deadline) = (sentAt, opened, deadline)
        }
    }

    /// The time after which the transport gives up a request.
    private static let requestTimeout = TimeAmount.seconds(20)
    /// The time after which the transport reports that a request is unanswered.
    private static let patience = TimeAmount.seconds(5)

    private unowned let simulation: FleetSimulation
    private let lane: SimulatedLane
    private let loop: SimulatedLoop
    private let app: Int
    var delegate: (any TransportDelegate)?
    private var providerToken: String?
    private var requests: [Request] = []
    private var limit = 20
    /// The time when the shared connection was opened.
    private var opened: NIODeadline
    private var answeredAt = NIODeadline.distantPast
    private var isConnected = true
    private var closing: EventLoopPromise<Void>?
    /// True from the end of an idle connection until another connection is requested.
    private(set) var isDormant = false
    let lastFailure: (any Error)? = nil
    let failureCounts: [String: Int] = [:]

    init(app: Int, _ lane: SimulatedLane, _ loop: SimulatedLoop, in simulation: FleetSimulation) {
        (self.app, self.lane, self.loop, self.simulation) = (app, lane, loop, simulation)
        opened = loop.now
        if let plan = simulation.options.plan { limit = plan.streams }
    }

    private var time: SimulatedTime { simulation.time }
    private var random: SimulatedRandom { simulation.random }

    func capacity(in isolation: Isolation) -> Int {
        guard isConnected else { return 0 }
        // Isolated connections have few streams.
        if simulation.blame != nil, isolation != .shared {
            return max(0, (isolation == .alone ? 1 : 4) - requests.count { $0.isolation == isolation })
        }
        return max(0, limit - requests.count)
    }
    var usableConnections: Int { isConnected ? 1 : 0 }

    var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.usable = usableConnections
        statistics.streamsInUse = requests.count
        statistics.streamLimit = limit
        if simulation.blame != nil, let oldest = requests.first?.sentAt {
            statistics.isUnanswered = loop.now - oldest >= Self.patience && answeredAt < oldest
        }
        return statistics
    }

    func submit(_ notification: consuming APNS.Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        guard capacity(in: isolation) > 0, !refusesOne() else { return false }
        let token = String(buffer: notification.deviceToken.hex)
        // An isolated connection is opened for its requests.
        let opened = isolation == .shared || simulation.options.mutation == .triesOldConnections ? opened : loop.now
        guard
            let number = simulation.apns.submitted(
                token, notification.payload, id: notification.apnsID, app: app, by: lane, opened: opened)
        else { return true }
        let request = Request(
            tag, number, token, isolation, sentAt: loop.now, opened: opened, deadline: loop.now + Self.requestTimeout)
        requests.append(request)
        if let blame = simulation.blame {
            time.schedule(in: random.delay(10...60), on: loop) { [self] in end(request, blame) }
            return true
        }
        let providerToken = providerToken
        time.schedule(in: random.delay(1...40)) { [self] in
            simulation.apns.arrived(number, token, app: app, providerToken, from: lane) { [self] result, delay in
                time.schedule(in: delay, on: loop) { [self] in complete(request, result) }
            }
        }
        return true
    }

    /// Ends a request according to the plan.
    private func end(_ request: Request, _ blame: BlameRun) {
        guard request.isOpen, let job = simulation.ledger.job(ofNotification: request.notification) else { return }
        switch blame.fault(ofJob: job.number, by: lane.worker, opened: request.opened) {
        case nil: complete(request, .response(Response(status: 200)))
        case .silence: break
        case .cut:
            let lost = requests.filter { $0.isolation == request.isolation }
            let failure = lost.count > 1 ? RequestFailure.lostWithOthers("cut") : .connectionLost("cut")
            for request in lost { complete(request, .uncertain(failure)) }
        case let fault?:
            if let result = fault.result(at: time.milliseconds) { complete(request, result) }
        }
    }

    /// Returns true for a submission that a real transport refuses despite its capacity, because the end of a connection
    /// is not reported yet.
    private func refusesOne() -> Bool {
        simulation.hasFaults && simulation.options.faults.contains(.apns) && random.chance(1)
    }

    private func complete(_ request: Request, _ result: RequestResult) {
        guard request.isOpen, let index = requests.firstIndex(where: { $0 === request }) else {
            // A loop that stood still gets the events in the order of their times.
            if request.gaveUp, case .response = result, loop.isCatchingUp {
                simulation.fail("\(lane.name) gave up a request whose answer had arrived")
            }
            return
        }
        request.isOpen = false
        requests.remove(at: index)
        if case .response = result { answeredAt = loop.now }
        simulation.apns.completed(request.notification, result, by: lane)
        simulation.log("\(lane.name) gets an answer for \(request.token.prefix(16)): \(result)")
        delegate?.transport(self, completed: request.tag, with: result)
        delegate?.transportChanged(self)
        if requests.isEmpty { closing?.succeed(()) }
    }

    /// Loses the connection: no request in flight is answered, and some of them arrive.
    func lose() {
        guard isConnected else { return }
        isConnected = false
        let lost = requests
        time.schedule(in: .zero, on: loop) { [self] in
            let failure = lost.count > 1 ? RequestFailure.lostWithOthers("lost") : .connectionLost("lost")
            for request in lost { complete(request, .uncertain(failure)) }
        }
        connect(in: random.delay(50...4000))
    }

    private func connect(in delay: TimeAmount) {
        time.schedule(in: delay, on: loop) { [self] in
            isConnected = true
            delegate?.transportChanged(self)
        }
    }

    /// Closes an idle connection. Another connection is opened on request.
    func goDormant() {
        guard isConnected, requests.isEmpty else { return }
        (isConnected, isDormant) = (false, true)
    }

    func change(limit: Int) {
        self.limit = limit
        time.schedule(in: .zero, on: loop) { [self] in delegate?.transportChanged(self) }
    }

    func dismantle() {
        delegate = nil
        closing?.succeed(())
        closing = nil
    }

    func requestCapacity(in _: Isolation) {
        guard isDormant else { return }
        isDormant = false
        connect(in: random.delay(1...1000))
    }

    func check(now: NIODeadline) {
        for request in requests where request.deadline <= now {
            request.gaveUp = true
            complete(request, .uncertain(.timedOut))
        }
    }

    func stoodStill(for time: TimeAmount, now: NIODeadline) {
        guard simulation.options.mutation != .enforcesDeadlinesLate else { return }
        for request in requests { request.deadline = min(request.deadline + time, now + Self.requestTimeout) }
    }

    func setProviderToken(_ providerToken: String?) {
        self.providerToken = providerToken
        guard simulation.options.mutation == .sendsUnsignedTokens, let providerToken else { return }
        // A signature of 64 zeros.
        self.providerToken = providerToken.dropLast(86) + String(repeating: "A", count: 86)
    }

    func setTLS(_: TLSContext) {}
    func replaceConnections(reason: String) { retireConnections(reason: reason) }
    func retireConnections(reason: String) {
        if simulation.options.mutation != .triesOldConnections { opened = loop.now }
    }

    func close() -> EventLoopFuture<Void> {
        let promise = closing ?? loop.makePromise(of: Void.self)
        closing = promise
        if requests.isEmpty { promise.succeed(()) }
        return promise.futureResult
    }

    func closeNow() { while let request = requests.first { complete(request, .uncertain(.connectionLost("closed"))) } }
}

/// APNs: accepts and refuses requests, and checks each of them.
final class SimulatedAPNS {
    static let apps = ["shop", "chat", "mail"]
    /// The maximum number of notifications per second of the app `chat`.
    static let chatRate = 40
    private static let rateWindow = TimeAmount.seconds(10)
    static let keyID = "ABC123DEFG"
    static let teamID = "TEAM123456"
    /// A key that is used only here.
    static let key = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAi6eI5q4fUGD96nm
        THzNHMvAfHaarcZiexhzC2HL012hRANCAARYcil8qrsbwtu7K8BUGcP9twbnN/VE
        6YtnfTJ6CFT001PBQAId9yCoY05OutjOehpQYK98/9Pedy8jwWJV8rOc
        -----END PRIVATE KEY-----
        """

    private unowned let simulation: FleetSimulation
    /// The apps whose requests are all refused, with the reason and the end of the refusals.
    private var refusals: [Int: (reason: APNSReason, until: NIODeadline)] = [:]
    private var chatTimes: [NIODeadline] = []
    private var inFlight: [Int: SimulatedLane] = [:]
    private var providerTokens: ProviderTokens
    /// The provider tokens that were verified, with the times when they were signed.
    private var verifiedTokens: [String: Int64] = [:]
    /// The provider tokens that the fleet shares or has shared.
    private var fleetTokens: Set<String> = []

    init(_ simulation: FleetSimulation) throws {
        self.simulation = simulation
        providerTokens = ProviderTokens(
            keys: [try ProviderKey(keyID: Self.keyID, teamID: Self.teamID, pem: Array(Self.key.utf8))])
    }

    private var ledger: SimulationLedger { simulation.ledger }
    private var time: SimulatedTime { simulation.time }
    private var random: SimulatedRandom { simulation.random }

    /// Causes a random fault of APNs, or of connections to it.
    func happens(_ worker: SimulatedWorker) {
        let transport = worker.transports[random.pick(0...worker.transports.count - 1)]
        switch random.pick(0...9) {
        case 0...2: transport.lose()
        case 3: transport.goDormant()
        case 4...7: transport.change(limit: [1, 2, 5, 20, 60][random.pick(0...4)])
        default: refuseApp()
        }
    }

    func refuseApp() {
        let reason: APNSReason = random.chance(50) ? .invalidProviderToken : .expiredProviderToken
        refusals[random.pick(0...2)] = (reason, time.now + random.delay(500...8000))
    }

    // MARK: Requests

    /// Records and checks a request.
    /// - Returns: the notification's number.
    func submitted(
        _ token: String, _ payload: ByteBuffer, id: APNSID?, app: Int, by lane: SimulatedLane, opened: NIODeadline
    ) -> Int? {
        guard let (job, number) = ledger.notification(token, payload) else {
            simulation.fail("APNs gets a notification that no producer has pushed: \(token)")
            return nil
        }
        if job.app != app { simulation.fail("the job \(job.number) went through another app") }
        if let sendAt = job.sendAt, time.milliseconds < sendAt {
            simulation.fail("the job \(job.number) was sent before its time")
        }
        simulation.log(
            "\(lane.name) sends the notification \(number - job.first) of the job \(job.number) for \(Self.apps[app])")
        lane.checks.submit(number, of: job, to: token, app: Self.apps[app])
        simulation.answerChecks.submitted(number, by: lane)
        simulation.blame?.submitted(job.number, by: lane.worker, opened: opened)
        checkFlight(number, job, lane)
        if let mistake = ledger.checkID(id.map { "\($0)" }, of: number), !simulation.redis.hasRolledBack {
            simulation.fail(mistake)
        }
        if app == 1 { checkRate() }
        return number
    }

    /// Checks that a notification is in flight only once, as long as both lanes that send it have the leases of their claims.
    ///
    /// A lane that has lost its lease may still send the jobs that it claimed under it, even under its next name: it
    /// can't know whether another lane has reclaimed them or Redis has lost them. Delivery is at least once.
    private func checkFlight(_ number: Int, _ job: SimulatedJob, _ lane: SimulatedLane) {
        if let other = inFlight[number], other !== lane, other.worker?.loop.state == .running,
            !simulation.redis.hasRolledBack, lane.checks.hasLease(of: job), other.checks.hasLease(of: job)
        {
            simulation.fail(
                "the job \(job.number) is sent by \(lane.name) and by \(other.name), which have their leases")
        }
        inFlight[number] = lane
    }

    func completed(_ number: Int, _ result: RequestResult, by lane: SimulatedLane) {
        if inFlight[number] === lane { inFlight[number] = nil }
        if case .response(let response) = result, response.status == 200, let job = ledger.job(ofNotification: number) {
            simulation.answerChecks.received(number, of: job, by: lane)
            let token = job.tokens[number - job.first]
            if lane.checks.mustTakeOut(token, of: job) {
                time.schedule(in: .seconds(1)) { [simulation] in
                    guard lane.worker?.loop.state == .running, lane.checks.mustTakeOut(token, of: job),
                        simulation.redis.hasInvalid(token)
                    else { return }
                    simulation.fail("\(lane.name) left the token \(token) in the set, although APNs accepts it")
                }
            }
        }
        switch result {
        case .notProcessed: ledger.refused(number)
        case .response(let response) where response.reason != nil: ledger.refused(number)
        default: break
        }
    }

    private func checkRate() {
        chatTimes.append(time.now)
        if chatTimes.count > 4000 { chatTimes.removeFirst(2000) }
        guard !simulation.redis.hasRolledBack else { return }
        // A lane can use a portion of the rate for a second, and each lane can have a portion.
        let limit = Self.chatRate * 11 + 10 + 8 * (Self.chatRate / 20)
        if chatTimes.count > limit, time.now - chatTimes[chatTimes.count - 1 - limit] < Self.rateWindow {
            simulation.fail("the rate of an app was exceeded")
        }
    }

    // MARK: Answers

    func arrived(
        _ number: Int, _ token: String, app: Int, _ providerToken: String?, from lane: SimulatedLane,
        answer: (RequestResult, TimeAmount) -> Void
    ) {
        let issuedAt = verify(providerToken, lane)
        // Some devices are slow enough for a lane to end in the meantime.
        let isLate = simulation.hasFaults && random.chance(0.3)
        let delay = random.delay(isLate ? 12_000...18_000 : random.chance(3) ? 50...2500 : 1...80)
        func refuse(_ reason: APNSReason, retryAfter: Int? = nil) {
            if reason == .expiredProviderToken { simulation.checks.providerTokenExpired(issuedAt: issuedAt) }
            answer(.response(Response(status: reason.status, reason: reason, retryAfter: retryAfter)), delay)
        }
        if let reason = ledger.refusal(of: token) { return refuse(reason) }
        if SimulationLedger.isForeign(token, to: app) { return refuse(.deviceTokenNotForTopic) }
        if simulation.hasFaults, let refusal = refusals[app], time.now < refusal.until { return refuse(refusal.reason) }
        guard simulation.hasFaults, simulation.options.faults.contains(.apns) else {
            return accept(number, delay, answer)
        }
        // These tokens are of devices that receive many notifications.
        if token.hasPrefix("dd"), random.chance(25) {
            return refuse(.tooManyRequests, retryAfter: random.pick(1...3))
        }
        // These tokens are of devices that remove the app.
        if token.hasPrefix("ee"), random.chance(5) {
            ledger.refuse(token, .unregistered)
            return refuse(.unregistered)
        }
        switch random.pick(0...999) {
        case 0..<20:
            let reason: APNSReason = random.chance(80) ? .unregistered : .badDeviceToken
            ledger.refuse(token, reason)
            refuse(reason)
        case 20..<40: refuse(.tooManyRequests, retryAfter: random.chance(50) ? random.pick(1...3) : nil)
        case 40..<60: refuse(random.chance(50) ? .internalServerError : .serviceUnavailable)
        case 60..<70:
            // Without an answer.
            if random.chance(50) { accept(number) }
        case 70..<80: answer(.notProcessed(random.chance(50) ? .refusedStream : .goingAway(reason: nil)), delay)
        default: accept(number, delay, answer)
        }
    }

    private func accept(_ number: Int, _ delay: TimeAmount, _ answer: (RequestResult, TimeAmount) -> Void) {
        accept(number)
        answer(.response(Response(status: 200)), delay)
    }

    private func accept(_ number: Int) {
        if let other = ledger.accept(number), !simulation.redis.hasRolledBack {
            simulation.fail("the job \(other) and the job of the notification \(number) have one id; both were sent")
        }
    }

    // MARK: Provider tokens

    func adopt(providerToken: String) { fleetTokens.insert(providerToken) }

    /// Checks the provider token of a request.
    /// - Returns: the time when the provider token was signed, in seconds since 1970.
    private func verify(_ token: String?, _ lane: SimulatedLane) -> Int64 {
        let now = time.milliseconds / 1000
        guard let token else {
            simulation.fail("a request has no provider token")
            return 0
        }
        let issuedAt: Int64
        if let known = verifiedTokens[token] {
            issuedAt = known
        } else {
            guard
                case .success(let grant) = providerTokens.grant(
                    authorization: Array("bearer \(token)".utf8), environment: .production)
            else {
                simulation.fail("APNs refuses a provider token")
                return 0
            }
            issuedAt = grant.issuedAt
            verifiedTokens[token] = grant.issuedAt
            if !fleetTokens.contains(token), !lane.mayLackFleetToken, !simulation.redis.hasRolledBack {
                simulation.fail("a lane sends a provider token of its own, and could have had the fleet's")
            }
        }
        if now - issuedAt > 3600 { simulation.fail("a provider token is too old") }
        return issuedAt
    }
}
