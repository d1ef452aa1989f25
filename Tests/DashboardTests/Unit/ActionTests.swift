import Operations
import PushQueue
import Testing

@testable import Dashboard

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
        let fields = try Self.action(name).chosen(Form(form)).without([]).map { "\($0.name)=\($0.value ?? "")" }
        #expect(fields.sorted().joined(separator: " ") == expected)
    }

    @Test("an empty selection is refused", arguments: ["change-jobs", "change-dead-letters", "remove-invalid-tokens"])
    func nothingSelected(name: String) throws {
        #expect(throws: WebError.self) {
            try Self.action(name).chosen(Form("scope=selected&filter_reason=x&action=delete"))
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
