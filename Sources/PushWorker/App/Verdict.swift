import APNS
import LegacyAPNS

/// The meaning of a request's end for its notification. All answers of APNs are interpreted here.
package enum Verdict: Sendable, Equatable {
    case delivered
    /// The device token is invalid. `since`: the time given by APNs, in milliseconds since 1970.
    case tokenInvalid(reason: Reason, since: Int64?)
    /// APNs reports the device token as bad, perhaps only because the worker uses the wrong environment or topic. Answers about the app's
    /// other tokens decide.
    case tokenSuspect(reason: Reason)
    /// Retry after a growing pause, and spend an attempt. `isUncertain`: true if APNs may have accepted the notification already.
    case retry(reason: Reason, retryAfter: Int?, isUncertain: Bool)
    /// The servers are failing: retry after a growing pause. No attempt is spent while the notification's time budget lasts.
    case serverError(reason: Reason, retryAfter: Int?)
    /// Retry after a growing pause, like all other notifications for the device, and spend an attempt.
    case throttled(reason: Reason, retryAfter: Int?)
    /// Resend the notification at once on another connection, as if it had not been sent.
    case resend(after: RequestFailure.Kind)
    /// The notification lost its connection together with others, and may be the cause: resend it at once, apart from most others. APNs may
    /// have accepted it already.
    case resendApart(reason: Reason)
    /// The notification's connection was stale: resend it at once on another connection. APNs may have accepted it already.
    case resendUncertain(reason: Reason)
    /// APNs refuses the connection: resend at once on a new connection, without spending an attempt. If APNs refuses the new connection
    /// too, the credential is at fault.
    case retireConnection(reason: Reason)
    /// APNs refuses the credential, or a right of it: retry, at first on a new connection.
    case refused(reason: Reason)
    /// The app's configuration is probably at fault: retry without spending an attempt.
    case misconfigured(reason: Reason)
    /// APNs refuses a topic that follows from the job's push type. Answers to the app's plain topic show if the job or the credential is at
    /// fault.
    case pushTypeRefused(reason: Reason)
    /// An answer that APNs would not give, for example a proxy's: treated like an unknown reason.
    case unexplained(reason: Reason)
    /// Defer without spending an attempt; the app's other notifications are still sent.
    case deferred(reason: Reason)
    /// A reason that this version does not know: retry a few times, minutes apart, and then end as a dead letter.
    case unknown(reason: Reason)
    /// The notification will never be delivered.
    case dead(reason: Reason)

    /// The source of a notification's topic. It decides what is at fault if APNs refuses the topic.
    package enum TopicSource: UInt8, Sendable {
        /// The app's configuration.
        case app
        /// The app's configuration, with the suffix of the job's push type.
        case pushType
        /// The job.
        case job
    }

    /// - Parameters:
    ///   - topic: the source of the request's topic.
    ///   - isOnChannel: true for a broadcast, which has no device token that could be invalid.
    package init(_ result: RequestResult, topic: TopicSource, isOnChannel: Bool = false) {
        switch result {
        case .notProcessed(let failure):
            self = .resend(after: failure.kind)
        case .uncertain(.hungUp):
            self = .misconfigured(
                reason: Reason(
                    .hungUp,
                    detail:
                        "the gateway drops connections at the first notification; is the certificate right, and for "
                        + "this environment?"))
        case .uncertain(.lostWithOthers(let why)):
            self = .resendApart(reason: Reason(RequestFailure.lostWithOthers(why)))
        case .uncertain(.stale(let why)): self = .resendUncertain(reason: Reason(RequestFailure.stale(why)))
        case .uncertain(let failure):
            self = .retry(reason: Reason(failure), retryAfter: nil, isUncertain: true)
        case .confirmed: self = .delivered
        case .refused(let status): self.init(GatewayStatus(code: status))
        case .response(let response):
            let verdict = Verdict(response, topic: topic)
            self = isOnChannel ? verdict.onChannel : verdict
        }
    }

    /// Creates the meaning of the binary gateway's status for an item.
    private init(_ status: GatewayStatus) {
        let code = Reason.Code.gateway(status)
        switch status {
        // `shutdown` means that the named item was accepted.
        case .noError, .shutdown: self = .delivered
        case .processingError, .unknown, .other:
            self = .retry(reason: Reason(code), retryAfter: nil, isUncertain: false)
        case .missingDeviceToken, .missingPayload, .invalidTokenSize, .invalidPayloadSize:
            self = .dead(reason: Reason(code))
        // The topic is the certificate's, and so the same for all notifications of the app.
        case .missingTopic, .invalidTopicSize:
            self = .misconfigured(reason: Reason(code, detail: "is the certificate right?"))
        // The gateway also sends this status for tokens of the other environment or of another app's certificate.
        case .invalidToken: self = .tokenSuspect(reason: Reason(code))
        // The gateway does not know this frame type, so it would refuse all notifications.
        case .protocolError:
            self = .misconfigured(reason: Reason(code, detail: "does the gateway support this frame format?"))
        }
    }

    /// The verdict for a broadcast: there is no device whose token could be marked.
    private var onChannel: Verdict {
        switch self {
        case .tokenInvalid(let reason, _), .tokenSuspect(let reason): .dead(reason: reason)
        case .throttled(let reason, let retryAfter):
            .retry(reason: reason, retryAfter: retryAfter, isUncertain: false)
        default: self
        }
    }

    private init(_ response: Response, topic: TopicSource) {
        if response.status == 200 {
            self = response.origin == .doubtful ? .unexplained(reason: .notAPNs(status: 200)) : .delivered
            return
        }
        // The status outranks the reason: a server error never makes a token invalid.
        guard let known = response.reason, known.status == response.status else {
            self.init(byStatus: response)
            return
        }
        let reason = Reason(known)
        switch known {
        case .unregistered, .expiredToken:
            self = .tokenInvalid(reason: reason, since: response.timestamp)
        case .badDeviceToken, .deviceTokenNotForTopic:
            self = .tokenSuspect(reason: reason)
        case .tooManyRequests:
            self = .throttled(reason: reason, retryAfter: response.retryAfter)
        case .internalServerError, .serviceUnavailable, .shutdown, .idleTimeout:
            self = .serverError(reason: reason, retryAfter: response.retryAfter)
        // Only broadcasts are refused, until the app's owner enables them at Apple.
        case .featureNotEnabled, .broadcastFeatureNotEnabled:
            self = .deferred(reason: reason)
        case .expiredProviderToken, .tooManyProviderTokenUpdates, .unrelatedKeyIDInToken:
            self = .retireConnection(reason: reason)
        case .forbidden, .invalidProviderToken, .missingProviderToken, .badCertificate, .badCertificateEnvironment,
            .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            self = .refused(reason: reason)
        case .topicDisallowed, .topicMismatch, .badTopic, .missingTopic:
            switch topic {
            case .app: self = .misconfigured(reason: reason)
            // A missing topic is not the push type's fault, because each request has a topic.
            case .pushType:
                self = known == .missingTopic ? .misconfigured(reason: reason) : .pushTypeRefused(reason: reason)
            case .job: self = .dead(reason: reason)
            }
        case .badChannelID, .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .badPath,
            .badRequestParams, .badRequestPayload, .cannotCreateChannelConfig, .channelNotRegistered, .duplicateHeaders,
            .invalidPushType, .methodNotAllowed, .missingChannelID, .missingDeviceToken, .missingPushType,
            .payloadEmpty,
            .payloadTooLarge:
            self = .dead(reason: reason)
        }
    }

    /// Creates the meaning of an answer whose reason is missing, unknown, or does not belong to its status.
    private init(byStatus response: Response) {
        let status = response.status
        let misplaced = response.reason.map { "the answer's reason, \($0.rawValue), does not belong to its status" }
        let reason =
            misplaced == nil && response.reasonText != nil
            ? Reason(.other(response.reasonText ?? "")) : Reason(.http(status), detail: misplaced)
        switch status {
        // A proxy may answer this for every token.
        case 410 where reason.isGoneWithoutReason && misplaced == nil: self = .unexplained(reason: reason)
        case 410 where response.timestamp != nil: self = .tokenInvalid(reason: reason, since: response.timestamp)
        // Only this notification is too large, whatever server answered.
        case 413: self = .dead(reason: reason)
        case 500...599: self = .serverError(reason: reason, retryAfter: response.retryAfter)
        // APNs gives a reason with each refusal, and sends no redirects and no 2xx except 200. So another server has answered.
        case _ where response.reasonText == nil, ..<400, 600...: self = .unexplained(reason: .notAPNs(status: status))
        case 429: self = .retry(reason: reason, retryAfter: response.retryAfter, isUncertain: false)
        default: self = .unknown(reason: reason)
        }
    }
}

extension RequestResult {
    /// True for an answer without an `apns-id`.
    var lacksID: Bool {
        if case .response(let response) = self { response.origin != .apns } else { false }
    }

    var isAnswer: Bool {
        switch self {
        case .response, .confirmed, .refused: true
        case .notProcessed, .uncertain: false
        }
    }

    /// The `apns-unique-id` of an answer, if the transport keeps it.
    var uniqueID: APNSID? { if case .response(let response) = self { response.uniqueID } else { nil } }

    /// The HTTP status or gateway status of an answer.
    var status: Int? {
        switch self {
        case .response(let response): response.status
        case .refused(let status): Int(status)
        case .confirmed, .notProcessed, .uncertain: nil
        }
    }

    var isAcceptance: Bool {
        switch self {
        case .response(let response): response.status == 200
        case .confirmed: true
        case .notProcessed, .uncertain, .refused: false
        }
    }
}
