import APNS
import NIOCore
import PushQueue

@testable import PushWorker

/// A plan for a run: bad notifications beside good notifications, and faults of APNs and of the way to it.
struct BlamePlan: CustomStringConvertible, Sendable {
    /// The end of a bad notification.
    enum Fault: String, CaseIterable, Sendable {
        // Faults with different scopes; see `BlameMatrixTests.pairs`.
        case badDeviceToken, invalidProviderToken, serviceUnavailable, noReason, newReason, topicDisallowed, silence,
            cut
        // The other reasons of docs/outcomes.md.
        case deviceTokenNotForTopic, unregistered, goneWithoutReason, throttled, tooLarge, badPayload, forbidden
        case expiredProviderToken, tooManyTokenUpdates, internalServerError, badGateway, okOfAnother, refusedStream,
            goAway

        static let main: [Fault] = [
            .badDeviceToken, .invalidProviderToken, .serviceUnavailable, .noReason, .newReason, .topicDisallowed,
            .silence,
            .cut,
        ]

        private static func refusal(_ reason: APNSReason) -> RequestResult {
            .response(Response(status: reason.status, reason: reason))
        }

        /// The end of a request; `nil` if the request does not end before its deadline.
        func result(at time: Int64) -> RequestResult? {
            switch self {
            case .badDeviceToken: Self.refusal(.badDeviceToken)
            case .deviceTokenNotForTopic: Self.refusal(.deviceTokenNotForTopic)
            case .unregistered:
                .response(Response(status: 410, reason: .unregistered, timestamp: time))
            case .goneWithoutReason: .response(Response(status: 410))
            case .throttled: Self.refusal(.tooManyRequests)
            case .tooLarge: Self.refusal(.payloadTooLarge)
            case .badPayload: Self.refusal(.payloadEmpty)
            case .invalidProviderToken: Self.refusal(.invalidProviderToken)
            case .forbidden: Self.refusal(.forbidden)
            case .expiredProviderToken: Self.refusal(.expiredProviderToken)
            case .tooManyTokenUpdates: Self.refusal(.tooManyProviderTokenUpdates)
            case .topicDisallowed: Self.refusal(.topicDisallowed)
            case .newReason: .response(Response(status: 400, reasonText: "QuiteNew"))
            case .noReason: .response(Response(status: 400))
            case .okOfAnother: .response(Self.doubtful)
            case .internalServerError: Self.refusal(.internalServerError)
            case .serviceUnavailable: Self.refusal(.serviceUnavailable)
            case .badGateway: .response(Response(status: 502))
            case .refusedStream: .notProcessed(.refusedStream)
            case .goAway: .notProcessed(.goingAway(reason: nil))
            // The transport ends these requests.
            case .cut, .silence: nil
            }
        }

        private static var doubtful: Response {
            var response = Response(status: 200)
            response.origin = .doubtful
            return response
        }
    }

    /// The number and the times of the bad notifications.
    enum Bad: String, CaseIterable, Sendable {
        case once, eachSecond, thirtyPerSecond, fivePercent, thousand, tenThousandTokens
    }

    /// The rate of the good notifications.
    enum Good: String, CaseIterable, Sendable {
        case perMinute, eightPerSecond, thousandPerSecond

        var perSecond: Double {
            switch self {
            case .perMinute: 1 / 60
            case .eightPerSecond: 8
            case .thousandPerSecond: 1000
            }
        }
    }

    enum Fleet: String, CaseIterable, Sendable {
        case oneLane, lanes, workers

        var lanes: [Int] {
            switch self {
            case .oneLane: [1]
            case .lanes: [3]
            case .workers: [1, 1, 1]
            }
        }
    }

    var fault: Fault
    var bad: Bad
    var good: Good
    var hasCampaign: Bool
    var fleet: Fleet
    /// A fault that ends all notifications for some time, and the range of this time in milliseconds.
    var outage: (fault: Fault, times: Range<Int64>)?
    /// The percentage of notifications that APNs nevertheless accepts in the outage.
    var acceptedInOutage = 0.0
    /// True if no good notification is pushed during the outage.
    var isQuietInOutage = false
    /// The time when all workers die and others start.
    var restart: Int64?
    /// True if the fault is on the way of the first worker to APNs, and ends all its requests.
    var isWorkerRefused = false
    /// The time after which all requests fail on connections that were opened before this time.
    var stuckConnectionsFrom: Int64?
    /// True if the faults are on the way to APNs, and no notification is bad.
    var isOfWay: Bool { isWorkerRefused || stuckConnectionsFrom != nil }
    /// The length of the run, in milliseconds.
    var length: Int64 = 20_000
    /// The maximum number of requests in flight of a lane.
    var streams = 2000

