import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

@Suite("Notification rules")
struct NotificationRulesTests {
    private static func refusal(
        _ type: PushType, _ payload: String, priority: UInt8? = nil, isOnChannel: Bool = false, isInferred: Bool = false
    ) -> Reason? {
        NotificationRules.refusal(
            type, isInferred: isInferred, priority: priority, isOnChannel: isOnChannel,
            payload: ByteBuffer(string: payload))
    }

    /// A payload of exactly so many bytes that keeps all rules of its type.
    private static func payload(_ type: PushType, bytes: Int) -> String {
        let start = good[type].map { $0.dropLast() + #","x":""# } ?? #"{"aps":{},"x":""#
        return start + String(repeating: "y", count: bytes - start.utf8.count - 2) + #""}"#
    }

    private static let good: [PushType: String] = [
        .background: #"{"aps":{"content-available":1}}"#,
        .liveactivity: #"{"aps":{"event":"update","timestamp":1,"content-state":{}}}"#,
        .widgets: #"{"aps":{"content-changed":true}}"#, .controls: #"{"aps":{"content-changed":true}}"#,
        .mdm: #"{"mdm":"magic"}"#,
        .fileprovider: #"{"container-identifier":"NSFileProviderRootContainerItemIdentifier"}"#,
    ]

    @Test(
        "a good notification of each type is sent, with every priority that Apple allows for it",
        arguments: PushType.allCases)
    func goodOnes(type: PushType) {
        let payload = Self.good[type] ?? "{}"
        for priority: UInt8? in [nil, 1, 5, 10] {
            let isWrong = type == .background && priority == 10 || type == .liveactivity && priority == 1
            #expect((Self.refusal(type, payload, priority: priority)?.code.text == "BadPriority") == isWrong)
            if !isWrong { #expect(Self.refusal(type, payload, priority: priority) == nil) }
        }
    }

    @Test("the largest payload passes, one byte more does not", arguments: PushType.allCases)
    func sizes(type: PushType) throws {
        let limit = type == .voip ? 5120 : 4096
        #expect(NotificationRules.sizeLimit(type, isOnChannel: false) == limit)
        #expect(Self.refusal(type, Self.payload(type, bytes: limit)) == nil)
        let refusal = try #require(Self.refusal(type, Self.payload(type, bytes: limit + 1)))
        #expect(refusal.code.text == "PayloadTooLarge")
        #expect(
            refusal.detail?.contains("has \(limit + 1) bytes; APNs takes \(limit) for push type \(type.rawValue)")
                == true)
    }

    @Test("a channel takes 5,120 bytes, and Live Activities only", arguments: PushType.allCases)
    func channels(type: PushType) throws {
        guard type == .liveactivity else {
            #expect(Self.refusal(type, Self.good[type] ?? "{}", isOnChannel: true)?.code.text == "InvalidPushType")
            return
        }
        #expect(NotificationRules.sizeLimit(type, isOnChannel: true) == 5120)
        #expect(Self.refusal(type, Self.payload(type, bytes: 5120), isOnChannel: true) == nil)
        #expect(Self.refusal(type, Self.payload(type, bytes: 5121), isOnChannel: true)?.code.text == "PayloadTooLarge")
        #expect(
            Self.refusal(type, Self.payload(type, bytes: 100), priority: 1, isOnChannel: true)?.code.text
                == "BadPriority")
    }

