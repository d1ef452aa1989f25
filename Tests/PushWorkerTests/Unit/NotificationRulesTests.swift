import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

@Suite("Notification rules")
struct NotificationRulesTests {
    /// Returns the refusal of a notification, or its first hint. Mistakes in single members come after the rules of its type.
    private static func verdict(
        _ type: PushType, _ payload: String, priority: UInt8? = nil, isOnChannel: Bool = false,
        topic: String = "com.example.app", second: Int64 = 7
    ) -> (refusal: Reason?, hint: Hint?, payload: String) {
        let subject = NotificationRules.Subject(
            pushType: type, priority: priority, isOnChannel: isOnChannel,
            topic: NotificationRules.Topic(ByteBuffer(string: topic)), second: second)
        var buffer = ByteBuffer(string: payload)
        var first: Hint?
        do throws(Reason) {
            let job = try read(payload)
            try NotificationRules.check(subject, job.facts, &buffer, second: 7) { first = first ?? $0 }
            for mistake in job.mistakes where type.isConcerned(by: mistake) && !subject.isOfNoApp {
                first = first ?? Hint(mistake)
            }
            return (nil, first, String(buffer: buffer))
        } catch { return (error, first, String(buffer: buffer)) }
    }

    private static func read(_ payload: String) throws(Reason) -> Job {
        do throws(JobError) {
            return try JobDecoder.decode(ByteBuffer(string: #"{"token":"ab","payload":\#(payload)}"#))
        } catch { throw Reason(error) }
    }

    private static func refusal(
        _ type: PushType, _ payload: String, priority: UInt8? = nil, isOnChannel: Bool = false
    ) -> Reason? {
        verdict(type, payload, priority: priority, isOnChannel: isOnChannel).refusal
    }

    /// Returns a payload of exactly the given size that follows all rules of its type.
    private static func payload(_ type: PushType, bytes: Int) -> String {
        let start = good[type].map { $0.dropLast() + #","x":""# } ?? #"{"aps":{},"x":""#
        return start + String(repeating: "y", count: bytes - start.utf8.count - 2) + #""}"#
    }

    private static let good: [PushType: String] = [
        .background: #"{"aps":{"content-available":1}}"#,
        .liveactivity: #"{"aps":{"event":"update","timestamp":1,"content-state":{}}}"#,
        .widgets: #"{"aps":{"content-changed":true}}"#, .controls: #"{"aps":{"content-changed":true}}"#,
        .mdm: #"{"mdm":"magic"}"#, .alert: #"{"aps":{"alert":"x"}}"#,
        .accessory: #"{"aps":{"encryptedData":"x","sessionIdentifier":"x","keyID":"x","messageIndex":"x"}}"#,
        .fileprovider: #"{"container-identifier":"NSFileProviderRootContainerItemIdentifier"}"#,
    ]

    @Test(
        "a good notification of each type is sent, with every priority that Apple allows for it",
        arguments: PushType.allCases)
    func goodOnes(type: PushType) {
        let payload = Self.good[type] ?? "{}"
        for priority: UInt8? in [nil, 1, 5, 10] {
            let verdict = Self.verdict(type, payload, priority: priority)
            let isRefused = type == .background && priority == 10
            #expect(verdict.refusal?.code.text == (isRefused ? "BadPriority" : nil))
            let isHinted = type == .liveactivity && priority == 1
            #expect(verdict.hint?.rule == (isHinted ? .priority : nil))
            #expect(verdict.payload == payload)
        }
    }

    @Test("the largest payload is accepted, one byte more is not", arguments: PushType.allCases)
    func sizes(type: PushType) throws {
        let limit = type == .voip ? 5120 : 4096
        #expect(NotificationRules.sizeLimit(type, isOnChannel: false) == limit)
        #expect(Self.refusal(type, Self.payload(type, bytes: limit)) == nil)
        let refusal = try #require(Self.refusal(type, Self.payload(type, bytes: limit + 1)))
        #expect(refusal.code.text == "PayloadTooLarge")
        #expect(
            refusal.detail?.contains("has \(limit + 1) bytes; APNs accepts \(limit) for push type \(type.name)")
                == true)
    }

    @Test("a channel accepts 5,120 bytes, and only Live Activities", arguments: PushType.allCases)
    func channels(type: PushType) throws {
        guard type == .liveactivity else {
            #expect(Self.refusal(type, Self.good[type] ?? "{}", isOnChannel: true)?.code.text == "InvalidPushType")
            return
        }
        #expect(NotificationRules.sizeLimit(type, isOnChannel: true) == 5120)
        #expect(Self.refusal(type, Self.payload(type, bytes: 5120), isOnChannel: true) == nil)
        #expect(Self.refusal(type, Self.payload(type, bytes: 5121), isOnChannel: true)?.code.text == "PayloadTooLarge")
        let lowest = Self.verdict(type, Self.payload(type, bytes: 100), priority: 1, isOnChannel: true)
        #expect(lowest.refusal == nil && lowest.hint == nil)
    }

    private static func start(_ members: String) -> String {
        #"{"aps":{"event":"start","timestamp":1,"content-state":{}\#(members)}}"#
    }

    private static let whole = #","alert":"x","attributes-type":"T","attributes":{}"#

    @Test(
        "a payload without what its type needs gets a hint that names it",
        arguments: [
            (PushType.background, #"{"aps":{}}"#, Hint.Rule.requiredMember),
            (.background, #"{"aps":{"content-available":0}}"#, .requiredMember),
            (.background, #"{"aps":{"content-available":1,"alert":"x"}}"#, .excludedMember),
            (.background, #"{"aps":{"content-available":1,"badge":0}}"#, .excludedMember),
            (.background, #"{"aps":{"content-available":1,"sound":""}}"#, .excludedMember),
            (.liveactivity, "{}", .requiredMember),
            (.liveactivity, #"{"aps":{"event":"stop","timestamp":1,"content-state":{}}}"#, .payloadValue),
            (.liveactivity, #"{"aps":{"event":"end","timestamp":"1"}}"#, .payloadValue),
            (.liveactivity, #"{"aps":{"event":"update","timestamp":1700000000000,"content-state":{}}}"#, .payloadValue),
            (.liveactivity, #"{"aps":{"event":"update","timestamp":1}}"#, .requiredMember),
            (.liveactivity, start(""), .requiredMember),
            (.liveactivity, start(#","alert":"x""#), .requiredMember),
            (.liveactivity, start(#","alert":"x","attributes-type":"T""#), .requiredMember),
            (.liveactivity, start(whole + #","input-push-token":1,"input-push-channel":"YQ==""#), .liveActivityInput),
            (.alert, #"{"aps":{}}"#, .alertShowsNothing), (.alert, #"{"aps":{"thread-id":"x"}}"#, .alertShowsNothing),
            (.alert, #"{"aps":{"mutable-content":1}}"#, .alertShowsNothing),
            (.alert, #"{"aps":{"content-available":1}}"#, .alertShowsNothing),
            (.alert, #"{"aps":{"alert":""}}"#, .alertShowsNothing),
            (.alert, #"{"aps":{"alert":{"title":""}}}"#, .alertShowsNothing),
            (.alert, #"{"aps":{"alert":5}}"#, .payloadValue),
            (.alert, #"{"aps":{"alert":"x","own":1}}"#, .payloadMember),
            (.alert, #"{"aps":{"alert":"x","badge":1,"badge":2}}"#, .payloadRepeat),
            (.alert, #"{"aps":{"alert":"x","relevance-score":5}}"#, .relevanceScore),
            (.alert, "{}", .payloadWithoutAPS),
            (.accessory, #"{"aps":{}}"#, .requiredMember), (.accessory, #"{"aps":{"keyID":"x"}}"#, .requiredMember),
            (.voip, #"{"aps":{"badge":"1"}}"#, .payloadValue),
            (.widgets, #"{"aps":{}}"#, .requiredMember), (.widgets, "{}", .requiredMember),
            (.controls, #"{"aps":{"content-changed":false}}"#, .requiredMember),
            (.mdm, #"{"aps":{}}"#, .requiredMember), (.mdm, #"{"mdm":5}"#, .requiredMember),
            (.mdm, "{}", .requiredMember),
            (.mdm, #"{"mdm":"x","aps":{}}"#, .excludedMember),
            (.fileprovider, #"{"aps":{"container-identifier":"x"}}"#, .requiredMember),
        ])
    func hints(type: PushType, payload: String, rule: Hint.Rule) throws {
        let verdict = Self.verdict(type, payload)
        #expect(verdict.refusal == nil && verdict.hint?.rule == rule && verdict.payload == payload)
        #expect(verdict.hint?.reason.code.text == "BadPayload")
    }

    @Test(
        "a Live Activity's missing timestamp is filled in, if it fits",
        arguments: [
            (#"{"aps":{"event":"end"}}"#, #"{"aps":{"timestamp":7,"event":"end"}}"#),
            (#"{"a":1, "aps" : {  } ,"b":2}"#, #"{"a":1, "aps" : {"timestamp":7  } ,"b":2}"#),
            (#"{"timestamp":1,"aps":{"event":"end"}}"#, #"{"timestamp":1,"aps":{"timestamp":7,"event":"end"}}"#),
            (#"{"aps":{"event":"end","timestamp":null}}"#, nil), (#"{"aps":{"event":"end","timestamp":2}}"#, nil),
            ("{}", nil), (#"{"aps":[]}"#, nil),
        ])
    func timestamps(payload: String, filled: String?) {
        #expect(Self.verdict(.liveactivity, payload).payload == filled ?? payload)
        let start = #"{"aps":{"event":"end"},"x":""#
        for size in 4070...4096 {
            let long = start + String(repeating: "y", count: size - start.utf8.count - 2) + #""}"#
            let verdict = Self.verdict(.liveactivity, long)
            let added = #""timestamp":7,"#.utf8.count
            #expect(
                verdict.refusal == nil && verdict.payload.utf8.count == (size + added <= 4096 ? size + added : size))
        }
    }

    @Test(
        "Wallet passes and orders have an empty payload, at any priority",
        arguments: ["pass.com.example.x", "order.com.example.x"])
    func wallet(topic: String) {
        for payload in ["{}", #"{"aps":{}}"#] {
            for type in [PushType.background, .alert] {
                let verdict = Self.verdict(type, payload, priority: 10, topic: topic)
                #expect(verdict.refusal == nil && verdict.hint == nil)
            }
        }
        #expect(Self.verdict(.background, "{}").hint?.rule == .requiredMember)
        #expect(Self.verdict(.background, #"{"aps":{}}"#, priority: 10, topic: "com.example.pass.x").refusal != nil)
    }

    @Test("a website needs `url-args`; Apple's own services have payloads of their own")
    func otherTopics() {
        let alert = #"{"aps":{"alert":{"title":"x"}}}"#
        #expect(Self.verdict(.alert, alert, topic: "web.com.example").hint?.rule == .requiredMember)
        let whole = #"{"aps":{"alert":{"title":"x"},"url-args":["a"]}}"#
        #expect(Self.verdict(.alert, whole, topic: "web.com.example").hint == nil)
        #expect(Self.verdict(.alert, alert, topic: "com.web.example").hint == nil)
        let mail = #"{"aps":{"account-id":"A","m":["B"]}}"#
        #expect(Self.verdict(.alert, mail, topic: "com.apple.mail.XServer.1").hint == nil)
        #expect(Self.verdict(.alert, mail).hint != nil)
        #expect(Self.verdict(.mdm, "{}", topic: "com.apple.mgmt.External.1").hint?.rule == .requiredMember)
    }

    @Test(
        "what no device shows of a Live Activity is a hint",
        arguments: [
            (#"{"event":"update","content-state":{},"timestamp":1000000,"stale-date":999999}"#, .payloadTime),
            (#"{"event":"update","content-state":{},"timestamp":1000000,"stale-date":1000001}"#, nil),
            (#"{"event":"end","timestamp":1000000,"stale-date":1,"dismissal-date":1}"#, nil),
            (#"{"event":"update","content-state":{},"timestamp":970000}"#, .payloadTime),
            (#"{"event":"update","content-state":{},"timestamp":972000}"#, nil),
            (#"{"event":"update","content-state":{},"timestamp":1000301}"#, .payloadTime),
            (#"{"event":"update","content-state":{},"timestamp":1000300}"#, nil),
            (#"{"event":"update","content-state":{},"sound":"s"}"#, .excludedMember),
            (
                #"{"event":"start","content-state":{},"attributes-type":"T","attributes":{},"alert":{}}"#,
                .alertShowsNothing
            ),
        ] as [(String, Hint.Rule?)])
    func unseen(aps: String, rule: Hint.Rule?) {
        #expect(Self.verdict(.liveactivity, #"{"aps":\#(aps)}"#, second: 1_000_000).hint?.rule == rule)
    }

    @Test("an empty sound is not played")
    func emptySound() {
        let verdict = Self.verdict(.alert, #"{"aps":{"content-available":1,"sound":""}}"#)
        #expect(verdict.hint?.rule == .alertShowsNothing && verdict.hint?.detail.contains("`sound` is empty") == true)
        #expect(Self.verdict(.alert, #"{"aps":{"alert":"x","sound":""}}"#).hint == nil)
    }

    @Test(
        "unwise payloads, and ones that only lack optional members, are sent",
        arguments: [
            (PushType.alert, #"{"aps":{"badge":0}}"#), (.alert, #"{"aps":{"alert":"","sound":"s"}}"#),
            (.alert, #"{"mdm":"x"}"#), (.voip, #"{"aps":{"own":1}}"#),
            (.voip, "{}"), (.complication, "{}"), (.location, "{}"), (.pushtotalk, #"{"aps":{}}"#),
            (.background, #"{"aps":{"content-available":1,"category":"c","mutable-content":1},"x":{"alert":"y"}}"#),
            (.liveactivity, #"{"aps":{"event":"end","timestamp":1}}"#),
            (.widgets, #"{"aps":{"content-changed":1,"alert":"x"}}"#),
        ])
    func unwise(type: PushType, payload: String) {
        let verdict = Self.verdict(type, payload)
        #expect(verdict.refusal == nil && verdict.hint == nil)
    }

    @Test("a Live Activity is updated and ended on a channel, but not started")
    func startOnChannel() throws {
        let refusal = try #require(Self.refusal(.liveactivity, Self.start(Self.whole), isOnChannel: true))
        #expect(
            refusal.code.text == "BadPayload" && refusal.detail?.contains("cannot be started on a `channel`") == true)
        #expect(Self.refusal(.liveactivity, #"{"aps":{"event":"end","timestamp":1}}"#, isOnChannel: true) == nil)
    }

    @Test("a background notification without a priority gets 5; a broadcast has one")
    func defaults() {
        for type in PushType.allCases {
            #expect(NotificationRules.priority(nil, type, isOnChannel: false) == (type == .background ? 5 : nil))
            #expect(NotificationRules.priority(1, type, isOnChannel: false) == 1)
        }
        #expect(NotificationRules.priority(nil, .liveactivity, isOnChannel: true) == 10)
        #expect(NotificationRules.priority(5, .liveactivity, isOnChannel: true) == 5)
    }

    @Test(
        "a job without a push type has an inferred one, whose rules apply",
        arguments: [
            (#""token":"ab","alert":"x""#, PushType.alert), (#""token":"ab","content_available":1"#, .background),
            (#""token":"ab","payload":{"aps":{"content-available":1}}"#, .background),
            (#""token":"ab","mdm":"x""#, .mdm),
            (#""channel":"ab","event":"update","content_state":{},"timestamp":1"#, .liveactivity),
            (#""token":"ab","event":"end","timestamp":"1970-01-01T00:00:07Z""#, .liveactivity),
            (#""token":"ab","payload":{"aps":{"event":"end","timestamp":1}}"#, .liveactivity),
            (#""token":"ab","payload":{"mdm":"x"}"#, .mdm),
            (#""token":"ab","content_changed":1,"topic":"a.push-type.widgets""#, .widgets),
            (#""token":"ab","payload":{"aps":{"content-changed":true}},"topic":"a.push-type.controls""#, .controls),
        ])
    func ofJobs(members: String, type: PushType) throws {
        let job = try JobDecoder.decode(ByteBuffer(string: "{\(members)}"))
        #expect(job.inferredPushType == type)
        let isOnChannel = job.channel != nil
        let payload = try job.payload(limit: NotificationRules.sizeLimit(type, isOnChannel: isOnChannel))
        let verdict = Self.verdict(type, String(buffer: payload), isOnChannel: isOnChannel)
        #expect(verdict.refusal == nil && verdict.hint == nil)
    }

    @Test("no detail contains a part of the payload", arguments: PushType.allCases)
    func secrets(type: PushType) {
        for payload in [#"{"hunter2":"hunter2"}"#, #"{"aps":{"event":"hunter2","alert":"hunter2"}}"#, "hunter2"] {
            for isOnChannel in [false, true] {
                let verdict = Self.verdict(type, payload, isOnChannel: isOnChannel)
                #expect(verdict.refusal?.detail?.contains("hunter2") != true)
                #expect(verdict.hint?.detail.contains("hunter2") != true)
            }
        }
    }
}
