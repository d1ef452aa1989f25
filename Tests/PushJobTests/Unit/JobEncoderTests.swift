import NIOCore
import Testing

@testable import PushJob

@Suite("Job encoder")
struct JobEncoderTests {
    @Test("writes all members so that the decoder reads the same")
    func everything() throws {
        let payload = #"{ "aps" : {"alert":"\u00e9"} }"#
        var encoder = JobEncoder(tokens: ["ab", "cd"], payload: ByteBuffer(string: payload))
        let (id, apnsID, fair) = ("a\"b\\c é", "0f8fad5b-d9cb-469f-a165-70867728950e", "tenant \"17\"")
        encoder.members.merge([
            .id: .text(id), .app: .text("Shop"), .topic: .text("com.example"), .pushType: .text("alert"),
            .collapseID: .text("x y"), .apnsID: .text(apnsID), .priority: .integer(5), .maxAttempts: .integer(3),
            .uniqueFor: .text("5400s"), .expiration: .expiration(.after(seconds: 90)), .onUncertain: .text("drop"),
            .sendAt: .time(1_900_000_000_007), .registeredAt: .time(1_700_000_000_000),
            .enqueuedAt: .time(1_800_000_000_120), .keepResult: .flag(true), .fair: .text(fair),
            .fairPerSecond: .integer(50), .urgent: .flag(true), .traceparent: .text(TraceParentTests.valid),
        ]) { $1 }
        let job = try JobDecoder.decode(encoder.encode())
        #expect(job.texts == [id, nil, "Shop", "com.example", "alert", "x y", apnsID])
        #expect(job.numbers == [5, 1_900_000_000_007, 1_700_000_000_000, 1_800_000_000_120, 3, 5_400_000])
        #expect(job.tokenStrings == ["ab", "cd"] && job.raw(job.payload) == payload)
        #expect(job.expiration == .after(seconds: 90) && job.onUncertain == .drop)
        #expect(job.string(job.fair) == fair && job.fairPerSecond == 50 && job.isUrgent)
        #expect(job.keepsResult && job.trace?.parentID == "b7ad6b7169203331")
    }

    @Test("writes exactly this for one token")
    func smallest() throws {
        var encoder = JobEncoder(tokens: ["ab"], payload: ByteBuffer(string: "{}"))
        #expect(String(buffer: try encoder.encode()) == #"{"token":"ab","payload":{}}"#)
        encoder.members[.sendAt] = .time(1500)
        encoder.members[.expiration] = .expiration(.epoch(0))
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
        var encoder = JobEncoder()
        encoder.members = [
            .token: .text("ab"), .truncate: .flag(true), .collapseDuplicates: .flag(true),
            .custom: .json(ByteBuffer(string: #"{"a":[1]}"#)), .alert: .text("Say \"hé\""), .badge: .integer(3),
            .relevanceScore: .number(0.25), .mutableContent: .flag(true), .staleDate: .time(1_900_000_000_000),
        ]
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
        encoder.members[.channel] = .text("YQ==")
        #expect(String(buffer: try encoder.encode()) == #"{"channel":"YQ==","payload":{}}"#)
        encoder.members[.token] = .text("ab")
        #expect(throws: JobError.channelAndToken(.token)) { try encoder.encode() }
    }

    @Test("refuses a short form that is not one valid JSON value, and one together with a payload")
    func badShortForms() {
        func error(_ member: JobMember, _ value: JobEncoder.Value, payload: ByteBuffer? = nil) -> JobError? {
            var encoder = JobEncoder(tokens: ["ab"], payload: payload)
            encoder.members[member] = value
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
        #expect(reason { $0.members[.token] = nil } == "MissingToken")
        #expect(reason { $0.members[.uniqueFor] = .text("60s") } == "MissingID")
        let invalid: [[JobMember: JobEncoder.Value]] = [
            [.id: .text("")], [.topic: .text("a b")], [.priority: .integer(7)], [.apnsID: .text("x")],
            [.maxAttempts: .integer(0)], [.sendAt: .time(-1)], [.sendAt: .time(-1001)],
            [.expiration: .expiration(.epoch(-1))], [.expiration: .expiration(.after(seconds: -1))],
        ]
        let durations = [0, -1, 2_592_001, Int64.max].map { seconds -> [JobMember: JobEncoder.Value] in
            [.id: .text("x"), .uniqueFor: .text("\(seconds)s")]
        }
        for members in invalid + durations {
            #expect(reason { $0.members.merge(members) { $1 } } == "InvalidMember", "\(members)")
        }
    }
}
