import NIOCore
import Testing

@testable import PushJob

@Suite("The identity of a job that can't be decoded")
struct JobIdentityTests {
    /// Returns the members that were read, by name.
    private func identity(_ body: String, as format: JobFormat = .native) -> [String: String] {
        let job = JobDecoder.identify(ByteBuffer(string: body), as: format)
        let fields: [(String, JobField?)] = [
            ("id", job.id), ("token", job.token), ("channel", job.channel), ("app", job.app),
            ("campaign", job.campaign),
        ]
        var found = fields.reduce(into: [:]) { $0[$1.0] = $1.1.map { String(buffer: job.text($0)) } }
        found["labels"] = job.labelsText.map { String(buffer: $0) }
        return found
    }

    private static let whole = [
        "id": "promo-0", "token": "ab", "app": "shop", "campaign": "spring", "labels": #"{"user":"4711"}"#,
    ]

    @Test(
        "is read despite an invalid member, at any position",
        arguments: [
            #""priority":7"#, #""payload":[]"#, #""push_type":"é""#, #""expiration":"soon""#, #""tokens":["cd"]"#,
            #""alert":"x","payload":{}"#, #""priority":5,"priority":5"#, #""labels":1"#, #""token":"cd""#,
        ])
    func badMember(_ member: String) {
        let members = [
            #""id":"promo-0""#, #""token":"ab""#, #""app":"shop""#, #""campaign":"spring""#,
            #""labels":{"user":"4711"}"#,
        ]
        #expect(identity("{\((members + [member]).joined(separator: ","))}") == Self.whole)
        guard !member.hasPrefix(#""labels""#), !member.hasPrefix(#""token""#) else { return }
        #expect(identity("{\(([member] + members).joined(separator: ","))}") == Self.whole)
    }

    @Test("omits members that are not valid themselves")
    func invalid() {
        let body = #"{"id":"a\nb","token":5,"app":"","campaign":7,"labels":{"a":1},"channel":"no base64!"}"#
        #expect(identity(body).isEmpty)
        // An ID that is a number is not valid, but the producer knows the job by it.
        #expect(identity(#"{"id":7,"token":"ab"}"#) == ["id": "7", "token": "ab"])
        #expect(identity(#"{"id":1e999,"id":"x"}"#) == ["id": "1e999"])
        // Only the first counts: a second one must not replace it.
        #expect(identity(#"{"id":"first","id":"second"}"#) == ["id": "first"])
    }

    @Test("ends where the JSON does")
    func malformed() {
        #expect(identity(#"{"id":"a","token":"00fc","payload"#) == ["id": "a", "token": "00fc"])
        #expect(identity(#"{"id":"a""#) == ["id": "a"])
        #expect(identity(#"{"payload":{"aps":{"alert":"x},"id":"a"}"#).isEmpty)
        for body in ["", "no job", "[1]", #""id""#, "{", #"{"id""#, "\u{FEFF}{}", String(repeating: "[", count: 5000)] {
            #expect(identity(body).isEmpty, "\(body.prefix(10))")
        }
    }

    @Test("is the wrapper's if it has one")
    func wrapped() {
        let body =
            #"{"apns_worker":1,"attempt":2,"id":"made","tokens":["cd","ef"],"job":{"id":"own","token":"ab","priority":7}}"#
        #expect(identity(body) == ["id": "made"])
        let job = JobDecoder.identify(ByteBuffer(string: body), as: .native)
        #expect(job.tokenCount == 2 && job.envelope.attempt == 2)
    }

    @Test("is found in jobs of Sidekiq, Resque and ActiveJob")
    func sidekiq() {
        let format = JobFormat.sidekiq(classes: ["PushJob"])
        #expect(
            identity(#"{"class":"PushJob","args":[{"token":"ab","priority":7}],"jid":"j1"}"#, as: format)
                == ["id": "j1", "token": "ab"])
        #expect(
            identity(
                #"{"class":"PushJob","args":["{\"id\":\"a\",\"token\":\"ab\",\"priority\":7}"],"jid":"j1"}"#, as: format
            ) == ["id": "a", "token": "ab"])
        // The first job is of another class, the second is not in Sidekiq's format.
        #expect(identity(#"{"class":"MailJob","args":[{"to":"x"}],"jid":"j1"}"#, as: format) == ["id": "j1"])
        #expect(identity(#"{"id":"a","token":"ab","payload":{}}"#, as: format) == ["id": "a", "token": "ab"])
    }

    @Test("of a thousand mutated jobs is read without a crash, and never has control characters")
    func mutated() {
        var generator = SystemRandomNumberGenerator()
        let body = Array(
            #"{"id":"a","labels":{"a":"b"},"token":"ab","app":"shop","campaign":"é","payload":{"aps":{}},"priority":7}"#
                .utf8)
        for _ in 0..<1000 {
            var bytes = body
            for _ in 0..<3 {
                bytes[Int.random(in: 0..<bytes.count, using: &generator)] = .random(in: 0...255, using: &generator)
            }
            let job = JobDecoder.identify(ByteBuffer(bytes: bytes), as: .native)
            for field in [job.id, job.app, job.campaign] {
                guard let text = field.map({ job.text($0) }) else { continue }
                #expect(text.readableBytesView.allSatisfy { $0 >= 0x20 && $0 != 0x7F })
            }
        }
    }
}
