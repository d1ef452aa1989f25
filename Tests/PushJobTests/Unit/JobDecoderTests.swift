import NIOCore
import Testing

@testable import PushJob

func decodeJob(_ text: String) throws(JobError) -> Job {
    // Puts the job between other bytes, as a claimed job is in a reply: offsets must not count from the start of the storage.
    var buffer = ByteBuffer(string: "#####" + text + "#####")
    buffer.moveReaderIndex(forwardBy: 5)
    buffer.moveWriterIndex(to: buffer.writerIndex - 5)
    return try JobDecoder.decode(buffer)
}

func jobError(_ text: String) -> JobError? {
    do throws(JobError) {
        _ = try decodeJob(text)
        return nil
    } catch {
        return error
    }
}

extension JobError {
    private static let nothing = MemberMistake(kind: .value, path: "", offset: 0, sentence: "")

    /// The same error without its description of the mistake.
    var plain: JobError {
        switch self {
        case .invalidMember(let member, let offset, _): .invalidMember(member, offset: offset, Self.nothing)
        case .missingToken: .missingToken(found: nil)
        case .missingPayload: .missingPayload(found: nil)
        case .malformedJSON(let error, _): .malformedJSON(error)
        default: self
        }
    }

    static func invalid(_ member: JobMember, _ offset: Int) -> JobError {
        .invalidMember(member, offset: offset, nothing)
    }
}

extension Job {
    var originalBytes: ByteBuffer { envelope.originalBytes(in: body) }
    func string(_ field: JobField?) -> String? { field.map { String(buffer: text($0)) } }
    func raw(_ field: JobField?) -> String? { field.map { String(buffer: bytes($0)) } }
    var tokenStrings: [String]? { tokens.map { $0.map { String(buffer: text($0)) } } }
    /// The members that are texts, in the order of the documentation.
    var texts: [String?] { [id, token, app, topic, pushType, collapseID, apnsID].map(string) }
    var numbers: [Int64?] {
        [priority.map { Int64($0) }, sendAt, registeredAt, enqueuedAt, maxAttempts.map { Int64($0) }, uniqueFor]
    }
}

