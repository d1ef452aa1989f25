import FoundationEssentials
import Testing

@testable import APNSSimulator

@Suite("The views of the inbox")
struct InboxSummaryTests {
    /// - Parameter answer: 200 or another status, or nil if the push was accepted and its answer was lost.
    private func push(
        _ token: String?, _ payload: String, answer: Int? = 200, type: String? = "alert",
        topic: String = "com.example.shop", channel: String? = nil
    ) -> ReceivedNotification {
        var push = ReceivedNotification(
            time: 1_700_000_000_000, transport: .http2, connection: 1, accepted: answer == nil || answer == 200,
            outcome: answer.map { .answered(status: $0, reason: $0 == 410 ? "Unregistered" : nil) } ?? .dropped)
        (push.token, push.channel, push.topic, push.pushType) = (token, channel, topic, type)
        push.payload = Array(payload.utf8)
        push.payloadSize = push.payload.count
        return push
    }

    private func recorder(_ pushes: [ReceivedNotification]) -> Recorder {
        let recorder = Recorder()
        for push in pushes { recorder.record(push) }
        return recorder
    }

    private func badge(_ number: Int) -> String { #"{"aps":{"alert":"a","badge":\#(number)}}"# }

    @Test("A device has the last badge that was accepted for each of its apps.")
    func badges() throws {
        let recorder = recorder([
            push("aa", badge(1)), push("aa", badge(2)), push("aa", badge(9), answer: 410),
            push("aa", #"{"aps":{"alert":"no change"}}"#), push("bb", badge(5), answer: 410),
            push("aa", badge(7), topic: "com.example.news"), push("aa", #"{"aps":{"\u0062adge":3}}"#, topic: "x"),
            push("aa", badge(0), answer: nil, topic: "com.example.news"),
            push("aa", "{}", type: "voip", topic: "com.example.shop.voip"),
        ])
        let (devices, total) = InboxSummary(recorder, InboxFilter()).devices(atMost: 10)
        #expect(devices.map(\.name) == ["aa", "bb"] && total == 2)
        let first = try #require(devices.first)
        #expect(first.badges == ["com.example.shop": 2, "com.example.news": 0, "x": 3])
        #expect(first.apps == ["com.example.shop", "com.example.news", "x"])
        #expect(first.received == 8 && first.accepted == 7 && first.newest.sequence == 9)
        #expect(devices[1].badges.isEmpty && devices[1].accepted == 0 && devices[1].newest.sequence == 5)
    }

    @Test("A device shows its newest accepted push, and devices beyond the limit are counted.")
    func devices() {
        let recorder = recorder([
            push("aa", "{}"), push("bb", "{}"), push(nil, "{}", channel: "aa"), push("aa", "{}", answer: 410),
        ])
        let all = InboxSummary(recorder, InboxFilter()).devices(atMost: 10)
        #expect(all.devices.map(\.name) == ["aa", "aa", "bb"] && all.devices.map(\.isChannel) == [false, true, false])
        #expect(all.devices[0].newest.sequence == 1)
        let some = InboxSummary(recorder, InboxFilter()).devices(atMost: 1)
        #expect(some.devices.map(\.received) == [2] && some.total == 3)
    }

    private func state(_ event: String, _ timestamp: Int, _ token: String = "aa", answer: Int = 200)
        -> ReceivedNotification
    {
        push(
            token, #"{"aps":{"event":"\#(event)","timestamp":\#(timestamp),"content-state":{"n":\#(timestamp)}}}"#,
            answer: answer, type: "liveactivity", topic: "com.example.shop.push-type.liveactivity")
    }

    @Test("A Live Activity shows its newest state that a device accepts, and a start begins another one.")
    func activities() throws {
        let recorder = recorder([
            state("start", 10), state("update", 20), state("update", 15), state("update", 30, answer: 410),
            push("aa", "{}"), state("start", 40), state("end", 50), state("update", 60),
            state("update", 5, "bb", answer: 410),
        ])
        let activities = InboxSummary(recorder, InboxFilter()).activities
        #expect(activities.map { $0.updates.count } == [1, 3, 4])
        #expect(activities.map { $0.shown?.entry.sequence } == [nil, 7, 2])
        #expect(activities.map(\.isEnded) == [false, true, false])
        #expect(
            activities[2].updates.map(\.omission) == [
                "not shown: 410 Unregistered", "ignored: older timestamp", nil, nil,
            ])
        #expect(activities[1].updates.first?.omission == "ignored: the activity had ended")
    }

    @Test("Pushes are counted by their answer, whatever answer is shown.")
    func answers() {
        let recorder = recorder([
            push("aa", "{}"), push("aa", "{}", answer: 503), push("bb", "{}", answer: 410), push("aa", "{}"),
            push("aa", "{}", answer: nil),
        ])
        var filter = InboxFilter()
        filter.answer = "410"
        filter.token = "aa"
        let (total, answers) = InboxSummary(recorder, filter).answers
        #expect(total == 4)
        #expect(
            answers == [
                AnswerCount(answer: "200", count: 2), AnswerCount(answer: "503", count: 1),
                AnswerCount(answer: "lost", count: 1),
            ])
    }

    @Test(
        "A search finds the text, the token, the topic, the ID and the push type, in either case.",
        arguments: [
            ("its way", true), ("ITS WAY", true), ("00FC", true), ("example.shop", true), ("7A0D", true),
            ("alert", true), ("voip", false), ("com.example.news", false), ("dead", false),
        ])
    func search(text: String, isFound: Bool) {
        var push = push("00fc13", #"{"aps":{"sound":"x","badge":1},"body":"On its way"}"#)
        push.apnsID = "7a0d51f2"
        #expect(push.contains(text) == isFound)
    }

    @Test("A fixture has the headers as received, the payload unchanged, and the answer.")
    func fixture() throws {
        var push = push("aa", #"{"aps":{"alert":"\u003c"},"x":1.50}"#, answer: 410)
        (push.priority, push.collapseID, push.apnsID) = (5, "a\"b", "7a0d")
        push.malformedHeaders = ["apns-expiration": "soon"]
        let text = String(decoding: push.fixture, as: UTF8.self)
        #expect(text.contains(#""payload":{"aps":{"alert":"\u003c"},"x":1.50}"#))
        struct Fixture: Decodable {
            struct Answer: Decodable {
                let accepted: Bool
                let status: Int
                let reason: String
            }

            let transport, token: String
            let headers: [String: String]
            let answer: Answer
        }
        let fixture = try JSONDecoder().decode(Fixture.self, from: Data(push.fixture))
        #expect(fixture.transport == "http2" && fixture.token == "aa")
        #expect(
            fixture.headers == [
                "apns-topic": "com.example.shop", "apns-push-type": "alert", "apns-priority": "5",
                "apns-expiration": "soon", "apns-collapse-id": "a\"b", "apns-id": "7a0d",
            ])
        #expect(!fixture.answer.accepted && fixture.answer.status == 410 && fixture.answer.reason == "Unregistered")
    }

    @Test("A refused push is drawn as not shown, without its badge.")
    func refused() {
        let push = push("aa", badge(3), answer: 410)
        let banner = push.preview.banner(refusal: push.refusal).text
        #expect(banner.contains("not shown: 410 Unregistered") && banner.contains("refused"))
        #expect(!banner.contains("badge") && !banner.contains("now"))
        let shown = self.push("aa", badge(3), answer: nil)
        #expect(shown.refusal == nil && shown.preview.banner(when: "5 s ago").text.contains("5 s ago"))
    }

    @Test(
        "Ages have one unit.",
        arguments: [
            (-5000, "0 s ago"), (119_999, "119 s ago"), (120_000, "2 min ago"), (7_200_000, "2 h ago"),
            (172_800_000, "2 days ago"),
        ] as [(Int64, String)])
    func ages(age: Int64, text: String) { #expect(PushElements.age(1_000_000_000, now: 1_000_000_000 + age) == text) }

    @Test("One push can be deleted at every fill level; numbers, pages and losses stay the same.", arguments: 1...7)
    func deletion(limit: Int) {
        for received in 1...15 {
            for deleted in 1...received + 1 {
                var ring = NotificationRing(limit: limit)
                for number in 1...received { _ = ring.append(APNSSimulatorTests.received(number)) }
                let oldest = max(1, received - limit + 1)
                let isKept = deleted >= oldest && deleted <= received
                let results = [ring.remove(UInt64(deleted)), ring.remove(UInt64(deleted))]
                #expect(results == [isKept, false])
                let left = (oldest...received).filter { $0 != deleted }.map(UInt64.init)
                #expect(ring.count == left.count)
                let page = ring.page(NotificationFilter())
                #expect(page.entries.map(\.sequence) == left && page.overwritten == UInt64(oldest - 1))
                #expect(ring.newest(before: .max, atMost: 100).map(\.sequence) == left.reversed())
                // The missing push arrives, so the count is complete again.
                for number in 1...limit { _ = ring.append(APNSSimulatorTests.received(number)) }
                #expect(ring.count == limit)
            }
        }
        var ring = NotificationRing(limit: limit)
        let results = [ring.remove(0), ring.remove(1), ring.remove(.max)]
        #expect(results == [false, false, false])
    }
}
