import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("Jobs as Sidekiq and Resque write them")
struct SidekiqJobTests {
    static let format = JobFormat.sidekiq(classes: [])

    private func decode(_ text: String, _ format: JobFormat = format) throws(JobError) -> Job {
        try JobDecoder.decode(ByteBuffer(string: text), as: format)
    }

    private func refusal(_ text: String, _ format: JobFormat = format) -> JobError? {
        #expect(throws: JobError.self) { try decode(text, format) }
    }

    @Test(
        "are read in all their forms, and keep their bytes",
        arguments: [
            (SidekiqSamples.sidekiq6, "b4a577edbccf1d805744efa9", 1_700_000_001_500, nil),
            (SidekiqSamples.sidekiq7, "b4a577edbccf1d805744efa9", 1_700_000_001_500, 6),
            (SidekiqSamples.sidekiq8, "b4a577edbccf1d805744efa9", 1_700_000_001_500, 1),
            (SidekiqSamples.resque, nil, nil, nil),
            (SidekiqSamples.text, "b4a577edbccf1d805744efa9", 1_700_000_001_500, nil),
        ] as [(String, String?, Int64?, Int?)])
    func forms(sample: String, id: String?, enqueuedAt: Int64?, attempts: Int?) throws {
        let job = try decode(sample)
        #expect(job.string(job.token) == SidekiqSamples.token && job.string(job.id) == id)
        #expect(job.enqueuedAt == enqueuedAt && job.maxAttempts == attempts)
        #expect(job.expiration == .after(seconds: 3600))
        let payload = try String(buffer: job.payload(limit: 4096))
        #expect(payload.contains("Grüße") && payload.contains(#"\"x\""#), "\(payload)")
        #expect(String(buffer: job.originalBytes) == sample)
    }

    @Test(
        "of ActiveJob lose the members that Rails added",
        arguments: [SidekiqSamples.activeJob, SidekiqSamples.activeJob8])
    func activeJob(sample: String) throws {
        let job = try decode(sample)
        #expect(job.string(job.token) == SidekiqSamples.token && job.string(job.pushType) == "alert")
        #expect(job.string(job.id) == "b4a577edbccf1d805744efa9" && job.enqueuedAt == 1_700_000_001_500)
        #expect(try String(buffer: job.payload(limit: 4096)) == #"{"aps":{"alert":{"title":"T"}},"n":[1,{}]}"#)
        #expect(String(buffer: job.originalBytes) == sample)
        #expect(job.isRewritten)
    }

