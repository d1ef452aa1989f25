import NIOCore
import Testing

@testable import PushJob

@Suite("Payload facts")
struct PayloadFactsTests {
    private static func facts(_ payload: String) throws -> PayloadFacts {
        try PayloadFacts(ByteBuffer(string: payload))
    }

    @Test(
        "finds the contents of a payload",
        arguments: [
            ("{}", []), (#"{"aps":{}}"#, [.aps, .apsName]), (#"{"aps":null}"#, [.apsName]), ("[]", []),
            (#"{"aps":{"alert":"x"}}"#, [.aps, .apsName, .alert]),
            (#"{"aps":{"alert":{}, "badge":0 ,"sound":"s"}}"#, [.aps, .apsName, .alert, .badge, .sound]),
            (#"{"aps":{"alert":null,"badge":null,"sound":null,"timestamp":null}}"#, [.aps, .apsName]),
            (#"{"aps":{"alert":5,"timestamp":"1","content-state":"x","attributes":[]}}"#, [.aps, .apsName]),
            (#"{"\u0061ps":{"content-av\u0061ilable":1}}"#, [.aps, .apsName, .contentAvailable]),
            (#"{"aps":{"content-available":0,"content-changed":false}}"#, [.aps, .apsName]),
            (#"{"aps":{"content-changed":true}}"#, [.aps, .apsName, .contentChanged]),
            (
                #"{"aps":{"timestamp":1,"content-state":{},"attributes-type":"T","attributes":{"alert":1}}}"#,
                [.aps, .apsName, .timestamp, .contentState, .attributesType, .attributes]
            ), (#"{"mdm":"x","container-identifier":"y"}"#, [.mdm, .containerIdentifier]),
            (#"{"mdm":1,"container-identifier":{}}"#, []), (#"{"x":{"aps":{"alert":1},"mdm":"x"},"alert":"x"}"#, []),
        ] as [(String, PayloadFacts.Members)])
    func members(payload: String, members: PayloadFacts.Members) throws {
        #expect(try Self.facts(payload).members == members)
    }

    @Test(
        "finds the event",
        arguments: [
            (#""start""#, .start), (#""update""#, .update), (#""e\u006ed""#, .end), (#""stop""#, .other), ("1", .other),
            ("null", nil),
        ] as [(String, PayloadFacts.Event?)])
    func event(value: String, event: PayloadFacts.Event?) throws {
        #expect(try Self.facts(#"{"aps":{"event":\#(value)}}"#).event == event)
        #expect(try Self.facts(#"{"event":\#(value),"aps":{"x":{"event":\#(value)}}}"#).event == nil)
    }

    @Test("throws for invalid JSON", arguments: ["", "{", #"{"aps":{"alert":}}"#, "{} x"])
    func malformed(payload: String) {
        #expect(throws: JSONError.self) { try Self.facts(payload) }
    }
}
