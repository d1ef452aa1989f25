import APNS

/// What the end of a request means for the notification: the one place where APNs' answers get their meaning.
package enum Verdict: Sendable, Equatable {
    /// APNs took it.
    case delivered
    /// The device token is not valid, since a time in milliseconds since 1970 where APNs said when.
    case tokenInvalid(reason: Reason, since: Int64?)
    /// APNs calls the device token bad, which it also does when the worker is in the wrong environment or the topic is
    /// wrong: it depends on what it says of the app's other tokens.
    case tokenSuspect(reason: Reason)
    /// Again after a pause that grows; an attempt is spent. `isUncertain`: APNs may have taken it already.
    case retry(reason: Reason, retryAfter: Int?, isUncertain: Bool)
    /// Again after a pause that grows, and so is whatever else goes to that device; an attempt is spent.
    case throttled(reason: Reason, retryAfter: Int?)
    /// Again at once on another connection, as if it had not been sent.
    case resend(reason: Reason)
    /// Again at once with a new provider token; when that is refused too, the app is paused.
    case renewProviderToken
    /// The app's credential or configuration is at fault: nothing of the app is sent for a while.
    case pauseApp(reason: Reason)
    /// Later, with no attempt spent and the same provider token; the app's other notifications go on.
    case deferred(reason: Reason)
    /// It will never be delivered.
    case dead(reason: Reason)

    /// - Parameters:
    ///   - result: how the request ended.
    ///   - topicIsConfigured: whether the topic came from the app's configuration and not from the job, which tells whose
    ///     fault a wrong one is.
    ///   - isOnChannel: whether it was a broadcast, which has no device that an answer could speak of.
    package init(_ result: RequestResult, topicIsConfigured: Bool, isOnChannel: Bool = false) {
        switch result {
        case .notProcessed(let failure):
            self = .resend(reason: Reason(failure))
        case .uncertain(.hungUp):
            self = .pauseApp(
                reason: Reason(
                    .hungUp,
                    detail:
                        "the gateway drops connections at the first notification; is the certificate right, and for "
                        + "this environment?"))
        case .uncertain(let failure):
            self = .retry(reason: Reason(failure), retryAfter: nil, isUncertain: true)
        case .confirmed: self = .delivered
        case .refused(let status): self.init(status)
        case .response(let response):
            let verdict = Verdict(response, topicIsConfigured: topicIsConfigured)
            self = isOnChannel ? verdict.onChannel : verdict
        }
    }

    /// What the binary gateway's word on an item means.
    private init(_ status: GatewayStatus) {
        let code = Reason.Code.gateway(status)
        switch status {
        // `shutdown` says that the named one was taken.
        case .noError, .shutdown: self = .delivered
        case .processingError, .unknown, .other:
            self = .retry(reason: Reason(code), retryAfter: nil, isUncertain: false)
        case .missingDeviceToken, .missingPayload, .invalidTokenSize, .invalidPayloadSize:
            self = .dead(reason: Reason(code))
        // The topic is the certificate's, for all that the app sends.
        case .missingTopic, .invalidTopicSize:
            self = .pauseApp(reason: Reason(code, detail: "is the certificate right?"))
        // What a token is called too that belongs to the other environment, or to another app's certificate.
        case .invalidToken: self = .tokenSuspect(reason: Reason(code))
        // It does not know this kind of frame, which would be the same for all.
        case .protocolError:
            self = .pauseApp(reason: Reason(code, detail: "does the gateway know this kind of frame?"))
        }
    }

    /// The same where there is no device: nothing may be noted of its token.
    private var onChannel: Verdict {
        switch self {
        case .tokenInvalid(let reason, _), .tokenSuspect(let reason): .dead(reason: reason)
        case .throttled(let reason, let retryAfter):
            .retry(reason: reason, retryAfter: retryAfter, isUncertain: false)
        default: self
        }
    }

    private init(_ response: Response, topicIsConfigured: Bool) {
        if response.status == 200 {
            self = .delivered
            return
        }
        let reason = Reason(response.reasonText.map(Reason.Code.init(text:)) ?? .http(response.status))
        switch response.reason {
        case .unregistered, .expiredToken:
            self = .tokenInvalid(reason: reason, since: response.timestamp)
        case .badDeviceToken, .deviceTokenNotForTopic:
            self = .tokenSuspect(reason: reason)
        case .tooManyRequests:
            self = .throttled(reason: reason, retryAfter: response.retryAfter)
        case .internalServerError, .serviceUnavailable, .shutdown, .idleTimeout:
            self = .retry(reason: reason, retryAfter: response.retryAfter, isUncertain: false)
        // The app cannot have broadcasts until somebody sets them up at Apple, but everything else.
        case .tooManyProviderTokenUpdates, .featureNotEnabled:
            self = .deferred(reason: reason)
        case .expiredProviderToken:
            self = .renewProviderToken
        case .invalidProviderToken, .missingProviderToken, .badCertificate, .badCertificateEnvironment, .forbidden,
            .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken:
            self = .pauseApp(reason: reason)
        case .topicDisallowed, .topicMismatch, .badTopic, .missingTopic:
            self = topicIsConfigured ? .pauseApp(reason: reason) : .dead(reason: reason)
        case .badChannelID, .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .badPath,
            .badRequestParams, .badRequestPayload, .cannotCreateChannelConfig, .channelNotRegistered, .duplicateHeaders,
            .invalidPushType, .methodNotAllowed, .missingChannelID, .missingDeviceToken, .missingPushType,
            .payloadEmpty,
            .payloadTooLarge:
            self = .dead(reason: reason)
        case nil:
            self.init(
                status: response.status, reason: reason, saysWhy: response.reasonText != nil,
                retryAfter: response.retryAfter)
        }
    }

    /// Answers without a reason, or with one that Apple added after this was written.
    private init(status: Int, reason: Reason, saysWhy: Bool, retryAfter: Int?) {
        switch status {
        // Without APNs' own body, a 410 may be some proxy's, and no reason to give a device up.
        case 410 where saysWhy: self = .tokenInvalid(reason: reason, since: nil)
        case 429, 500...599: self = .retry(reason: reason, retryAfter: retryAfter, isUncertain: false)
        case 403: self = .pauseApp(reason: reason)
        case 400...499: self = .dead(reason: reason)
        // 1xx never gets here, and APNs has no 2xx but 200 and no redirects: something else is answering.
        default: self = .retry(reason: reason, retryAfter: retryAfter, isUncertain: true)
        }
    }
}
