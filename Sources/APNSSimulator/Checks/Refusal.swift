import APNS

/// The answer to a refused request; it has a reason.
typealias Refusal = PushAction.Response

extension PushAction.Response: Error {
    init(_ reason: APNSReason, timestamp: Int64? = nil) {
        self.init(status: reason.status, reason: reason.rawValue, timestamp: timestamp)
    }

    /// The answer to a provider token of a key for the other environment. Apple documents "BadEnvironmentKeyIdInToken";
    /// the service sends this spelling.
    static let badEnvironmentKeyInToken = Refusal(status: 403, reason: "BadEnvironmentKeyInToken")
    /// The answer for an app without broadcasts. Apple documents "FeatureNotEnabled"; the service sends this spelling.
    static let broadcastFeatureNotEnabled = Refusal(status: 400, reason: "BroadcastFeatureNotEnabled")

    /// Creates the refusal with a given reason: one that Apple documents, or one of the spellings above. Apple,
    /// "Handling error responses from Apple Push Notification service", has "Service Unavailable" with a space.
    init?(named reason: String) {
        let observed = [
            Self.badEnvironmentKeyInToken, Self.broadcastFeatureNotEnabled,
            Refusal(status: 503, reason: "Service Unavailable"),
        ]
        if let known = APNSReason(rawValue: reason) {
            self.init(known)
        } else if let known = observed.first(where: { $0.reason == reason }) {
            self = known
        } else {
            return nil
        }
    }
}
