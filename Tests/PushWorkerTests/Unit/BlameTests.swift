import APNS
import NIOCore
import PushJob
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// A bad notification never stops a good one. The engine's real parts send good pushes beside each kind of bad ones in virtual time. A good
/// push is submitted within a second of its turn, the lane stays ready, and the culprit is named.
struct BlameTests {
    /// A kind of bad notifications, and APNs' answer to them.
    struct Scene: CustomTestStringConvertible, Sendable {
        let testDescription: String
        /// Good pushes per second.
        var good = 8.0
        var seconds = 30
        /// Returns the bad jobs without their tokens. The parameter is the time since the beginning in milliseconds.
        let bad: @Sendable (Int) -> [String]
        /// The answer to a bad notification; `nil` for none.
        let answer: RequestResult?
        /// The share of good pushes that get the answer of bad notifications.
        var share = 0.0
        /// The name of the slow or suspected scope.
        var culprit: String?

        init(
            _ name: String, good: Double = 8, seconds: Int = 30, answer: RequestResult?, share: Double = 0,
            culprit: String? = nil, bad: @escaping @Sendable (Int) -> [String]
        ) {
            (testDescription, self.good, self.seconds) = (name, good, seconds)
            (self.answer, self.share, self.culprit, self.bad) = (answer, share, culprit, bad)
        }
    }

    private static let alert = #""alert":"x""#

    /// Returns jobs at a rate per second.
    private static func each(_ perSecond: Int, _ members: String) -> @Sendable (Int) -> [String] {
        { time in time % (1000 / perSecond) < step ? [members] : [] }
    }

    private static func once(_ count: Int, at time: Int = 2000, _ members: String) -> @Sendable (Int) -> [String] {
        { now in (time..<time + step).contains(now) ? [String](repeating: members, count: count) : [] }
    }

    private static let step = 50

    static let scenes: [Scene] = [
        Scene(
            "B1: 10 calls per second to tokens of alerts", answer: .answer(.deviceTokenNotForTopic),
            culprit: "com.example.shop.voip (voip)", bad: each(10, alert + #","push_type":"voip""#)),
        Scene(
            "B2: 200 jobs with another topic", good: 5, answer: .answer(.deviceTokenNotForTopic),
            culprit: "com.example.other (alert)", bad: once(200, alert + #","topic":"com.example.other""#)),
        Scene(
            "B3: a campaign of another environment", good: 5, answer: .answer(.badDeviceToken), culprit: "bad",
            bad: once(500, alert + #","campaign":"bad""#)),
        Scene("B4: one job whose key is refused", answer: .answer(.invalidProviderToken), bad: once(1, alert)),
        Scene(
            "B5: one job that is answered without a reason", answer: .response(Response(status: 400)),
            bad: once(1, alert + #","id":"order-7""#)),
        Scene(
            "B5: one job with a new reason and 403", answer: .response(Response(status: 403, reasonText: "QuiteNew")),
            bad: once(1, alert)),
        Scene(
            "B6: one in a hundred is refused the key", good: 20, answer: .answer(.invalidProviderToken), share: 0.01,
            bad: { _ in [] }),
        Scene(
            "B7: 5 % are server errors", good: 20, seconds: 60, answer: .answer(.serviceUnavailable),
            bad: each(1, alert)),
        Scene(
            "B8: 30 server errors, and a good push every 20 s", good: 0.05, seconds: 120,
            answer: .answer(.serviceUnavailable), bad: once(30, alert)),
        Scene(
            "B9: 5 silent jobs, and a good push every 20 s", good: 0.05, seconds: 120, answer: nil, bad: once(5, alert)),
        Scene(
            "30 server errors per second", answer: .answer(.internalServerError), bad: each(20, alert)),
        Scene(
            "A proxy's 410 for a campaign", answer: .response(Response(status: 410)), culprit: "bad",
            bad: each(20, alert + #","campaign":"bad""#)),
        Scene("Jobs that are too large", answer: .answer(.payloadTooLarge), bad: each(20, alert)),
        Scene("Throttled tokens", answer: .answer(.tooManyRequests), bad: each(20, alert)),
        Scene(
            "A campaign that a key may not send to", answer: .answer(.forbidden), culprit: "bad",
            bad: once(300, alert + #","campaign":"bad""#)),
    ]

    @Test("Good pushes are submitted within a second.", arguments: scenes)
    func good(_ plan: Scene) throws {
        let credential = try EngineScene.keyCredential()
        let scene = try EngineScene { configuration in
            configuration.apps[0].credential = credential
            configuration.queues[0].limits.results = .off
        }
        scene.run(.seconds(3))
        var random = SeededGenerator(seed: 5)
        var pushed: [String: Int] = [:]
        var delays: [Int] = []
        var unlucky: Set<String> = []
        var (bad, notReady) = (0, 0)
        var records: [ScopeRecord] = []
        for time in stride(from: 0, to: plan.seconds * 1000, by: Self.step) {
            for members in plan.bad(time) {
                bad += 1
                scene.queue.jobs.append(EngineScene.job(String(100_000 + bad), members))
            }
            if random.unit() < plan.good * Double(Self.step) / 1000 {
                let token = String(500_000 + pushed.count)
                pushed[token] = time
                if random.unit() < plan.share { unlucky.insert(token) }
                scene.queue.jobs.append(EngineScene.job(token))
            }
            if scene.queue.returnDue() || !scene.queue.jobs.isEmpty { scene.wake() }
            scene.run(.milliseconds(Int64(Self.step)))
            for index in scene.transport.submitted.indices.reversed() {
                let token = String(buffer: scene.transport.submitted[index].notification.deviceToken.hex)
                if let at = pushed[token], at >= 0 {
                    delays.append(time + Self.step - at)
                    pushed[token] = -1
                }
                let isBad = token < "500000" || unlucky.contains(token)
                guard let result = isBad ? plan.answer : EngineScene.delivered else { continue }
                scene.transport.answer(result, at: index)
            }
            scene.transport.isUnanswered =
                !scene.transport.submitted.isEmpty && scene.loop.now - (NIODeadline.uptimeNanoseconds(0)) > .zero
                && plan.answer == nil && time > 7000
            if !scene.lane.observer.report().isReady { notReady += 1 }
            if time % 1000 == 0 {
                records += scene.records
            }
        }
        let late = pushed.values.count { $0 >= 0 && $0 < (plan.seconds - 1) * 1000 }
        #expect(late == 0, "\(late) of \(pushed.count) were not submitted")
        #expect(delays.allSatisfy { $0 <= 1000 }, "\(delays.max() ?? 0) ms")
        #expect(notReady == 0)
        if let culprit = plan.culprit {
            #expect(records.contains { $0.name == culprit && $0.state == .slow }, "\(records.last as Any)")
        }
        #expect(scene.fleet.invalid.count <= 16, "at most what the last good tokens vouch for")
    }
}
