import Testing
import WebPages

@testable import Dashboard
@testable import Operations

@Suite("Problems on the pages")
struct ProblemCardTests {
    private static let remedies: [Remedy] = [
        .resumeApp("news"), .resumeQueue("q"), .resumeCampaign("c"), .cancelCampaign("c"),
        .requeue(queue: "q", reason: "BadPayload"), .requeue(queue: "q", reason: nil), .unquiet,
    ]

    @Test("the button of a remedy is an action that exists, with all the fields that it requires", arguments: remedies)
    private func buttons(remedy: Remedy) throws {
        let action = try #require(remedy.action)
        let kind = try #require(ActionKind.all.first { $0.name == action.name })
        var form = Fields()
        for (name, value) in action.fields { form.append(name, value) }
        let known = Set(kind.fields.map(\.name) + ["queue"])
        #expect(action.fields.allSatisfy { known.contains($0.name) })
        for field in kind.fields where field.isRequired { #expect(form[field.name] != nil, "\(field.name)") }
        if case .one = kind.queues { #expect(form["queue"] != nil) }
    }

    @Test("a remedy without a button is one that a page shows, or that only a host can do")
    func withoutButton() {
        for remedy in [
            Remedy.showCampaign("c"), .showJobs(["j"]), .countJobs(queue: "q"), .listDeadLetters(queue: "q"),
            .startWorker(queues: ["q"]),
            .check,
        ] {
            #expect(remedy.action == nil)
        }
    }

    @Test(
        "an object has its page",
        arguments: [
            (.queue("a/b"), "/queues/a%2Fb"), (.app("news"), "/apps/news"), (.worker("w"), "/workers/w"),
            (.campaign("c"), "/campaigns/c"), (.server("a:1"), "/redis"), (.key("push:x"), "/redis"),
            (.shared("push"), "/redis"), (.job("order-7"), "/jobs"),
            (.topic("com.example.other", app: "news"), "/apps/news"),
            (.credential("KEY123", app: "news"), "/apps/news"), (.endpoint("10.0.0.7:443", app: nil), "/apps"),
        ] as [(Problem.Object, String)])
    func links(object: Problem.Object, path: String) {
        #expect(Links().path(object.segments) == path)
    }

    @Test("the delivery rate is that of the last readings or, before them, of the last complete minute")
    func rate() {
        var queue = QueueStatus(name: "q")
        #expect(DeliveryRate([queue], minutes: [1, 2]).now == 2)
        #expect(DeliveryRate([queue], minutes: []).now == nil)
        queue.deliveredRate = 0
        #expect(DeliveryRate([queue], minutes: [1, 2]).now == 0)
    }
}