    @Test("of ActiveJob on Resque have ActiveJob's id and time")
    func activeJobOnResque() throws {
        let sample = SidekiqSamples.activeJob(
            wrapper: "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper", around: #""x":1"#)
        let job = try decode(sample)
        #expect(job.string(job.id) == "2f967dc1-6d9e-4d46-8d6a-2d4f6b3ee6f1")
        #expect(job.enqueuedAt == 1_700_000_001_500)
    }

    @Test("prefer their own ID, time and attempts to the wrapper's")
    func own() throws {
        let job = try decode(
            #"{"class":"P","args":[{"id":"mine","token":"ab","alert":"","enqueued_at":5,"max_attempts":3}],"jid":"j","retry":false,"enqueued_at":9}"#
        )
        #expect(job.string(job.id) == "mine" && job.enqueuedAt == 5000 && job.maxAttempts == 3)
    }

    @Test("ignore invalid members of the wrapper")
    func odd() throws {
        let job = try decode(
            #"{"class":"P","args":[{"token":"ab","alert":""}],"jid":"a\u0000b","retry":"yes","enqueued_at":"now","created_at":7.25,"at":3,"wrapped":null}"#
        )
        #expect(job.id == nil && job.maxAttempts == nil && job.enqueuedAt == 7250)
    }

    @Test(
        "are refused with the expected form",
        arguments: [
            ("[1]", "it is not a JSON object"), (#"{"args":[{}]}"#, "it has no `class`"),
            (#"{"class":7,"args":[{}]}"#, "it has no `class`"), (#"{"class":"P"}"#, "it has no `args`"),
            (#"{"class":"P","args":[]}"#, "it has no `args`"), (#"{"class":"P","args":{}}"#, "it has no `args`"),
            (#"{"class":"P","args":[1],"args":[{}]}"#, "more than once"),
            (#"{"class":"P","args":[7]}"#, "neither an object"), (#"{"class":"P","args":["ab"]}"#, "neither an object"),
            (#"{"class":"P","args":[null]}"#, "neither an object"),
            (#"{"class":"P","args":[{"job_class":"P","arguments":[]}]}"#, "ActiveJob"),
            (#"{"token":"ab","payload":{}}"#, "it has no `class`"),
        ])
    func refused(text: String, words: String) throws {
        let error = try #require(refusal(text))
        #expect(error.code.rawValue == "NotSidekiqJob" && error.description.contains(words), "\(error)")
        #expect(error.description.contains(#"{"class":"PushJob","args":[{"#))
    }

    @Test("that are not JSON, or whose job is invalid, are refused for that reason")
    func inner() {
        #expect(refusal(#"{"class":"P","args":[{}]"#)?.code.rawValue == "MalformedJSON")
        #expect(refusal(#"[1}"#)?.code.rawValue == "MalformedJSON")
        #expect(refusal(#"{"class":"P","args":["{\"token\":}"]}"#)?.code.rawValue == "MalformedJSON")
        #expect(refusal(#"{"class":"P","args":[{"alert":""}]}"#)?.plain == .missingToken(found: nil))
        let text = #"{"class":"P","args":[{"token":"ab","alert":"","priority":2}]}"#
        #expect(refusal(text)?.plain == .invalid(.priority, text.utf8.count - 4))
        #expect(
            refusal(#"{"apns_worker":1,"attempt":2,"job":\#(text)}"#)?.plain
                == .invalid(.priority, text.utf8.count - 4))
        #expect(
            refusal(#"{"class":"P","args":["{\"token\":\"ab\",\"alert\":\"\",\"priority\":2}"]}"#)?.plain
                == .invalid(.priority, 36))
    }

    @Test("of other classes are refused by name, if valid; ActiveJob's own class counts")
    func classes() throws {
        let only = JobFormat.sidekiq(classes: ["PushJob", "Push::Other"])
        for good in [SidekiqSamples.sidekiq6, SidekiqSamples.resque, SidekiqSamples.activeJob] {
            #expect(throws: Never.self) { try decode(good, only) }
        }
        let error = try #require(refusal(#"{"class":"Mail::Job","args":[{"token":"ab","alert":""}]}"#, only))
        #expect(error.code.rawValue == "OtherClass")
        #expect(error.description.contains("the class Mail::Job") && error.description.contains("PushJob, Push::Other"))
        let odd = try #require(refusal(#"{"class":"secret token\n","args":[{"token":"ab","alert":""}]}"#, only))
        #expect(odd.code.rawValue == "OtherClass" && !odd.description.contains("secret"))
        // A job that was accepted once is always accepted.
        #expect(only.withoutClasses == .sidekiq(classes: []))
    }

    @Test(
        "are read from a wrapper unchanged",
        arguments: [SidekiqSamples.sidekiq6, SidekiqSamples.resque, SidekiqSamples.text, SidekiqSamples.activeJob])
    func wrapped(sample: String) throws {
        var writer = EnvelopeWriter(attempt: 3)
        writer.write(id: ByteBuffer(string: "first"))
        writer.write(enqueued: 77)
        writer.write(tokens: [ByteBuffer(string: "cdef")])
        let body = writer.wrapping(ByteBuffer(string: sample))
        let job = try JobDecoder.decode(body, as: Self.format)
        #expect(job.envelope.attempt == 3 && job.string(job.id) == "first")
        #expect(job.tokenStrings == ["cdef"])
        #expect(String(buffer: job.originalBytes) == sample)
        #expect(try job.payload(limit: 4096).readableBytes > 10)
    }

    /// The list of tokens is the first member, the last, or between others.
    static let lists = [
        #"{"tokens":["aa","bb","cc"],"alert":"é"}"#, #"{"alert":"\u00e9\"","tokens": [ "aa" , "bb","cc" ] }"#,
        #"{"alert":"😀","tokens":["aa","bb","cc"] ,"badge":1}"#,
    ]

    @Test("lose only their tokens when they are split", arguments: lists)
    func split(list: String) throws {
        let escaped = list.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("é", with: "\\u00e9")
            .replacing("😀", with: "\\ud83d\\ude00")
        let forms = [
            #"{"class":"P","args":[\#(list)],"jid":"j"}"#, #"{"class":"P","args":["\#(escaped)"],"jid":"j"}"#,
            SidekiqSamples.activeJob(wrapper: "W", around: #""jid":"j""#, job: list),
        ]
        let native = try JobDecoder.decode(ByteBuffer(string: list))
        for form in forms {
            let job = try decode(form)
            let pieces = job.tokenPieces(of: 2).map { job.body.getSlice(at: $0.lowerBound, length: $0.count) }
            #expect(
                pieces.compactMap { $0.map { String(buffer: $0) }?.filter { $0 != " " } } == [#""aa","bb""#, #""cc""#])
            var rest = Array(form.utf8)
            rest.removeSubrange(job.tokensMember)
            let text = #"{"apns_worker":1,"attempt":1,"tokens":["dd"],"job":\#(String(decoding: rest, as: UTF8.self))}"#
            let piece = try decode(text)
            #expect(piece.tokenStrings == ["dd"])
            #expect(try piece.payload(limit: 4096) == native.payload(limit: 4096))
            #expect(!String(decoding: rest, as: UTF8.self).contains("tokens"))
        }
    }

    @Test("mutated at random are jobs or errors, never a crash, and all fields lie within their bytes")
    func mutations() {
        var random = SeededGenerator(seed: 0x51DE)
        let samples = [
            SidekiqSamples.sidekiq6, SidekiqSamples.text, SidekiqSamples.activeJob, SidekiqSamples.resque,
            #"{"class":"P","args":["{\"tokens\":[\"aa\",\"b\\u00e9\"],\"alert\":\"\"}"]}"#,
        ]
        var good = 0
        for round in 0..<20_000 {
            var bytes = Array(samples[round % samples.count].utf8)
            for _ in 0..<Int.random(in: 0...3, using: &random) { JSONMutationTests.change(&bytes, using: &random) }
            let body = ByteBuffer(bytes: bytes)
            guard let job = try? JobDecoder.decode(body, as: Self.format) else { continue }
            good += 1
            #expect(Array(job.originalBytes.readableBytesView) == bytes)
            #expect(bytes.jsonError == nil)
            for field in [job.id, job.token, job.pushType] { _ = field.map(job.text) }
            _ = try? job.payload(limit: 4096)
            #expect(job.tokensMember.upperBound <= bytes.count)
            _ = job.tokenPieces(of: 1)
            _ = JobDecoder.document(of: body, as: Self.format)
        }
        #expect((2000..<19_000).contains(good), "\(good)")
    }
}
