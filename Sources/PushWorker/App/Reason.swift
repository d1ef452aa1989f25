import APNS
import LegacyAPNS
import PushJob

/// The reason why a notification or job was not delivered, or why an app was paused: a code for counters and programs, and an optional
/// explanation.
package struct Reason: Sendable, Equatable {
    /// The code, such as `BadDeviceToken`.
    package var code: Code
    /// One sentence for people; `nil` if the code is sufficient.
    package var detail: String?

    package init(_ code: Code, detail: String? = nil) {
        self.code = code
        self.detail = detail
    }

    package init(_ code: Own, detail: String? = nil) { self.init(.own(code), detail: detail) }

    package init(_ reason: APNSReason, detail: String? = nil) { self.init(.apns(reason), detail: detail) }

    package init(_ failure: RequestFailure, detail: String? = nil) { self.init(.request(failure.kind), detail: detail) }

    package init(_ error: JobError) { self.init(.job(error.code), detail: "\(error)") }

    /// The code, by its source.
    package enum Code: Sendable, Hashable {
        /// A reason of APNs' HTTP/2 interface.
        case apns(APNSReason)
        case gateway(GatewayStatus)
        /// A request without an answer.
        case request(RequestFailure.Kind)
        /// An answer without a reason, with its HTTP status.
        case http(Int)
        /// A job that can't be read.
        case job(JobError.Code)
        case own(Own)
        /// A text that this version does not know: from APNs or, in Redis, from another worker or an operator.
        case other(String)

        package init(text: String) { self = Self.known[text] ?? .other(text) }

        /// The code's text, in Redis and in logs.
        package var text: String {
            switch self {
            case .apns(let reason): reason.rawValue
            case .gateway(let status): status.name
            case .request(let kind): kind.rawValue
            case .http(let status): "HTTP\(status)"
            case .job(let code): code.rawValue
            case .own(let code): code.rawValue
            case .other(let text): text
            }
        }

        /// The value of the metrics' `reason` label. Unknown codes come from other programs, and must not create series.
        package var label: String { Self.known[text] == nil ? "other" : text }

        package static var names: Set<String> { Set(known.keys) }

        package static let known: [String: Code] = {
            // Statuses of APNs, and of proxies and load balancers on the way.
            let statuses = [200, 400, 401, 403, 404, 405, 408, 410, 413, 429, 431, 500, 501, 502, 503, 504]
            let codes =
                statuses.map(Code.http) + GatewayStatus.documented.map { .gateway($0.status) }
                + RequestFailure.Kind.allCases.map(Code.request) + JobError.Code.allCases.map(Code.job)
                + Own.allCases.map(Code.own) + APNSReason.allCases.map(Code.apns)
            return Dictionary(codes.map { ($0.text, $0) }) { $1 }
        }()
    }

    /// The worker's own codes.
    package enum Own: String, CaseIterable, Sendable {
        case appPaused = "AppPaused"
        case attemptsExhausted = "AttemptsExhausted"
        case badPayload = "BadPayload"
        case campaignLimited = "CampaignLimited"
        case campaignPaused = "CampaignPaused"
        case cancelled = "Cancelled"
        /// The certificate does not cover the topic of a gateway app, or the topic of a job or its push type.
        case certificateNotForTopic = "CertificateNotForTopic"
        case drained = "Drained"
        case duplicate = "Duplicate"
        case endpointUnavailable = "EndpointUnavailable"
        case expired = "Expired"
        case fairLimited = "FairLimited"
        case jobTooLarge = "JobTooLarge"
        case malformedToken = "MalformedToken"
        case noApp = "NoApp"
        case noAnswer = "NoAnswer"
        case noConnection = "NoConnection"
        case poison = "Poison"
        /// The queue was paused with `--now`.
        case queuePaused = "QueuePaused"
        case rateLimited = "RateLimited"
        case replaced = "Replaced"
        case setAside = "SetAside"
        case suppressed = "Suppressed"
        case throttled = "Throttled"
        case unknownApp = "UnknownApp"
        case unreadableClaim = "UnreadableClaim"
    }

    /// The reason of a job that a newer job has replaced. If APNs may have accepted the older job, it was not really replaced. It then
    /// keeps its failure as the reason, as with `on_uncertain: drop`.
    init(replaced job: Job) {
        let kind = job.envelope.failure(in: job.body)?.reason.flatMap(RequestFailure.Kind.init(rawValue:))
        if let kind, kind.mayBeAccepted { self.init(.request(kind)) } else { self.init(.replaced) }
    }

    /// Returns the reason for an answer that APNs would not give.
    static func notAPNs(status: Int) -> Reason {
        let trait = status == 200 ? "with a body and no apns-id" : "without an APNs reason"
        return Reason(
            .http(status),
            detail:
                "HTTP status \(status) \(trait); the answer may come from another server. Check the endpoint and any proxy"
        )
    }

    /// The code and the detail on one line.
    package var explanation: String { detail.map { "\(code.text) (\($0))" } ?? code.text }

    /// True if there was no answer.
    var isNoAnswer: Bool { if case .request = code { true } else { false } }

    /// True if a connection was lost before the answer.
    var isLostConnection: Bool { code == .request(.connectionLost) }

    /// True for a 410 without a reason, which a proxy may have answered for every token.
    var isGoneWithoutReason: Bool { code == .http(410) }

    /// True if broadcasts must first be enabled for the app.
    var concernsBroadcasts: Bool {
        code == .apns(.featureNotEnabled) || code == .apns(.broadcastFeatureNotEnabled)
    }

    /// True for refusals that may concern only one signing key. `TopicDisallowed` is left out, because it is the same for all keys.
    package var concernsKey: Bool {
        switch code {
        case .apns(.invalidProviderToken), .apns(.forbidden), .apns(.unrelatedKeyIDInToken),
            .apns(.badEnvironmentKeyIDInToken), .apns(.badEnvironmentKeyInToken):
            true
        default: false
        }
    }
}

