import NIOCore
import PushQueue
import Testing

@testable import PushWorker

@Suite("Likely mistakes in a job")
struct JobHintsTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    private func hints(_ members: String, token: String = token) -> [String] {
        JobHints.of(ByteBuffer(string: #"{"token":"\#(token)",\#(members)}"#), as: .native)
    }

    @Test(
        "are found by similar names, and by names that other systems use",
        arguments: [
            ("pushtype", "push_type"), ("pushType", "push_type"), ("apns-topic", "topic"),
            ("collapseId", "collapse_id"),
            ("priorty", "priority"), ("tokn", "token"), ("toknes", "tokens"), ("ttl", "expiration"), ("data", "custom"),
            ("content-available", "content_available"), ("conten_available", "content_available"), ("body", "alert"),
            ("sendat", "send_at"), ("idempotency_key", "id"), ("custom_payload", "custom"),
            ("retryLimit", "max_attempts"),
            ("newsstandAvailable", "content_available"), ("truncateAtWordEnd", "truncate"), ("recipient", "token"),
            ("recipients", "tokens"), ("expiryTime", "expiration"), ("notAfter", "expiration"),
        ])
    func names(written: String, meant: String) {
        let found = hints(#""alert":"x","\#(written)":1"#)
        #expect(found == ["unknown member `\(written)`; did you mean `\(meant)`?"])
    }

    @Test("ignore a producer's own members", arguments: ["campaign", "user_id", "x", "source", "trace", "éa"])
    func own(name: String) { #expect(hints(#""alert":"x","\#(name)":1"#).isEmpty) }

    @Test(
        "in a payload are found too",
        arguments: [
            (#"{"aps":{"alert":"x","content_available":1}}"#, "did you mean `content-available`?"),
            (#"{"aps":{"alert":"x","threadId":"t"}}"#, "did you mean `thread-id`?"),
            (#"{"aps":{"allert":"x"}}"#, "did you mean `alert`?"), (#"{"aps":{},"badge":1}"#, "`badge` next to `aps`"),
            (#"{"alert":"x"}"#, "has no `aps`"), (#"{"aps":[]}"#, "not an object"),
            (#"{"aps":{"alert":""}}"#, "is empty"),
            (#"{"aps":{"alert":{"title":"","subtitle":null}}}"#, "has no text"),
        ])
    func payload(payload: String, words: String) {
        #expect(hints(#""payload":\#(payload)"#).contains { $0.contains(words) }, "\(hints(#""payload":\#(payload)"#))")
    }

    @Test(
        "are not reported for valid payloads",
        arguments: [
            #"{"aps":{"alert":"x","thread-id":"t","own":1},"order":1}"#, #"{"mdm":"m"}"#,
            #"{"aps":{"content-available":1}}"#,
            #"{"aps":{"alert":{"loc-key":"k"}}}"#,
        ])
    func goodPayload(payload: String) { #expect(hints(#""payload":\#(payload)"#).isEmpty) }

    @Test("in tokens are tokens of other services and incomplete ones; the token is not printed")
    func tokens() {
        for (token, words) in [
            ("cXyz1:APA91bHun4MxP5egoKMwt2KZFBaFUH", "Firebase"), ("ExponentPushToken[abc]", "Expo"),
            ("abcd", "4 characters"), ("APA91bHun4MxP5egoKMwt2KZFBaFUH", "Firebase"),
            ("{length = 32, bytes = 0x1234abcd 5678 ... cdef }", "description of a `Data`"),
        ] {
            let found = hints(#""alert":"x""#, token: token)
            #expect(found.count == 1 && found[0].contains(words) && !found[0].contains(token), "\(found)")
        }
    }

    @Test("include jobs in Sidekiq's form, and are found inside such jobs if that is the format")
    func sidekiq() {
        let text = #"{"class":"P","args":[{"token":"\#(Self.token)","alert":"x","pushtype":1}]}"#
        let body = ByteBuffer(string: text)
        #expect(JobHints.of(body, as: .native).first?.contains("--format sidekiq") == true)
        #expect(JobHints.of(body, as: .sidekiq(classes: [])).first?.contains("did you mean `push_type`") == true)
    }

    @Test("print no names that could harm a terminal")
    func odd() {
        let found = hints(#""alert":"x","push_type\u001b":1"#)
        #expect(found.allSatisfy { !$0.contains("\u{1B}") } && found.count == 1, "\(found)")
    }
}
