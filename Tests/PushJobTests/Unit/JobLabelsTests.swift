import NIOCore
import Testing

@testable import PushJob

@Suite("The members campaign, labels, fair and urgent")
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

    @Test("fair is a text, and urgent is true or without effect, because producers may have had members of these names")
    func shares() throws {
        let job = try decode(#""fair":"caf\u00e9","fair_per_second":50,"urgent":true"#)
        #expect(job.string(job.fair) == "café" && job.fairPerSecond == 50 && job.isUrgent && job.ignoredMembers.isEmpty)
        let longest = String(repeating: "f", count: 100)
        #expect(try decode(#""fair":"\#(longest)""#).fair != nil)
        #expect(try decode(#""replaces":"\#(longest)","id":"i""#).replaces != nil)
        for value in ["1", #""""#, #""a\n""#, #"{"a":[1]}"#, "[]", #""\#(longest)f""#] {
            let job = try decode(#""fair":\#(value),"fair_per_second":50"#)
            #expect(job.fair == nil && job.ignoredMembers == [.fair], "\(value)")
            let replacing = try decode(#""replaces":\#(value),"id":"i""#)
            #expect(replacing.replaces == nil && replacing.ignoredMembers == [.replaces], "\(value)")
        }
        for value in ["false", "null", "1", #""true""#, "[true]"] {
            #expect(try !decode(#""urgent":\#(value)"#).isUrgent, "\(value)")
        }
        #expect(try decode(#""urgent":1"#).ignoredMembers == [.urgent])
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
        encoder.members[.campaign] = .text("spring \"sale\"")
        encoder.members[.labels] = .labels([("user", "4711"), ("shop", "1")])
        let job = try JobDecoder.decode(encoder.encode())
        #expect(job.string(job.campaign) == "spring \"sale\"")
        #expect(job.raw(job.labels) == #"{"user":"4711","shop":"1"}"#)
        for (member, value) in [
            (.labels, .labels([("user", "")])), (.fair, .text("")), (.campaign, .text("")),
        ] as [(JobMember, JobEncoder.Value)] {
            var other = encoder
            other.members[member] = value
            #expect(throws: JobError.ignored(member)) { try other.encode() }
        }
    }
}