    var description: String {
        "\(fault) \(bad)\(hasCampaign ? " of a campaign" : "") beside \(good), \(fleet)"
            + (outage.map { ", \($0.fault) for all" } ?? "")
            + (acceptedInOutage > 0 ? " but \(acceptedInOutage) %" : "") + (isQuietInOutage ? ", only retries" : "")
            + (restart == nil ? "" : ", restart") + (isWorkerRefused ? ", for one worker" : "")
            + (stuckConnectionsFrom == nil ? "" : ", on old connections")
    }

    init(
        _ fault: Fault, _ bad: Bad, beside good: Good = .eightPerSecond, hasCampaign: Bool = false,
        _ fleet: Fleet = .oneLane, length: Int64? = nil, streams: Int = 2000
    ) {
        self.streams = streams
        (self.fault, self.bad, self.good, self.hasCampaign, self.fleet) = (fault, bad, good, hasCampaign, fleet)
        if good == .thousandPerSecond { self.length = 8000 }
        if good == .perMinute { self.length = 60_000 }
        if let length { self.length = length }
    }

    /// A minute in which all notifications fail, and some time afterwards.
    static func outage(_ fault: Fault, good: Good = .eightPerSecond, _ fleet: Fleet = .oneLane) -> BlamePlan {
        var plan = BlamePlan(fault, .once, beside: good, fleet, length: 100_000)
        plan.outage = (fault, 10_000..<70_000)
        return plan
    }

    /// A plan with enough retries to use all streams.
    static let saturated = BlamePlan(.serviceUnavailable, .thirtyPerSecond, length: 60_000, streams: 6)

    /// An outage with some accepted notifications.
    static func partialOutage(_ fault: Fault, accepted percentage: Double, good: Good = .eightPerSecond) -> BlamePlan {
        var plan = outage(fault, good: good)
        plan.acceptedInOutage = percentage
        return plan
    }

    /// An outage during which new workers start. They find only retries.
    static func restart(_ fault: Fault) -> BlamePlan {
        var plan = outage(fault)
        (plan.restart, plan.isQuietInOutage) = (30_000, true)
        plan.outage?.times = 5000..<70_000
        return plan
    }

    /// An outage in the middle of a batch of bad notifications.
    static func outageInBatch(_ fault: Fault, of bad: Fault) -> BlamePlan {
        var plan = BlamePlan(bad, .thousand, hasCampaign: true, length: 100_000, streams: 40)
        plan.outage = (fault, 2300..<62_300)
        return plan
    }

    /// A proxy that refuses all requests of one worker.
    static func proxy(_ fault: Fault) -> BlamePlan {
        var plan = BlamePlan(fault, .once, .workers, length: 60_000)
        plan.isWorkerRefused = true
        return plan
    }

    /// A credential that APNs refuses on the connections that are open.
    static func stuckConnections(_ fault: Fault, _ fleet: Fleet = .oneLane) -> BlamePlan {
        var plan = BlamePlan(fault, .once, fleet, length: 60_000)
        plan.stuckConnectionsFrom = 10_000
        return plan
    }
}

extension BlamePlan {
    /// The milliseconds within which a good notification must be submitted; `nil` if nearly all of its group is bad, so that the workers
    /// treat the notification as bad.
    var limit: Int64? {
        // Refused notifications are sent again, so they take longer.
        guard !isOfWay else { return 10_000 }
        guard !hasCampaign else { return 1000 }
        return switch (bad, good) {
        // One job with ten thousand tokens gets nearly all answers of the endpoint.
        case (.tenThousandTokens, .perMinute): 10_000
        case (.once, _), (.fivePercent, _), (.tenThousandTokens, _), (_, .thousandPerSecond): 1000
        case (.thousand, .eightPerSecond): 10_000
        case (.eachSecond, .eightPerSecond), (.thirtyPerSecond, .eightPerSecond): 1000
        case (_, .perMinute): nil
        }
    }

    /// The outcomes that a bad notification may have in a run with many bad notifications.
    var ends: Set<String> {
        switch fault {
        case .badDeviceToken, .deviceTokenNotForTopic: ["invalid_token", "dead"]
        case .unregistered: ["invalid_token"]
        case .tooLarge, .badPayload, .throttled, .invalidProviderToken, .forbidden, .expiredProviderToken,
            .tooManyTokenUpdates, .topicDisallowed, .newReason, .noReason, .goneWithoutReason, .okOfAnother, .cut:
            ["dead"]
        case .serviceUnavailable, .internalServerError, .badGateway, .silence, .refusedStream, .goAway: []
        }
    }

    /// True if a record must name the campaign of the bad notifications.
    var isCulpritNamed: Bool {
        let concerns: Set<Fault> = [.invalidProviderToken, .forbidden, .serviceUnavailable, .noReason, .newReason]
        return hasCampaign && bad == .thousand && concerns.contains(fault)
    }

