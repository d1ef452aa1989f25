public enum ChannelManagementError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The given ID can't be a channel's; nothing was sent.
    case malformedID
    case refused(Refusal)
    case unexpected(APNSEndpoint, String)

    public struct Refusal: Equatable, Sendable {
        public var endpoint: APNSEndpoint
        public var response: Response
        /// `apns-request-id`, which identifies the request to Apple's support.
        public var requestID: String?
    }

    public var description: String {
        switch self {
        case .malformedID: "\(BroadcastTarget.Invalid.channelID)"
        case .unexpected(let endpoint, let what):
            "\(endpoint) answered \(what); is it the address for managing channels?"
        case .refused(let refusal):
            "\(refusal.endpoint) refused (status \(refusal.response.status), "
                + "\(refusal.response.reasonText ?? "no reason")): "
                + refusal.advice
                + (refusal.requestID.map { " [apns-request-id \($0)]" } ?? "")
        }
    }
}

extension ChannelManagementError.Refusal {
    /// Advice for the operator.
    ///
    /// Source: Apple, "Handling error responses from Apple Push Notification service".
    var advice: String {
        switch response.reason {
        case .channelNotRegistered: "there is no such channel of this app in this environment"
        case .badChannelID: "this is not the ID of a channel; copy the whole ID"
        case .cannotCreateChannelConfig:
            "the app has reached its maximum number of channels; delete unused ones"
        case .featureNotEnabled, .broadcastFeatureNotEnabled:
            "the app has no broadcast capability; enable it on Apple's developer site, under Push Notifications"
        case .topicMismatch, .topicDisallowed, .badTopic, .missingTopic:
            "the credential is not for this app; are the bundle identifier and the team right?"
        case .expiredProviderToken: "the provider token is too old; is this machine's clock right?"
        case .tooManyProviderTokenUpdates:
            "too many provider tokens were made with this key; wait 20 minutes"
        case .invalidProviderToken, .missingProviderToken, .forbidden, .unrelatedKeyIDInToken,
            .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            "the signing key is not accepted; are the key, its ID and the team's right, and is it for this environment?"
        case .badCertificate, .badCertificateEnvironment:
            "the certificate is not accepted; is it valid, and for this environment?"
        case .tooManyRequests: "too many requests\(wait)"
        case .internalServerError, .serviceUnavailable, .shutdown, .idleTimeout: "APNs has a problem\(wait)"
        default:
            response.status >= 500 ? "APNs has a problem\(wait)" : "the server does not support the request"
        }
    }

    private var wait: String { response.retryAfter.map { "; try again in \($0) s" } ?? "; try again later" }

    /// True if APNs may accept another signing key.
    var isAboutKey: Bool {
        switch response.reason {
        case .invalidProviderToken, .forbidden, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken,
            .badEnvironmentKeyInToken:
            true
        default: false
        }
    }
}
