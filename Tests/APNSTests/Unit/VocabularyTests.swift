import APNS
import NIOCore
import Testing

/// Apple's tables, copied from its pages and not from our sources.
@Suite("Apple's vocabulary")
struct VocabularyTests {
    @Test(
        "has the topic's suffix for each push type",
        arguments: [
            ("alert", ""), ("background", ""), ("mdm", ""), ("voip", ".voip"), ("complication", ".complication"),
            ("fileprovider", ".pushkit.fileprovider"), ("location", ".location-query"),
            ("liveactivity", ".push-type.liveactivity"), ("pushtotalk", ".voip-ptt"),
            ("widgets", ".push-type.widgets"), ("controls", ".push-type.controls"),
            ("accessory", ".push-type.accessory"),
        ])
    func pushTypes(name: String, suffix: String) throws {
        let type = try #require(name.utf8CString.withUnsafeBytes { PushType(bytes: .init(rebasing: $0.dropLast())) })
        #expect(type.rawValue == name)
        #expect(type.topicSuffix == suffix)
        #expect(type.maximumPayloadSize == (name == "voip" ? 5120 : 4096))
    }

    @Test("the suffix is added to a topic that lacks it, and other topics are unchanged", arguments: PushType.allCases)
    func topics(type: PushType) {
        let bare = ByteBuffer(string: "com.example.app")
        let whole = type.topic(bare)
        #expect(String(buffer: whole) == "com.example.app" + type.topicSuffix)
        #expect(type.topic(whole) == whole)
        // A slice in the middle of a larger buffer, as a job's topic is.
        var slice = ByteBuffer(string: "x" + type.topicSuffix + "com.example.appy")
        slice.moveReaderIndex(forwardBy: 1 + type.topicSuffix.utf8.count)
        slice.moveWriterIndex(to: slice.writerIndex - 1)
        #expect(type.topic(slice) == whole)
        #expect(String(buffer: type.topic(ByteBuffer(string: "a"))) == "a" + type.topicSuffix)
        let other: PushType = type == .voip ? .pushtotalk : .voip
        #expect(
            String(buffer: type.topic(other.topic(bare))) == "com.example.app" + other.topicSuffix + type.topicSuffix)
    }

    @Test("has no other push types", arguments: ["", "Alert", "alert ", "alerts", "ale", "voip\u{0}"])
    func otherPushTypes(name: String) {
        #expect(PushType.allCases.count == 12)
        #expect(Array(name.utf8).withUnsafeBytes { PushType(bytes: $0) } == nil)
    }

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
