import Logging
import NIOCore
import PushQueue
import Redis

/// The pauses of apps; see ``AppPauses``.
protocol AppPauseStore: AnyObject {
    func read(_ apps: [String], completion: @escaping Completion<[AppPauses.State]>)
}

/// The rates of notifications; see ``SharedRates``.
protocol RateStore {
    func reserve(_ count: Int, of app: String, perSecond: Int, completion: @escaping Completion<Int64>)
    func take(_ turns: [SharedRates.Turn], of limit: SharedRates.Limit, completion: @escaping Completion<[Int]>)
}

/// The audit log's entries about campaigns that their guards have paused; see ``GuardAudit``.
protocol GuardAuditStore {
    func record(_ stopped: StoppedCampaign, completion: @escaping Completion<Void>)
}

/// The device tokens that APNs throttles; see ``ThrottledTokens``.
protocol ThrottledTokenStore {
    func add(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>)
    func count(completion: @escaping Completion<Int>)
    func find(_ tokens: TokenList, completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>)
}

/// The provider tokens of signing keys; see ``SharedProviderTokens``.
protocol ProviderTokenStore {
    func share(_ offer: SharedProviderTokens.Offer, completion: @escaping Completion<SharedProviderTokens.Answer>)
}

/// The set of invalid tokens; see ``InvalidTokenSet``.
protocol InvalidTokenStore {
    /// True while tokens can be added.
    var isReady: Bool { get }
    func count(completion: @escaping Completion<Int>)
    func countIfUndivided(completion: @escaping Completion<Int?>)
    func mark(_ tokens: [InvalidToken], completion: @escaping Completion<[InvalidToken.Marking]>)
    func find(_ tokens: TokenList, completion: @escaping Completion<[InvalidToken.Found]>)
    func remove(_ removals: [InvalidToken.Removal], completion: @escaping Completion<Int>)
}

extension AppPauses: AppPauseStore {}
extension SharedRates: RateStore {}
extension GuardAudit: GuardAuditStore {}
extension ThrottledTokens: ThrottledTokenStore {}
extension SharedProviderTokens: ProviderTokenStore {}
extension InvalidTokenSet: InvalidTokenStore {}

/// A lane's access to the state that all workers share in Redis. All calls and completions are on the lane's event loop.
struct FleetStore {
    let pauses: any AppPauseStore
    let rates: any RateStore
    let guardAudit: any GuardAuditStore
    let throttledTokens: any ThrottledTokenStore
    let providerTokens: any ProviderTokenStore
    let invalidTokens: any InvalidTokenStore
    /// Keeps the process's filter of invalid tokens up to date. Only the first lane has a keeper.
    var filterKeeper: TokenFilterKeeper?

    /// True while Redis can be reached.
    var isReady: Bool { invalidTokens.isReady }
}

extension FleetStore {
    /// - Parameters:
    ///   - client: the client for the slot of the shared keys.
    ///   - clients: returns the client for the slot of a key; `nil` if `client` serves all keys.
    ///   - clock: the clock used by the scripts.
    init(
        _ client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, of lane: LaneContext,
        clock: ClockSource = .server
    ) {
        let configuration = lane.configuration
        let keys = configuration.sharedKeys
        pauses = AppPauses(client: client, keys: keys)
        rates = SharedRates(client: client, keys: keys, clock: clock)
        guardAudit = GuardAudit(client: client, keys: keys, clock: clock)
        throttledTokens = ThrottledTokens(client: client, keys: keys, clock: clock)
        providerTokens = SharedProviderTokens(client: client, keys: keys, clock: clock)
        let set = InvalidTokenSet(
            client: client, clients: clients, keys: keys, maximumAge: configuration.invalidTokenAge, clock: clock)
        invalidTokens = set
        guard lane.index == 0 else { return }
        filterKeeper = TokenFilterKeeper(
            set: set, slot: lane.tokenFilters, eventLoop: lane.eventLoop, maximumBytes: configuration.tokenFilterBytes)
    }
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

    /// The state is read again at this age while the lane has work.
    private static let maximumAge = TimeAmount.seconds(1)

    let refusals: Refusals<Request>
    let store: FleetStore
    /// The number of invalid tokens in the set; `nil` if unknown, as for a divided set.
    private var invalidTokenCount: Int?
    /// The number of throttled tokens in Redis; `nil` if unknown.
    private var throttledTokenCount: Int?
    /// The throttled device tokens that the lane knows.
    var throttles = TokenThrottles()
    /// Tokens that get notifications although another app has marked them as invalid. If APNs accepts such a token for an app's own topic,
    /// the token is removed from the set of invalid tokens.
    private(set) var doubted: Set<ByteBuffer> = []
    /// The maximum number of doubted tokens. A look-up finds a forgotten token again.
    private static let maximumDoubted = 10_000
    private var tokenFilter: TokenFilterSlot.Reader
    private let lane: LaneContext
    private var readAt = NIODeadline.distantPast

