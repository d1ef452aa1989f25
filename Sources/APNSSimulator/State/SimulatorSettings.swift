import APNS
import PushJob

/// A simulator's behaviour without rules. Each property has a key of `--set`, named in parentheses.
package struct SimulatorSettings: Equatable, Sendable {
    /// Determines which answers to notifications for devices have an `apns-unique-id`. Answers to broadcasts always have it.
    package enum UniqueIDs: String, CaseIterable, Sendable {
        /// Answers have it in the sandbox only, as Apple documents.
        case auto
        case on
        case off
    }

    /// The simulated environment (`environment`).
    package var environment = APNSEnvironment.production
    /// The stream limit after a 4xx other than 410, until the next 200; nil for no change (`error-streams`).
    package var errorStreams: Int? = 1
    /// The connection gets a GOAWAY after this many consecutive 4xx other than 410; nil for no limit (`error-limit`).
    package var errorLimit: Int? = 100
    /// The connection gets a GOAWAY after this many `BadDeviceToken` without a 200 between them; nil for no limit (`bad-token-limit`).
    package var badTokenLimit: Int? = 20
    /// The minimum time in seconds between changes of a connection's provider token; nil for no limit
    /// (`token-interval`).
    ///
    /// Source: Apple, "Establishing a token-based connection to APNs": once every 20 minutes on the same connection.
    package var tokenInterval: Int64? = 1200
    /// The largest difference in seconds between a provider token's `iat` and now; nil for no limit (`token-age`).
    ///
    /// Source: Apple, "Establishing a token-based connection to APNs": no more than one hour from the current time.
    package var tokenAge: Int64? = 3600
    /// True if a connection accepts no more provider tokens after a token that was too old (`expired-wedge`).
    package var wedgesAfterExpiredToken = true
    /// True if a connection keeps the topics that were configured at its first push (`bind-topics`).
    package var bindsTopics = true
    /// True if device tokens that are not registered are refused (`registered-only`).
    package var acceptsRegisteredOnly = false
    package var uniqueIDs = UniqueIDs.auto
    /// The bundle identifiers of apps without the broadcast capability (`no-broadcasts`).
    package var appsWithoutBroadcasts: Set<String> = []

    package init() {}

    /// Changes the settings in a text such as `token-interval=off,error-limit=10`.
    /// - Throws: ``RuleError`` that names the key. Then nothing is changed.
    package mutating func change(_ text: String) throws(RuleError) {
        var reader = try RuleReader(text, kind: "setting")
        var new = self
        if let value = try reader.take(
            "environment", "must be production or sandbox", { APNSEnvironment(rawValue: $0) })
        {
            new.environment = value
        }
        if let value = try Self.limit("error-streams", &reader) { new.errorStreams = value }
        if let value = try Self.limit("error-limit", &reader) { new.errorLimit = value }
        if let value = try Self.limit("bad-token-limit", &reader) { new.badTokenLimit = value }
        if let value = try Self.seconds("token-interval", &reader) { new.tokenInterval = value }
        if let value = try Self.seconds("token-age", &reader) { new.tokenAge = value }
        if let value = try Self.isOn("expired-wedge", &reader) { new.wedgesAfterExpiredToken = value }
        if let value = try Self.isOn("bind-topics", &reader) { new.bindsTopics = value }
        if let value = try Self.isOn("registered-only", &reader) { new.acceptsRegisteredOnly = value }
        if let value = try reader.take("unique-id", "must be auto, on or off", { UniqueIDs(rawValue: $0) }) {
            new.uniqueIDs = value
        }
        if let value = reader.take("no-broadcasts") { new.appsWithoutBroadcasts = Set(RuleReader.list(value)) }
        try reader.finish()
        self = new
    }

    private static func limit(_ key: String, _ reader: inout RuleReader) throws(RuleError) -> Int?? {
        try reader.take(key, "must be a whole number, at least 1, or off") { text -> Int?? in
            text == "off" ? .some(nil) : Int(text).flatMap { $0 >= 1 ? .some($0) : nil }
        }
    }

    private static func seconds(_ key: String, _ reader: inout RuleReader) throws(RuleError) -> Int64?? {
        try reader.take(key, "must be a duration from 0s to 1h, such as 20m, or off") { text -> Int64?? in
            guard text != "off" else { return .some(nil) }
            return DurationText.seconds(String(text)).flatMap { $0 <= 3600 ? $0 : nil }
        }
    }

    private static func isOn(_ key: String, _ reader: inout RuleReader) throws(RuleError) -> Bool? {
        try reader.take(key, "must be on or off") { ["on": true, "off": false][$0] }
    }

    /// True if answers to notifications for devices have an `apns-unique-id`.
    var givesUniqueIDs: Bool {
        switch uniqueIDs {
        case .auto: environment == .sandbox
        case .on: true
        case .off: false
        }
    }
}

extension SimulatorSettings: CustomStringConvertible {
    /// All settings in the form of `--set`.
    package var description: String {
        func text(_ limit: Int?) -> String { limit.map(String.init) ?? "off" }
        func text(_ seconds: Int64?) -> String { seconds.map { "\($0)s" } ?? "off" }
        func text(_ isOn: Bool) -> String { isOn ? "on" : "off" }
        return [
            "environment=\(environment.rawValue)", "error-streams=\(text(errorStreams))",
            "error-limit=\(text(errorLimit))", "bad-token-limit=\(text(badTokenLimit))",
            "token-interval=\(text(tokenInterval))", "token-age=\(text(tokenAge))",
            "expired-wedge=\(text(wedgesAfterExpiredToken))", "bind-topics=\(text(bindsTopics))",
            "registered-only=\(text(acceptsRegisteredOnly))", "unique-id=\(uniqueIDs.rawValue)",
            "no-broadcasts=\(appsWithoutBroadcasts.sorted().joined(separator: "+"))",
        ].joined(separator: ",")
    }
}
