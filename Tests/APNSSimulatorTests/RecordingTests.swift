import APNSSimulator
import Foundation
import TestSupport
import Testing

@Suite("The recording of requests")
struct RecordingTests {
    typealias Outcome = ReceivedNotification.Outcome

    @Test("has every header and the payload of accepted requests")
    func accepted() async throws {
        let recorder = Recorder()
        try await withSimulator(recorder: recorder) { server in
            let push = Push(token: anyToken.uppercased()) {
                $0.set("apns-collapse-id", "game")
                $0.set("apns-expiration", "1700000000")
                $0.body = #"{"aps":{"alert":"Grüße 😀"},"n":1.50}"#
            }
            #expect(try await push.send(to: server).status == 200)
            let notification = try #require(recorder.notifications().entries.first?.notification)
            #expect(notification.transport == .http2 && notification.connection == 1 && notification.request == nil)
            #expect(notification.token == anyToken && notification.topic == "com.example.app")
            #expect(notification.pushType == "alert" && notification.priority == 10)
            #expect(notification.expiration == 1_700_000_000 && notification.collapseID == "game")
            #expect(notification.apnsID == anyID && notification.malformedHeaders.isEmpty)
            #expect(notification.payload == Array(push.body.utf8))
            #expect(notification.payloadSize == push.body.utf8.count)
            #expect(notification.accepted && notification.outcome == .answered(status: 200, reason: nil))
            #expect(abs(Double(notification.time) / 1000 - Date().timeIntervalSince1970) < 600)
            _ = try await Push().send(to: server)
            #expect(recorder.notifications().entries.map(\.notification.connection) == [1, 2])
        }
    }

    @Test("includes refused requests with their reason")
    func refused() async throws {
        let recorder = Recorder()
        try await withSimulator(recorder: recorder) { server in
            let pushes: [(Push, String)] = [
                (Push { $0.set("apns-priority", "high") }, "BadPriority"),
                (Push { $0.set("apns-expiration", "soon") }, "BadExpirationDate"),
                (Push { $0.set("apns-id", "one") }, "BadMessageId"),
                (Push(token: "not-a-token"), "BadDeviceToken"), (Push { $0.set("apns-topic", nil) }, "MissingTopic"),
                (Push { $0.body = "{" }, "PayloadEmpty"), (Push { $0.path = "/3/devices" }, "BadPath"),
                (Push { $0.method = "GET" }, "MethodNotAllowed"),
                (Push { $0.body = RequestCheckTests.payload(6020) }, "PayloadTooLarge"),
                (Push { $0.set("authorization", nil) }, "MissingProviderToken"),
            ]
            for (index, (push, reason)) in pushes.enumerated() {
                #expect(try await push.send(to: server).reason == reason)
                let entries = recorder.notifications().entries
                #expect(entries.count == index + 1)
                let last = try #require(entries.last?.notification)
                #expect(!last.accepted, "\(reason)")
                guard case .answered(_, reason) = last.outcome else {
                    Issue.record("\(last.outcome) where it should be \(reason)")
                    continue
                }
            }
            let all = recorder.notifications().entries.map(\.notification)
            #expect(all[0].malformedHeaders == ["apns-priority": "high"] && all[0].priority == nil)
            #expect(all[1].malformedHeaders == ["apns-expiration": "soon"])
            #expect(all[2].malformedHeaders == ["apns-id": "one"] && all[2].apnsID?.count == 36)
            #expect(all[3].token == "not-a-token")
            #expect(all[6].request == "POST /3/devices")
            #expect(all[7].request == "GET /3/device/\(anyToken)")
            #expect(all[8].payload.count == 5120 && all[8].payloadSize == pushes[8].0.body.utf8.count)
        }
    }

    @Test(
        "has the effect of a rule",
        arguments: [
            ("answer=410", .answered(status: 410, reason: "Unregistered"), false),
            ("answer=200,retry-after=1", .answered(status: 200, reason: nil), true), ("answer=drop", .dropped, true),
            ("answer=drop,accept=false", .dropped, false), ("answer=silence", .silenced, false),
            ("answer=reset,code=CANCEL", .reset, false), ("answer=goaway,last-stream=zero", .goAway, false),
            ("answer=goaway", .answered(status: 200, reason: nil), true),
        ] as [(String, Outcome, Bool)])
    func rules(_ rule: String, _ outcome: Outcome, accepted: Bool) async throws {
        let recorder = Recorder()
        try await withSimulator(rules: [rule], recorder: recorder) { server in
            // Some of these requests are never answered. Waiting for the record is faster than waiting for curl's timeout.
            async let answer = Push().send(to: server)
            let page = await recorder.notifications(NotificationFilter(), wait: .seconds(60))
            let notification = page.entries.first?.notification
            #expect(notification?.outcome == outcome && notification?.accepted == accepted)
            try await server.stop(grace: .zero)
            _ = try await answer
        }
    }
}