/// Thrown for a job that can't be sent as it is.
extension Reason: Error {}

extension Reason {
    /// Returns the broken rule or the cause in a sentence. For answers of APNs it follows Apple's page "Handling notification responses
    /// from APNs".
    /// - Parameter code: a reason as stored in Redis.
    /// - Returns: `nil` if this version does not know the code.
    package static func rule(of code: String) -> String? {
        if let reason = APNSReason(rawValue: code) { return rule(of: reason) }
        if let own = Own(rawValue: code) { return rule(of: own) }
        return JobError.Code(rawValue: code).map(rule)
    }

    private static func rule(of reason: APNSReason) -> String {
        switch reason {
        case .badCertificate: "The certificate is invalid."
        case .badCertificateEnvironment: "The client certificate doesn't match the environment."
        case .badChannelID: "The channel ID isn't valid."
        case .badCollapseID: "The collapse identifier exceeds the maximum allowed size, 64 bytes."
        case .badDeviceToken:
            "The specified device token is invalid. Verify that the request contains a valid token and that the token matches the environment."
        case .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            "The key ID in the provider token doesn't match the environment."
        case .badExpirationDate: "The apns-expiration value is invalid."
        case .badMessageID: "The apns-id value is invalid."
        case .badPath: "The request contained an invalid :path value."
        case .badPriority: "The apns-priority value is invalid."
        case .badRequestParams: "The request to manage a channel has invalid parameters."
        case .badRequestPayload: "The request to manage a channel has an invalid body."
        case .badTopic: "The apns-topic value is invalid."
        case .broadcastFeatureNotEnabled, .featureNotEnabled:
            "Broadcasts aren't enabled for the app at Apple's developer site."
        case .cannotCreateChannelConfig: "The app has the maximum number of channels."
        case .channelNotRegistered: "The channel ID doesn't exist."
        case .deviceTokenNotForTopic: "The device token doesn't match the specified topic."
        case .duplicateHeaders: "One or more headers are repeated."
        case .expiredProviderToken: "The provider token is stale and a new token should be generated."
        case .expiredToken: "The device token has expired."
        case .forbidden: "The specified action is not allowed."
        case .idleTimeout: "Idle timeout."
        case .internalServerError: "An internal server error occurred at APNs."
        case .invalidProviderToken: "The provider token is not valid, or the token signature can't be verified."
        case .invalidPushType: "The apns-push-type value is invalid."
        case .methodNotAllowed: "The specified :method value isn't POST."
        case .missingChannelID: "The request has no channel ID."
        case .missingDeviceToken: "The device token isn't specified in the request :path."
        case .missingProviderToken:
            "No provider certificate was used to connect to APNs, and the authorization header is missing or no provider token is specified."
        case .missingPushType: "The apns-push-type header is missing."
        case .missingTopic: "The apns-topic header of the request isn't specified and is required."
        case .payloadEmpty: "The message payload is empty."
        case .payloadTooLarge:
            "The message payload is too large: at most 4 KiB, for VoIP and broadcasts 5 KiB."
        case .serviceUnavailable: "The service is unavailable."
        case .shutdown: "The APNs server is shutting down."
        case .tooManyProviderTokenUpdates: "The provider's authentication token is being updated too often."
        case .tooManyRequests: "Too many requests were made consecutively to the same device token."
        case .topicDisallowed: "Pushing to this topic is not allowed."
        case .topicMismatch: "The topic of the request is not that of the channel."
        case .unregistered: "The device token is inactive for the specified topic."
        case .unrelatedKeyIDInToken:
            "The key ID in the provider token isn't related to the key ID of the token used in the first push of this connection."
        }
    }