    /// True if, in a run with many bad notifications, each ends within a minute.
    var endsSoon: Bool {
        switch fault {
        case .badDeviceToken, .deviceTokenNotForTopic, .unregistered, .tooLarge, .badPayload, .throttled,
            .invalidProviderToken, .forbidden:
            true
        default: false
        }
    }
}

extension BlameRun {
    var mistakes: [String] {
        var found: [String] = []
        let (slow, isOutage) = (plan.limit, plan.outage != nil)
        let times = plan.outage?.times ?? 0..<0
        // After an outage, waiting notifications are sent within ten seconds.
        let measured = delays.filter {
            !times.contains($0.at) && !(times.upperBound..<times.upperBound + 10_000).contains($0.at)
        }
        let late = measured.filter { $0.delay > slow ?? .max }
        // By chance, the refused worker claims some notifications again and again.
        if late.count > (plan.isWorkerRefused ? goodCount / 25 : 0) {
            found.append("\(late.count) of \(goodCount) are late, by at most \(late.map(\.delay).max() ?? 0) ms")
        }
        if slow == 1000 || plan.stuckConnectionsFrom != nil, waiting.count > 1 + goodCount / 50 {
            found.append("\(waiting.count) of \(goodCount) wait")
        }
        if notReady > 0, !isOutage, !plan.isWorkerRefused { found.append("it was not ready \(notReady) times") }
        let ended = ["dead", "invalid_token", "expired"].filter { counts[$0] ?? 0 > 0 }
        // Because of the last deliveries before an outage, some refusals of tokens are believed.
        let vouched = plan.fault == .badDeviceToken && counts["invalid_token"] ?? 0 <= 16 * plan.fleet.lanes.count
        // In a batch, bad notifications end as they would without an outage.
        let isInBatch = isOutage && plan.outage?.fault != plan.fault
        let otherDead = (counts["dead"] ?? 0) - (counts["dead:BadDeviceToken"] ?? 0)
        if isInBatch, otherDead > 0 { found.append("the outage made \(otherDead) dead letters: \(counts)") }
        let allowed =
            plan.isOfWay ? [] : !isOutage || isInBatch ? plan.ends : vouched ? ["invalid_token"] : []
        let wrong = Set(ended).subtracting(allowed)
        if !wrong.isEmpty { found.append("ended as \(wrong): \(counts)") }
        if plan.hasCampaign, (counts["invalid_token"] ?? 0) > 16 * plan.fleet.lanes.count, plan.fault == .badDeviceToken
        {
            found.append("\(counts["invalid_token"] ?? 0) tokens were marked")
        }
        if plan.isCulpritNamed, !records.contains(where: { $0.name == "bad" && $0.state == .slow }) {
            found.append("the campaign is not named")
        }
        if plan.bad == .once, !isOutage, !plan.isOfWay, plan.endsSoon, plan.length >= 60_000, ended.isEmpty {
            found.append("the bad one does not end")
        }
        if isOutage {
            let half = times.lowerBound + (times.upperBound - times.lowerBound) / 2
            let sent = requests.count { (half..<times.upperBound).contains($0) }
            let lanes = plan.fleet.lanes.reduce(0, +)
            let most = 4 * lanes * Int(times.upperBound - half) / 1000
            if sent > most { found.append("\(sent) requests in the second half of the outage") }
            if waiting.count > 1 + goodCount / 50 { found.append("\(waiting.count) of \(goodCount) wait") }
        }
        return found
    }
}

extension FleetSimulation {
    static func mistakes(_ plan: BlamePlan, _ mutation: Mutation? = nil, on server: SimulatedServer) throws -> [String]
    {
        try FleetSimulation(seed: 1, .init(mutation: mutation, plan: plan), on: server).runPlan().mistakes
    }
}

/// A run of a plan, with the times of its pushes and requests.
final class BlameRun {
    let plan: BlamePlan
    private unowned let simulation: FleetSimulation
    private let start: NIODeadline
    private var bad: Set<Int> = []
    /// The push times of good notifications that are not submitted yet.
    private(set) var waiting: [Int: NIODeadline] = [:]
    /// For each submitted good notification, in milliseconds: its push since the start, and the time from push to submission.
    private(set) var delays: [(at: Int64, delay: Int64)] = []
    /// The times of all requests since the start, in milliseconds.
    private(set) var requests: [Int64] = []
    private(set) var records: [ScopeRecord] = []
    /// The number of times that a lane was not ready. Each lane is observed once per second.
    private(set) var notReady = 0
    private(set) var badCount = 0
    private(set) var goodCount = 0
    /// The counters of Redis at the end.
    var counts: [String: Int] = [:]

