import APNS

/// The meaning of a request's end for its notification: the one place where APNs' answers get their meaning.
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
    /// The servers are in trouble: again after a pause that grows, with no attempt spent while the notification's time budget
    /// lasts.
    case serverError(reason: Reason, retryAfter: Int?)
    /// Again after a pause that grows, and so is whatever else goes to that device; an attempt is spent.
    case throttled(reason: Reason, retryAfter: Int?)
    /// Again at once on another connection, as if it had not been sent.
    case resend(reason: Reason)
    /// APNs has turned against the connection: again at once on a new one, with no attempt spent. When that is refused too,
    /// the app is paused.
    case leaveConnection(reason: Reason)
    /// The app's credential or configuration is at fault: nothing of the app is sent for a while.
    case pauseApp(reason: Reason)
    /// A refusal that pauses the app once two of its jobs have met it.
    case forbidden(reason: Reason)
    /// Later, with no attempt spent; the app's other notifications go on.
    case deferred(reason: Reason)
    /// A reason that this version does not know: a few attempts, minutes apart, and then a dead letter.
    case unknown(reason: Reason)
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

    /// The meaning of the binary gateway's status of an item.
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
        // The status outranks the reason: a server error does not condemn a token, whatever it says.
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
        // The app can't have broadcasts until its owner enables them at Apple; everything else works.
        case .featureNotEnabled, .broadcastFeatureNotEnabled:
            self = .deferred(reason: reason)
        case .expiredProviderToken, .tooManyProviderTokenUpdates, .unrelatedKeyIDInToken:
            self = .leaveConnection(reason: reason)
        case .forbidden:
            self = .forbidden(reason: reason)
        case .invalidProviderToken, .missingProviderToken, .badCertificate, .badCertificateEnvironment,
            .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            self = .pauseApp(reason: reason)
        case .topicDisallowed, .topicMismatch, .badTopic, .missingTopic:
            self = topicIsConfigured ? .pauseApp(reason: reason) : .dead(reason: reason)
        case .badChannelID, .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .badPath,
            .badRequestParams, .badRequestPayload, .cannotCreateChannelConfig, .channelNotRegistered, .duplicateHeaders,
            .invalidPushType, .methodNotAllowed, .missingChannelID, .missingDeviceToken, .missingPushType,
            .payloadEmpty,
            .payloadTooLarge:
            self = .dead(reason: reason)
        }
    }

    /// An answer without a reason, with a reason that does not belong to its status, or with one that Apple added after this
    /// was written.
    private init(byStatus response: Response) {
        let status = response.status
        let misplaced = response.reason.map { "the answer's reason, \($0.rawValue), does not belong to its status" }
        let reason =
            misplaced == nil && response.reasonText != nil
            ? Reason(.other(response.reasonText ?? "")) : Reason(.http(status), detail: misplaced)
        switch status {
        // A proxy may say so of every token: believed while APNs accepts others of the app.
        case 410 where reason.isGoneWithoutReason && misplaced == nil: self = .tokenSuspect(reason: reason)
        case 410: self = .tokenInvalid(reason: reason, since: response.timestamp)
        // Whoever finds it too large, it is this one only.
        case 413: self = .dead(reason: reason)
        case 500...599: self = .serverError(reason: reason, retryAfter: response.retryAfter)
        // APNs gives its refusals a reason, has no 2xx but 200, and no redirects: something else is answering.
        case _ where response.reasonText == nil, ..<400, 600...: self = .pauseApp(reason: .notAPNs(status: status))
        case 403: self = .pauseApp(reason: reason)
        case 429: self = .retry(reason: reason, retryAfter: response.retryAfter, isUncertain: false)
        default: self = .unknown(reason: reason)
        }
    }
}
