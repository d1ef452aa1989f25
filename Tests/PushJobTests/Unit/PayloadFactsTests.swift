import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("Payload facts")
struct PayloadFactsTests {
    private static func job(_ payload: String) throws -> Job { try decodeJob(#"{"token":"ab","payload":\#(payload)}"#) }

    @Test("the table has a member for each short form of aps, under Apple's spelling of the same name")
    func table() {
        for member in JobMember.allCases where member.isShortForm && member != .custom {
            let name = member.payloadMember.map { "\($0.name)" }
            #expect(name == "\(member.name)".replacing("_", with: "-"))
        }
        for member in PayloadMember.inAPS {
            let found = "\(member.name)".utf8.withContiguousStorageIfAvailable {
                PayloadMember(inAPS: UnsafeRawBufferPointer($0))
            }
            #expect(found == .some(member), "\(member)")
        }
        for part in PayloadPart.allCases {
            for dialect in [PayloadDialect.job, .payload] {
                let found = Array(part.name(in: dialect).utf8).withUnsafeBytes {
                    PayloadPart.named($0, among: [.alert, .sound], in: dialect)
                }
                #expect(found == part)
            }
        }
        for name in ["", "x", "aps", "Alert", "badge1", "content_available", "mdm", "container-identifier"] {
            #expect(Array(name.utf8).withUnsafeBytes { PayloadMember(inAPS: $0) } == nil, "\(name)")
        }
    }

    /// Returns the schema of a value, without its description and examples.
    private static func schema(_ value: PayloadValue) -> String {
        switch value {
        case .text: ##"{"$ref":"#/$defs/text"}"##
        case .name: #"{"type":["string","null"],"minLength":1}"#
        case .channelID:
            #"{"type":["string","null"],"minLength":1,"maxLength":255,"not":{"type":"string","pattern":"[^0-9A-Za-z+/=_-]"}}"#
        case .flag, .truth, .zeroOrOne: ##"{"$ref":"#/$defs/flag"}"##
        case .count: #"{"type":["integer","null"],"minimum":0,"maximum":9223372036854775807}"#
        case .score: #"{"type":["number","null"]}"#
        case .fraction: #"{"type":["number","null"],"minimum":0,"maximum":1}"#
        case .time: ##"{"$ref":"#/$defs/time"}"##
        case .interruptionLevel, .event:
            #"{"enum":[\#((value.choices ?? []).map { "\"\($0)\"" }.joined(separator: ",")),null]}"#
        case .object: #"{"type":["object","array","null"],"maxItems":0}"#
        case .texts: ##"{"$ref":"#/$defs/texts"}"##
        case .alert: ##"{"$ref":"#/$defs/alert"}"##
        case .localizedText: ##"{"$ref":"#/$defs/localizable"}"##
        case .sound:
            #"{"anyOf":[{"type":["string","null"]},{"type":"object","properties":{\#(parts(.sound))},"additionalProperties":false}]}"#
        }
    }

    private static func parts(_ parts: PayloadParts) -> String {
        PayloadPart.allCases.filter(parts.contains).flatMap { part in
            Set([part.name(in: .job), part.name(in: .payload)]).map { "\"\($0)\":\(schema(part.value))" }
        }.joined(separator: ",")
    }

    private static func object(_ text: String) throws -> NSDictionary {
        try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? NSDictionary)
    }

    @Test("the JSON Schema has the values of the table")
    func schema() throws {
        let schema = try Self.object(JobSchema.text)
        let properties = try #require(schema["properties"] as? [String: [String: Any]])
        for member in JobMember.allCases {
            guard let value = member.payloadMember?.value else { continue }
            let found = try #require(properties["\(member.name)"]).filter {
                !["description", "examples"].contains($0.key)
            }
            #expect(found as NSDictionary == (try Self.object(Self.schema(value))), "\(member.name)")
        }
        let definitions = try #require(schema["$defs"] as? [String: NSDictionary])
        for (name, parts) in [("alert", PayloadParts.alert), ("localizable", .localizedText)] {
            let either = try #require(definitions[name]?["anyOf"] as? [NSDictionary])
            let properties = try #require(either.last?["properties"] as? NSDictionary)
            #expect(properties == (try Self.object("{\(Self.parts(parts))}")), "\(name)")
            let once = try #require(either.last?["allOf"] as? [[String: [String: [String]]]])
            let pairs = Set(once.compactMap { $0["not"]?["required"].map(Set.init) })
            let spelledTwice = PayloadPart.allCases.filter(parts.contains).map {
                Set([$0.name(in: .job), $0.name(in: .payload)])
            }
            #expect(pairs == Set(spelledTwice.filter { $0.count == 2 }))
        }
        let needed = try #require(definitions["hasShortForm"]?["anyOf"] as? [[String: Any]])
        let names = needed.compactMap { ($0["required"] as? [String])?.first }
        #expect(names == JobMember.allCases.filter(\.isShortForm).map { "\($0.name)" })
    }

