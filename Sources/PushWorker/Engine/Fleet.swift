import Logging
import NIOCore
import PushQueue
import Redis

/// The state that all workers share in Redis, as a lane uses it. All calls and completions are on the lane's event
/// loop.
protocol FleetStore: AnyObject {
    typealias Completion<Value> = (Result<Value, QueueConnection.Failure>) -> Void

    /// True while Redis can be reached.
    var isReady: Bool { get }
    /// The durations of future pauses.
    var pauseDurations: AppPauses.Durations { get set }

    /// Reads the pauses of apps, in the order of the apps; `nil` for an app that is not paused.
    func pauses(of apps: [String], completion: @escaping Completion<[AppPause?]>)
    /// See ``AppPauses/trip(_:reason:detail:isProbe:configuration:completion:)``.
    /// - Parameter refused: what APNs has refused, see ``AppSender/refusable``.
    func pause(
        _ app: String, _ refused: ConfigurationDigest, _ reason: Reason, isProbe: Bool,
        completion: @escaping Completion<Int64?>)
    func askForProbe(
        of app: String, _ refused: ConfigurationDigest, completion: @escaping Completion<AppPauses.ProbeAnswer>)
    func resume(_ app: String, _ refused: ConfigurationDigest, completion: @escaping Completion<Void>)

    /// - Parameter completion: receives the milliseconds until the portion may be used.
    func reserveRate(_ count: Int, of app: String, perSecond: Int, completion: @escaping Completion<Int64>)
    func share(_ offer: SharedProviderTokens.Offer, completion: @escaping Completion<SharedProviderTokens.Answer>)

    /// - Parameters:
    ///   - until: in milliseconds since 1970.
    func throttle(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>)
    func throttledTokens(now: Int64, completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>)

    func countInvalidTokens(completion: @escaping Completion<Int>)
    func markInvalid(_ tokens: [InvalidToken], completion: @escaping Completion<Void>)
    func findInvalid(_ tokens: TokenList, completion: @escaping Completion<[InvalidTokenSet.Found]>)
    func register(_ devices: [InvalidTokenSet.Registration], completion: @escaping Completion<Void>)
}

/// A lane's view of the fleet's shared state.
final class Fleet {
    /// The kinds of requests that a reachable Redis may refuse.
    enum Request: Hashable, CustomStringConvertible {
        case pauses, throttledTokens, invalidTokens, lookUps, providerTokens
        case rate(app: String)

        var description: String {
            switch self {
            case .pauses: "pauses of apps"
            case .throttledTokens: "throttled tokens"
            case .invalidTokens: "invalid tokens"
            case .lookUps: "look-ups of tokens"
            case .providerTokens: "provider tokens"
            case .rate(let app): "the rate of the app \(app)"
            }
        }
    }

    /// The age at which the state is read again while the lane has work.
    private static let maximumAge = TimeAmount.seconds(1)

    let refusals: Refusals<Request>
    let store: any FleetStore
    /// The number of invalid tokens in the set; `nil` if unknown.
    var invalidTokenCount: Int?
    /// The device tokens that APNs throttles.
    var throttles = TokenThrottles()
    private let lane: LaneContext
    private var readAt = NIODeadline.distantPast

    init(_ lane: LaneContext, store: any FleetStore) {
        self.lane = lane
        self.store = store
        refusals = Refusals(lane, logger: lane.logger) { "\($0)" }
    }

    /// The problems that keep the lane from the state, a sentence each.
    var problems: [String] {
        store.isReady ? refusals.problems : ["Redis cannot be reached for the state that all workers share"]
    }

    /// Reads the state if it is out of date. Tokens of jobs accepted from now on are looked up after it on the same
    /// connection, so those jobs are sent according to the new state.
    /// - Parameters:
    ///   - time: Redis' time in milliseconds since 1970.
    ///   - apply: receives the pauses of the apps, in the order of the apps.
    func readIfDue(apps: @autoclosure () -> [String], time: Int64, apply: @escaping ([AppPause?]) -> Void) {
        guard lane.now - readAt >= Self.maximumAge, !lane.isStopped else { return }
        readAt = lane.now
        invalidTokenCount = nil
        store.countInvalidTokens { [self] result in
            refusals.note(.invalidTokens, result)
            if case .success(let count) = result { invalidTokenCount = count }
        }
        store.throttledTokens(now: time) { [self] result in
            refusals.note(.throttledTokens, result)
            guard case .success(let tokens) = result else { return }
            for (token, until) in tokens { throttles.learned(token, until: until, now: time) }
            if !throttles.isEmpty { throttles.forget(before: time) }
        }
        store.pauses(of: apps()) { [self] result in
            refusals.note(.pauses, result)
            if case .success(let pauses) = result { apply(pauses) }
        }
        // Without jobs nothing else would show that the refusal has ended.
        guard refusals[.lookUps] != nil else { return }
        var none = TokenList(expecting: 1)
        none.appendNothing()
        store.findInvalid(none) { [self] in refusals.note(.lookUps, $0) }
    }