    init(_ plan: BlamePlan, _ simulation: FleetSimulation) {
        (self.plan, self.simulation) = (plan, simulation)
        start = simulation.time.now + .seconds(4)
    }

    private var random: SimulatedRandom { simulation.random }
    /// The milliseconds since the start.
    private var elapsed: Int64 { (simulation.time.now - start).nanoseconds / 1_000_000 }
    var isDone: Bool { elapsed >= plan.length }

    // MARK: Producers

    func produce() {
        simulation.time.schedule(at: start) { [self] in
            // The first deliveries show the workers that tokens are accepted.
            for _ in 0..<40 { push(isBad: false) }
            pushGood()
            observe()
        }
        if let restart = plan.restart {
            simulation.time.schedule(at: start + .milliseconds(restart)) { [self] in simulation.restartAll() }
        }
        simulation.time.schedule(at: start + .seconds(2)) { [self] in
            switch plan.bad {
            case .once: if plan.outage == nil, !plan.isOfWay { push(isBad: true) }
            case .thousand: for _ in 0..<1000 { push(isBad: true) }
            case .tenThousandTokens: push(isBad: true, tokens: 10_000)
            case .eachSecond: pushBad(perSecond: 1)
            case .thirtyPerSecond: pushBad(perSecond: 30)
            // The bad notifications are pushed among the good notifications.
            case .fivePercent: break
            }
        }
    }

    /// Returns a random time until the next push.
    private func interval(_ perSecond: Double) -> TimeAmount {
        let share = (Double(random.next() >> 11) + 1) * 0x1p-53
        var logarithm = 0.0
        // -ln(share), because this module does without Foundation's functions: a sum over bits is exact enough.
        var rest = share
        while rest < 0.5 {
            rest *= 2
            logarithm += 0.693147
        }
        logarithm += 1 - rest + (1 - rest) * (1 - rest) / 2
        return .microseconds(Int64(logarithm / perSecond * 1_000_000))
    }

    private func pushGood() {
        simulation.time.schedule(in: interval(plan.good.perSecond)) { [self] in
            guard !isDone else { return }
            pushGood()
            if plan.isQuietInOutage, plan.outage?.times.contains(elapsed) == true { return }
            push(isBad: plan.bad == .fivePercent && elapsed > 2000 && random.chance(5))
        }
    }

    private func pushBad(perSecond: Double) {
        simulation.time.schedule(in: interval(perSecond)) { [self] in
            guard !isDone else { return }
            pushBad(perSecond: perSecond)
            push(isBad: true)
        }
    }

    private func push(isBad: Bool, tokens: Int = 1) {
        let number = simulation.ledger.jobs.count
        var members = #""app":"shop","max_attempts":3"#
        if isBad, plan.hasCampaign { members += #","campaign":"bad""# }
        if isBad {
            bad.insert(number)
            badCount += tokens
        } else {
            waiting[number] = simulation.time.now
            goodCount += 1
        }
        simulation.push(SimulatedJob(number, members, tokens: tokens))
    }

    // MARK: APNs

    /// - Parameter opened: the time when the request's connection was opened.
    func submitted(_ job: Int, by worker: SimulatedWorker?, opened: NIODeadline) {
        requests.append(elapsed)
        // A request that meets the fault on its way does not count: the notification must take another way.
        if plan.isOfWay, fault(ofJob: job, by: worker, opened: opened) != nil { return }
        guard let at = waiting.removeValue(forKey: job) else { return }
        delays.append(((at - start).nanoseconds / 1_000_000, (simulation.time.now - at).nanoseconds / 1_000_000))
    }

    /// Returns the fault that ends a request for a job; `nil` if APNs accepts it.
    func fault(ofJob job: Int, by worker: SimulatedWorker?, opened: NIODeadline) -> BlamePlan.Fault? {
        if let outage = plan.outage, outage.times.contains(elapsed), !random.chance(plan.acceptedInOutage) {
            return outage.fault
        }
        if plan.isWorkerRefused { return worker === simulation.workers.first ? plan.fault : nil }
        if let time = plan.stuckConnectionsFrom {
            return elapsed >= time && opened < start + .milliseconds(time) ? plan.fault : nil
        }
        return bad.contains(job) ? plan.fault : nil
    }

    // MARK: Observation

    private func observe() {
        simulation.time.schedule(in: .seconds(1)) { [self] in
            guard !isDone else { return }
            observe()
            for lane in simulation.workers.flatMap(\.lanes) {
                records += lane.lane.context.scopes.records(now: simulation.time.now.milliseconds, offset: 0)
                if !lane.lane.observer.report().isReady { notReady += 1 }
            }
        }
    }
}
