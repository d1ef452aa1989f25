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
        encoder.app = "Shop"
        encoder.topic = "com.example"
        encoder.pushType = "alert"
        encoder.priority = 5
        encoder.expiration = .after(seconds: 90)
        encoder.collapseID = "x y"
        encoder.apnsID = "0f8fad5b-d9cb-469f-a165-70867728950e"
        encoder.sendAt = 1_900_000_000_007
        encoder.registeredAt = 1_700_000_000_000
        encoder.enqueuedAt = 1_800_000_000_120
        encoder.maxAttempts = 3
        encoder.onUncertain = .drop
        encoder.uniqueFor = 5400
        let job = try JobDecoder.decode(encoder.encode())
        #expect(job.string(job.id) == encoder.id)
        #expect(job.tokenStrings == ["ab", "cd"])
        #expect(job.string(job.app) == "Shop")
        #expect(job.string(job.topic) == "com.example")
        #expect(job.string(job.pushType) == "alert")
        #expect(job.priority == 5)
        #expect(job.expiration == .after(seconds: 90))
        #expect(job.string(job.collapseID) == "x y")
        #expect(job.string(job.apnsID) == encoder.apnsID)
        #expect(job.sendAt == 1_900_000_000_007)
        #expect(job.registeredAt == 1_700_000_000_000)
        #expect(job.enqueuedAt == 1_800_000_000_120)
        #expect(job.maxAttempts == 3)
        #expect(job.onUncertain == .drop)
        #expect(job.uniqueFor == 5_400_000)
        #expect(job.raw(job.payload) == payload)
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
            (#"{}},{"#, "MalformedJSON"), ("[]", "InvalidMember"), ("null", "MissingPayload"), ("5", "InvalidMember"),
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
        #expect(reason { $0.id = "" } == "InvalidMember")
        #expect(reason { $0.topic = "a b" } == "InvalidMember")
        #expect(reason { $0.priority = 7 } == "InvalidMember")
        #expect(reason { $0.apnsID = "x" } == "InvalidMember")
        #expect(reason { $0.maxAttempts = 0 } == "InvalidMember")
        #expect(reason { $0.sendAt = -1 } == "InvalidMember")
        #expect(reason { $0.sendAt = -1001 } == "InvalidMember")
        #expect(reason { $0.expiration = .epoch(-1) } == "InvalidMember")
        #expect(reason { $0.expiration = .after(seconds: -1) } == "InvalidMember")
        #expect(reason { $0.uniqueFor = 60 } == "MissingID")
        for seconds: Int64 in [0, -1, 2_592_001, .max] {
            #expect(reason { ($0.id, $0.uniqueFor) = ("x", seconds) } == "InvalidMember")
        }
    }

    @Test("the documentation's example is a job that the decoder accepts")
    func example() throws {
        var job = JobEncoder(tokens: ["00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"])
        job.id = "order-1742"
        job.shortForms[.alert] = .text("Your order has shipped")
        let decoded = try JobDecoder.decode(try job.encode())
        #expect(decoded.id.map { String(buffer: decoded.text($0)) } == "order-1742" && decoded.tokenCount == 1)
        #expect(String(buffer: try decoded.payload(limit: 4096)) == #"{"aps":{"alert":"Your order has shipped"}}"#)
    }
}