    /// Records the result of a write. The parts that need the state try again.
    func noteWrite(_ request: Request, _ result: Result<Void, QueueConnection.Failure>) {
        // The next reading shows whether a refusal has ended.
        if case .failure(let failure) = result { refusals.refused(request, failure) }
    }
}

/// The shared state in Redis.
final class RedisFleetStore: FleetStore {
    private let client: any RedisSender
    private let appPauses: AppPauses
    private let appRates: AppRates
    private let throttled: ThrottledTokens
    private let providerTokens: SharedProviderTokens
    private let invalidTokens: InvalidTokenSet

    /// - Parameters:
    ///   - client: the client for the slot of the shared keys.
    ///   - lane: the lane's name, recorded with pauses.
    ///   - clock: the clock used by the scripts.
    init(
        _ client: any RedisSender, configuration: WorkerConfiguration, lane: String, clock: ClockSource = .server
    ) {
        self.client = client
        let keys = configuration.sharedKeys
        appPauses = AppPauses(client: client, keys: keys, worker: lane, durations: configuration.appPause, clock: clock)
        appRates = AppRates(client: client, keys: keys, clock: clock)
        throttled = ThrottledTokens(client: client, keys: keys, clock: clock)
        providerTokens = SharedProviderTokens(client: client, keys: keys, clock: clock)
        invalidTokens = InvalidTokenSet(
            client: client, keys: keys, maximumAge: configuration.invalidTokenAge, clock: clock)
    }

    var isReady: Bool { client.isReady }

    var pauseDurations: AppPauses.Durations {
        get { appPauses.durations }
        set { appPauses.durations = newValue }
    }

    func pauses(of apps: [String], completion: @escaping Completion<[AppPause?]>) {
        appPauses.read(apps) { completion($0.mapError(QueueConnection.Failure.redis)) }
    }

    func pause(
        _ app: String, _ refused: ConfigurationDigest, _ reason: Reason, isProbe: Bool,
        completion: @escaping Completion<Int64?>
    ) {
        appPauses.trip(
            app, reason: reason.code.text, detail: reason.detail, isProbe: isProbe,
            configuration: refused.text, completion: completion)
    }

    func askForProbe(
        of app: String, _ refused: ConfigurationDigest, completion: @escaping Completion<AppPauses.ProbeAnswer>
    ) {
        appPauses.probe(app, configuration: refused.text, completion: completion)
    }

    func resume(_ app: String, _ refused: ConfigurationDigest, completion: @escaping Completion<Void>) {
        appPauses.close(app, configuration: refused.text, completion: completion)
    }

    func reserveRate(_ count: Int, of app: String, perSecond: Int, completion: @escaping Completion<Int64>) {
        appRates.reserve(count, of: app, perSecond: perSecond, completion: completion)
    }

    func share(_ offer: SharedProviderTokens.Offer, completion: @escaping Completion<SharedProviderTokens.Answer>) {
        providerTokens.share(offer, completion: completion)
    }

    func throttle(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>) {
        throttled.add(token, until: until, completion: completion)
    }

    func throttledTokens(now: Int64, completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>) {
        throttled.read(now: now) { completion($0.mapError(QueueConnection.Failure.redis)) }
    }

    func countInvalidTokens(completion: @escaping Completion<Int>) {
        invalidTokens.count { completion($0.mapError(QueueConnection.Failure.redis)) }
    }

    func markInvalid(_ tokens: [InvalidToken], completion: @escaping Completion<Void>) {
        invalidTokens.mark(tokens) { completion($0.map { _ in }) }
    }

    func findInvalid(_ tokens: TokenList, completion: @escaping Completion<[InvalidTokenSet.Found]>) {
        invalidTokens.find(tokens, completion: completion)
    }

    func register(_ devices: [InvalidTokenSet.Registration], completion: @escaping Completion<Void>) {
        invalidTokens.register(devices, completion: completion)
    }
}
