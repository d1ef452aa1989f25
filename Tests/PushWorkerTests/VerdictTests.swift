import APNS
import Testing

@testable import PushWorker

/// The table of the design: what each of APNs' answers means.
@Suite("A verdict on an answer")
struct VerdictTests {
    static let expected: [(APNSReason, Verdict)] = [
        (.unregistered, .tokenInvalid(reason: "Unregistered", since: nil)),
        (.expiredToken, .tokenInvalid(reason: "ExpiredToken", since: nil)),
        (.badDeviceToken, .tokenSuspect(reason: "BadDeviceToken")),
        (.deviceTokenNotForTopic, .tokenSuspect(reason: "DeviceTokenNotForTopic")),
        (.tooManyRequests, .throttled(reason: "TooManyRequests", retryAfter: nil)),
        (.internalServerError, .retry(reason: "InternalServerError", retryAfter: nil, isUncertain: false)),
        (.serviceUnavailable, .retry(reason: "ServiceUnavailable", retryAfter: nil, isUncertain: false)),
        (.shutdown, .retry(reason: "Shutdown", retryAfter: nil, isUncertain: false)),
        (.idleTimeout, .retry(reason: "IdleTimeout", retryAfter: nil, isUncertain: false)),
        (.expiredProviderToken, .renewProviderToken),
        (.tooManyProviderTokenUpdates, .deferred(reason: "TooManyProviderTokenUpdates")),
        (.invalidProviderToken, .pauseApp(reason: "InvalidProviderToken")),
        (.missingProviderToken, .pauseApp(reason: "MissingProviderToken")),
        (.badCertificate, .pauseApp(reason: "BadCertificate")),
        (.badCertificateEnvironment, .pauseApp(reason: "BadCertificateEnvironment")),
        (.forbidden, .pauseApp(reason: "Forbidden")),
        (.unrelatedKeyIDInToken, .pauseApp(reason: "UnrelatedKeyIdInToken")),
        (.badEnvironmentKeyIDInToken, .pauseApp(reason: "BadEnvironmentKeyIdInToken")),
        (.topicDisallowed, .pauseApp(reason: "TopicDisallowed")),
        (.badTopic, .pauseApp(reason: "BadTopic")),
        (.missingTopic, .pauseApp(reason: "MissingTopic")),
        (.payloadTooLarge, .dead(reason: "PayloadTooLarge")),
        (.badCollapseID, .dead(reason: "BadCollapseId")),
        (.badExpirationDate, .dead(reason: "BadExpirationDate")),
        (.badMessageID, .dead(reason: "BadMessageId")),
        (.badPriority, .dead(reason: "BadPriority")),
        (.badPath, .dead(reason: "BadPath")),
        (.duplicateHeaders, .dead(reason: "DuplicateHeaders")),
        (.invalidPushType, .dead(reason: "InvalidPushType")),
        (.methodNotAllowed, .dead(reason: "MethodNotAllowed")),
        (.missingDeviceToken, .dead(reason: "MissingDeviceToken")),
        (.payloadEmpty, .dead(reason: "PayloadEmpty")),
        (.channelNotRegistered, .dead(reason: "ChannelNotRegistered")),
        (.badChannelID, .dead(reason: "BadChannelId")),
        (.missingChannelID, .dead(reason: "MissingChannelId")),
        (.missingPushType, .dead(reason: "MissingPushType")),
        (.badRequestParams, .dead(reason: "BadRequestParams")),
        (.badRequestPayload, .dead(reason: "BadRequestPayload")),
        (.cannotCreateChannelConfig, .dead(reason: "CannotCreateChannelConfig")),
        (.featureNotEnabled, .deferred(reason: "FeatureNotEnabled")),
        (.topicMismatch, .pauseApp(reason: "TopicMismatch")),
    ]

    @Test("is the design's for every reason that Apple documents")
    func everyReason() {
        for (reason, verdict) in Self.expected {
            let response = Response(status: reason.status, reason: reason)
            #expect(Verdict(.response(response), topicIsConfigured: true) == verdict)
        }
        #expect(Set(Self.expected.map(\.0)) == Set(APNSReason.allCases))
    }

    @Test("on a broadcast says nothing of a device, and is the same otherwise", arguments: APNSReason.allCases)
    func onChannel(reason: APNSReason) {
        let response = RequestResult.response(Response(status: reason.status, reason: reason, retryAfter: 3))
        let verdict = Verdict(response, topicIsConfigured: true, isOnChannel: true)
        switch reason {
        case .unregistered, .expiredToken, .badDeviceToken, .deviceTokenNotForTopic:
            #expect(verdict == .dead(reason: Reason(reason)))
        case .tooManyRequests:
            #expect(verdict == .retry(reason: "TooManyRequests", retryAfter: 3, isUncertain: false))
        default: #expect(verdict == Verdict(response, topicIsConfigured: true))
        }
        let newlyGone = RequestResult.response(Response(status: 410, reasonText: "NewlyGone"))
        #expect(Verdict(newlyGone, topicIsConfigured: true, isOnChannel: true) == .dead(reason: "NewlyGone"))
    }

