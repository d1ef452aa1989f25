import APNS
import NIOCore
import PushQueue

/// One app on one lane: its connections, its breaker, its provider token, and what waits to be sent through them.
final class AppLane {
    private(set) var configuration: AppConfiguration
    private(set) var transport: any Transport
    /// Whether the worker's configuration has it no more: it finishes what it has, and gets nothing new.
    var isLeaving = false
    /// Which APNs it is, as invalid tokens have it noted.
    private(set) var environment: ByteBuffer
    var breaker = AppBreaker()
    var badTokens: BadTokenGuard
    /// The time at which the block was last written to Redis; `nil` if it has not been.
    var blockReportedAt: NIODeadline?
    /// What may be sent now, for an app whose rate is limited.
    var budget: RateBudget?
    /// The state of its answers that was last reported to the fleet.
    var answerState = AnswerState.answered
    /// True if the log's last line about it is that they are unanswered.
    var isUnanswered = false
    /// Since when no connection takes requests; `nil` while one does.
    var unconnectedSince: NIODeadline?
    /// Jobs with notifications that have not been submitted.
    var ready = EntryQueue()
    /// Notifications to be sent again at once; see ``gatherResends(in:)``.
    var resends = EntryQueue()
    /// Those that have just come back from a connection, in the order in which they were sent.
    private var returned = EntryQueue()
    /// Notifications of the jobs in ``ready`` that have not been submitted.
    var waiting = 0
    private var tokenSources: [ProviderTokenSource]
    /// Which of the keys is in use.
    private(set) var keyIndex = 0
    private var refusedKeys: Set<Int> = []
    var sharing = AppLane.newSharing()
    private var providerToken: ProviderToken?
    /// When the certificate in use expires, in seconds since 1970; `nil` for an app with keys.
    private(set) var certificateEnd: Int64?
    /// When the provider token that requests are sent with was signed, in seconds since 1970; 0 without one.
    private(set) var providerTokenIssuedAt: Int64 = 0

    init(_ configuration: AppConfiguration, transport: any Transport) {
        self.configuration = configuration
        self.transport = transport
        tokenSources = configuration.credential.tokenSources
        certificateEnd = configuration.credential.certificateEnd
        environment = ByteBuffer(string: configuration.environment)
        budget = configuration.maximumPerSecond.map(RateBudget.init(perSecond:))
        badTokens = BadTokenGuard(maximumShare: configuration.maximumBadTokenShare)
        breaker.block(configuration.wrongCertificate(configuration.credential))
    }

    /// Whether the app is paused because most tokens were called bad: then a probe whose token is called bad too is no
    /// proof that all is well.
    var isSuspect: Bool {
        guard let reason = breaker.reason else { return false }
        return reason.hasPrefix(Reason.badDeviceToken.rawValue)
            || reason.hasPrefix(Reason.deviceTokenNotForTopic.rawValue)
            || reason.hasPrefix(GatewayStatus.invalidToken.word)
    }

    /// Whether it has nothing to send, could, and is not looked at more often than that.
    var isAtRest: Bool {
        waiting == 0 && resends.isEmpty && returned.isEmpty && !breaker.isOpen && canSend && !isLeaving
            && (transport.usableConnections > 0 || transport.isDormant)
    }

    /// How many more notifications the app could take now.
    func room(now: NIODeadline) -> Int {
        guard canSend else { return 0 }
        var free = max(0, transport.capacity - waiting - resends.count - returned.count)
        // What the rate allows in half a second; the rest may as well stay in the queue.
        if let budget { free = min(free, max(0, max(1, budget.perSecond / 2) - waiting)) }
        guard breaker.isOpen else { return free }
        // Nothing but a probe would be sent; the rest may as well stay in the queue.
        return waiting == 0 && breaker.wantsProbe(now: now) ? min(free, 1) : 0
    }

    // MARK: Sending again

    /// Takes a notification that is to be sent again at once.
    func sendAgain(_ tag: Int, in flights: EntryTable<FlightEntry>) { returned.append(tag, in: flights) }

