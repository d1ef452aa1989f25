import APNS
import Foundation
import NIOCore
import PushJob
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// Compares the schema for producers with the jobs that a worker accepts.
@Suite("The JSON Schema of a job")
struct JobSchemaTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    @Test("has exactly the members of a job, each with a description and an example")
    func members() throws {
        let schema = try #require(JSONSerialization.jsonObject(with: Data(JobSchema.text.utf8)) as? [String: Any])
        let properties = try #require(schema["properties"] as? [String: [String: Any]])
        #expect(Set(properties.keys) == Set(JobMember.allCases.map { "\($0.name)" }))
        for (name, property) in properties {
            #expect((property["description"] as? String)?.isEmpty == false, "\(name)")
            #expect((property["examples"] as? [Any])?.isEmpty == false, "\(name)")
        }
        // Each example is part of a valid job.
        for member in JobMember.allCases {
            for example in try #require(properties["\(member.name)"]?["examples"] as? [Any]) {
                var job: [String: Any] = ["\(member.name)": example]
                if member == .uniqueFor || member == .replaces { job["id"] = "x" }
                if member == .fairPerSecond { job["fair"] = "x" }
                if ![.token, .tokens, .channel].contains(member) { job["token"] = Self.token }
                if member.rawValue < JobMember.alert.rawValue, member != .payload { job["alert"] = "x" }
                if member == .channel { job["alert"] = nil }
                let text = try JSONSerialization.data(withJSONObject: job)
                #expect(throws: Never.self, "\(member.name)") {
                    guard member != .channel else { return }
                    _ = try JobDecoder.decode(ByteBuffer(bytes: text))
                }
            }
        }
        let definitions = try #require(schema["$defs"] as? [String: [String: Any]])
        let types = try #require(definitions["known_push_type"]?["enum"] as? [Any]).compactMap { $0 as? String }
        #expect(Set(types) == Set(PushType.allCases.map(\.name)))
    }

    private static let values: [(member: JobMember, good: [String], bad: [String])] = [
        (
            .id, [#""x""#, #""é \" x""#, text(255)],
            [#""""#, #""a\u0000""#, #""a\u007f""#, #""\u0085""#, text(256), "7", "[]"]
        ),
        (
            .token,
            [
                #""ab""#, #""<ABcd 12>""#, #"" a b ""#, #""ab\n""#, text(2048, "a"),
                #""\#(String(repeating: "/", count: 43))=""#,
                #""\#(String(repeating: "/", count: 1366))==""#, #""\#(String(repeating: "_", count: 160))""#,
                #""\#(String(repeating: "_", count: 42))w""#,
            ],
            [
                #""abc""#, #""""#, #""<>""#, #""xy""#, text(2050, "a"), text(63, "a").replacing("a\"", with: "ax\""),
                #""\#(String(repeating: "/", count: 42))==""#, #""\#(String(repeating: "/", count: 1367))=""#,
                "12", #"["ab"]"#,
                #""\#(String(repeating: "_", count: 40))+/A""#, #""\#(String(repeating: "_", count: 43))""#,
                #""\#(String(repeating: "a", count: 43))""#, #""\#(String(repeating: "a", count: 43))=""#,
            ]
        ),
        (.tokens, [#"["ab"]"#, #"["ab","<cd>"]"#], ["[]", #""ab""#, "[1]", "[null]", #"["ab",[]]"#, "{}"]),
        (.channel, [#""YQ==""#, #""a-_+/""#], [#""""#, #""é""#, #""a b""#, text(256), "1"]),
        (.app, [#""default""#], [#""""#, #""a\n""#, "true", text(256)]),
        (.topic, [#""com.example.app""#, text(200)], [#""""#, #""a b""#, #""é""#, #""a\n""#, text(256), "1"]),
        (
            .pushType, [#""alert""#, #""voip""#, #""location""#, #""accessory""#],
            [#""hologram""#, #""Alert""#, #""alert\n""#, #""""#, "1", #""é""#]
        ),
        (.priority, ["1", "5", "10", "10.0", "1e1"], ["0", "2", "9", "11", #""10""#, "true", "10.5", "-1"]),
        (
            .expiration,
            ["0", "253402300799", #""2030-01-31T12:00:00Z""#, #""1h""#, #""1w2d3h4m5s""#, #""007s""#, "1e3"],
            [
                "-1", "253402300800", "1.5", #""1""#, #""h""#, #""""#, #""1h1h""#, #""1m1h""#, #""1h\n""#, #""1 h""#,
                "true", #""1H""#,
            ]
        ),
        (
            .collapseID, [#""a""#, #""a b""#, text(64)],
            [#""""#, #"" a""#, #""a ""#, #""é""#, #""a\n""#, text(65), "1"]
        ),
        (
            .apnsID, [#""3c8f5f6c-66e2-8612-a112-eed84b5d80e8""#, #""3C8F5F6C-66E2-8612-A112-EED84B5D80E8""#],
            [
                #""3c8f5f6c66e28612a112eed84b5d80e8""#, #""3c8f5f6c-66e2-8612-a112-eed84b5d80e8\n""#, #""x""#, "1",
                #""gc8f5f6c-66e2-8612-a112-eed84b5d80e8""#,
            ]
        ),
        (
            .traceparent,
            [#""00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#, #""x""#, "1", "null", "[true]", "{}"], []
        ),
        (.campaign, [#""spring-sale""#, #""""#, "1", "null", "{}"], []),
        (.keepResult, ["true", "false", "1", #""x""#, "null", "{}"], []),
        (.fair, [#""tenant-17""#, #""""#, "1", "null", "{}"], []),
        (.replaces, [#""order-17""#, #""""#, "1", "null", "{}"], []),
        (.fairPerSecond, ["1", "1000000", "5.0"], ["0", "1000001", "1.5", #""1""#, "true", "-1", "[]"]),
        (.environment, [#""sandbox""#, #""Production""#, #""staging""#, "1", "null", "{}"], []),
        (.urgent, ["true", "false", "1", #""x""#, "null", "{}"], []),
        (.labels, [#"{"user":"4711"}"#, "{}", "[]", "1", #"{"a":1}"#], []),
        (.payload, ["{}", "[]", #"{"aps":{"alert":"x"}}"#], ["[1]", #""{}""#, "1", "true"]),
        (.sendAt, times.good, times.bad), (.registeredAt, times.good, times.bad), (.enqueuedAt, times.good, times.bad),
        (.maxAttempts, ["1", "1000", "5.0"], ["0", "1001", "1.5", #""1""#, "true", "-1"]),
        (.onUncertain, [#""resend""#, #""drop""#], [#""Drop""#, #""""#, "true", "1"]),
        (.uniqueFor, [#""1s""#, #""30d""#], [#""x""#, "1", #""""#, "true"]),
        (.collapseDuplicates, ["true", "false"], ["1", "0", #""true""#, "[]"]),
        (.truncate, ["true", "false"], ["1", #""x""#]),
        (
            .alert,
            [
                #""""#, #""é""#, "{}", #"{"title":"a","subtitle":null,"body":"b","launch_image":"i"}"#,
                #"{"loc-key":"k","loc_args":["a","b"],"title-loc-args":[],"action_loc_key":"x","action":"y"}"#,
                #"{"title":{"loc-key":"k","loc-args":[]},"sound":"s"}"#,
            ],
            [
                "1", "[]", "true", #"{"titel":"a"}"#, #"{"title":1}"#, #"{"loc_args":[1]}"#, #"{"loc_args":"a"}"#,
                #"{"title":{"title":"x"}}"#, #"{"loc_key":{"loc_key":"a"}}"#, #"{"loc_key":"a","loc-key":"b"}"#,
            ]
        ),
        (.badge, ["0", "3", "1e2"], ["-1", "1.5", #""1""#, "true"]),
        (
            .sound, [#""default""#, #""""#, "{}", #"{"name":"a","critical":1,"volume":0.5}"#, #"{"critical":false}"#],
            ["1", "[]", #"{"name":1}"#, #"{"critical":2}"#, #"{"volume":1.5}"#, #"{"volume":-1}"#, #"{"x":1}"#]
        ),
        (.threadID, [#""""#, #""a\n""#], ["1", "[]"]), (.category, [#""a""#], ["{}"]),
        (.targetContentID, [#""a""#], ["1"]),
        (.filterCriteria, [#""a""#], ["1"]), (.attributesType, [#""A""#], [#""""#, "1"]),
        (.contentAvailable, ["true", "1", "0", "false", "1.0"], ["2", #""1""#, "[]", "-1"]),
        (.mutableContent, ["true", "1"], ["2", #""true""#]), (.inputPushToken, ["1"], [#""1""#]),
        (.contentChanged, ["true"], ["3"]),
        (.interruptionLevel, [#""passive""#, #""time-sensitive""#], [#""loud""#, "1"]),
        (.relevanceScore, ["0", "1", "0.5"], ["1.5", "-0.1", #""1""#, "true"]), (.staleDate, times.good, times.bad),
        (.timestamp, times.good, times.bad), (.dismissalDate, times.good, times.bad),
        (.contentState, ["{}", "[]", #"{"a":[1]}"#], ["[1]", #""{}""#]), (.attributes, ["{}"], ["1"]),
        (.event, [#""start""#, #""update""#, #""end""#], [#""stop""#, "1"]),
        (.inputPushChannel, [#""YQ==""#], [#""""#, #""é""#]),
        (.urlArguments, [#"["a"]"#, "[]"], [#""a""#, "[1]", "{}"]), (.mdm, [#""M""#], [#""""#, "1"]),
        (.custom, ["{}", "[ ]", #"{"a":{"aps":1}}"#], ["[1]", #"{"aps":{}}"#, #""x""#]),
    ]

    private static let times = (
        good: [
            "0", "1.25", "253402300799", "253402300799.999", #""2030-01-31T12:00:00Z""#, #""2030-01-31 12:00+0200""#,
            #""2030-01-31t12:00:60.123456,""#.replacing(",", with: "z"), #""1970-01-01T00:00-01""#, "1e9",
        ],
        bad: [
            "-1", "253402300800", "1700000000000", #""1700000000""#, #""2030-01-31""#, #""2030-01-31T12:00:00""#,
            #""2030-13-01T00:00Z""#, #""2030-01-32T00:00Z""#, #""2030-01-01T24:00Z""#, #""2030-01-01T00:00Z\n""#,
            "true", "[]", #""""#, #""1900-01-01T00:00Z""#, #""2030-01-01T00:60Z""#, #""2030-01-01T00:00+24:00""#,
        ]
    )

    private static func text(_ count: Int, _ character: String = "x") -> String {
        "\"" + String(repeating: character, count: count) + "\""
    }

    /// Returns the members that a job needs besides the given one.
    private static func around(_ member: JobMember) -> String {
        var members: [String] = []
        if ![.token, .tokens, .channel].contains(member) { members.append(#""token":"ab""#) }
        if member.rawValue < JobMember.alert.rawValue, member != .payload { members.append(#""badge":1"#) }
        if member == .uniqueFor || member == .replaces { members.append(#""id":"i""#) }
        if member == .fairPerSecond { members.append(#""fair":"f""#) }
        return members.map { $0 + "," }.joined()
    }

    @Test("agrees with the worker on each value of each member, and null is the same as an absent member")
    func eachValue() async throws {
        #expect(Set(Self.values.map(\.member)) == Set(JobMember.allCases))
        var jobs: [(text: String, isGood: Bool)] = []
        for (member, good, bad) in Self.values {
            for (value, isGood) in good.map({ ($0, true) }) + bad.map({ ($0, false) }) {
                jobs.append((#"{\#(Self.around(member))"\#(member.name)":\#(value)}"#, isGood))
            }
            if ![.token, .badge].contains(member) {
                jobs.append((#"{"token":"ab","badge":1,"\#(member.name)":null}"#, true))
            }
        }
        jobs += Self.combinations
        let verdicts = try await Self.schemaVerdicts(jobs.map(\.text))
        for (job, verdict) in zip(jobs, verdicts) {
            #expect(verdict == job.isGood, "the schema says \(verdict) of \(job.text)")
            #expect((Self.refusal(job.text) == nil) == job.isGood, "the worker says otherwise of \(job.text)")
        }
    }

    private static let combinations: [(String, Bool)] = [
        ("{}", false), ("[]", false), ("1", false), (#"{"token":"ab"}"#, false), (#"{"payload":{}}"#, false),
        (#"{"token":"ab","tokens":["ab"],"alert":""}"#, false), (#"{"token":null,"tokens":["ab"],"alert":""}"#, true),
        (#"{"token":"ab","channel":"YQ==","alert":""}"#, false),
        (#"{"tokens":["ab"],"channel":"YQ==","alert":""}"#, false),
        (#"{"token":"ab","payload":{},"alert":""}"#, false), (#"{"token":"ab","payload":{},"alert":null}"#, true),
        (#"{"token":"ab","payload":{},"custom":{}}"#, false), (#"{"token":"ab","payload":null}"#, false),
        (#"{"token":"ab","custom":{}}"#, true), (#"{"token":"ab","alert":"","unique_for":"1h"}"#, false),
        (#"{"token":"ab","alert":"","unique_for":"1h","id":null}"#, false),
        (#"{"token":"ab","alert":"","replaces":"k"}"#, false), (#"{"token":"ab","alert":"","replaces":5}"#, true),
        (#"{"token":"ab","alert":"","replaces":"k","id":"i","unique_for":"1h"}"#, false),
        (#"{"token":"ab","alert":"","replaces":5,"id":"i","unique_for":"1h"}"#, true),
        (#"{"token":"ab","alert":"","fair_per_second":1}"#, false),
        (#"{"token":"ab","alert":"","fair_per_second":1,"fair":null}"#, false),
        (#"{"token":"ab","alert":"","fair_per_second":1,"fair":5}"#, true),
        (#"{"token":"ab","alert":"","unknown":[1],"Token":1}"#, true),
        (#"{"token":"ab","relevance_score":100,"event":"end"}"#, true),
        (#"{"token":"ab","relevance_score":100,"event":null}"#, false),
        (#"{"token":"ab","relevance_score":100,"push_type":"alert","event":"end"}"#, false),
        (#"{"token":"ab","relevance_score":100,"push_type":"liveactivity"}"#, true),
        (#"{"token":"ab","mdm":"m","custom":{"mdm":1}}"#, false), (#"{"token":"ab","custom":{"mdm":1}}"#, true),
        (#"{"token":"ab","mdm":null,"custom":{"mdm":1}}"#, true),
    ]

    @Test("agrees with the worker on 4000 random and mutated jobs, except for rules it cannot express")
    func random() async throws {
        var random = SeededGenerator(seed: 0x5C4E)
        var jobs: [String] = []
        while jobs.count < 4000 {
            let text = Self.randomJob(&random)
            // A schema does not apply to text that is not JSON.
            let isJSON = ByteBuffer(string: text).withUnsafeReadableBytes { bytes in
                (try? JSONScanner.validate(bytes)) != nil
            }
            if isJSON { jobs.append(text) }
        }
        let verdicts = try await Self.schemaVerdicts(jobs)
        var good = 0
        for (job, isValid) in zip(jobs, verdicts) {
            let refusal = Self.refusal(job)
            if isValid, refusal == nil { good += 1 }
            if isValid { #expect(refusal == nil || Self.cannotSay(refusal, of: job), "only the schema takes \(job)") }
            if !isValid { #expect(refusal != nil, "only the worker takes \(job)") }
        }
        #expect((400..<3600).contains(good), "\(good)")
    }

    /// The rules that no schema can express:
    ///
    /// - duplicate members
    /// - times that have the right format but do not exist, or are out of bounds after their offset
    /// - the total length of a duration's parts
    /// - lengths in bytes instead of characters
    /// - a zero with a minus sign
    /// - the maximum of finite numbers
    private static func cannotSay(_ refusal: JobError?, of job: String) -> Bool {
        switch refusal {
        case .duplicateMember: return true
        case .invalidMember(let member, _, _):
            switch member {
            case .sendAt, .registeredAt, .enqueuedAt, .staleDate, .timestamp, .dismissalDate, .expiration, .uniqueFor:
                return true
            case .id, .app: return job.utf8.count > 255
            case .alert, .sound: return true  // One of their own members twice.
            default: return false
            }
        default: return false
        }
    }

    @Test("lists the only rules that it cannot express")
    func beyond() async throws {
        let jobs: [(String, String)] = [
            (#"{"token":"ab","alert":"","send_at":"2030-02-30T00:00Z"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","send_at":"1970-01-01T00:00+01:00"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","send_at":-0}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","expiration":"5300w"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","id":"i","unique_for":"31d"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","id":"i","unique_for":"0s"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","id":"\#(String(repeating: "é", count: 200))"}"#, "InvalidMember"),
            (#"{"token":"ab","alert":"","alert":""}"#, "DuplicateMember"),
            (#"{"token":"ab","alert":{"title":"a","title":"b"}}"#, "InvalidMember"),
        ]
        for (job, verdict) in zip(jobs, try await Self.schemaVerdicts(jobs.map(\.0))) {
            #expect(verdict && Self.refusal(job.0)?.code.rawValue == job.1, "\(job.0)")
        }
        // The schema has no rules of the worker's apps, and no rules of Apple for a payload and its push type.
        let check = JobCheck([Self.app])
        for (job, reason) in [
            (#"{"token":"ab","payload":{"x":"\#(String(repeating: "x", count: 5000))"}}"#, "PayloadTooLarge"),
            (
                #"{"token":"ab","content_available":1,"push_type":"background","channel":null,"priority":10}"#,
                "BadPriority"
            ),
            (#"{"token":"ab","alert":"","app":"other"}"#, "UnknownApp"),
            (#"{"token":"ab","content_available":1,"priority":10}"#, "BadPriority"),
        ] {
            #expect(try await Self.schemaVerdicts([job]) == [true])
            let verdicts = check.run(ByteBuffer(string: job), name: "job", now: 0).verdicts
            #expect(verdicts.contains { $0.level == .failure && $0.sentence.contains(reason) }, "\(verdicts)")
        }
    }

    private static let app = AppConfiguration(name: "default", topic: "a", credential: .providerTokens([]))

    /// Returns the worker's refusal of a job's format, token or push type.
    private static func refusal(_ text: String) -> JobError? {
        do throws(JobError) {
            let job = try JobDecoder.decode(ByteBuffer(string: text))
            if let type = job.pushType.map(job.text), !type.withUnsafeReadableBytes({ PushType(bytes: $0) != nil }),
                job.topic == nil || UnknownPushType(type) == nil
            {
                return .missingID(.pushType)
            }
            let fields = job.tokens.map { Array($0) } ?? job.token.map { [$0] } ?? []
            let isGood = fields.allSatisfy { (try? DeviceToken(job.text($0))) != nil }
            return isGood ? nil : .missingToken(found: nil)
        } catch { return error }
    }

    private static func schemaVerdicts(_ jobs: [String]) async throws -> [Bool] {
        let directory = FileManager.default.temporaryDirectory.appending(path: "schema-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let schema = directory.appending(path: "job.schema.json")
        try Data(JobSchema.text.utf8).write(to: schema)
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "schema_verdicts.py").path
        let lines = jobs.map { $0.replacing("\n", with: " ").replacing("\r", with: " ") }.joined(separator: "\n")
        let process = try ChildProcess("/usr/bin/python3", [script, schema.path], input: Data(lines.utf8))
        let ending = try await process.wait(within: .seconds(600))
        try #require(ending == .exited(0), "\(process.errors)")
        let verdicts = process.output.split(separator: "\n").map { $0 == "1" }
        try #require(verdicts.count == jobs.count)
        return verdicts
    }

    /// Returns a job of some members, mostly with valid values. Sometimes a few characters are changed.
    private static func randomJob(_ random: inout SeededGenerator) -> String {
        var members: [String] = []
        var added: Set<JobMember> = []
        func add(_ member: JobMember, _ random: inout SeededGenerator) {
            guard added.insert(member).inserted, let entry = values.first(where: { $0.member == member }) else {
                return
            }
            let isBad = Int.random(in: 0..<25, using: &random) == 0
            let value = (isBad ? entry.bad : entry.good).randomElement(using: &random) ?? "null"
            members.append("\"\(member.name)\":\(Int.random(in: 0..<30, using: &random) == 0 ? "null" : value)")
        }
        let target = [JobMember.token, .token, .tokens, .channel].randomElement(using: &random) ?? .token
        if Int.random(in: 0..<20, using: &random) > 0 { add(target, &random) }
        let isShort = Bool.random(using: &random)
        if !isShort { add(.payload, &random) }
        for _ in 0..<Int.random(in: 1...5, using: &random) {
            let member = JobMember.allCases.randomElement(using: &random) ?? .id
            let isOfShortForms = member.rawValue >= JobMember.alert.rawValue
            if isOfShortForms == isShort || Int.random(in: 0..<20, using: &random) == 0 {
                if ![.token, .tokens, .channel, .payload].contains(member)
                    || Int.random(in: 0..<15, using: &random) == 0
                {
                    add(member, &random)
                }
            }
        }
        var text = Array("{\(members.shuffled(using: &random).joined(separator: ","))}".unicodeScalars)
        if Bool.random(using: &random) {
            for _ in 0..<Int.random(in: 1...2, using: &random) {
                let index = Int.random(in: text.indices, using: &random)
                let letters = Array(#"09abz-_ "\/{}[],:.eT1é"#.unicodeScalars)
                text[index] = letters.randomElement(using: &random) ?? "x"
            }
        }
        return text.reduce(into: "") { $0.unicodeScalars.append($1) }
    }
}
