import Testing

@testable import PushJob

@Suite("Job push type inference")
struct JobPushTypeTests {
    /// Payloads with `content-available` alone.
    static let background = [
        #"{"aps":{"content-available":1}}"#, #"{"x":[1],"aps" : { "content-available" : 1 } , "y":{}}"#,
        #"{"aps":{"content-available":1,"category":"a","mutable-content":1},"alert":"not in aps"}"#,
        #"{"aps":{"content\u002davailable":1}}"#, #"{"\u0061ps":{"content-available":1}}"#,
        #"{"-":"--","aps":{"content-available":1}}"#, #"{"aps":{"content-available":true}}"#,
        #"{"aps":{"content-available":1,"alert":null}}"#,
    ]

    /// Payloads that show something, or have no members.
    static let alerts = [
        "{}", #"{"aps":{}}"#, #"{"aps":{"alert":"x"}}"#, #"{"aps":{"content-available":0}}"#,
        #"{"aps":{"content-available":1,"alert":"x"}}"#, #"{"aps":{"badge":0,"content-available":1}}"#,
        #"{"aps":{"content-available":1,"sound":""}}"#, #"{"aps":{"content-available":1,"\u0061lert":"x"}}"#,
        #"{"content-available":1}"#, #"{"aps":{"x":{"content-available":1}}}"#,
        #"{"x":{"aps":{"content-available":1}}}"#,
        #"{"aps":"content-available"}"#, #"{"aps":["content-available",1]}"#, #"{"aps":{"content-available":10}}"#,
        #"{"aps":{"content-available":"1"}}"#, #"{"x":"content-available","aps":{"alert":"\\"}}"#,
        #"{"-content-availabl":"e-"}"#,
    ]

    @Test(
        "short forms determine the kind of notification",
        arguments: [
            (#""alert":"x""#, PushType?.some(.alert)), (#""content_available":true"#, .background),
            (#""content_available":1,"custom":{"a":1}"#, .background), (#""content_available":false"#, .alert),
            (#""content_available":1,"alert":"x""#, .alert), (#""badge":0,"content_available":1"#, .alert),
            (#""sound":"x","content_available":1"#, .alert), (#""alert":null,"content_available":1"#, .background),
            (#""event":"end""#, .liveactivity), (#""content_state":{},"alert":"x""#, .liveactivity),
            (#""mdm":"magic""#, .mdm), (#""custom":{"aps-like":1}"#, .alert), (#""timestamp":1"#, .alert),
            // Members of a payload count only in the payload.
            (#""content-available":1,"aps":{"content-available":1},"payload":{}"#, .alert),
        ])
    func shortForms(members: String, kind: PushType?) throws {
        #expect(try decodeJob(shortJob(members)).inferredPushType == kind)
    }

    /// Payloads of other push types, and payloads that only look like them.
    static let others: [(String, PushType?)] = [
        (#"{"aps":{"event":"update","content-state":{},"timestamp":1}}"#, .liveactivity),
        (#"{"aps":{"timestamp":1,"event":"end"}}"#, .liveactivity),
        (#"{"aps":{"event":"start","content-state":{},"alert":"x"}}"#, .liveactivity),
        (#"{"aps":{"ev\u0065nt":"end","timestamp":1}}"#, .liveactivity),
        (#"{"x":1,"aps":{"event":"end","timestamp":1}}"#, .liveactivity),
        (#"{"aps":{"event":"end"}}"#, .alert), (#"{"aps":{"event":"tap","timestamp":1}}"#, .alert),
        (#"{"aps":{"alert":"x","content-state":{}}}"#, .alert),
        (#"{"aps":{"event":"Update","content-state":{},"timestamp":1}}"#, .liveactivity),
        (#"{"aps":{"event":"tap","alert":"x","content-state":{}}}"#, .alert),
        (#"{"aps":{"content-changed":true}}"#, nil),
        (#"{"aps":{"content-changed":true,"alert":"x"}}"#, .alert),
        (#"{"event":"end","timestamp":1,"aps":{}}"#, .alert),
        (#"{"mdm":"magic"}"#, .mdm), (#"{ "mdm" : "magic" }"#, .mdm), (#"{"mdm":1}"#, .alert),
        (#"{"aps":{"alert":"x"},"mdm":"magic"}"#, .alert), (#"{"mdm":"magic","aps":{}}"#, .mdm),
        (#"{"aps":{"mdm":"magic"}}"#, .alert), (#"{"aps":{"content-available":1},"mdm":"x"}"#, .background),
    ]

    @Test(
        "a payload determines the kind of notification, if it is certain",
        arguments: background.map { ($0, PushType?.some(.background)) } + alerts.map { ($0, .alert) } + others)
    func payloads(payload: String, kind: PushType?) throws {
        #expect(try decodeJob(#"{"token":"ab","payload":\#(payload)}"#).inferredPushType == kind)
    }

    @Test("a job for a channel is for Live Activities")
    func channel() throws {
        #expect(try decodeJob(#"{"channel":"ab","payload":{}}"#).inferredPushType == .liveactivity)
    }
}
