import APNS
import NIOCore
import Testing

/// Apple's tables, copied from its pages and not from our sources.
@Suite("Apple's vocabulary")
struct VocabularyTests {
    @Test(
        "has the status of each reason",
        arguments: [
            (
                400,
                """
                BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic DeviceTokenNotForTopic
                DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken MissingTopic PayloadEmpty
                TopicDisallowed FeatureNotEnabled MissingChannelId BadChannelId ChannelNotRegistered BadRequestParams
                BadRequestPayload MissingPushType CannotCreateChannelConfig BroadcastFeatureNotEnabled
                """
            ),
            (
                403,
                """
                BadCertificate BadCertificateEnvironment ExpiredProviderToken Forbidden InvalidProviderToken
                MissingProviderToken UnrelatedKeyIdInToken BadEnvironmentKeyIdInToken BadEnvironmentKeyInToken
                TopicMismatch
                """
            ),
            (404, "BadPath"), (405, "MethodNotAllowed"), (410, "ExpiredToken Unregistered"), (413, "PayloadTooLarge"),
            (429, "TooManyProviderTokenUpdates TooManyRequests"), (500, "InternalServerError"),
            (503, "ServiceUnavailable Shutdown"),
        ])
    func reasons(status: Int, names: String) {
        let names = names.split(whereSeparator: \.isWhitespace).map(String.init)
        #expect(Set(names) == Set(APNSReason.allCases.filter { $0.status == status }.map(\.rawValue)))
    }

    @Test("has a stable name and a one-line description of each failure")
    func failures() {
        let all: [(RequestFailure, String)] = [
            (.refusedStream, "RefusedStream"), (.goingAway(reason: "Shutdown"), "GoAway"),
            (.reset(code: 8), "StreamReset"), (.malformed, "MalformedAnswer"), (.timedOut, "NoAnswer"),
            (.connectionLost("why"), "ConnectionLost"),
            (.lostWithOthers("why"), "LostWithOthers"), (.stale("why"), "ConnectionLost"),
        ]
        for (failure, word) in all {
            #expect(failure.kind.rawValue == word)
            #expect(!failure.description.isEmpty && !failure.description.contains("\n"))
        }
        #expect("\(RequestFailure.goingAway(reason: "Shutdown"))".contains("Shutdown"))
    }
}
