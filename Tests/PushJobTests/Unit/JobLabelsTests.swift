import NIOCore
import Testing

@testable import PushJob

@Suite("The members campaign and labels")
struct JobLabelsTests {
    private func decode(_ members: String) throws -> Job { try decodeJob(#"{\#(members),"token":"ab","payload":{}}"#) }

    @Test("are read from a job, written with escapes or not, and from what a retry wraps")
    func read() throws {
        let members = #""campaign":"spring-sale","labels":{"user":"4711","shop":"caf\u00e9"}"#
        let plain = #"{\#(members),"token":"ab","payload":{}}"#
        for body in [
            plain, plain.replacing("spring", with: #"\u0073pring"#), #"{"apns_worker":1,"attempt":2,"job":\#(plain)}"#,
        ] {
            let job = try JobDecoder.decode(ByteBuffer(string: body))
            #expect(job.string(job.campaign) == "spring-sale", "\(body)")
            #expect(job.raw(job.labels) == #"{"user":"4711","shop":"caf\u00e9"}"#, "\(body)")
        }
    }

    @Test(
        "that are not valid are ignored, because producers may have had members of these names before",
        arguments: [
            #""campaign":1"#, #""campaign":"""#, #""campaign":null"#, #""campaign":"a\nb""#, #""campaign":{"a":[1]}"#,
            #""labels":[]"#, #""labels":"x""#, #""labels":{"a":1}"#, #""labels":{"":"x"}"#, #""labels":{"a":""}"#,
            #""labels":{"a":"1","b":"2","c":"3","d":"4","e":"5"}"#, #""labels":{"a":{"b":"c"}}"#,
            #""labels":{"a":"\u0001"}"#,
        ])
    func ignored(_ member: String) throws {
        let job = try decode(member)
        #expect(job.campaign == nil && job.labels == nil)
    }

    @Test("keep_result is true or without effect")
    func keepResult() throws {
        #expect(try decode(#""keep_result":true"#).keepsResult)
        for value in ["false", "null", "1", #""true""#, "[true]"] {
            #expect(try !decode(#""keep_result":\#(value)"#).keepsResult, "\(value)")
        }
    }

    @Test("have limits in bytes")
    func bounds() throws {
        let (campaign, label) = (String(repeating: "c", count: 100), String(repeating: "l", count: 64))
        let longest = try decode(#""campaign":"\#(campaign)","labels":{"\#(label)":"\#(label)"}"#)
        #expect(longest.campaign != nil && longest.labels != nil)
        let longer = try decode(#""campaign":"\#(campaign)c","labels":{"\#(label)":"\#(label)l"}"#)
        #expect(longer.campaign == nil && longer.labels == nil)
        #expect(JobLabels.isCampaign(campaign) && !JobLabels.isCampaign(campaign + "c") && !JobLabels.isCampaign(""))
    }

    @Test("are written by the encoder, which refuses what the worker would ignore")
    func encoded() throws {
        var encoder = JobEncoder(tokens: ["ab"], payload: ByteBuffer(string: "{}"))
        (encoder.campaign, encoder.labels) = ("spring \"sale\"", [("user", "4711"), ("shop", "1")])
        let job = try JobDecoder.decode(encoder.encode())
        #expect(job.string(job.campaign) == "spring \"sale\"")
        #expect(job.raw(job.labels) == #"{"user":"4711","shop":"1"}"#)
        encoder.labels = [("user", "")]
        #expect(throws: JobError.ignored(.labels)) { try encoder.encode() }
        (encoder.campaign, encoder.labels) = ("", [])
        #expect(throws: JobError.ignored(.campaign)) { try encoder.encode() }
    }
}
