/// The names of the keys that all queues share.
public struct SharedKeys: Sendable {
    /// SET of invalid device tokens, lower-case hex.
    public let invalidTokens: String
    /// HASH: invalid token → JSON about it.
    public let invalidTokenDetails: String
    /// HASH: device token → when its device last registered, in milliseconds since 1970. Producers may write there, too.
    ///
    /// In a Cluster it is with the set, so that one script sees both: hence what stands in braces.
    public let registrations: String
    /// ZSET of the device tokens that APNs has had enough of, by until when (ms).
    public let throttledTokens: String

    private let prefix: String

    /// - Parameter prefix: what all keys begin with.
    public init(prefix: String = "push") {
        self.prefix = prefix
        invalidTokens = "\(prefix):invalid-tokens"
        invalidTokenDetails = "\(prefix):invalid-tokens:details"
        registrations = "\(prefix):{\(invalidTokens)}:registrations"
        throttledTokens = "\(prefix):throttled-tokens"
    }

    /// STRING: why an app is paused, and when it is tried again (see ``AppPause``).
    public func appPaused(_ app: String) -> String { "\(prefix):apps:\(app):paused" }

    /// STRING: up to when an app's rate is used up, in microseconds.
    public func appRate(_ app: String) -> String { "\(prefix):apps:\(app):rate" }

    /// STRING: the provider token that the whole fleet sends.
    public func providerToken(team: String, key: String) -> String { "\(prefix):provider-token:\(team):\(key)" }
}
