import APNS

/// Addresses of the binary gateway, which Apple has shut down. Private gateways still exist.
extension APNSEndpoint {
    public static let productionGateway = APNSEndpoint(host: "gateway.push.apple.com", port: 2195)
    public static let sandboxGateway = APNSEndpoint(host: "gateway.sandbox.push.apple.com", port: 2195)

    /// Reads `production`, `sandbox`, `host` or `host:port` of a binary gateway; `nil` for anything else.
    public init?(gateway text: String) {
        self.init(text, production: .productionGateway, sandbox: .sandboxGateway)
    }
}

/// Addresses of the feedback service.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service". Apple has shut
/// it down; private gateways and appliances still offer one.
extension APNSEndpoint {
    public static let feedbackPort = 2196
    public static let productionFeedback = APNSEndpoint(host: "feedback.push.apple.com", port: feedbackPort)
    public static let sandboxFeedback = APNSEndpoint(host: "feedback.sandbox.push.apple.com", port: feedbackPort)

    /// The feedback service that belongs to this endpoint. For servers other than Apple's, it is on the same host.
    public var feedback: APNSEndpoint {
        switch APNSEnvironment(host: host) {
        case .production: .productionFeedback
        case .sandbox: .sandboxFeedback
        case nil: APNSEndpoint(host: host, port: Self.feedbackPort)
        }
    }

    /// Reads `production`, `sandbox`, `host` or `host:port`; `nil` for anything else.
    public init?(feedback text: String) {
        self.init(text, production: .productionFeedback, sandbox: .sandboxFeedback)
    }
}
