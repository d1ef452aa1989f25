import NIOCore
import PushQueue
import Testing

@testable import PushWorker

@Suite("Likely mistakes in a job")
struct JobHintsTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    private static let now: Int64 = 1_795_000_000_000

    /// Returns the hints of a job that can be sent, or its defect.
    private func hints(_ members: String, token: String = token) -> [String] {
        let body = ByteBuffer(string: #"{"token":"\#(token)",\#(members)}"#)
        let review = JobCheck.review(body, as: .native, now: Self.now)
        return review.defect.map { [$0] } ?? review.hints.map(\.detail)
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

    @Test("ignore a producer's own members", arguments: ["user_id", "x", "source", "trace", "éa"])
    func own(name: String) { #expect(hints(#""alert":"x","\#(name)":1"#).isEmpty) }

    @Test(
        "in a payload are found too",
        arguments: [
            (#"{"aps":{"alert":"x","content_available":1}}"#, "did you mean `content-available`?"),
            (#"{"aps":{"alert":"x","threadId":"t"}}"#, "did you mean `thread-id`?"),
            (#"{"aps":{"allert":"x"}}"#, "did you mean `alert`?"),
            (#"{"aps":{"alert":"x"},"badge":1}"#, "`badge` next to `aps`"),
            (#"{"alert":"x"}"#, "has no `aps`"), (#"{"aps":[]}"#, "must be an object, not an array"),
            (#"{"aps":{"alert":""}}"#, "has no text"),
            (#"{"aps":{"alert":{"title":"","subtitle":null}}}"#, "has no text"),
        ])
    func payload(payload: String, words: String) {
        #expect(hints(#""payload":\#(payload)"#).contains { $0.contains(words) }, "\(hints(#""payload":\#(payload)"#))")
    }

    @Test(
        "are not reported for valid payloads",
        arguments: [
            #"{"aps":{"alert":"x","thread-id":"t"},"order":1}"#, #"{"mdm":"m"}"#, #"{"aps":{"content-available":1}}"#,
            #"{"aps":{"alert":{"loc-key":"k"}}}"#,
        ])
    func goodPayload(payload: String) { #expect(hints(#""payload":\#(payload)"#).isEmpty) }

    @Test("in tokens are tokens of other services and incomplete ones; the token is not printed")
    func tokens() {
        for (token, words) in [
            ("cXyz1:APA91bHun4MxP5egoKMwt2KZFBaFUH", "Firebase"), ("ExponentPushToken[abc]", "Expo"),
            ("abcd", "4 characters"), ("APA91bHun4MxP5egoKMwt2KZFBaFUH", "Firebase"),
            ("{length = 32, bytes = 0x1234abcd 5678 ... cdef }", "description of a Data object"),
        ] {
            let found = hints(#""alert":"x""#, token: token)
            #expect(found.count == 1 && found[0].contains(words) && !found[0].contains(token), "\(found)")
        }
    }

    @Test("include jobs in Sidekiq's form, and are found inside such jobs if that is the format")
    func sidekiq() {
        let text = #"{"class":"P","args":[{"token":"\#(Self.token)","alert":"x","pushtype":1}]}"#
        let body = ByteBuffer(string: text)
        #expect(JobCheck.review(body, as: .native, now: 0).defect?.contains("--format sidekiq") == true)
        let hints = JobCheck.review(body, as: .sidekiq(classes: []), now: 0).hints
        #expect(hints.map(\.detail).contains("unknown member `pushtype`; did you mean `push_type`?"))
    }

    @Test(
        "are found in times that are hardly meant",
        arguments: [
            (#""send_at":99999999999"#, "its `send_at` is 5138-11-16T09:46:39Z, in more than a year"),
            (#""send_at":3600"#, "its `send_at` is 1970-01-01T01:00:00Z, a time that has passed"),
            (
                #""expiration":3600"#,
                "its `expiration` is 1970-01-01T01:00:00Z, a time that has passed; write a duration"
            ),
            (
                #""enqueued_at":1899999999"#,
                "its `enqueued_at` is 2030-03-17T17:46:39Z, which is ahead of the clock of Redis"
            ),
        ])
    func times(member: String, words: String) {
        let found = hints(#""alert":"x",\#(member)"#)
        #expect(found.count == 1 && found[0].hasPrefix(words), "\(found)")
    }

    @Test(
        "are found in topics of other push types",
        arguments: [
            (#""topic":"com.example.app.voip""#, "as for push type voip, but it is sent as alert"),
            (#""topic":"com.example.app.VoIP","push_type":"voip""#, "another spelling of .voip"),
            (#""topic":"com.example.app.push-type.liveactivity""#, "as for push type liveactivity"),
        ])
    func topics(member: String, words: String) {
        let found = hints(#""alert":"x",\#(member)"#)
        #expect(found.count == 1 && found[0].contains(words), "\(found)")
        #expect(hints(#""alert":"x","topic":"com.example.app.voip","push_type":"voip""#).isEmpty)
        #expect(hints(#""alert":"x","topic":"com.example.app""#).isEmpty)
    }

    @Test("print no names that could harm a terminal")
    func odd() {
        let found = hints(#""alert":"x","push_type\u001b":1"#)
        #expect(found.allSatisfy { !$0.contains("\u{1B}") } && found.count == 1, "\(found)")
    }
}