    /// Puts what came back before what still waits to be sent again: it has been sent again sooner, and so stood before it.
    func gatherResends(in flights: EntryTable<FlightEntry>) {
        guard !returned.isEmpty else { return }
        resends.prepend(contentsOf: returned, in: flights)
        returned = EntryQueue()
    }

    // MARK: Another configuration

    /// Takes limits and names over; what waits and what is under way goes on.
    func take(_ new: AppConfiguration) {
        let old = configuration
        configuration = new
        breaker.block(new.wrongCertificate(new.credential))
        environment = ByteBuffer(string: new.environment)
        if new.maximumPerSecond != old.maximumPerSecond {
            budget = new.maximumPerSecond.map(RateBudget.init(perSecond:))
        }
        if new.maximumBadTokenShare != old.maximumBadTokenShare {
            badTokens = BadTokenGuard(maximumShare: new.maximumBadTokenShare)
        }
    }

    /// Sends by other connections from now on.
    /// - Returns: those there were, on which there may be answers to come.
    func use(_ new: any Transport) -> any Transport {
        let old = transport
        new.delegate = old.delegate
        new.setProviderToken(providerToken?.jwt)
        transport = new
        unconnectedSince = nil
        return old
    }

    // MARK: Credentials

    /// Whether there is what requests are signed with.
    var canSend: Bool { tokenSources.isEmpty || providerToken != nil }

    /// The key that is in use, of an app that has keys.
    var tokenSource: ProviderTokenSource? { tokenSources.isEmpty ? nil : tokenSources[keyIndex] }

    var keyIDs: [String] { tokenSources.map(\.keyID) }

    var hasSeveralKeys: Bool { tokenSources.count > 1 }

    /// How old the provider token in use is, in seconds.
    func providerTokenAge(now: Int64) -> Int64? { providerToken.map { now - $0.issuedAt } }

    /// Takes a new provider token into use when there is one.
    /// - Parameters:
    ///   - now: seconds since 1970.
    ///   - isAwaited: whether one is expected from the fleet, so that none is to be signed.
    func refreshProviderToken(now: Int64, isAwaited: Bool) throws(SigningKey.Invalid) {
        guard let source = tokenSource else { return }
        if isAwaited, source.isDue(now: now) { return }
        let current = try source.token(now: now)
        if current != providerToken {
            providerToken = current
            providerTokenIssuedAt = current.issuedAt
            transport.setProviderToken(current.jwt)
        }
    }

    /// APNs called a provider token expired.
    /// - Parameter issuedAt: when the refused one was signed, in seconds since 1970.
    /// - Returns: whether sending again with another one can help. Until there is one, nothing is sent.
    func renew(issuedAt: Int64, now: Int64) -> Bool {
        guard let source = tokenSource, source.refused(issuedAt: issuedAt, now: now) else { return false }
        if providerTokenIssuedAt == issuedAt {
            sharing.refused(issuedAt: issuedAt)
            providerToken = nil
        }
        return true
    }

    /// Goes over to the next key.
    /// - Returns: `false` when APNs has refused all of them; the first is in use again then.
    func takeNextKey() -> Bool {
        refusedKeys.insert(keyIndex)
        let next = tokenSources.indices.first { !refusedKeys.contains($0) }
        if next == nil { refusedKeys = [] }
        use(key: next ?? 0)
        return next != nil
    }

    func replace(_ credential: AppConfiguration.Credential) {
        tokenSources = credential.tokenSources
        certificateEnd = credential.certificateEnd
        breaker.block(configuration.wrongCertificate(credential))
        refusedKeys = []
        if tokenSources.isEmpty { transport.setProviderToken(nil) }
        use(key: 0)
    }

    private func use(key index: Int) {
        keyIndex = index
        providerToken = nil
        sharing = Self.newSharing()
    }

    private static func newSharing() -> TokenSharing {
        TokenSharing(renewalAge: SharedProviderTokens.renewalAge, jitter: .random(in: 0...300))
    }
}
