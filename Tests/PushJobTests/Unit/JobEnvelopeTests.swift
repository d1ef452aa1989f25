import NIOCore
import Testing

@testable import PushJob

@Suite("Job envelopes")
struct JobEnvelopeTests {
    static let original = #"{"id":"own","token":"ab","payload":{"a":1}}"#

    @Test("reads all fields of a wrapper, and the job inside")
    func everything() throws {
        let job = try decodeJob(
            #"{"apns_worker":1,"id":"m\u0061de","origin":"host-1.0:17","attempt":3,"reclaims":2,"tokens":["cd","ef"],"#
                + #""error":{"status":503,"reason":"Shutdown","at":1},"claim":"host-1.1:4","enqueued":1700000000123,"reserved":true,"#
                + #""wait":{"reason":"AppPaused","at":2},"refused":"a\u0062c","later":{"x":[1]},"#
                + #""job":\#(Self.original)}"#)
        let envelope = job.envelope
        #expect(envelope.isWrapped && envelope.attempt == 3 && envelope.reclaims == 2 && envelope.keepsReservation)
        #expect(job.string(job.id) == "made" && job.string(envelope.origin) == "host-1.0:17")
        #expect(envelope.overridesTokens && job.token == nil && job.tokenStrings == ["cd", "ef"])
        #expect(job.raw(envelope.error) == #"{"status":503,"reason":"Shutdown","at":1}"#)
        #expect(envelope.failure(in: job.body) == Envelope.Cause(reason: "Shutdown", status: 503, at: 1))
        #expect(envelope.deferral(in: job.body) == Envelope.Cause(reason: "AppPaused", at: 2))
        #expect(envelope.refusals(in: job.body) == "abc")
        #expect(job.string(envelope.claim) == "host-1.1:4")
        #expect(envelope.enqueued == 1_700_000_000_123 && job.enqueuedAt == 1_700_000_000_123)
        #expect(String(buffer: job.originalBytes) == Self.original && job.raw(job.payload) == #"{"a":1}"#)
    }

    @Test(
        "the time of the last failure is that of the wrapper's error",
        arguments: [
            (#""error":{"status":503,"reason":"Shut\"at\":7","at":1700000000123},"#, 1_700_000_000_123),
            (#""error":{"at" : 5 ,"more":{"at":6}},"#, 5), (#""error":{"more":{"at":6}},"#, nil),
            (#""error":{},"#, nil), (#""error":{"at":"5"},"#, nil), (#""error":{"at":-5},"#, nil), ("", nil),
        ] as [(String, Int64?)])
    func failure(error: String, time: Int64?) throws {
        let job = try decodeJob(#"{"apns_worker":1,\#(error)"job":{"at":9,"token":"ab","payload":{"at":8}}}"#)
        #expect(job.envelope.failure(in: job.body)?.at == time)
        var writer = EnvelopeWriter()
        writer.write(errorStatus: 503, reason: "Shutdown", at: 12)
        let wrapped = writer.wrapping(ByteBuffer(string: "none"))
        #expect(Envelope.read(wrapped).failure(in: wrapped)?.at == 12)
    }

    @Test("a wrapper without fields leaves the job unchanged")
    func nothing() throws {
        let job = try decodeJob(#"{"apns_worker":1,"job":\#(Self.original)}"#)
        #expect(job.envelope.isWrapped && job.envelope.attempt == 1 && job.envelope.reclaims == 0)
        #expect(!job.envelope.overridesTokens && !job.envelope.keepsReservation)
        #expect(job.string(job.id) == "own" && job.string(job.token) == "ab")
    }

    @Test("the producer's time of enqueueing precedes the time at which the job was first seen")
    func enqueued() throws {
        let job = try decodeJob(#"{"apns_worker":1,"enqueued":9000,"job":{"enqueued_at":5,"token":"ab","payload":{}}}"#)
        #expect(job.enqueuedAt == 5000 && job.envelope.enqueued == 9000)
    }

    @Test(
        "a wrapper's tokens replace the original's own, whatever they are",
        arguments: [
            "", #""token":"ab","#, #""tokens":["ab"],"#, #""token":5,"#, #""tokens":[],"#,
            #""token":"a","tokens":["b"],"#, #""token":"a","token":"b","#,
        ])
    func override(member: String) throws {
        let job = try decodeJob(#"{"apns_worker":1,"tokens":["cd"],"job":{\#(member)"payload":{}}}"#)
        #expect(job.token == nil && job.tokenStrings == ["cd"])
    }

    @Test(
        "an unreadable original is still read from its wrapper unchanged",
        arguments: [
            "", "hello", "{", "}", "}}", "\"", "\\", "{\"token\":", "\u{0}\u{1}", "[1,]", "nested \"job\":{}", " {} ",
            "{\"apns_worker\":1,\"job\":{}}", String(repeating: "[", count: 1000),
        ])
    func garbage(original: String) throws {
        let body = ByteBuffer(string: #"{"apns_worker":1,"attempt":2,"id":"x","job":\#(original)}"#)
        let envelope = Envelope.read(body)
        #expect(envelope.isWrapped && envelope.attempt == 2)
        let bytes = body.getSlice(at: envelope.original.lowerBound, length: envelope.original.count)
        #expect(bytes == ByteBuffer(string: original))
        #expect(throws: JobError.self) { try JobDecoder.decode(body) }
    }

    @Test("bytes that are not text are read as well")
    func binary() {
        var body = ByteBuffer(string: #"{"apns_worker":1,"job":"#)
        body.writeBytes([0xFF, 0x00, 0x80, 0x7D])
        body.writeString("}")
        let envelope = Envelope.read(body)
        #expect(Array(body.readableBytesView[envelope.original]) == [0xFF, 0x00, 0x80, 0x7D])
    }

    @Test("offsets in errors count from the start of what the producer wrote")
    func offsets() {
        #expect(jobError(#"{"apns_worker":1,"attempt":2,"job":[]}"#) == .notAnObject(offset: 0, .array))
        let inner = #"{"token":"ab","priority":3,"payload":{}}"#
        #expect(jobError(inner)?.plain == .invalid(.priority, 25))
        #expect(jobError(#"{"apns_worker":1,"attempt":2,"job":\#(inner)}"#)?.plain == .invalid(.priority, 25))
        #expect(
            jobError(#"{"apns_worker":1,"attempt":2,"job":{"token":x}}"#)
                == .malformedJSON(JSONError(kind: .expectedValue, offset: 9)))
        #expect(jobError(#"{"apns_worker":1,"job":}"#) == .malformedJSON(JSONError(kind: .unexpectedEnd, offset: 0)))
    }

    @Test(
        "anything except an exact wrapper is a plain job",
        arguments: [
            #"{"v":1}"#, #"{"apns_worker":1,}"#, #"{"apns_worker":1,"job"}"#, #"{"apns_worker":1,"job" :{}}"#,
            #"{ "apns_worker":1,"job":{}}"#,
            #"{"apns_worker": 1,"job":{}}"#, #"{"apns_worker":2,"job":{}}"#, #"{"apns_worker":1.0,"job":{}}"#,
            #"{"job":{},"apns_worker":1}"#, #"{"v":1,"job":{}}"#, #"{"apns_worker":1,"job":{}} "#,
            #"{"apns_worker":1,"job":{}"# + "\n", #"{"apns_worker":1,"id":5,"job":{}}"#,
            #"{"apns_worker":1,"id":"","job":{}}"#,
            #"{"apns_worker":1,"attempt":0,"job":{}}"#, #"{"apns_worker":1,"attempt":"2","job":{}}"#,
            #"{"apns_worker":1,"attempt":1e99,"job":{}}"#,
            #"{"apns_worker":1,"reclaims":-1,"job":{}}"#, #"{"apns_worker":1,"tokens":[],"job":{}}"#,
            #"{"apns_worker":1,"tokens":[1],"job":{}}"#,
            #"{"apns_worker":1,"attempt":2,"attempt":3,"job":{}}"#, #"{"apns_worker":1,"error":"x","job":{}}"#,
            #"{"apns_worker":1,attempt:2,"job":{}}"#,
            #"{"apns_worker":1,"attempt":2 "job":{}}"#, #"{"apns_worker":1,"x":tru,"job":{}}"#,
            #"{"apns_worker":1,"attempt":2,"jo"#, #"{"apns_worker":1,"#,
            #"{"apns_worker":1,"reserved":false,"job":{}}"#, #"{"apns_worker":1,"reserved":1,"job":{}}"#,
            #"{"apns_worker":1,"reserved":trux,"job":{}}"#, #"{"apns_worker":1,"reserved":"true","job":{}}"#,
            #"{"apns_worker":1,"reserved":true,"reserved":true,"job":{}}"#, #"{"apns_worker":1,"x":"job":{}}"#, "",
        ])
    func plain(text: String) {
        let envelope = Envelope.read(ByteBuffer(string: text))
        #expect(envelope == Envelope(original: 0..<text.utf8.count))
    }

    @Test("a producer's own job that looks like a wrapper at first is read as a job")
    func lookalike() throws {
        let job = try decodeJob(#"{"v":1,"token":"ab","job":"campaign-7","payload":{}}"#)
        #expect(!job.envelope.isWrapped && job.string(job.token) == "ab")
    }

    @Test("wrappers do not nest: one inside another is a job without a token")
    func nested() {
        #expect(
            jobError(#"{"apns_worker":1,"job":{"apns_worker":1,"job":\#(Self.original)}}"#) == .missingToken(found: nil)
        )
    }

    @Test("cut anywhere, a wrapper is never read beyond its end")
    func truncations() {
        let bytes = Array(
            #"{"apns_worker":1,"attempt":2,"id":"a}b","tokens":["c}"],"error":{"at":1},"job":{"payload":{}}}"#.utf8)
        for length in 0...bytes.count {
            let envelope = Envelope.read(ByteBuffer(bytes: bytes[..<length]))
            #expect(envelope.original.upperBound <= length)
            if envelope.isWrapped { #expect(bytes[length - 1] == UInt8(ascii: "}")) }
            _ = try? JobDecoder.decode(ByteBuffer(bytes: bytes[..<length]))
        }
    }

    @Test("the decoder reads what the writer writes, with any text in any field")
    func roundTrip() throws {
        let texts = ["x", "a\"b\\c", "Grüße 😀", "{}", "\"job\":", "\u{7}\n\u{0}"]
        for text in texts {
            // An id has no control characters; all other texts can have any.
            let id = text.filter { $0 != "\u{7}" && $0 != "\n" && $0 != "\u{0}" } + "1"
            var writer = EnvelopeWriter(attempt: 4)
            writer.write(id: ByteBuffer(string: id))
            writer.write(origin: ByteBuffer(string: text))
            writer.write(reclaims: 3)
            writer.write(tokens: ["ab", text].map { ByteBuffer(string: $0) })
            writer.write(errorStatus: 429, reason: text, at: 1_700_000_000_123)
            writer.write(waitStatus: nil, reason: text, at: 1_700_000_000_124)
            writer.write(refused: text)
            writer.write(claim: ByteBuffer(string: text))
            writer.write(enqueued: 1_600_000_000_000)
            writer.write(reserved: id.count > 2)
            let body = writer.wrapping(ByteBuffer(string: Self.original))
            #expect(Array(body.readableBytesView).jsonError == nil)
            let job = try JobDecoder.decode(body)
            #expect(job.string(job.id) == id && job.tokenStrings == ["ab", text])
            #expect(job.string(job.envelope.origin) == text && job.string(job.envelope.claim) == text)
            #expect(job.envelope.attempt == 4 && job.envelope.reclaims == 3)
            #expect(job.envelope.enqueued == 1_600_000_000_000 && job.envelope.keepsReservation == (id.count > 2))
            #expect(String(buffer: job.originalBytes) == Self.original)

            var again = EnvelopeWriter(attempt: 5)
            again.write(error: job.bytes(try #require(job.envelope.error)))
            again.write(wait: job.bytes(try #require(job.envelope.wait)))
            let second = try JobDecoder.decode(again.wrapping(job.originalBytes))
            #expect(second.raw(second.envelope.error) == job.raw(job.envelope.error))
            #expect(second.raw(second.envelope.wait) == job.raw(job.envelope.wait))
            #expect(job.envelope.refusals(in: job.body) == text)
            #expect(job.envelope.failure(in: job.body)?.reason == text)
            #expect(job.envelope.deferral(in: job.body)?.reason == text)
        }
    }

    @Test("writes exactly this")
    func canonical() {
        var writer = EnvelopeWriter(attempt: 2)
        writer.write(id: ByteBuffer(string: "7"))
        writer.write(tokens: [ByteBuffer(string: "ab"), ByteBuffer(string: "cd")])
        writer.write(errorStatus: 503, reason: "Shutdown", at: 12)
        writer.write(waitStatus: nil, reason: "AppPaused", at: 13)
        writer.write(refused: "a b")
        writer.write(reserved: true)
        #expect(
            String(buffer: writer.head())
                == #"{"apns_worker":1,"attempt":2,"id":"7","tokens":["ab","cd"],"error":{"status":503,"reason":"Shutdown","at":12},"#
                + #""wait":{"reason":"AppPaused","at":13},"refused":"a b","reserved":true,"job":"#)
        var bare = EnvelopeWriter()
        bare.write(tokens: EmptyCollection())
        bare.write(reserved: false)
        bare.write(error: nil)
        bare.write(refused: "")
        bare.write(errorStatus: nil, reason: "ConnectionLost", at: 5)
        #expect(
            String(buffer: bare.wrapping(ByteBuffer(string: "x")))
                == #"{"apns_worker":1,"attempt":1,"error":{"reason":"ConnectionLost","at":5},"job":x}"#)
    }

    @Test("text that is not UTF-8 is written as valid UTF-8")
    func notUTF8() throws {
        var writer = EnvelopeWriter()
        writer.write(claim: ByteBuffer(bytes: [0x61, 0xFF, 0x62]))
        let job = try JobDecoder.decode(writer.wrapping(ByteBuffer(string: Self.original)))
        #expect(job.string(job.envelope.claim) == "a\u{FFFD}b")
    }
}

extension EnvelopeWriter {
    /// Returns the whole wrapper of a producer's bytes, JSON or not.
    consuming func wrapping(_ original: ByteBuffer) -> ByteBuffer {
        var body = head()
        body.writeImmutableBuffer(original)
        body.writeInteger(UInt8(ascii: "}"))
        return body
    }
}