    private static func rule(of own: Own) -> String {
        switch own {
        case .appPaused: "The app is paused."
        case .attemptsExhausted: "All attempts have failed; the error names the last failure."
        case .badPayload: "The payload does not follow Apple's rules for its push type; the detail names the member."
        case .campaignLimited: "The rate of the campaign is limited."
        case .campaignPaused: "The campaign is paused."
        case .cancelled: "An operator cancelled the job or its campaign."
        case .certificateNotForTopic: "The certificate is not for this topic or push type."
        case .drained: "The worker was stopped before the notification was sent."
        case .duplicate: "Another job with the same ID was sent within unique_for."
        case .endpointUnavailable: "APNs does not answer, or answers with server errors only."
        case .expired: "The notification's expiration passed before it could be sent."
        case .fairLimited: "The rate of jobs with the same fair is limited by fair_per_second."
        case .jobTooLarge: "The job is larger than a worker accepts."
        case .malformedToken: "The device token is neither hex nor base64."
        case .noApp: "The job names no app, and no app has its topic."
        case .noAnswer: "APNs answers none of the waiting requests."
        case .noConnection: "There was no connection to APNs."
        case .poison: "Workers ended too often while they processed the job, which may be the cause."
        case .queuePaused: "The queue was paused while the job was claimed."
        case .rateLimited: "The app's rate is limited."
        case .replaced: "A newer job with the same replaces has replaced the job."
        case .setAside:
            "Nearly all notifications of the job, campaign, topic, app or credential fail, so only one at a time is sent."
        case .suppressed: "The device token is in the set of invalid tokens."
        case .throttled: "APNs throttles the device."
        case .unknownApp: "No app of the workers has the name or the topic that the job gives."
        case .unreadableClaim: "A claimed job could not be read from Redis."
        }
    }

    private static func rule(of code: JobError.Code) -> String {
        switch code {
        case .tooDeep: "The JSON is nested too deeply."
        case .malformedJSON: "The job is not valid JSON."
        case .notAnObject: "A job must be a JSON object."
        case .missingToken: "A job needs a token, tokens or a channel."
        case .tokenAndTokens: "A job has either token or tokens."
        case .channelAndToken: "A job has either a channel or tokens."
        case .missingPayload: "A job needs a payload, or a short form such as alert."
        case .payloadAndShortForm: "A job has either a payload or short forms."
        case .payloadTooLong: "The payload is larger than APNs accepts."
        case .missingFair: "fair_per_second needs a fair."
        case .missingID: "unique_for and replaces need an id."
        case .replacesAndUniqueFor: "A job has either replaces or unique_for."
        case .invalidMember: "A member has a value that is not allowed; the detail names it."
        case .duplicateMember: "A member appears twice."
        case .newerWrapper:
            "The job is in a wrapper of a newer version of apns-worker; requeue it once that version runs again."
        case .tooLarge: "The job is larger than a worker accepts."
        case .notSidekiq: "The queue expects Sidekiq jobs, but the job has no class and args."
        case .otherClass: "The queue does not accept jobs of this class."
        }
    }
}
