import APNS
import LegacyAPNS
import Testing

@testable import PushWorker

/// The table of docs/outcomes.md: the scopes that each answer proves good, and those that may be at fault.
struct BearingTests {
    private static let notification = Bearing(proves: [.credential, .endpoint], concerns: [])
    private static let token = Bearing(proves: [.credential, .endpoint], concerns: [.job, .group, .app])
    private static let refusal = Bearing(proves: .endpoint, concerns: [.job, .group, .credential])
    private static let server = Bearing(proves: [], concerns: [.job, .group, .endpoint])
    private static let connection = Bearing(proves: .endpoint, concerns: [])
    private static let topic = Bearing(proves: .endpoint, concerns: [.job, .group])

    /// The bearing of each documented reason for a job with the topic of its app.
    private static func expected(_ reason: APNSReason) -> Bearing {
        switch reason {
        case .unregistered, .expiredToken: Bearing(proves: [.group, .app, .credential, .endpoint], concerns: [])
        case .badDeviceToken, .deviceTokenNotForTopic: token
        case .internalServerError, .serviceUnavailable, .shutdown, .idleTimeout: server
        case .expiredProviderToken, .tooManyProviderTokenUpdates, .unrelatedKeyIDInToken, .featureNotEnabled,
            .broadcastFeatureNotEnabled:
            connection
        case .forbidden, .invalidProviderToken, .missingProviderToken, .badCertificate, .badCertificateEnvironment,
            .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            refusal
        case .topicDisallowed, .topicMismatch, .badTopic, .missingTopic: Bearing(proves: .endpoint, concerns: .app)
        case .tooManyRequests, .badChannelID, .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .badPath,
            .badRequestParams, .badRequestPayload, .cannotCreateChannelConfig, .channelNotRegistered, .duplicateHeaders,
            .invalidPushType, .methodNotAllowed, .missingChannelID, .missingDeviceToken, .missingPushType,
            .payloadEmpty,
            .payloadTooLarge:
            notification
        }
    }

    private static func bearing(
        _ status: Int, _ reason: APNSReason? = nil, text: String? = nil, topic: Verdict.TopicSource = .app
    ) -> Bearing {
        let response =
            reason.map { Response(status: status, reason: $0) } ?? Response(status: status, reasonText: text)
        return Bearing(Verdict(.response(response), topic: topic))
    }

    @Test("Each documented reason bears on the scopes of the table.", arguments: APNSReason.allCases)
    func documented(_ reason: APNSReason) {
        #expect(Self.bearing(reason.status, reason) == Self.expected(reason))
    }

    @Test("A refused topic concerns the job if it is its own, or follows from its push type.")
    func topics() {
        for source in [Verdict.TopicSource.job, .pushType] {
            #expect(Self.bearing(400, .topicDisallowed, topic: source) == Self.topic)
            #expect(Self.bearing(400, .badTopic, topic: source) == Self.topic)
        }
    }

    @Test("A 200 proves everything, and one of another server nothing.")
    func accepted() {
        #expect(Self.bearing(200) == Bearing(proves: .all, concerns: []))
        var other = Response(status: 200)
        other.origin = .doubtful
        #expect(
            Bearing(Verdict(.response(other), topic: .app))
                == Bearing(proves: [], concerns: [.job, .group, .app, .endpoint]))
    }

    @Test(
        "An answer of perhaps another server never concerns the credential.",
        arguments: [302, 400, 401, 403, 404, 407, 410, 429])
    func unexplained(status: Int) {
        #expect(Self.bearing(status) == Bearing(proves: [], concerns: [.job, .group, .app, .endpoint]))
    }

    @Test("A reason that this version does not know proves the endpoint.", arguments: [400, 403, 404, 410, 421, 429])
    func unknown(status: Int) {
        #expect(
            Self.bearing(status, text: "QuiteNew") == Bearing(proves: .endpoint, concerns: [.job, .group, .app]))
    }

    @Test("A 413 without a reason concerns no other notification.")
    func tooLarge() { #expect(Self.bearing(413) == .nothing) }

    @Test("A server error proves nothing, whatever its reason.", arguments: [500, 502, 503, 504, 599])
    func serverError(status: Int) {
        #expect(Self.bearing(status) == Self.server)
        #expect(Self.bearing(status, text: "QuiteNew") == Self.server)
    }

    @Test("A connection that many requests lost concerns none of them.")
    func connections() {
        let many: [RequestResult] = [
            .notProcessed(.goingAway(reason: nil)), .notProcessed(.refusedStream), .uncertain(.lostWithOthers("cut")),
            .uncertain(.stale("cut")),
        ]
        for result in many { #expect(Bearing(Verdict(result, topic: .app)) == .nothing) }
        for failure in [RequestFailure.timedOut, .reset(code: 2), .connectionLost("cut")] {
            #expect(Bearing(Verdict(.uncertain(failure), topic: .app)) == Self.server)
        }
    }

    @Test("The gateway's statuses follow the table.")
    func gateway() {
        func bearing(_ status: GatewayStatus) -> Bearing { Bearing(Verdict(.refused(status), topic: .app)) }
        #expect(bearing(.shutdown) == Bearing(proves: .all, concerns: []))
        for status in [GatewayStatus.processingError, .unknown] { #expect(bearing(status) == Self.server) }
        for status in [GatewayStatus.missingDeviceToken, .missingPayload, .invalidTokenSize, .invalidPayloadSize] {
            #expect(bearing(status) == Self.notification)
        }
        for status in [GatewayStatus.missingTopic, .invalidTopicSize, .protocolError] {
            #expect(bearing(status) == Bearing(proves: .endpoint, concerns: .app))
        }
        #expect(bearing(.invalidToken) == Self.token)
        #expect(
            Bearing(Verdict(.uncertain(.hungUp), topic: .app)) == Bearing(proves: [], concerns: [.app, .credential]))
    }
}