    @Test(
        "name the members that have an effect, and those whose values can be understood",
        arguments: [
            ("{}", [], []), (#"{"aps":{}}"#, [], []), (#"{"aps":{"alert":"x"}}"#, [.alert], [.alert]),
            (#"{"aps":{"alert":{}, "badge":0 ,"sound":"s"}}"#, .visible, .visible),
            (#"{"aps":{"alert":null,"badge":null,"sound":null,"timestamp":null}}"#, [], []),
            (#"{"aps":{"alert":5,"timestamp":"1","content-state":"x"}}"#, [.alert, .timestamp, .contentState], []),
            (#"{"\u0061ps":{"content-av\u0061ilable":1}}"#, [.contentAvailable], [.contentAvailable]),
            (#"{"aps":{"content-available":true}}"#, [.contentAvailable], [.contentAvailable]),
            (#"{"aps":{"content-available":"1"}}"#, [.contentAvailable], []),
            (#"{"aps":{"content-available":0,"content-changed":false}}"#, [], []),
            (#"{"aps":{"content-changed":true}}"#, [.contentChanged], [.contentChanged]),
            (#"{"mdm":"x","container-identifier":"y"}"#, [.mdm, .containerIdentifier], [.mdm, .containerIdentifier]),
            (#"{"mdm":1,"container-identifier":{}}"#, [], []),
            (#"{"x":{"aps":{"alert":1},"mdm":"x"},"alert":"x"}"#, [], []),
        ] as [(String, PayloadFacts.Members, PayloadFacts.Members)])
    func members(payload: String, named: PayloadFacts.Members, valid: PayloadFacts.Members) throws {
        let facts = try Self.job(payload).facts
        #expect(facts.named == named && facts.valid == valid)
    }

    @Test(
        "name the event",
        arguments: [
            (#""start""#, .start), (#""update""#, .update), (#""e\u006ed""#, .end), (#""stop""#, nil), ("1", nil),
            ("null", nil),
        ] as [(String, PayloadFacts.Event?)])
    func event(value: String, event: PayloadFacts.Event?) throws {
        #expect(try Self.job(#"{"aps":{"event":\#(value)}}"#).facts.event == event)
        #expect(try Self.job(#"{"event":\#(value),"aps":{"x":{"event":\#(value)}}}"#).facts.event == nil)
    }

    @Test(
        "say whether an alert has a text",
        arguments: [
            (#""x""#, true), (#""""#, false), ("{}", false), (#"{"title":"x"}"#, true), (#"{"title":""}"#, false),
            (#"{"loc-key":"k"}"#, true), (#"{"loc-args":["a"],"launch-image":"i","sound":"s"}"#, false),
            (#"{"title":{"loc-key":"k"}}"#, true), (#"{"title":{"loc-args":[]}}"#, false), ("null", false),
        ])
    func text(alert: String, showsText: Bool) throws {
        #expect(try Self.job(#"{"aps":{"alert":\#(alert)}}"#).facts.showsText == showsText)
        guard alert != "null" else { return }
        let short = try decodeJob(#"{"token":"ab","alert":\#(alert.replacing("-", with: "_"))}"#)
        #expect(short.facts.showsText == showsText)
    }

    /// Values of each kind: those that Apple documents, those that can be understood nevertheless, and others.
    private static func values(of value: PayloadValue) -> (good: [String], odd: [String], bad: [String]) {
        switch value {
        case .text: ([#""""#, #""x""#], [], ["1", "true", "[]", "{}"])
        case .name: ([#""x""#], [], [#""""#, "1", "{}"])
        case .channelID: ([#""YQ==""#], [], [#""""#, #""é""#, "1"])
        case .flag: (["1", "0", "false", "1.0"], ["true"], ["2", #""1""#, "[]", "-1"])
        case .truth: (["true", "false", "1", "0"], [], ["2", #""true""#, "{}"])
        case .zeroOrOne: (["1", "0"], ["true", "false"], ["2", #""1""#])
        case .count: (["0", "3", "1e2"], [], ["-1", "1.5", #""3""#, "true"])
        case .score: (["0", "0.5", "1"], [], [#""1""#, "true"])
        case .fraction: (["0", "0.5", "1"], [], ["1.5", "-1", #""1""#])
        case .time: (["0", "1700000000", "1.5"], [], ["1700000000000", "-1", #""soon""#, #""2030-01-31T12:00:00Z""#])
        case .interruptionLevel: ([#""passive""#, #""time-sensitive""#], [], [#""timeSensitive""#, "1"])
        case .event: ([#""start""#, #""end""#], [], [#""Update""#, "1"])
        case .object: (["{}", #"{"a":[1]}"#], [], ["[]", #""{}""#, "1"])
        case .texts: (["[]", #"["a"]"#], [], [#""a""#, "[1]", #"["a",null]"#])
        case .alert:
            (
                [#""x""#, #"{"title":"a","loc-args":["a"],"title-loc-key":"k","summary-arg":"s"}"#],
                [#"{"titel":"a","body":"b"}"#, #"{"body":"b","title_loc_key":"k"}"#, #"{"body":"a","body":"b"}"#],
                ["1", "[]", #"{"title":5}"#, #"{"loc-args":[5]}"#]
            )
        case .localizedText: ([#""x""#, #"{"loc-key":"k"}"#], [#"{"key":"k"}"#], ["1", #"{"loc-key":1}"#])
        case .sound:
            (
                [#""default""#, #"{"name":"a","critical":1,"volume":0.5}"#], [#"{"critical":true}"#, #"{"x":1}"#],
                ["1", #"{"volume":2}"#, #"{"name":1}"#]
            )
        }
    }

    @Test(
        "a value that Apple documents has no mistake, and any other has one that names the member",
        arguments: PayloadMember.inAPS)
    func mistakes(member: PayloadMember) throws {
        let values = Self.values(of: member.value)
        // An alert is added, so that nothing else is wrong.
        let others = member == .alert ? "" : #","alert":"x""#
        for value in values.good {
            let job = try Self.job(#"{"aps":{"\#(member.name)":\#(value)\#(others)}}"#)
            #expect(job.mistakes.isEmpty && !job.facts.mayHaveMistakes, "\(member.name) \(value): \(job.mistakes)")
        }
        for value in values.odd + values.bad {
            let job = try Self.job(#"{"aps":{"\#(member.name)":\#(value)\#(others)}}"#)
            #expect(job.mistakes.count == 1 && job.facts.mayHaveMistakes, "\(member.name) \(value): \(job.mistakes)")
            #expect(job.mistakes.allSatisfy { $0.path.hasPrefix("aps.\(member.name)") })
            let isUnderstood = job.facts.valid.contains(.init(member))
            #expect(isUnderstood == values.odd.contains(value), "\(member.name) \(value)")
        }
    }

    @Test(
        "mistakes say what was found and what to write",
        arguments: [
            (
                #"{"aps":{"badge":"3"}}"#,
                "`aps.badge` must be an integer of at least 0, not a string; write the number without quotation marks"
            ),
            (#"{"aps":{"badge":-1}}"#, "`aps.badge` must be an integer of at least 0, not a negative number"),
            (#"{"aps":{"badge":1.5}}"#, "`aps.badge` must be an integer of at least 0, not a fraction"),
            (#"{"aps":{"content-available":true}}"#, "`aps.content-available` must be the number 1, not true"),
            (
                #"{"aps":{"alert":"x","interruption-level":"timeSensitive"}}"#,
                #"`aps.interruption-level` must be "passive", "active", "time-sensitive" or "critical"; did you mean "time-sensitive"?"#
            ),
            (#"{"aps":{"alert":{"title":5}}}"#, "`aps.alert.title` must be a string, not a number"),
            (
                #"{"aps":{"alert":{"body":"x","loc-args":["a",1]}}}"#,
                "`aps.alert.loc-args[1]` must be a string, not a number"
            ),
            (
                #"{"aps":{"alert":{"titel":"a"}}}"#,
                "`aps.alert` has `titel`, which Apple does not define there; did you mean `title`?"
            ),
            (
                #"{"aps":{"alert":"x","attributes":"{}"}}"#,
                "`aps.attributes` must be an object, not a string; it was encoded twice"
            ),
            (
                #"{"aps":{"alert":"x","order":1}}"#,
                "`aps` has `order`, which Apple does not define there; put data of the app beside `aps`"
            ),
            (
                #"{"aps":{"alert":"x","threadId":"t"}}"#,
                "`aps` has `threadId`, which Apple does not define there; did you mean `thread-id`?"
            ),
            (
                #"{"aps":{"alert":"x"},"badge":1}"#,
                "`payload` has `badge` next to `aps`, where iOS ignores it; move it into `aps`"
            ),
            (
                #"{"aps":{"alert":"x"},"aps":{}}"#,
                "`payload` has `aps` more than once; keep one, because readers differ in which one they use"
            ),
            (
                #"{"aps":{"alert":"x"},"order":1,"order":2}"#,
                "`payload` has `order` more than once; keep one, because readers differ in which one they use"
            ),
            (#"{"aps":"x"}"#, "`aps` must be an object, not a string"),
            (#"{"a":1}"#, "`payload` has no `aps`: nothing is shown unless the app shows it"),
            (
                #"{"aps":{"alert":"x","stale-date":1700000000000}}"#,
                "`aps.stale-date` must be a number of seconds (not milliseconds) since 1970"
            ),
        ])
    func sentences(payload: String, sentence: String) throws {
        #expect(try Self.job(payload).mistakes.map(\.description) == [sentence])
    }

    @Test(
        "data of the app is not reported",
        arguments: [
            #"{"aps":{"alert":"x"},"category":"news","timestamp":"now","event":{},"attributes":[]}"#,
            #"{"aps":{"alert":"x","badge":1},"x":{"badge":1,"badge":2}}"#, #"{"mdm":"m"}"#,
            #"{"aps":{"alert":"x"},"mdm":5,"container-identifier":5}"#,
        ])
    func own(payload: String) throws {
        let job = try Self.job(payload)
        #expect(job.mistakes.isEmpty, "\(job.mistakes)")
    }

    @Test("own data of short forms is examined too, against the members of the job")
    func custom() throws {
        func mistakes(_ members: String) throws -> [String] {
            try decodeJob(#"{"token":"ab",\#(members)}"#).mistakes.map(\.description)
        }
        #expect(try mistakes(#""alert":"x","custom":{"a":1}"#).isEmpty)
        #expect(try mistakes(#""alert":"x","custom":{"a":1,"a":2}"#).count == 1)
        #expect(try mistakes(#""alert":"x","badge":1,"custom":{"badge":1}"#).isEmpty)
        #expect(
            try mistakes(#""alert":"x","custom":{"badge":1}"#) == [
                "`custom` has `badge` next to `aps`, where iOS ignores it; move it into `aps`"
            ])
    }

    @Test("10000 random payloads: those with mistakes are noticed while the job is read, and few others are")
    func random() throws {
        var random = SeededGenerator(seed: 0xFAC7)
        let names = PayloadMember.allCases.map { "\($0.name)" } + ["aps", "x", "titel", "order", "content_available"]
        let all = PayloadMember.allCases.flatMap { member in
            let values = Self.values(of: member.value)
            return values.good + values.odd + values.bad
        }
        let goodValues = Dictionary(
            uniqueKeysWithValues: PayloadMember.allCases.map { ("\($0.name)", Self.values(of: $0.value).good) })
        func object(_ random: inout SeededGenerator) -> String {
            let members = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                let name = names.randomElement(using: &random) ?? "x"
                let good = goodValues[name]?.randomElement(using: &random)
                let isWild = Int.random(in: 0..<4, using: &random) == 0
                let value = isWild ? all.randomElement(using: &random) : good
                return "\"\(name)\":\(value ?? "1")"
            }
            return "{" + members.joined(separator: ",") + "}"
        }
        var (noticed, mistaken) = (0, 0)
        for _ in 0..<10_000 {
            var payload = object(&random)
            let aps = object(&random)
            payload = payload == "{}" ? #"{"aps":\#(aps)}"# : payload.dropLast() + #","aps":\#(aps)}"#
            let job = try Self.job(payload)
            if job.facts.mayHaveMistakes { noticed += 1 }
            var unnoticed = job
            unnoticed.facts.notice()
            if !unnoticed.mistakes.isEmpty { mistaken += 1 }
            #expect(job.facts.mayHaveMistakes || unnoticed.mistakes.isEmpty, "\(payload): \(unnoticed.mistakes)")
        }
        #expect(mistaken > 2000 && noticed - mistaken < 500, "\(noticed) \(mistaken)")
    }
}

extension PayloadFacts {
    /// Makes ``Job/mistakes`` look for mistakes, even if none was noticed.
    fileprivate mutating func notice() { mayHaveMistakes = true }
}