@Suite("Job decoder")
struct JobDecoderTests {
    static func job(_ member: String) -> String { #"{"token":"ab","payload":{},\#(member)}"# }

    @Test("reads every member of a job that has them all")
    func everything() throws {
        let text = #"""
             {"id": "order-17", "token": "a1b2", "app": "Shop", "topic": "com.example.shop", "push_type": "alert",
             "priority": 5, "expiration": 1900000000, "collapse_id": "order 17",
             "apns_id": "0F8FAD5B-d9cb-469f-a165-70867728950e", "send_at": 1900000000.25,
             "registered_at": "2026-01-02T03:04:05Z", "enqueued_at": 1800000000, "max_attempts": 7,
             "on_uncertain": "drop", "unique_for": "1h30m", "unknown": [{"token": "x"}], "payload" : {"aps": {"alert": "Hi"}} }
            """#
        let job = try decodeJob(text)
        #expect(
            job.texts == [
                "order-17", "a1b2", "Shop", "com.example.shop", "alert", "order 17",
                "0F8FAD5B-d9cb-469f-a165-70867728950e",
            ])
        #expect(
            job.numbers == [5, 1_900_000_000_250, 1_767_323_045_000, 1_800_000_000_000, 7, 5_400_000])
        #expect(job.tokens == nil && job.tokenCount == 1)
        #expect(job.expiration == .epoch(1_900_000_000) && job.onUncertain == .drop)
        #expect(job.raw(job.payload) == #"{"aps": {"alert": "Hi"}}"#)
        #expect(job.original == 0..<text.utf8.count && String(buffer: job.originalBytes) == text)
        #expect(job.envelope == Envelope(original: job.original) && job.envelope.attempt == 1)
    }

    @Test("a job of a token and a payload has nothing else")
    func smallest() throws {
        let job = try decodeJob(#"{"token":"ab","payload":{}}"#)
        #expect(job.texts == [nil, "ab", nil, nil, nil, nil, nil] && job.numbers.allSatisfy { $0 == nil })
        #expect(job.expiration == nil && job.onUncertain == .resend)
    }

    @Test("returns slices of the claimed bytes, and copies only to decode escapes")
    func slices() throws {
        let job = try decodeJob(#"{"id":"a\u0062c","token":"ab","payload":{"a":"\u0041"}}"#)
        let start = job.body.address
        let token = try #require(job.token)
        #expect(job.text(token).address == start + token.offset)
        #expect(job.bytes(job.payload).address == start + job.payload.offset)
        let id = try #require(job.id)
        #expect(id.hasEscapes)
        #expect(job.raw(id) == #"a\u0062c"#)
        #expect(job.string(id) == "abc")
        #expect(!(start...(start + job.body.readableBytes)).contains(job.text(id).address))
    }

    @Test("the payload is unchanged, whatever it contains")
    func payload() throws {
        for payload in ["{}", "{ }", #"{"a":1,"a":2,"b":1.50e+0,"c":"\u00e9é\/"}"#, "{\n\t\"x\" : [ 1 , 2 ]\r\n}"] {
            let job = try decodeJob("{\"payload\": \(payload) , \"token\":\"ab\"}")
            #expect(job.raw(job.payload) == payload)
        }
    }

    @Test("a name spelled with escapes is the same name")
    func escapedNames() throws {
        let job = try decodeJob(#"{"to\u006ben":"ab","p\u0061yload":{},"\u0072egistered_at":5}"#)
        #expect(job.string(job.token) == "ab")
        #expect(job.registeredAt == 5000)
        #expect(jobError(#"{"to\u006ben":"ab","payload":{},"token":"cd"}"#) == .duplicateMember(.token, offset: 32))
    }

    @Test("similar names are unknown")
    func similarNames() throws {
        let names = [
            "ID", "iD", "i", "idx", "apP", "tokem", "tomic", "toke", "Token", "tokenz", "paylaod", "apns-id", "send-at",
            "prioritY", "push-type", "expirations", "expiratioN", "collapse-id", "enqueued-at", "max-attempts",
            "on-uncertain", "registered-at", "unique-for", "unique_foR", "", "token\\u0000", "Alert", "alerT",
            "thread-id",
            "content-available", "badgE", "faiR", "urgenT", "fair_per_seconD", "fair-per-second", "mdM", "evenT",
            "channeL", "input_push_tokeN", "url-args", "customs",
        ]
        for name in names {
            let job = try decodeJob(Self.job(#""\#(name)":[1]"#))
            #expect(job.string(job.token) == "ab")
        }
    }

    @Test("every known name is found by its name", arguments: JobMember.allCases)
    func names(member: JobMember) {
        let found = UnsafeRawBufferPointer(start: member.name.utf8Start, count: member.name.utf8CodeUnitCount)
        #expect(JobMember(name: found) == member)
    }

    @Test("null is the same as an absent member", arguments: JobMember.allCases)
    func nullMembers(member: JobMember) throws {
        switch member {
        case .token:
            #expect(jobError(#"{"token":null,"payload":{}}"#) == .missingToken(found: nil))
            #expect(try decodeJob(#"{"token":null,"tokens":["a"],"payload":{}}"#).tokenCount == 1)
        case .payload: #expect(jobError(#"{"token":"ab","payload":null}"#) == .missingPayload(found: nil))
        default: #expect(jobError(Self.job(#""\#(member.name)":null"#)) == nil)
        }
    }

    @Test("a known member must not appear twice, not even as null", arguments: JobMember.allCases)
    func duplicates(member: JobMember) {
        let text = #"{"\#(member.name)":null,"\#(member.name)":null}"#
        #expect(jobError(text) == .duplicateMember(member, offset: text.utf8.count / 2 + 1))
    }

    @Test(
        "a job needs exactly one of token, tokens and channel, a payload, and an ID for unique_for, or a fair for its rate",
        arguments: [
            ("{}", .missingToken(found: nil)), (#"{"payload":{}}"#, .missingToken(found: nil)),
            (#"{"token":"ab"}"#, .missingPayload(found: nil)), (#"{"tokens":["ab"]}"#, .missingPayload(found: nil)),
            (#"{"token":"a","tokens":["a"],"payload":{}}"#, .tokenAndTokens),
            ("[]", .notAnObject(offset: 0, .array)), (" 5", .notAnObject(offset: 1)),
            (#""{}""#, .notAnObject(offset: 0, .encodedTwice)), ("null", .notAnObject(offset: 0)),
            (#"{"apns_worker":2,"attempt":3,"job":{"token":"ab","payload":{}}}"#, .newerWrapper(version: 2)),
            (#"{"apns_worker":17,"tokens":["ab"],"job":{}}"#, .newerWrapper(version: 17)),
            (#"{"apns_worker":0,"job":{}}"#, .missingToken(found: nil)),
            (#"{"apns_worker":"2","job":{}}"#, .missingToken(found: nil)),
            (#"{"apns_worker":2}"#, .missingToken(found: nil)),
            ("", .malformedJSON(JSONError(kind: .unexpectedEnd, offset: 0))),
            ("[1,]", .malformedJSON(JSONError(kind: .trailingComma, offset: 2))),
            ("{}{", .malformedJSON(JSONError(kind: .trailingBytes, offset: 2), .several)),
            ("{} x", .malformedJSON(JSONError(kind: .trailingBytes, offset: 3))),
            ("hello", .malformedJSON(JSONError(kind: .expectedValue, offset: 0))),
            (#"{"channel":"a","token":"ab","payload":{}}"#, .channelAndToken(.token)),
            (#"{"tokens":["ab"],"channel":"a","payload":{}}"#, .channelAndToken(.tokens)),
            (#"{"channel":null,"payload":{}}"#, .missingToken(found: nil)),
            (#"{"channel":"a"}"#, .missingPayload(found: nil)),
            (#"{"unique_for":"1h","payload":{}}"#, .missingToken(found: nil)),
            (job(#""unique_for":"1h""#), .missingID(.uniqueFor)),
            (job(#""unique_for":"1h","id":null"#), .missingID(.uniqueFor)),
            (job(#""replaces":"k""#), .missingID(.replaces)), (job(#""replaces":"k","id":"a""#), nil),
            (job(#""replaces":5"#), nil), (job(#""replaces":null"#), nil),
            (job(#""replaces":"k","unique_for":"1h","id":"a""#), .replacesAndUniqueFor),
            (job(#""fair_per_second":5"#), .missingFair), (job(#""fair_per_second":5,"fair":null"#), .missingFair),
            (job(#""fair_per_second":5,"fair":"""#), nil), (job(#""fair_per_second":5,"fair":"a""#), nil),
            (job(#""unique_for":null"#), nil), (job(#""x":1,"x":2"#), nil),
        ] as [(String, JobError?)])
    func required(text: String, error: JobError?) { #expect(jobError(text) == error) }

    @Test(
        "refuses a member of the wrong kind or out of range, with the position of its value",
        arguments: [
            (JobMember.id, ["5", "true", "{}", "[]", #""""#, #""a\nb""#, #""\u007f""#, #""\u0085""#, "\"a\u{85}\""]),
            (.app, ["5", #""""#, #""a\u0000""#]),
            (.topic, ["5", #""""#, #""a b""#, #""a\tb""#, "\"caf\u{E9}\"", #""caf\u00e9""#, #""\r\nx: y""#]),
            (.pushType, ["5", #""""#, #""a b""#]),
            (.collapseID, ["5", #""""#, #"" a""#, #""a ""#, #"" ""#, "\"\u{E9}\"", #""\u0001""#]),
            (
                .apnsID,
                [
                    "5", #""""#, #""0f8fad5bd9cb469fa16570867728950e""#, #""0f8fad5b-d9cb-469f-a165-70867728950""#,
                    #""0f8fad5b-d9cb-469f-a165-70867728950eg""#, #""0f8fad5b-d9cb-469f-a165-70867728950g""#,
                    #""0f8fad5-bd9cb-469f-a165-70867728950e""#, #""{0f8fad5b-d9cb-469f-a165-70867728950}""#,
                ]
            ),
            (.priority, ["0", "2", "11", "-5", "5.5", #""5""#, "true", "[]", "1e9", "99999999999999999999"]),
            (.expiration, ["-1", "1.5", "true", #""""#, #""1700000000""#, #""1y""#, "1700000000000", "{}"]),
            (.sendAt, ["-1", #""tomorrow""#, #""""#, "[]", "1700000000000", #""2030-01-01T00:00:00""#]),
            (.registeredAt, ["-1", #""x""#]), (.enqueuedAt, ["-0.001", #""x""#, "true"]),
            (.fairPerSecond, ["0", "-1", "1000001", "1.5", #""3""#]),
            (.maxAttempts, ["0", "-1", "1001", "1.5", #""3""#]),
            (.onUncertain, [#""""#, #""Drop""#, #""retry""#, "true", "0"]),
            (
                .uniqueFor,
                [
                    "0", "60", "1.5", "true", "[]", "{}", #""""#, #""0s""#, #""soon""#, #""-1h""#, #""1.5h""#,
                    #""1h1h""#, #""2592001s""#, #""30d1s""#, #""31d""#, #""5w""#, #""99999999999999999999w""#,
                ]
            ),
            (.payload, ["[1]", #""{}""#, "5", "true"]), (.token, ["5", "[]", #"["ab"]"#, "{}"]),
            (.tokens, ["[]", #""ab""#, "[5]", #"["ab",null]"#, #"["ab",["cd"]]"#, "{}", "5"]),
            (.channel, ["5", #""""#, #""a b""#, #""a.b""#, #""\u00e9""#, "[]", "true"]),
            (.truncate, ["1", "0", #""true""#, "{}"]), (.collapseDuplicates, ["1", #""yes""#, "[]"]),
        ])
    func invalid(member: JobMember, values: [String]) {
        for value in values {
            let start = #"{"\#(member.name)":"#
            #expect(
                jobError(start + value + "}")?.plain == .invalid(member, start.utf8.count),
                "\(member.name) = \(value)")
        }
    }

    @Test("lengths are counted after decoding, up to the limit and not beyond")
    func lengths() throws {
        for (member, limit) in [("id", 255), ("app", 255), ("topic", 255), ("push_type", 255), ("collapse_id", 64)] {
            for piece in ["x", #"\u0078"#] {
                let good = String(repeating: piece, count: limit)
                #expect(jobError(Self.job(#""\#(member)":"\#(good)""#)) == nil)
                for bad in [good + "x", good + #"\u0078"#] {
                    #expect(jobError(Self.job(#""\#(member)":"\#(bad)""#))?.code.rawValue == "InvalidMember")
                }
            }
        }
        let umlauts = String(repeating: "ü", count: 127)
        #expect(jobError(Self.job(#""id":"\#(umlauts)x""#)) == nil)
        #expect(jobError(Self.job(#""id":"\#(umlauts)üx""#))?.code.rawValue == "InvalidMember")
    }

    @Test("an id may be any text without control characters")
    func ids() throws {
        for id in ["1", "a b", "Grüße/😀", "\u{A0}", "{}"] {
            let job = try decodeJob(Self.job(#""id":"\#(id)""#))
            #expect(job.string(job.id) == id)
        }
        let job = try decodeJob(Self.job(#""id":"\"\\\/\u00e9\uD83D\uDE00""#))
        #expect(job.string(job.id) == "\"\\/é😀")
    }

    @Test("unique_for is a duration from a second to thirty days")
    func uniqueFor() throws {
        for (text, milliseconds) in [
            ("1s", 1000), ("1h", 3_600_000), ("4w2d", 2_592_000_000), ("30d", 2_592_000_000),
            ("2592000s", 2_592_000_000), (#"1\u0068"#, 3_600_000),
        ] as [(String, Int64)] {
            #expect(try decodeJob(Self.job(#""unique_for":"\#(text)","id":"x""#)).uniqueFor == milliseconds)
        }
    }

    @Test("the ID that unique_for needs may be the wrapper's")
    func uniqueForNeedsID() throws {
        let job = Self.job(#""unique_for":"1h""#)
        #expect(jobError(job)?.description.contains("`unique_for` but no `id`") == true)
        #expect(try decodeJob(#"{"apns_worker":1,"id":"made","job":\#(job)}"#).uniqueFor == 3_600_000)
        #expect(jobError(#"{"apns_worker":1,"origin":"w:1","job":\#(job)}"#) == .missingID(.uniqueFor))
    }

    @Test("integers may be written in any JSON form, and expirations in several")
    func integers() throws {
        #expect(try decodeJob(Self.job(#""priority":1e1"#)).priority == 10)
        #expect(try decodeJob(Self.job(#""priority":5.0"#)).priority == 5)
        #expect(try decodeJob(Self.job(#""max_attempts":1E+3"#)).maxAttempts == 1000)
        #expect(try decodeJob(Self.job(#""expiration":0"#)).expiration == .epoch(0))
        #expect(try decodeJob(Self.job(#""expiration":1.9e9"#)).expiration == .epoch(1_900_000_000))
        for text in ["2030-03-17T17:46:40Z", "2030-03-17T19:46:40.9+02:00"] {
            #expect(try decodeJob(Self.job(#""expiration":"\#(text)""#)).expiration == .epoch(1_900_000_000))
            #expect(Expiration(text) == .epoch(1_900_000_000))
        }
        // A duration counts from the time at which the job was enqueued.
        #expect(try decodeJob(Self.job(#""expiration":"1h30m""#)).expiration == .after(seconds: 5400))
        #expect(try decodeJob(Self.job(#""expiration":"1\u0068""#)).expiration == .after(seconds: 3600))
    }

    @Test("a channel replaces a token, for one notification, and is unchanged in a wrapper")
    func channel() throws {
        let job = try decodeJob(#"{"channel":"dHN0LXNyY2gtY2hubA==","payload":{}}"#)
        #expect(job.string(job.channel) == "dHN0LXNyY2gtY2hubA==")
        #expect(job.token == nil && job.tokens == nil && job.tokenCount == 1)
        #expect(JobError.channelAndToken(.tokens).description.contains("`channel` and `tokens`"))
        let wrapped = try JobDecoder.decode(EnvelopeWriter(attempt: 2).wrapping(job.originalBytes))
        #expect(wrapped.string(wrapped.channel) == "dHN0LXNyY2gtY2hubA==" && wrapped.originalBytes == job.originalBytes)
        #expect(wrapped.tokensMember.isEmpty && wrapped.tokenPieces(of: 10).isEmpty)
    }

    @Test("flags are off unless they are true")
    func flags() throws {
        #expect(try decodeJob(Self.job(#""collapse_duplicates":true"#)).collapsesDuplicates)
        for value in ["false", "null"] {
            #expect(try !decodeJob(Self.job(#""collapse_duplicates":\#(value)"#)).collapsesDuplicates)
            #expect(try !decodeJob(Self.job(#""truncate":\#(value)"#)).makesPayload)
        }
        #expect(try decodeJob(Self.job(#""truncate":true"#)).makesPayload)
    }

    @Test("invalid JSON is reported as such, whatever other rule is broken")
    func malformedWins() {
        for text in [#"{"priority":3,"payload":{},}"#, #"{"payload":{},"#, #"{"id":1,"id":2,x}"#] {
            #expect(jobError(text)?.code.rawValue == "MalformedJSON", "\(text)")
        }
    }

    @Test("the payload may have 63 levels, because the job itself is one")
    func depth() {
        for (levels, code) in [(63, nil), (64, "TooDeep"), (100_000, "TooDeep")] {
            let payload = String(repeating: #"{"a":"#, count: levels) + "1" + String(repeating: "}", count: levels)
            #expect(jobError(#"{"token":"ab","payload":\#(payload)}"#)?.code.rawValue == code, "\(levels)")
        }
    }

    @Test("no description contains a part of the job")
    func secrets() {
        let bodies = [
            #"{"token":5,"payload":{"s":"hunter2"}}"#, #"{"token":"hunter2","payload":[1]}"#, #"{"token":"hunter2","#,
            #"{"token":"hunter2","token":"hunter2"}"#, #"{"topic":"hunter2 hunter2","token":"hunter2"}"#, "hunter2",
            #""hunter2""#,
        ]
        for body in bodies {
            let description = jobError(body)?.description ?? ""
            #expect(!description.isEmpty && !description.contains("hunter2"))
        }
        #expect(
            jobError(#"{"token":"ab","priority":3}"#)?.description
                == "the job's `priority` at byte 25 must be 1, 5 or 10")
    }

    @Test("every error has a reason by which dead letters can be counted")
    func reasons() {
        let bad = JSONError(kind: .expectedValue, offset: 0)
        let errors: [(JobError, String)] = [
            (.malformedJSON(bad), "MalformedJSON"), (.malformedPayload(bad), "MalformedJSON"),
            (.malformedJSON(JSONError(kind: .tooDeep, offset: 0)), "TooDeep"), (.notAnObject(offset: 0), "NotAnObject"),
            (.missingToken(found: nil), "MissingToken"), (.tokenAndTokens, "TokenAndTokens"),
            (.missingPayload(found: nil), "MissingPayload"),
            (.missingID(.uniqueFor), "MissingID"), (.replacesAndUniqueFor, "ReplacesAndUniqueFor"),
            (.missingFair, "MissingFair"), (.channelAndToken(.token), "ChannelAndToken"),
            (.payloadAndShortForm(.alert, isOwnData: false), "PayloadAndShortForm"),
            (.malformedMember(.custom, bad), "MalformedJSON"),
            (.payloadTooLong(excess: 1, limit: 4096), "PayloadTooLarge"),
            (.invalid(.id, 0), "InvalidMember"), (.duplicateMember(.id, offset: 0), "DuplicateMember"),
            (.tooLarge(bytes: 1 << 31), "TooLarge"),
        ]
        for (error, reason) in errors {
            #expect(error.code.rawValue == reason && !error.description.isEmpty)
        }
    }
}

extension ByteBuffer {
    fileprivate var address: Int { withUnsafeReadableBytes { Int(bitPattern: $0.baseAddress) } }
}
