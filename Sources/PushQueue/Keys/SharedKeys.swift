/// The names of the keys that all queues share. They carry one hash tag, which no queue can have, so in a Cluster they
/// are one slot, and one script can use several of them.
public struct SharedKeys: Sendable {
    /// The hash tag. ``QueueKeys`` refuses a queue of this name.
    private static let tag = "shared"

    /// Returns true for `shared`, and for the hash tag of a shard such as `shared.3`. No queue can have such a name.
    static func hasTag(_ name: String) -> Bool { name == tag || name.hasPrefix("\(tag).") }

    /// SET of the device tokens, in lower-case hex, that are invalid for an app's own topic. The key with `:sandbox` has the tokens of the
    /// sandbox, and the key with `:other` has the tokens that are invalid only for other topics.
    public let invalidTokens: String
    /// HASH: 5 bytes of an invalid token's SHA-1 → its marks, each of 10 bytes: `at` (when it became invalid according to APNs, in ms since
    /// 1970, 6 bytes), the day of the marking (since 1970, 2 bytes) and the ID of its facts (2 bytes). There are 4,096 such keys. Each
    /// ends with the first three hex digits of the SHA-1.
    public let invalidTokenDetails: String
    /// HASH: ID of a mark's facts → JSON with `reason`, `topic`, `environment`, `source` and `set`.
    public let invalidTokenFacts: String
    /// STREAM: the last changes of the set, for the filters of processes: `added` and `throttled` (tokens with commas between them), or
    /// `removed` (a number).
    public let invalidTokenChanges: String
    /// STRING: the number of shards of the set; missing until it is divided for the first time. While `invalid reshard` changes it, two
    /// more numbers follow: the number of shards of the incomplete form, and the time when the change began, in ms since 1970.
    public let invalidTokenDivision: String
    /// HASH: device token → the time of its device's last registration, in ms since 1970. Producers may write here.
    public let registrations: String
    /// ZSET of the device tokens that APNs throttles, by the end of the pause in ms since 1970.
    public let throttledTokens: String

    /// STREAM: the audit log, the last actions of operators; see ``AuditLog``.
    public let audit: String

    private let base: String
    private let prefix: String

    public init(prefix: String = "push") {
        self.prefix = prefix
        base = "\(prefix):{\(Self.tag)}:"
        invalidTokens = base + "invalid-tokens"
        invalidTokenDetails = base + "invalid-tokens:details"
        invalidTokenFacts = base + "invalid-tokens:facts"
        invalidTokenChanges = base + "invalid-tokens:changes"
        invalidTokenDivision = base + "invalid-tokens:division"
        registrations = base + "registrations"
        throttledTokens = base + "throttled-tokens"
        audit = base + "audit"
    }

    /// The keys whose names are known, with their types as `TYPE` names them.
    /// - Parameter apps: the names of apps.
    public func schema(apps: [String]) -> [(key: String, type: String)] {
        [
            (invalidTokens, "set"), (invalidTokens + ":sandbox", "set"), (invalidTokens + ":other", "set"),
            (invalidTokenFacts, "hash"), (invalidTokenChanges, "stream"),
            (invalidTokenDivision, "string"), (registrations, "hash"), (throttledTokens, "zset"), (audit, "stream"),
        ] + apps.flatMap { [(appPaused($0), "string"), (appResumed($0), "string"), (appRate($0), "hash")] }
    }

    /// Returns the keys of a shard of the set of invalid tokens.
    /// - Parameters:
    ///   - index: its number, from 0.
    ///   - shards: the number of shards; 1 for a set that is not divided.
    public func shard(_ index: Int, of shards: Int) -> TokenShard {
        guard shards > 1 else { return TokenShard(base: base, isShard: false) }
        return TokenShard(base: "\(prefix):{\(Self.tag).\(shards).\(index)}:", isShard: true)
    }

    /// STRING: pauses the app while it exists. JSON with `reason`, `since` and `by`, or any text.
    public func appPaused(_ app: String) -> String { "\(base)apps:\(app):paused" }

    /// STRING: exists for a minute after an operator has resumed the app. Each lane sends a probe when the value changes.
    public func appResumed(_ app: String) -> String { "\(base)apps:\(app):resumed" }

    /// HASH: the time until which an app's rate is reserved, as `next_us` in µs since 1970, and the time of the last reservation.
    public func appRate(_ app: String) -> String { "\(base)apps:\(app):rate" }

    /// HASH: the times, in µs since 1970, until which the rate of a limited campaign is used up (`next_us`) and waiting jobs need it
    /// (`promised_us`).
    public func campaignRate(_ campaign: String) -> String { "\(base)campaigns:\(campaign):rate" }

    /// HASH: the times, in µs since 1970, until which the rate for the jobs with this `fair` is used up (`next_us`) and waiting jobs need
    /// it (`promised_us`).
    public func fairRate(_ key: String) -> String { "\(base)fair:\(key):rate" }

    /// STRING: JSON of a session of the dashboard: `name`, `user` and `until`; kept until it ends. `digest` is the SHA-256 of the browser's
    /// value.
    public func session(_ digest: String) -> String { "\(base)web-session:\(digest)" }

    /// STRING: the provider token that all workers send, and the time of its signature; a secret, kept for an hour.
    public func providerToken(team: String, key: String) -> String { "\(base)provider-token:\(team):\(key)" }
}