    @Test(
        "a payload without what its type needs is refused, and the detail names it",
        arguments: [
            (PushType.background, #"{"aps":{}}"#, "`content-available` 1"),
            (.background, "{}", "`content-available` 1"),
            (.background, #"{"aps":{"content-available":0}}"#, "`content-available` 1"),
            (.background, #"{"aps":{"content-available":1,"alert":"x"}}"#, "must not have `alert`"),
            (.background, #"{"aps":{"content-available":1,"badge":0}}"#, "must not have `alert`"),
            (.background, #"{"aps":{"content-available":1,"sound":""}}"#, "must not have `alert`"),
            (.liveactivity, "{}", "`event`"), (.liveactivity, #"{"aps":{"event":"stop","timestamp":1}}"#, "`event`"),
            (.liveactivity, #"{"aps":{"event":"end"}}"#, "`timestamp`"),
            (.liveactivity, #"{"aps":{"event":"end","timestamp":"1"}}"#, "`timestamp`"),
            (.liveactivity, #"{"aps":{"event":"update","timestamp":1}}"#, "`content-state`"),
            (.liveactivity, #"{"aps":{"event":"start","timestamp":1,"content-state":{}}}"#, "`alert`"),
            (
                .liveactivity, #"{"aps":{"event":"start","timestamp":1,"content-state":{},"alert":"x"}}"#,
                "`attributes-type`"
            ),
            (
                .liveactivity,
                #"{"aps":{"event":"start","timestamp":1,"content-state":{},"alert":"x","attributes-type":"T"}}"#,
                "`attributes`"
            ), (.widgets, #"{"aps":{}}"#, "`content-changed`"), (.widgets, "{}", "`content-changed`"),
            (.controls, #"{"aps":{"content-changed":false}}"#, "`content-changed`"),
            (.mdm, #"{"aps":{}}"#, "`mdm`"), (.mdm, #"{"mdm":5}"#, "`mdm`"), (.mdm, "{}", "`mdm`"),
            (.mdm, #"{"mdm":"x","aps":{}}"#, "must not have `aps`"),
            (.fileprovider, #"{"aps":{"container-identifier":"x"}}"#, "`container-identifier`"),
        ])
    func badPayloads(type: PushType, payload: String, detail: String) throws {
        let refusal = try #require(Self.refusal(type, payload))
        #expect(refusal.code.text == "BadPayload")
        #expect(refusal.detail?.contains(detail) == true, "\(refusal)")
    }

    @Test(
        "what is merely unwise, or missing where nothing is needed, is sent",
        arguments: [
            (PushType.alert, "{}"), (.alert, #"{"aps":{"content-available":1}}"#), (.alert, #"{"mdm":"x"}"#),
            (.voip, "{}"), (.complication, "{}"), (.location, "{}"), (.pushtotalk, #"{"aps":{}}"#),
            (.background, #"{"aps":{"content-available":true,"category":"c","mutable-content":1},"x":{"alert":"y"}}"#),
            (.liveactivity, #"{"aps":{"event":"end","timestamp":1}}"#),
            (
                .liveactivity,
                #"{"aps":{"event":"start","timestamp":1,"content-state":{},"alert":{},"attributes-type":"T","attributes":{}}}"#
            ), (.widgets, #"{"aps":{"content-changed":1,"alert":"x"}}"#),
        ])
    func unwise(type: PushType, payload: String) {
        #expect(Self.refusal(type, payload) == nil)
    }

    @Test("a Live Activity is updated and ended on a channel, but not started")
    func startOnChannel() throws {
        let start =
            #"{"aps":{"event":"start","timestamp":1,"content-state":{},"alert":"x","attributes-type":"T","attributes":{}}}"#
        let refusal = try #require(Self.refusal(.liveactivity, start, isOnChannel: true))
        #expect(
            refusal.code.text == "BadPayload" && refusal.detail?.contains("cannot be started on a `channel`") == true)
        #expect(Self.refusal(.liveactivity, #"{"aps":{"event":"end","timestamp":1}}"#, isOnChannel: true) == nil)
    }

    @Test("an inferred background notification is one by its payload, which is not looked at again")
    func inferred() {
        // What no scan could take: whoever looked would have to refuse it.
        #expect(Self.refusal(.background, "not JSON", isInferred: true) == nil)
        #expect(Self.refusal(.alert, "not JSON") == nil)
        #expect(Self.refusal(.background, "not JSON")?.code.text == "BadPayload")
        #expect(Self.refusal(.background, "{}", priority: 10, isInferred: true)?.code.text == "BadPriority")
        #expect(Self.refusal(.mdm, #"{"aps":{}}"#, isInferred: true)?.code.text == "BadPayload")
    }

    @Test("a background notification without a priority gets 5; a broadcast has priority and expiration")
    func defaults() {
        for type in PushType.allCases {
            #expect(NotificationRules.priority(nil, type, isOnChannel: false) == (type == .background ? 5 : nil))
            #expect(NotificationRules.priority(1, type, isOnChannel: false) == 1)
        }
        #expect(NotificationRules.priority(nil, .liveactivity, isOnChannel: true) == 10)
        #expect(NotificationRules.priority(5, .liveactivity, isOnChannel: true) == 5)
        #expect(NotificationRules.expiration(nil, isOnChannel: true) == 0)
        #expect(NotificationRules.expiration(7, isOnChannel: true) == 7)
        #expect(NotificationRules.expiration(nil, isOnChannel: false) == nil)
    }

    @Test(
        "a job without a push type has the one of what it holds, which keeps that type's rules",
        arguments: [
            (#""token":"ab","alert":"x""#, PushType.alert), (#""token":"ab","content_available":1"#, .background),
            (#""token":"ab","payload":{"aps":{"content-available":1}}"#, .background),
            (#""token":"ab","mdm":"x""#, .mdm),
            (#""channel":"ab","event":"update","content_state":{},"timestamp":1"#, .liveactivity),
            (#""token":"ab","event":"end","timestamp":"2030-01-31T12:00:00Z""#, .liveactivity),
        ])
    func ofJobs(members: String, type: PushType) throws {
        let job = try JobDecoder.decode(ByteBuffer(string: "{\(members)}"))
        #expect(PushType.inferred(for: job) == type)
        let isOnChannel = job.channel != nil
        let payload = try job.payload(limit: NotificationRules.sizeLimit(type, isOnChannel: isOnChannel))
        #expect(
            NotificationRules.refusal(
                type, isInferred: true, priority: nil, isOnChannel: isOnChannel, payload: payload) == nil)
    }

    @Test("no detail has anything of the payload in it", arguments: PushType.allCases)
    func secrets(type: PushType) {
        for payload in [#"{"hunter2":"hunter2"}"#, #"{"aps":{"event":"hunter2","alert":"hunter2"}}"#, "hunter2"] {
            for isOnChannel in [false, true] {
                let detail = Self.refusal(type, payload, isOnChannel: isOnChannel)?.detail ?? ""
                #expect(!detail.contains("hunter2"))
            }
        }
    }
}
