import APNS

/// Decides about provider tokens, each distinct one verified once.
struct ProviderTokens: Sendable {
    /// What a token is worth, apart from its age.
    enum Standing: Equatable, Sendable {
        /// It is good until it is an hour old, on connections that began with the same key.
        case genuine(issuedAt: Int64, keyID: String)
        case refused(APNSReason)
    }

    /// Source: Apple, "Establishing a token-based connection to APNs": a token more than an hour old is refused.
    static let maximumAge: Int64 = 3600
    /// How far a client's clock may run ahead, in seconds. Assumed; Apple does not say.
    static let maximumLead: Int64 = 600
    private static let cacheLimit = 10_000

    private let keys: [String: ProviderKey]
    private let minimumInterval: Int64?
    private var standings: [[UInt8]: Standing] = [:]
    private var lastUpdate: [String: Int64] = [:]

    /// - Parameters:
    ///   - keys: those that tokens may be signed with; with none, signatures are not looked at.
    ///   - minimumInterval: how many seconds must lie between two tokens of one key; nil for no limit. Apple's is 1200.
    init(keys: [ProviderKey], minimumInterval: Int64?) {
        self.keys = Dictionary(keys.map { ($0.keyID, $0) }) { _, last in last }
        self.minimumInterval = minimumInterval
    }

    /// What the value of an `authorization` header is worth.
    /// - Parameter now: seconds since 1970.
    mutating func standing(authorization: [UInt8], now: Int64) -> Standing {
        if let known = standings[authorization] { return known }
        let verdict = judge(authorization, now: now)
        // Too early today is not too early for ever.
        guard verdict != .refused(.tooManyProviderTokenUpdates) else { return verdict }
        if standings.count >= Self.cacheLimit { standings.removeAll(keepingCapacity: true) }
        standings[authorization] = verdict
        return verdict
    }

    private mutating func judge(_ authorization: [UInt8], now: Int64) -> Standing {
        let scheme = Array("bearer ".utf8)
        guard authorization.count >= scheme.count,
            authorization.prefix(scheme.count).map({ $0 | 0x20 }) == scheme
        else { return .refused(.missingProviderToken) }
        guard authorization.count > scheme.count else { return .refused(.missingProviderToken) }
        guard let token = ProviderToken(compact: Array(authorization.dropFirst(scheme.count))) else {
            return .refused(.invalidProviderToken)
        }
        if !keys.isEmpty {
            guard let key = keys[token.keyID], key.teamID == token.teamID, key.verifies(token) else {
                return .refused(.invalidProviderToken)
            }
        }
        guard token.issuedAt <= now + Self.maximumLead else { return .refused(.invalidProviderToken) }
        if Self.isExpired(issuedAt: token.issuedAt, now: now) { return .refused(.expiredProviderToken) }
        if let minimumInterval {
            if let last = lastUpdate[token.keyID], now - last < minimumInterval {
                return .refused(.tooManyProviderTokenUpdates)
            }
            lastUpdate[token.keyID] = now
        }
        return .genuine(issuedAt: token.issuedAt, keyID: token.keyID)
    }

    static func isExpired(issuedAt: Int64, now: Int64) -> Bool { now - issuedAt > maximumAge }
}
