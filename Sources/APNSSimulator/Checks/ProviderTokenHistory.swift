import APNS

/// The provider tokens of one connection: which ones can follow each other, and how soon.
///
/// Source: Apple, "Establishing a token-based connection to APNs": tokens of one team only; of team-scoped keys, or of
/// a topic-specific key and the one related to it; a new one at most once every 20 minutes. The reasons for other
/// violations are assumed, but a connection is known to be unusable for the rest of the 20 minutes (Apple's engineers,
/// developer forums, thread 675879) and permanently after an expired token (observed: pushy, pull request 783).
struct ProviderTokenHistory {
    private struct Key {
        /// The most recent tokens, the newest last.
        var tokens: [[UInt8]] = []
        /// The time at which a token replaced another, in seconds since 1970.
        var changedAt: Int64?
    }

    /// The number of tokens per key that are remembered.
    private static let maximumTokens = 4
    /// More than a team can have.
    private static let maximumKeys = 400

    private let settings: SimulatorSettings
    private var first: ProviderGrant?
    private var keys: [String: Key] = [:]
    /// The answer to all tokens until a time, in seconds since 1970.
    private var block: (refusal: Refusal, until: Int64)?

    init(_ settings: SimulatorSettings) { self.settings = settings }

    /// Returns the reason to refuse any token at this time, or nil.
    mutating func refusal(now: Int64) -> Refusal? {
        guard let block else { return nil }
        if now < block.until { return block.refusal }
        self.block = nil
        return nil
    }

    /// Returns the reason to refuse a token for its age, or nil.
    func refusal(issuedAt: Int64, now: Int64) -> Refusal? {
        guard let age = settings.tokenAge else { return nil }
        if now - issuedAt > age { return Refusal(.expiredProviderToken) }
        return issuedAt - now > age ? Refusal(.invalidProviderToken) : nil
    }

    /// Records a token that differs from the previous one.
    /// - Returns: the reason to refuse it, or nil.
    mutating func admit(_ grant: ProviderGrant, _ token: [UInt8], now: Int64) -> Refusal? {
        if let first {
            guard first.teamID == grant.teamID else { return Refusal(.invalidProviderToken) }
            guard Self.areRelated(first, grant) else { return Refusal(.unrelatedKeyIDInToken) }
        }
        var key = keys[grant.keyID] ?? Key()
        if !key.tokens.contains(token) {
            if !key.tokens.isEmpty {
                if let interval = settings.tokenInterval, let changedAt = key.changedAt, now - changedAt < interval {
                    let refusal = Refusal(.tooManyProviderTokenUpdates)
                    block = (refusal, changedAt + interval)
                    return refusal
                }
                key.changedAt = now
            }
            key.tokens = key.tokens.suffix(Self.maximumTokens - 1) + [token]
        }
        if keys.count >= Self.maximumKeys { keys.removeAll() }
        keys[grant.keyID] = key
        first = first ?? grant
        return nil
    }

    /// Records that a request was refused because its token was too old.
    mutating func tokenExpired() {
        if settings.wedgesAfterExpiredToken { block = (Refusal(.expiredProviderToken), .max) }
    }

    private static func areRelated(_ first: ProviderGrant, _ other: ProviderGrant) -> Bool {
        if first.keyID == other.keyID { return true }
        if first.scope.topics == nil || other.scope.topics == nil {
            return first.scope.topics == nil && other.scope.topics == nil
        }
        return first.scope.relatedKeyID == other.keyID || other.scope.relatedKeyID == first.keyID
    }
}
