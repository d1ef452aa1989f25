import FoundationEssentials
import NIOCore
import PushQueue
import Testing

@testable import Dashboard
@testable import Operations

@Suite("Actions of the dashboard")
struct ActionTests {
    private static func action(_ name: String) throws -> ActionKind {
        try #require(ActionKind.all.first { $0.name == name })
    }

    @Test(
        "an action is about the selected rows, about all that match the page's filters, or about what is named",
        arguments: [
            (
                "change-jobs", "scope=selected&key=a1&key=b2&filter_state=waiting&filter_queue=q&action=run",
                "action=run key=a1 key=b2 queue=q"
            ),
            ("change-jobs", "scope=all&key=a1&filter_state=waiting&action=run", "action=run state=waiting"),
            ("change-jobs", "scope=all&filter_queue=q&action=run", "action=run all=1 queue=q"),
            ("change-jobs", "id=x&action=cancel", "action=cancel id=x"),
            (
                "change-dead-letters", "scope=all&filter_reason=Bad*&filter_key=&action=delete",
                "action=delete reason=Bad*"
            ),
            ("remove-invalid-tokens", "scope=selected&token=ab&filter_reason=Unregistered&filter_queue=", "token=ab"),
            ("remove-invalid-tokens", "scope=all&token=ab&filter_reason=Unregistered", "reason=Unregistered"),
            ("pause-queue", "queue=q&reason=x&scope=all", "queue=q reason=x scope=all"),
        ])
    func chosen(name: String, form: String, expected: String) throws {
        let fields = try Self.action(name).chosen(Fields(form)).without([]).map { "\($0.name)=\($0.value ?? "")" }
        #expect(fields.sorted().joined(separator: " ") == expected)
    }

    @Test("an empty selection is refused", arguments: ["change-jobs", "change-dead-letters", "remove-invalid-tokens"])
    func nothingSelected(name: String) throws {
        #expect(throws: WebError.self) {
            try Self.action(name).chosen(Fields("scope=selected&filter_reason=x&action=delete"))
        }
    }

    @Test("what cannot be undone, or is about many things, is confirmed")
    func confirmed() {
        let confirmed = ActionKind.all.filter(\.confirms).map(\.name).sorted()
        #expect(
            confirmed == [
                "cancel-campaign", "change-dead-letters", "change-jobs", "forget-devices", "remove-invalid-tokens",
                "requeue-campaign", "stop-worker",
            ])
    }
}

@Suite("The job to try")
struct ExampleTests {
    @Test("A link to the page can name the token, and nothing else of the job")
    func token() throws {
        struct Example: Decodable { let token: String }
        for token in ["00FC13AD", #"x","payload":{"aps":{"alert":"Win"}},"y":""#, "a\nb\\"] {
            let job = try TryPage.example(token)
            #expect(try JSONDecoder().decode(Example.self, from: Data(job.utf8)).token == TokenText.normalized(token))
        }
    }
}

@Suite("The destination of a job to try")
struct JobDestinationTests {
    private static func app(_ name: String, _ endpoint: String) -> AppStatus {
        var app = AppStatus(name: name)
        app.endpoints = [endpoint]
        return app
    }

    private static let token = #""token":"00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0""#
    private static let payload = #""payload":{"aps":{"alert":"x"}}"#
    private static let shop = app("shop", "api.push.apple.com:443")
    private static let news = app("news", "api.sandbox.push.apple.com:443")
    private static let local = app("shop", "127.0.0.1:2197")

    @Test(
        "names the device, the app and the environment",
        arguments: [
            (
                #""app":"shop","#, [shop, news],
                "To device 00fc13ad…, through the app shop, in production. This is a real"
            ),
            (#""app":"news","#, [shop, news], "through the app news, in the sandbox. This is a real notification."),
            ("", [shop], "through the app shop, in production."),
            ("", [shop, news], "through the app with the job's topic, in production or the sandbox."),
            (
                "", [local],
                "in 127.0.0.1:2197, which is not Apple's server: a simulator or a proxy. Apple's servers do not"
            ),
            (#""app":"gone","#, [shop], "through the app gone. No worker has reported this app"),
        ])
    func words(app: String, apps: [AppStatus], expected: String) throws {
        let queue = QueueSource(keys: try QueueKeys(queue: "q"), format: .native)
        let body = ByteBuffer(string: "{\(app)\(Self.token),\(Self.payload)}")
        let found = try #require(
            JobDestination(body, queue, apps) { endpoint in
                ["api.push.apple.com:443": "production", "api.sandbox.push.apple.com:443": "sandbox"][endpoint]
                    ?? endpoint
            })
        let html = found.html(nil).text.replacing(/<[^>]+>/, with: "").replacing("&#39;", with: "'")
        #expect(html.contains(expected), "\(html)")
        let failure = JobRow.Verdict(level: "failure", subject: "job", sentence: "no")
        #expect(found.html(failure).text.contains("The job cannot be sent"))
        #expect(JobDestination(ByteBuffer(string: "{"), queue, apps) { $0 } == nil)
    }
}
