import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("Composed payloads")
struct PayloadComposerTests {
    @Test("the members have a fixed order, whatever their order in the job")
    func order() throws {
        let members = [
            #""custom":{"z":1}"#, #""url_args":["a"]"#, #""content_changed":true"#, #""input_push_channel":"YQ==""#,
            #""input_push_token":1"#, #""attributes":{}"#, #""attributes_type":"T""#, #""dismissal_date":4"#,
            #""event":"start""#, #""timestamp":3"#, #""content_state":{}"#, #""stale_date":2"#,
            #""filter_criteria":"f""#,
            #""relevance_score":50"#, #""interruption_level":"active""#, #""target_content_id":"w""#,
            #""mutable_content":true"#, #""content_available":1"#, #""category":"c""#, #""thread_id":"t""#,
            #""sound":"s""#, #""badge":1"#, #""alert":"a""#,
        ]
        let expected =
            #"{"aps":{"alert":"a","badge":1,"sound":"s","thread-id":"t","category":"c","content-available":1,"#
            + #""mutable-content":1,"target-content-id":"w","interruption-level":"active","relevance-score":50,"#
            + #""filter-criteria":"f","stale-date":2,"content-state":{},"timestamp":3,"event":"start","#
            + #""dismissal-date":4,"attributes-type":"T","attributes":{},"input-push-token":1,"#
            + #""input-push-channel":"YQ==","content-changed":true,"url-args":["a"]},"z":1}"#
        #expect(try composed(members.joined(separator: ",")) == expected)
        var random = SeededGenerator(seed: 7)
        for _ in 0..<20 { #expect(try composed(members.shuffled(using: &random).joined(separator: " , ")) == expected) }
    }

    @Test(
        "an alert with only a body is a plain string",
        arguments: [
            (#"{"body":"x"}"#, #""x""#), (#"{ "body" : "\u0041" , "title":null}"#, #""\u0041""#),
            (#"{"body":"x","title":"y"}"#, #"{"body":"x","title":"y"}"#),
            (#"{"body":{"loc-key":"k"}}"#, #"{"body":{"loc-key":"k"}}"#), (#"{"body":null}"#, "{}"), ("{}", "{}"),
            (#"{"title":"x"}"#, #"{"title":"x"}"#),
        ])
    func shortestAlert(alert: String, composed text: String) throws {
        #expect(try composed(#""alert":\#(alert)"#) == #"{"aps":{"alert":\#(text)}}"#)
        // A producer's own payload is not changed.
        let payload = #"{"aps":{"alert":\#(alert)}}"#
        let job = try decodeJob(#"{"token":"ab","payload":\#(payload)}"#)
        #expect(try String(buffer: job.payload(limit: 4096)) == payload)
    }

    @Test("a payload is returned as written, as a slice, however long it is; a job of short forms has none")
    func asWritten() throws {
        let job = try decodeJob(#"{"token":"ab","payload":{ "aps" : {} }}"#)
        #expect(!job.makesPayload)
        let payload = try job.payload(limit: 1)
        #expect(String(buffer: payload) == #"{ "aps" : {} }"#)
        #expect(payload == job.bytes(job.payload))
        let short = try decodeJob(shortJob(#""badge":1"#))
        #expect(short.makesPayload && short.payload.length == 0)
    }

    @Test("names spelled with escapes, unknown members and white space change nothing")
    func spelling() throws {
        #expect(
            try composed(
                " \"\\u0061lert\" : \"x\" , \"unknown\":{\"alert\":\"y\"},\n\"bad\\u0067e\":\t2 ,\"sound\":null")
                == #"{"aps":{"alert":"x","badge":2}}"#)
    }

    @Test("on 3,000 random jobs, the composed payload has exactly the members' values")
    func random() throws {
        var random = SeededGenerator(seed: 0xC0FFEE)
        let choices = ShortFormTests.good
        for _ in 0..<3000 {
            var expected: [String: Any] = [:]
            var members: [String] = []
            for (member, values) in choices.shuffled(using: &random).prefix(.random(in: 1...8, using: &random)) {
                let (value, sent) = values[.random(in: 0..<values.count, using: &random)]
                members.append(#""\#(member.name)":\#(value)"#)
                let name = member.name.description.replacing("_", with: "-")
                if let sent { expected[name] = try Self.object(sent) }
            }
            let object = try #require(try Self.object(composed(members.joined(separator: ","))) as? [String: Any])
            #expect(object.keys.sorted() == ["aps"])
            #expect(object["aps"] as? NSDictionary == expected as NSDictionary)
        }
    }

    private static func object(_ text: String) throws -> Any {
        try JSONSerialization.jsonObject(with: Data(text.utf8), options: [.fragmentsAllowed])
    }
}
