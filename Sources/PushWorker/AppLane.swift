import APNS
import NIOCore

/// One app on one lane: its connections, its breaker, its provider token, and what waits to be sent through them.
final class AppLane {
    let configuration: AppConfiguration
    let pool: ConnectionPool
    let name: ByteBuffer
    let topic: ByteBuffer
    /// Which APNs it is, as invalid tokens have it noted.
    let environment: ByteBuffer
    /// The topics of push types whose topic is not the bare identifier.
    private let otherTopics: [PushType: ByteBuffer]
    var breaker = AppBreaker()
    var badTokens: BadTokenGuard
    /// What may be sent now, for an app whose rate is limited.
    var budget: RateBudget?
    /// Since when no connection takes requests; `nil` while one does.
    var unconnectedSince: NIODeadline?
    /// Jobs with notifications that have not been submitted.
    var ready = EntryQueue()
    /// Notifications to be sent again at once.
    var resends = EntryQueue()
    /// Notifications of the jobs in ``ready`` that have not been submitted.
    var waiting = 0
    private var providerToken: ProviderToken?
    /// When the provider token that requests are sent with was signed, in seconds since 1970; 0 without one.
    private(set) var providerTokenIssuedAt: Int64 = 0

    init(_ configuration: AppConfiguration, pool: ConnectionPool) {
        self.configuration = configuration
        self.pool = pool
        name = ByteBuffer(string: configuration.name)
        topic = ByteBuffer(string: configuration.topic)
        environment = ByteBuffer(string: configuration.endpoint.environment)
        budget = configuration.maximumPerSecond.map(RateBudget.init(perSecond:))
        badTokens = BadTokenGuard(maximumShare: configuration.maximumBadTokenShare)
        otherTopics = Dictionary(
            uniqueKeysWithValues: PushType.allCases.filter { !$0.topicSuffix.isEmpty }.map { type in
                let isWhole = configuration.topic.hasSuffix(type.topicSuffix)
                return (type, ByteBuffer(string: configuration.topic + (isWhole ? "" : type.topicSuffix)))
            })
    }

    /// The topic of a job that names none. Without the ending that its push type needs, APNs would refuse it as the app's
    /// fault, and one job would pause all others.
    func topic(for type: PushType) -> ByteBuffer { type.topicSuffix.isEmpty ? topic : otherTopics[type] ?? topic }

    /// Whether the app is paused because most tokens were called bad: then a probe whose token is called bad too is no
    /// proof that all is well.
    var isSuspect: Bool {
        guard let reason = breaker.reason else { return false }
        return reason.hasPrefix(Reason.badDeviceToken.rawValue)
            || reason.hasPrefix(Reason.deviceTokenNotForTopic.rawValue)
    }

    /// How many more notifications the app could take now.
    func room(now: NIODeadline) -> Int {
        var free = max(0, pool.freeStreams - waiting - resends.count)
        // What the rate allows in half a second; the rest may as well stay in the queue.
        if let budget { free = min(free, max(0, max(1, budget.perSecond / 2) - waiting)) }
        guard breaker.isOpen else { return free }
        // Nothing but a probe would be sent; the rest may as well stay in the queue.
        return waiting == 0 && breaker.wantsProbe(now: now) ? min(free, 1) : 0
    }

    /// Takes a new provider token into use when there is one.
    /// - Parameter now: seconds since 1970.
    func refreshProviderToken(now: Int64) throws(SigningKey.Invalid) {
        guard case .providerToken(let source) = configuration.credential else { return }
        let current = try source.token(now: now)
        if current != providerToken {
            providerToken = current
            providerTokenIssuedAt = current.issuedAt
            pool.setProviderToken(current.jwt)
        }
    }

    /// APNs called a provider token expired.
    /// - Parameter issuedAt: when the refused one was signed, in seconds since 1970.
    /// - Returns: whether sending again with another one can help.
    func renew(issuedAt: Int64, now: Int64) -> Bool {
        guard case .providerToken(let source) = configuration.credential else { return false }
        guard source.refused(issuedAt: issuedAt, now: now) else { return false }
        do throws(SigningKey.Invalid) {
            try refreshProviderToken(now: now)
        } catch {
            // The next tick signs again, and tells what is wrong with that.
            return false
        }
        return providerTokenIssuedAt != issuedAt
    }
}
