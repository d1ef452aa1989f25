import NIOCore
import Testing

@testable import PushJob

func shortJob(_ members: String) -> String { #"{"token":"ab",\#(members)}"# }

/// Returns the payload of a job of these members, without a limit.
func composed(_ members: String) throws -> String {
    String(buffer: try decodeJob(shortJob(members)).payload(limit: .max))
}

@Suite("Short forms")
struct ShortFormTests {
    static let members = JobMember.allCases.filter { $0.isShortForm }

    /// Values of each short form, with the values that are sent; `nil` if the payload then has no such member.
    static let good: [(JobMember, [(String, String?)])] = [
        (
            .alert,
            [
                (#""Hi \u00e9""#, #""Hi \u00e9""#), (#""""#, #""""#), ("{}", "{}"),
                (#"{ "body" : "b" , "title":"t" }"#, #"{"body":"b","title":"t"}"#),
                (#"{"title":null,"body":"b","subtitle":null}"#, #""b""#),
                (
                    #"{"loc_key":"k","loc_args":["a", "b"],"title_loc_key":"t","title-loc-args":[]}"#,
                    #"{"loc-key":"k","loc-args":["a", "b"],"title-loc-key":"t","title-loc-args":[]}"#
                ),
                (
                    #"{"subtitle_loc_key":"k","subtitle_loc_args":["a"],"launch_image":"i","action":"a","action_loc_key":"l"}"#,
                    #"{"subtitle-loc-key":"k","subtitle-loc-args":["a"],"launch-image":"i","action":"a","action-loc-key":"l"}"#
                ),
                (
                    #"{"title":{"loc_key":"%@","loc_args":["x"]},"body":{"loc-key":"k"},"sound":"s"}"#,
                    #"{"title":{"loc-key":"%@","loc-args":["x"]},"body":{"loc-key":"k"},"sound":"s"}"#
                ), (#"{"\u0062ody":"x"}"#, #""x""#), (#"{"title":{"loc_key":null}}"#, #"{"title":{}}"#),
            ]
        ),
        (.badge, [("0", "0"), ("7", "7"), ("1e2", "100"), ("3.0", "3")]),
        (
            .sound,
            [
                (#""default""#, #""default""#), (#"{"critical":true,"name":"x"}"#, #"{"critical":1,"name":"x"}"#),
                (
                    #"{"name":"x" , "critical":0,"volume":0.50}"#, #"{"name":"x","critical":0,"volume":0.50}"#
                ), (#"{"name":"x","critical":null,"volume":1}"#, #"{"name":"x","volume":1}"#), ("{}", "{}"),
            ]
        ),
        (.threadID, [(#""t\u0031""#, #""t\u0031""#)]), (.category, [(#""""#, #""""#)]),
        (.contentAvailable, [("1", "1"), ("true", "1"), ("0", nil), ("false", nil), ("1.0", "1")]),
        (.mutableContent, [("1", "1"), ("true", "1"), ("0", nil), ("false", nil)]),
        (.targetContentID, [(#""w""#, #""w""#)]),
        (
            .interruptionLevel,
            [
                (#""passive""#, #""passive""#), (#""active""#, #""active""#),
                (#""time-sensitive""#, #""time-sensitive""#), (#""critical""#, #""critical""#),
                (#""pa\u0073sive""#, #""pa\u0073sive""#),
            ]
        ),
        (.relevanceScore, [("0", "0"), ("1", "1"), ("0.50", "0.50"), ("1e-1", "1e-1"), ("-0", "-0")]),
        (.filterCriteria, [(#""f""#, #""f""#)]),
        (
            .staleDate, [("0", "0"), ("1900000000.9", "1900000000"), (#""2030-01-31T14:00:00+02:00""#, "1896091200")]
        ), (.contentState, [("{}", "{}"), ("[ ]", "{}"), (#"{ "a" : [1,{}] }"#, #"{ "a" : [1,{}] }"#)]),
        (.timestamp, [("1.9e9", "1900000000")]),
        (.event, [(#""start""#, #""start""#), (#""update""#, #""update""#), (#""end""#, #""end""#)]),
        (.dismissalDate, [("1663177260", "1663177260")]),
        (.attributesType, [(#""Adventure""#, #""Adventure""#)]), (.attributes, [(#"{"x":1}"#, #"{"x":1}"#)]),
        (.inputPushToken, [("1", "1"), ("true", "1"), ("0", nil)]), (.inputPushChannel, [(#""YQ==""#, #""YQ==""#)]),
        (.contentChanged, [("true", "true"), ("1", "true"), ("false", nil)]),
        (.urlArguments, [("[]", "[]"), (#"["a","b"]"#, #"["a","b"]"#)]),
    ]

    static let bad: [(JobMember, [String])] = [
        (
            .alert,
            [
                "5", "true", "[]", #"{"titel":"x"}"#, #"{"title":5}"#, #"{"title":["x"]}"#, #"{"body":"a","body":"a"}"#,
                #"{"loc_key":"a","loc-key":"a"}"#, #"{"loc_args":"a"}"#, #"{"loc_args":[1]}"#, #"{"loc_args":[null]}"#,
                #"{"title":{"body":"x"}}"#, #"{"title":{"loc_args":"x"}}"#, #"{"launch_image":{}}"#, #"{"sound":{}}"#,
                #"{"title":{"loc_key":{"loc_key":"x"}}}"#, #"{"title":{"loc_key":"x","loc-key":"x"}}"#,
                #"{"subtitle_":"x"}"#, #"{"":"x"}"#,
            ]
        ), (.badge, ["-1", "1.5", #""1""#, "true", "99999999999999999999", "[]"]),
        (
            .sound,
            [
                "5", "[]", #"{"critical":2}"#, #"{"critical":"1"}"#, #"{"volume":1.1}"#, #"{"volume":-0.1}"#,
                #"{"volume":"1"}"#, #"{"name":1}"#, #"{"file":"x"}"#, #"{"name":"a","name":"a"}"#,
            ]
        ), (.threadID, ["5", "{}"]), (.category, ["5", "[]"]), (.targetContentID, ["true"]), (.filterCriteria, ["1"]),
        (.contentAvailable, ["2", "-1", #""1""#, "{}", "0.5"]), (.mutableContent, [#""true""#]),
        (.inputPushToken, [#""ab""#]), (.contentChanged, ["5", "[]"]),
        (.interruptionLevel, [#""""#, #""Passive""#, #""timeSensitive""#, "1"]),
        (.relevanceScore, ["1e999", #""1""#, "true", "-1e999"]),
        (.staleDate, ["-1", "1700000000000", #""soon""#, #""2030-01-31T12:00:00""#, "true"]),
        (.timestamp, [#""""#, "{}"]), (.dismissalDate, ["-0.5"]), (.contentState, ["[1]", #""{}""#, "1"]),
        (.attributes, ["[[]]"]), (.attributesType, [#""""#, "5"]), (.mdm, [#""""#, "{}", "5"]),
        (.inputPushChannel, [#""""#, #""a b""#, "5"]), (.event, [#""""#, #""Start""#, #""stop""#, "1"]),
        (.urlArguments, [#""a""#, "[1]", "{}", #"[["a"]]"#]),
        (.custom, ["[1]", #""x""#, "1", #"{"aps":1}"#, #"{"a":1,"\u0061ps":null}"#]),
    ]

    @Test("each becomes the member of aps that Apple calls by the same name with hyphens", arguments: good)
    func values(member: JobMember, values: [(String, String?)]) throws {
        let name = member.name.description.replacing("_", with: "-")
        for (value, sent) in values {
            let payload = try composed(#""\#(member.name)": \#(value)"#)
            #expect(
                payload == (sent.map { #"{"aps":{"\#(name)":\#($0)}}"# } ?? #"{"aps":{}}"#), "\(member.name) = \(value)"
            )
        }
    }

    @Test("the wrong kinds of values are refused, with their position", arguments: bad)
    func wrongValues(member: JobMember, values: [String]) {
        let start = shortJob(#""\#(member.name)":"#).dropLast()
        for value in values {
            #expect(
                jobError(start + value + "}")?.plain == .invalid(member, start.utf8.count),
                "\(member.name) = \(value)")
        }
    }

    @Test("the tables above include every short form")
    func complete() {
        let inAPS = Set(Self.good.map(\.0)).union([.mdm, .custom])
        #expect(inAPS == Set(Self.members))
        #expect(Set(Self.bad.map(\.0)) == Set(Self.members))
        #expect(Set(JobMember.apsMembers) == inAPS.subtracting([.mdm, .custom]))
    }

    @Test("a job has a payload or short forms, and not both", arguments: members)
    func either(member: JobMember) throws {
        let value = (Self.good.first { $0.0 == member }?.1.first?.0) ?? (member == .mdm ? #""x""# : "{}")
        #expect(jobError(shortJob(#""\#(member.name)":\#(value)"#)) == nil)
        let both = jobError(shortJob(#""\#(member.name)":\#(value),"payload":{}"#))
        #expect(both == .payloadAndShortForm(member, isOwnData: member != .mdm))
        #expect(both?.description.contains("both `payload` and `\(member.name)`") == true)
        #expect(jobError(shortJob(#""\#(member.name)":null,"payload":{}"#)) == nil)
        #expect(jobError(shortJob(#""\#(member.name)":null"#)) == .missingPayload(found: nil))
    }

    @Test("an error names the member and its place, what it must be, and what was found", arguments: members)
    func expectations(member: JobMember) throws {
        let start = shortJob(#""\#(member.name)":"#).dropLast()
        let error = try #require(jobError(start + "[[]]}")?.description)
        #expect(error.hasPrefix("the job's `\(member.name)"))
        #expect(error.contains(" at byte ") && error.contains(" must be "), "\(error)")
        #expect(error.hasSuffix(", not an array"), "\(error)")
        #expect(member.expectation.count > 6)
    }

    @Test("scores beyond 0 to 1 are for Live Activities")
    func scores() throws {
        let member = #""relevance_score":100"#
        let offset = shortJob(#""relevance_score":"#).utf8.count - 1
        #expect(jobError(shortJob(member))?.plain == .invalid(.relevanceScore, offset))
        #expect(jobError(shortJob(member + #","push_type":"alert","event":"end""#))?.code.rawValue == "InvalidMember")
        #expect(jobError(shortJob(member + #","event":"end""#)) == nil)
        #expect(jobError(shortJob(member + #","content_state":{}"#)) == nil)
        #expect(jobError(shortJob(member + #","push_type":"live\u0061ctivity""#)) == nil)
        #expect(jobError(#"{"channel":"a",\#(member)}"#) == nil)
        #expect(jobError(shortJob(#""relevance_score":-0.1"#))?.code.rawValue == "InvalidMember")
    }

    @Test("custom members are written next to aps, byte for byte")
    func custom() throws {
        #expect(try composed(#""custom":{}"#) == #"{"aps":{}}"#)
        #expect(try composed(#""custom":{ }"#) == #"{"aps":{}}"#)
        #expect(
            try composed(#""custom":{ "a" : 1.50 , "a":{"aps":[]}},"alert":"x""#)
                == #"{"aps":{"alert":"x"}, "a" : 1.50 , "a":{"aps":[]}}"#)
    }

    @Test("a push magic is alone, without aps; it must not appear twice")
    func mdm() throws {
        #expect(try composed(#""mdm":"magic""#) == #"{"mdm":"magic"}"#)
        #expect(try composed(#""mdm":"magic","custom":{"a":1}"#) == #"{"mdm":"magic","a":1}"#)
        #expect(try composed(#""custom":{"a":1},"badge":1,"mdm":"m""#) == #"{"aps":{"badge":1},"mdm":"m","a":1}"#)
        #expect(try composed(#""custom":{"mdm":1}"#) == #"{"aps":{},"mdm":1}"#)
        let member = shortJob(#""mdm":"x","custom":"#).dropLast()
        #expect(jobError(member + #"{"mdm":1}}"#)?.plain == .invalid(.custom, member.utf8.count))
    }

    @Test("values nested in the payload may be one level less deep")
    func depth() throws {
        func nested(_ levels: Int) -> String {
            String(repeating: #"{"a":"#, count: levels) + "1" + String(repeating: "}", count: levels)
        }
        for member in ["content_state", "attributes"] {
            let payload = try composed(#""\#(member)":\#(nested(62))"#)
            #expect(Array(payload.utf8).jsonError == nil)
            #expect(jobError(shortJob(#""\#(member)":\#(nested(63))"#))?.code.rawValue == "TooDeep")
        }
        #expect(Array(try composed(#""custom":\#(nested(63))"#).utf8).jsonError == nil)
        #expect(jobError(shortJob(#""custom":\#(nested(64))"#))?.code.rawValue == "TooDeep")
    }

    @Test("a job in a wrapper has the same payload")
    func wrapped() throws {
        let original = ByteBuffer(string: shortJob(#""alert":"x","badge":1"#))
        let job = try JobDecoder.decode(EnvelopeWriter(attempt: 2).wrapping(original))
        #expect(String(buffer: try job.payload(limit: 10)) == #"{"aps":{"alert":"x","badge":1}}"#)
    }
}
