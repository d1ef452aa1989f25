import APNS
import LegacyAPNS
import Testing

@testable import PushWorker

/// The design's table of the meaning of each answer of APNs.
@Suite("A verdict on an answer")
struct VerdictTests {
    static let expected: [(APNSReason, Verdict)] = [
        (.unregistered, .tokenInvalid(reason: "Unregistered", since: nil)),
        (.expiredToken, .tokenInvalid(reason: "ExpiredToken", since: nil)),
        (.badDeviceToken, .tokenSuspect(reason: "BadDeviceToken")),
        (.deviceTokenNotForTopic, .tokenSuspect(reason: "DeviceTokenNotForTopic")),
        (.tooManyRequests, .throttled(reason: "TooManyRequests", retryAfter: nil)),
        (.internalServerError, .serverError(reason: "InternalServerError", retryAfter: nil)),
        (.serviceUnavailable, .serverError(reason: "ServiceUnavailable", retryAfter: nil)),
        (.shutdown, .serverError(reason: "Shutdown", retryAfter: nil)),
        (.idleTimeout, .serverError(reason: "IdleTimeout", retryAfter: nil)),
        (.expiredProviderToken, .retireConnection(reason: "ExpiredProviderToken")),
        (.tooManyProviderTokenUpdates, .retireConnection(reason: "TooManyProviderTokenUpdates")),
        (.invalidProviderToken, .refused(reason: "InvalidProviderToken")),
        (.missingProviderToken, .refused(reason: "MissingProviderToken")),
        (.badCertificate, .refused(reason: "BadCertificate")),
        (.badCertificateEnvironment, .refused(reason: "BadCertificateEnvironment")),
        (.forbidden, .refused(reason: "Forbidden")),
        (.unrelatedKeyIDInToken, .retireConnection(reason: "UnrelatedKeyIdInToken")),
        (.badEnvironmentKeyIDInToken, .refused(reason: "BadEnvironmentKeyIdInToken")),
        (.badEnvironmentKeyInToken, .refused(reason: "BadEnvironmentKeyInToken")),
        (.topicDisallowed, .misconfigured(reason: "TopicDisallowed")),
        (.badTopic, .misconfigured(reason: "BadTopic")),
        (.missingTopic, .misconfigured(reason: "MissingTopic")),
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
        (.broadcastFeatureNotEnabled, .deferred(reason: "BroadcastFeatureNotEnabled")),
        (.topicMismatch, .misconfigured(reason: "TopicMismatch")),
    ]

    @Test("is as designed for every reason that Apple documents")
    func everyReason() {
        for (reason, verdict) in Self.expected {
            let response = Response(status: reason.status, reason: reason)
            #expect(Verdict(.response(response), topic: .app) == verdict)
            // The pool retires the connection by itself.
            #expect((verdict == .retireConnection(reason: Reason(reason))) == response.turnsAgainstConnection)
        }
        #expect(Set(Self.expected.map(\.0)) == Set(APNSReason.allCases))
    }

    @Test("on a broadcast does not concern a device, and is the same otherwise", arguments: APNSReason.allCases)
    func onChannel(reason: APNSReason) {
        let response = RequestResult.response(Response(status: reason.status, reason: reason, retryAfter: 3))
        let verdict = Verdict(response, topic: .app, isOnChannel: true)
        switch reason {
        case .unregistered, .expiredToken, .badDeviceToken, .deviceTokenNotForTopic:
            #expect(verdict == .dead(reason: Reason(reason)))
        case .tooManyRequests: #expect(verdict == .retry(reason: "TooManyRequests", retryAfter: 3, isUncertain: false))
        default: #expect(verdict == Verdict(response, topic: .app))
        }
        let newlyGone = RequestResult.response(Response(status: 410, reasonText: "NewlyGone", timestamp: 5))
        #expect(Verdict(newlyGone, topic: .app, isOnChannel: true) == .dead(reason: "NewlyGone"))
    }

    @Test("is delivered for 200 only")
    func delivered() {
        for status in 100...599 {
            let verdict = Verdict(.response(Response(status: status)), topic: .app)
            #expect((verdict == .delivered) == (status == 200))
        }
    }

    @Test(
        "blames the job for a wrong topic that the job itself named",
        arguments: [APNSReason.badTopic, .topicDisallowed, .topicMismatch, .missingTopic])
    func jobsTopic(reason: APNSReason) {
        let response = Response(status: reason.status, reason: reason)
        #expect(Verdict(.response(response), topic: .job) == .dead(reason: Reason(reason)))
    }

    @Test("believes a 200 without apns-id only without a body, which a server other than APNs may send for anything")
    func unnamed() throws {
        var response = Response(status: 200)
        response.origin = .unnamed
        #expect(Verdict(.response(response), topic: .app) == .delivered)
        response.origin = .doubtful
        let reason = try #require(Verdict(.response(response), topic: .app).unexplained)
        #expect(reason.code.text == "HTTP200" && reason.explanation.contains("no apns-id"))
    }

