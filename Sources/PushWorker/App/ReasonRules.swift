import APNS
import PushJob

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
        case .fairLimited: "The rate of the jobs with this fair is limited by fair_per_second."
        case .jobTooLarge: "The job is larger than a worker accepts."
        case .malformedToken: "The device token is neither hex nor base64."
        case .noApp: "The job names no app, and no app has its topic."
        case .noAnswer: "Requests wait, and APNs answers none."
        case .noConnection: "There was no connection to APNs."
        case .poison: "Workers ended too often while they processed the job; it may be the cause."
        case .queuePaused: "The queue was paused while the job was claimed."
        case .rateLimited: "The app's rate is limited."
        case .replaced: "A newer job with the same replaces took its place."
        case .setAside:
            "Nearly all notifications of its job, campaign, topic, app or credential fail; one at a time is tried."
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
