/// The names of the keys that all queues share. They carry one hash tag, which no queue can have, so in a Cluster they
/// are one slot, and one script can use several of them.
public struct SharedKeys: Sendable {
    /// The hash tag. ``QueueKeys`` refuses a queue of this name.
    static let tag = "shared"

    /// SET of invalid device tokens, lower-case hex.
    public let invalidTokens: String
    /// The beginning of the keys of 4,096 hashes, each with `:` and three hex digits after it: the details of invalid
    /// tokens, in a compact form.
    public let invalidTokenDetails: String
    /// HASH: number → JSON with `reason`, `topic`, `environment` and `source`, which details refer to.
    public let invalidTokenFacts: String
    /// HASH: device token → the time of its device's last registration, in ms since 1970. Producers may write here.
    public let registrations: String
    /// ZSET of the device tokens that APNs throttles, by the end of the pause in ms since 1970.
    public let throttledTokens: String

    /// STREAM: the audit log, the last actions of operators; see ``AuditLog``.
    package let audit: String

    private let base: String

    /// - Parameter prefix: the prefix of all keys.
    public init(prefix: String = "push") {
        base = "\(prefix):{\(Self.tag)}:"
        invalidTokens = base + "invalid-tokens"
        invalidTokenDetails = base + "invalid-tokens:details"
        invalidTokenFacts = base + "invalid-tokens:facts"
        registrations = base + "registrations"
        throttledTokens = base + "throttled-tokens"
        audit = base + "audit"
    }

    /// The keys whose names are known, with their types as `TYPE` names them.
    /// - Parameter apps: the names of apps.
    package func schema(apps: [String]) -> [(key: String, type: String)] {
        [
            (invalidTokens, "set"), (invalidTokenFacts, "hash"), (registrations, "hash"),
            (throttledTokens, "zset"), (audit, "stream"),
        ] + apps.flatMap { [(appPaused($0), "string"), (appRate($0), "hash")] }
    }

    /// STRING pausing the app while it exists: JSON with `reason`, `since`, `until` (the next probe, ms), or any
    /// text.
    public func appPaused(_ app: String) -> String { "\(base)apps:\(app):paused" }

    /// HASH: the time up to which an app's rate is used up, as `next_us` in µs since 1970, and when it was reserved.
    public func appRate(_ app: String) -> String { "\(base)apps:\(app):rate" }

    /// STRING: JSON of a session of the dashboard: `name`, `user` and `until`, until it ends. `digest` is the SHA-256 of
    /// the value that its browser has.
    package func session(_ digest: String) -> String { "\(base)web-session:\(digest)" }

    /// STRING: the provider token that all workers send, and the time of its signature; a secret, kept for an hour.
    public func providerToken(team: String, key: String) -> String { "\(base)provider-token:\(team):\(key)" }
}