    @Test(
        "lets the app's plain topic decide about the topic of a push type",
        arguments: [APNSReason.badTopic, .topicDisallowed, .topicMismatch])
    func pushTypesTopic(reason: APNSReason) {
        let response = Response(status: reason.status, reason: reason)
        #expect(Verdict(.response(response), topic: .pushType) == .pushTypeRefused(reason: Reason(reason)))
    }

    @Test("keeps APNs' time for an invalid token, and its Retry-After for a retry")
    func details() {
        let gone = Response(status: 410, reason: .unregistered, timestamp: 1_792_800_000_000)
        #expect(
            Verdict(.response(gone), topic: .app) == .tokenInvalid(reason: "Unregistered", since: 1_792_800_000_000))
        let busy = Response(status: 503, reason: .serviceUnavailable, retryAfter: 7)
        #expect(Verdict(.response(busy), topic: .app) == .serverError(reason: "ServiceUnavailable", retryAfter: 7))
    }

    @Test("follows the status if there is no reason or an unknown one")
    func byStatus() {
        func verdict(_ status: Int, _ text: String? = nil) -> Verdict {
            Verdict(.response(Response(status: status, reasonText: text)), topic: .app)
        }
        for status in [500, 502, 503, 504, 599] {
            #expect(verdict(status) == .serverError(reason: Reason(.http(status)), retryAfter: nil))
            #expect(verdict(status, "NewTrouble") == .serverError(reason: "NewTrouble", retryAfter: nil))
        }
        // A new reason may mean anything, so the notification is tried a few times.
        for status in [400, 404, 405, 421] { #expect(verdict(status, "NewReason") == .unknown(reason: "NewReason")) }
        #expect(verdict(429, "NewLimit") == .retry(reason: "NewLimit", retryAfter: nil, isUncertain: false))
        #expect(verdict(403, "NewRefusal") == .unknown(reason: "NewRefusal"))
        #expect(verdict(413) == .dead(reason: "HTTP413"))
        #expect(verdict(410, "NewlyGone") == .unknown(reason: "NewlyGone"))
        // A proxy may answer this for every token.
        #expect(verdict(410).unexplained?.code.text == "HTTP410")
    }

    @Test("attributes a refusal without a reason, and statuses that APNs does not use, to another server")
    func notAPNs() {
        for status in [201, 204, 301, 302, 400, 401, 403, 404, 405, 407, 408, 421, 429, 431, 600] {
            let verdict = Verdict(.response(Response(status: status)), topic: .app)
            let reason = verdict.unexplained
            #expect(reason?.code == .http(status), "\(status): \(verdict)")
            #expect(reason?.detail?.contains("HTTP status \(status)") == true)
        }
    }

    @Test("accepts a reason only with its own status")
    func allPairs() {
        for status in [400, 403, 404, 405, 408, 410, 413, 421, 429, 500, 501, 502, 503, 504] {
            for reason in APNSReason.allCases {
                let response = Response(status: status, reason: reason, timestamp: 5)
                let verdict = Verdict(.response(response), topic: .app)
                if reason.status == status {
                    let expected = Self.expected.first { $0.0 == reason }?.1
                    #expect(verdict == expected || verdict == .tokenInvalid(reason: Reason(reason), since: 5))
                    continue
                }
                let isRight =
                    switch verdict {
                    case .tokenInvalid(_, 5): status == 410
                    case .dead: status == 413
                    case .serverError: status >= 500
                    case .unknown: [400, 403, 404, 405, 408, 421].contains(status)
                    case .retry(_, _, false): status == 429
                    default: false
                    }
                #expect(isRight, "\(status) \(reason): \(verdict)")
            }
        }
    }

    @Test("resends at once what APNs has not processed, and after a pause what it may have processed")
    func failures() {
        for failure in [RequestFailure.refusedStream, .goingAway(reason: nil), .connectionLost("x")] {
            #expect(Verdict(.notProcessed(failure), topic: .app) == .resend(after: failure.kind))
        }
        for failure in [RequestFailure.timedOut, .reset(code: 2), .connectionLost("x")] {
            #expect(
                Verdict(.uncertain(failure), topic: .app)
                    == .retry(reason: Reason(failure), retryAfter: nil, isUncertain: true))
        }
    }

    @Test(
        "on the gateway's statuses is as designed",
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
            (.notProcessed(.discarded), .resend(after: .discarded)),
        ])
    func gateway(result: RequestResult, verdict: Verdict) { #expect(Verdict(result, topic: .app) == verdict) }

    @Test(
        "attributes faults of the certificate or the configuration to the app",
        arguments: [
            RequestResult.refused(.missingTopic), .refused(.invalidTopicSize), .refused(.protocolError),
            .uncertain(.hungUp),
        ])
    func gatewayConfiguration(result: RequestResult) {
        #expect(Verdict(result, topic: .app).misconfigured != nil)
    }
}

extension Verdict {
    fileprivate var unexplained: Reason? { if case .unexplained(let reason) = self { reason } else { nil } }
    fileprivate var misconfigured: Reason? { if case .misconfigured(let reason) = self { reason } else { nil } }
}