    init(_ lane: LaneContext, store: FleetStore) {
        self.lane = lane
        self.store = store
        tokenFilter = TokenFilterSlot.Reader(lane.tokenFilters)
        refusals = Refusals(lane, logger: lane.logger) { "\($0)" }
    }

    /// The problems with reading and writing the shared state.
    var problems: [WorkerReport.Obstacle] {
        store.isReady
            ? refusals.problems.map { .init(.redisRefuses, $0) }
            : [.init(.redisUnavailable, "Redis cannot be reached for the state that all workers share")]
    }

    /// Reads the state if it is out of date. Tokens of jobs that are accepted from now on are looked up later on the same connection. So
    /// these jobs follow the new state.
    /// - Parameters:
    ///   - time: Redis' time in milliseconds since 1970.
    ///   - apply: receives the pauses of the apps, in the order of the apps.
    func readIfDue(apps: @autoclosure () -> [String], time: Int64, apply: @escaping ([AppPauses.State]) -> Void) {
        guard lane.now - readAt >= Self.maximumAge, !lane.isStopped else { return }
        readAt = lane.now
        (invalidTokenCount, throttledTokenCount) = (nil, nil)
        store.invalidTokens.countIfUndivided { [self] result in
            refusals.record(.invalidTokens, result)
            if case .success(let count) = result { invalidTokenCount = count }
        }
        store.throttledTokens.count { [self] result in
            refusals.record(.throttledTokens, result)
            if case .success(let count) = result { throttledTokenCount = count }
        }
        if !throttles.isEmpty { throttles.forget(before: time) }
        store.pauses.read(apps()) { [self] result in
            refusals.record(.pauses, result)
            if case .success(let pauses) = result { apply(pauses) }
        }
        // Without jobs, nothing else would show that the refusal has ended.
        guard refusals[.lookUps] != nil else { return }
        var none = TokenList(expecting: 1)
        // No token has this text.
        none.append(ByteBuffer(string: "-"))
        store.invalidTokens.find(none) { [self] in refusals.record(.lookUps, $0) }
    }

    /// Returns the filter of the tokens that a look-up may find; `nil` if each token must be looked up. While the state is being read it is
    /// also `nil`, because a look-up makes a job wait for the state.
    func filter() -> TokenFilter? { throttledTokenCount == nil ? nil : tokenFilter.current(at: lane.now) }

    /// False while a look-up can find nothing.
    var mayFindTokens: Bool { invalidTokenCount != 0 || throttledTokenCount != 0 }

    /// Looks up the tokens of jobs among the invalid and the throttled tokens, which may be on different servers. On completion,
    /// ``throttles`` has the throttled tokens.
    /// - Parameters:
    ///   - now: Redis' time in milliseconds since 1970.
    ///   - completion: gets the invalid tokens, in ascending order of their places.
    func find(
        _ tokens: TokenList, now: @escaping () -> Int64,
        completion: @escaping (Result<[InvalidToken.Found], QueueFailure>) -> Void
    ) {
        var areThrottledKnown = throttledTokenCount == 0
        var invalid: Result<[InvalidToken.Found], QueueFailure>?
        func complete() { if areThrottledKnown, let invalid { completion(invalid) } }
        if !areThrottledKnown {
            store.throttledTokens.find(tokens) { [self] result in
                refusals.record(.throttledTokens, result)
                if case .success(let found) = result {
                    for (token, until) in found { throttles.recordReport(token, until: until, now: now()) }
                }
                areThrottledKnown = true
                complete()
            }
        }
        store.invalidTokens.find(tokens) { [self] result in
            refusals.record(.lookUps, result)
            invalid = result
            complete()
        }
    }

    /// Records that a token is sent to although the set of invalid tokens has it.
    func doubt(_ token: ByteBuffer) {
        if doubted.count >= Self.maximumDoubted { doubted.removeAll() }
        // A copy, because the token is a part of a claim, which would otherwise be kept as long as the set.
        doubted.insert(ByteBuffer(bytes: token.readableBytesView))
    }

    /// Removes a doubted token from the set of an environment, because APNs accepted it for the app's own topic.
    func recordAcceptance(_ token: ByteBuffer, topic: ByteBuffer, environment: ByteBuffer) {
        guard doubted.remove(token) != nil else { return }
        store.invalidTokens.remove([.init(token, .accepted, environment: environment, topic: topic)]) { [self] in
            recordWrite(.lookUps, $0)
        }
    }

    /// Records that invalid tokens were written to their set.
    func recordMarked() { invalidTokenCount = max(1, invalidTokenCount ?? 1) }

    /// Records the result of a write, which is not repeated here.
    func recordWrite<Value>(_ request: Request, _ result: Result<Value, QueueFailure>) {
        // The next reading shows if a refusal has ended.
        if case .failure(let failure) = result { refusals.recordRefusal(request, failure) }
    }
}
