import Testing

@testable import PushQueue

@Suite("Job push type inference")
struct JobPushTypeTests {
    @Test(
        "content-available alone is a background notification",
        arguments: [
            #"{"aps":{"content-available":1}}"#, #"{"x":[1],"aps" : { "content-available" : 1 } , "y":{}}"#,
            #"{"aps":{"content-available":1,"category":"a","mutable-content":1},"alert":"not in aps"}"#,
            #"{"aps":{"content\u002davailable":1}}"#, #"{"\u0061ps":{"content-available":1}}"#,
            #"{"-":"--","aps":{"content-available":1}}"#,
        ])
    func background(payload: String) throws {
        #expect(try decodeJob(#"{"token":"ab","payload":\#(payload)}"#).payloadIsBackground)
    }

    @Test(
        "anything to show, or none at all, is not",
        arguments: [
            "{}", #"{"aps":{}}"#, #"{"aps":{"alert":"x"}}"#, #"{"aps":{"content-available":0}}"#,
            #"{"aps":{"content-available":1,"alert":"x"}}"#, #"{"aps":{"badge":0,"content-available":1}}"#,
            #"{"aps":{"content-available":1,"sound":""}}"#, #"{"aps":{"content-available":1,"\u0061lert":"x"}}"#,
            #"{"content-available":1}"#, #"{"aps":{"x":{"content-available":1}}}"#,
            #"{"x":{"aps":{"content-available":1}}}"#,
            #"{"aps":"content-available"}"#, #"{"aps":["content-available",1]}"#, #"{"aps":{"content-available":10}}"#,
            #"{"aps":{"content-available":"1"}}"#, #"{"x":"content-available","aps":{"alert":"\\"}}"#,
            #"{"-content-availabl":"e-"}"#,
        ])
    func other(payload: String) throws {
        #expect(try !decodeJob(#"{"token":"ab","payload":\#(payload)}"#).payloadIsBackground)
    }

    @Test("looks at the payload only, not at the rest of the job")
    func elsewhere() throws {
        let job = try decodeJob(#"{"content-available":1,"token":"ab","aps":{"content-available":1},"payload":{}}"#)
        #expect(!job.payloadIsBackground)
    }
}