    @Test("says delivered for 200 and nothing else")
    func delivered() {
        for status in 100...599 {
            let verdict = Verdict(.response(Response(status: status)), topicIsConfigured: true)
            #expect((verdict == .delivered) == (status == 200))
        }
    }

    @Test(
        "blames the job for a wrong topic that the job itself named",
        arguments: [APNSReason.badTopic, .topicDisallowed, .topicMismatch, .missingTopic])
    func jobsTopic(reason: APNSReason) {
        let response = Response(status: 400, reason: reason)
        #expect(Verdict(.response(response), topicIsConfigured: false) == .dead(reason: Reason(reason)))
    }

    @Test("keeps APNs' time with an invalid token, and its wish with a retry")
    func details() {
        let gone = Response(status: 410, reason: .unregistered, timestamp: 1_792_800_000_000)
        #expect(
            Verdict(.response(gone), topicIsConfigured: true)
                == .tokenInvalid(reason: "Unregistered", since: 1_792_800_000_000))
        let busy = Response(status: 503, reason: .serviceUnavailable, retryAfter: 7)
        #expect(
            Verdict(.response(busy), topicIsConfigured: true)
                == .retry(reason: "ServiceUnavailable", retryAfter: 7, isUncertain: false))
    }

    @Test("goes by the status where there is no reason or one that is not known yet")
    func byStatus() {
        func verdict(_ status: Int, _ text: String? = nil) -> Verdict {
            Verdict(.response(Response(status: status, reasonText: text)), topicIsConfigured: true)
        }
        #expect(verdict(500) == .retry(reason: "HTTP500", retryAfter: nil, isUncertain: false))
        #expect(verdict(502) == .retry(reason: "HTTP502", retryAfter: nil, isUncertain: false))
        #expect(verdict(504) == .retry(reason: "HTTP504", retryAfter: nil, isUncertain: false))
        #expect(verdict(429) == .retry(reason: "HTTP429", retryAfter: nil, isUncertain: false))
        #expect(verdict(403) == .pauseApp(reason: "HTTP403"))
        #expect(verdict(400, "NewReason") == .dead(reason: "NewReason"))
        #expect(verdict(404) == .dead(reason: "HTTP404"))
        #expect(verdict(410, "NewlyGone") == .tokenInvalid(reason: "NewlyGone", since: nil))
        // A proxy's own 410 is no reason to give a device up.
        #expect(verdict(410) == .dead(reason: "HTTP410"))
        #expect(verdict(302) == .retry(reason: Reason(.http(302)), retryAfter: nil, isUncertain: true))
    }

    @Test("sends again at once what APNs has not processed, and after a pause what it may have")
    func failures() {
        for failure in [RequestFailure.refusedStream, .goingAway(reason: nil), .connectionLost("x")] {
            #expect(
                Verdict(.notProcessed(failure), topicIsConfigured: true) == .resend(reason: Reason(failure)))
        }
        for failure in [RequestFailure.timedOut, .reset(code: 2), .connectionLost("x")] {
            #expect(
                Verdict(.uncertain(failure), topicIsConfigured: true)
                    == .retry(reason: Reason(failure), retryAfter: nil, isUncertain: true))
        }
    }

    @Test(
        "the gateway's words mean what the design says",
        arguments: [
            (RequestResult.confirmed, Verdict.delivered),
            (.refused(.noError), .delivered), (.refused(.shutdown), .delivered),
            (.refused(.processingError), .retry(reason: "ProcessingError", retryAfter: nil, isUncertain: false)),
            (.refused(.unknown), .retry(reason: "UnknownError", retryAfter: nil, isUncertain: false)),
            (.refused(.other(77)), .retry(reason: Reason(.gateway(.other(77))), retryAfter: nil, isUncertain: false)),
            (.refused(.missingDeviceToken), .dead(reason: Reason(.gateway(.missingDeviceToken)))),
            (.refused(.missingPayload), .dead(reason: Reason(.gateway(.missingPayload)))),
            (.refused(.invalidTokenSize), .dead(reason: "InvalidTokenSize")),
            (.refused(.invalidPayloadSize), .dead(reason: "InvalidPayloadSize")),
            (.refused(.invalidToken), .tokenSuspect(reason: "InvalidToken")),
            (.notProcessed(.discarded), .resend(reason: "Discarded")),
        ])
    func gateway(result: RequestResult, verdict: Verdict) {
        #expect(Verdict(result, topicIsConfigured: true) == verdict)
    }

    @Test(
        "what is the certificate's fault, or the configuration's, pauses the app",
        arguments: [
            RequestResult.refused(.missingTopic), .refused(.invalidTopicSize), .refused(.protocolError),
            .uncertain(.hungUp),
        ])
    func gatewayConfiguration(result: RequestResult) {
        guard case .pauseApp = Verdict(result, topicIsConfigured: true) else {
            Issue.record("\(result)")
            return
        }
    }
}
