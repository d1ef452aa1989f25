import NIOCore
import Testing

@testable import PushJob

@Suite("Job encoder")
struct JobEncoderTests {
    @Test("writes all members so that the decoder reads the same")
    func everything() throws {
        let payload = #"{ "aps" : {"alert":"\u00e9"} }"#
        var encoder = JobEncoder(tokens: ["ab", "cd"], payload: ByteBuffer(string: payload))
        encoder.id = "a\"b\\c é"
        (encoder.app, encoder.topic, encoder.pushType) = ("Shop", "com.example", "alert")
        (encoder.collapseID, encoder.apnsID) = ("x y", "0f8fad5b-d9cb-469f-a165-70867728950e")
        (encoder.priority, encoder.maxAttempts, encoder.uniqueFor) = (5, 3, 5400)
        (encoder.expiration, encoder.onUncertain) = (.after(seconds: 90), .drop)
        encoder.sendAt = 1_900_000_000_007
        encoder.registeredAt = 1_700_000_000_000
        encoder.enqueuedAt = 1_800_000_000_120
        encoder.keepsResult = true
        (encoder.fair, encoder.fairPerSecond, encoder.isUrgent) = ("tenant \"17\"", 50, true)
        encoder.traceparent = TraceParentTests.valid
        let job = try JobDecoder.decode(encoder.encode())
        #expect(
            job.texts == [encoder.id, nil, "Shop", "com.example", "alert", "x y", encoder.apnsID])
        #expect(job.numbers == [5, 1_900_000_000_007, 1_700_000_000_000, 1_800_000_000_120, 3, 5_400_000])
        #expect(job.tokenStrings == ["ab", "cd"] && job.raw(job.payload) == payload)
        #expect(job.expiration == .after(seconds: 90) && job.onUncertain == .drop)
        #expect(job.string(job.fair) == encoder.fair && job.fairPerSecond == 50 && job.isUrgent)
        #expect(job.keepsResult && job.trace?.parentID == "b7ad6b7169203331")
    }

    @Test("writes exactly this for one token")
    func smallest() throws {
        var encoder = JobEncoder(tokens: ["ab"], payload: ByteBuffer(string: "{}"))
        #expect(String(buffer: try encoder.encode()) == #"{"token":"ab","payload":{}}"#)
        encoder.sendAt = 1500
        encoder.expiration = .epoch(0)
        #expect(String(buffer: try encoder.encode()) == #"{"token":"ab","expiration":0,"send_at":1.500,"payload":{}}"#)
    }

    @Test(
        "refuses a payload that is not one JSON object",
        arguments: [
            ("", "MalformedJSON"), ("{", "MalformedJSON"), (#"{},"token":"cd""#, "MalformedJSON"),
            (#"{}},{"#, "MalformedJSON"), ("[1]", "InvalidMember"), ("null", "MissingPayload"), ("5", "InvalidMember"),
        ])
    func payloads(payload: String, reason: String) {
        let error = #expect(throws: JobError.self) {
            try JobEncoder(tokens: ["ab"], payload: ByteBuffer(string: payload)).encode()
        }
        #expect(error?.code.rawValue == reason)
    }

    @Test("writes short forms as members of the job, in one order")
    func shortForms() throws {
        var encoder = JobEncoder(tokens: ["ab"])
        encoder.shortForms = [
            .custom: .json(ByteBuffer(string: #"{"a":[1]}"#)), .alert: .text("Say \"hé\""), .badge: .integer(3),
            .relevanceScore: .number(0.25), .mutableContent: .flag(true), .staleDate: .time(1_900_000_000_000),
        ]
        encoder.truncates = true
        encoder.collapsesDuplicates = true
        let document = try encoder.encode()
        #expect(
            String(buffer: document)
                == #"{"token":"ab","collapse_duplicates":true,"truncate":true,"alert":"Say \"hé\"","badge":3,"#
                + #""mutable_content":true,"relevance_score":0.25,"stale_date":1900000000,"custom":{"a":[1]}}"#)
        let job = try JobDecoder.decode(document)
        #expect(job.collapsesDuplicates && job.makesPayload)
    }

    @Test("writes a channel instead of tokens")
    func channel() throws {
        var encoder = JobEncoder(tokens: [], payload: ByteBuffer(string: "{}"))
        encoder.channel = "YQ=="
        #expect(String(buffer: try encoder.encode()) == #"{"channel":"YQ==","payload":{}}"#)
        encoder.tokens = ["ab"]
        #expect(throws: JobError.channelAndToken(.token)) { try encoder.encode() }
    }

    @Test("refuses a short form that is not one valid JSON value, and one together with a payload")
    func badShortForms() {
        func error(_ member: JobMember, _ value: JobEncoder.ShortForm, payload: ByteBuffer? = nil) -> JobError? {
            var encoder = JobEncoder(tokens: ["ab"], payload: payload)
            encoder.shortForms[member] = value
            return #expect(throws: JobError.self) { try encoder.encode() }
        }
        let twoMembers = error(.custom, .json(ByteBuffer(string: #"{},"token":"cd""#)))
        #expect(twoMembers == .malformedMember(.custom, JSONError(kind: .trailingBytes, offset: 2)))
        #expect(
            twoMembers?.description
                == "the `custom` is not valid JSON: something follows the end of the value at byte 2")
        #expect(error(.badge, .integer(-1))?.code.rawValue == "InvalidMember")
        #expect(error(.relevanceScore, .number(.infinity)) != nil)
        #expect(
            error(.alert, .text("x"), payload: ByteBuffer(string: "{}"))
                == .payloadAndShortForm(.alert, isOwnData: true))
        #expect(throws: JobError.missingPayload(found: nil)) { try JobEncoder(tokens: ["ab"]).encode() }
        #expect(throws: JobError.missingToken(found: nil)) { try JobEncoder(tokens: []).encode() }
    }

    @Test("refuses jobs that the worker would refuse")
    func rules() {
        let good = JobEncoder(tokens: ["ab"], payload: ByteBuffer(string: "{}"))
        func reason(_ change: (inout JobEncoder) -> Void) -> String? {
            var encoder = good
            change(&encoder)
            return (#expect(throws: JobError.self) { try encoder.encode() })?.code.rawValue
        }
        #expect(reason { $0.tokens = [] } == "MissingToken")
        #expect(reason { $0.uniqueFor = 60 } == "MissingID")
        let invalid: [(inout JobEncoder) -> Void] = [
            { $0.id = "" }, { $0.topic = "a b" }, { $0.priority = 7 }, { $0.apnsID = "x" }, { $0.maxAttempts = 0 },
            { $0.sendAt = -1 }, { $0.sendAt = -1001 }, { $0.expiration = .epoch(-1) },
            { $0.expiration = .after(seconds: -1) },
        ]
        for (index, change) in invalid.enumerated() { #expect(reason(change) == "InvalidMember", "\(index)") }
        for seconds: Int64 in [0, -1, 2_592_001, .max] {
            #expect(reason { ($0.id, $0.uniqueFor) = ("x", seconds) } == "InvalidMember")
        }
    }
}
