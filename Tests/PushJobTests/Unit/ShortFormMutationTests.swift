import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushJob

/// Breaks jobs of short forms at random: the payload of each job that is still valid must be JSON.
@Suite("Short form mutations")
struct ShortFormMutationTests {
    static let jobs = [
        #"""
        {"token":"a1","truncate":true,"alert":{"title":"Grüße 😀","body":"\"quoted\"\n and more words 👨‍👩‍👧‍👦 \uD83D\uDE00","loc_args":["a"]},
         "badge":3,"sound":{"critical":true,"name":"x","volume":0.5},"relevance_score":0.25,"content_available":true,
         "custom":{"a":[1,null],"b":{"c":"d"}},"interruption_level":"time-sensitive","url_args":["x","y"]}
        """#,
        #"""
        {"channel":"YQ==","truncate":true,"event":"update","timestamp":"2030-01-31T12:00:00Z","stale_date":1900000000.5,
         "content_state":{"score":[1,2]},"relevance_score":100,"alert":{"title":{"loc_key":"k","loc_args":[]},"body":"Tor!"}}
        """#,
        #"{"token":"a1","truncate":true,"payload":{"x":"y","aps":{"alert":{"body":"one two three \u00e9 😀 four"},"badge":1}}}"#,
        #"{"token":"a1","mdm":"magic","custom":{"k":0}}"#,
    ]

    @Test("on 30,000 jobs with up to four random changes")
    func randomChanges() throws {
        var random = SeededGenerator(seed: 0x50F7)
        var (good, shortened, tooLong) = (0, 0, 0)
        for round in 0..<30_000 {
            var bytes = Array(Self.jobs[round % Self.jobs.count].utf8)
            for _ in 0..<Int.random(in: 0...4, using: &random) { JSONMutationTests.change(&bytes, using: &random) }
            let job: Job
            do throws(JobError) {
                job = try JobDecoder.decode(ByteBuffer(bytes: bytes))
            } catch {
                #expect(
                    (error.code.rawValue == "MalformedJSON")
                        == (bytes.jsonError != nil && error.code.rawValue != "TooDeep"))
                continue
            }
            good += 1
            let whole = try job.payload(limit: .max)
            try check(whole, of: bytes)
            let limit = Int.random(in: 0...(whole.readableBytes + 10), using: &random)
            do throws(JobError) {
                let payload = try job.payload(limit: limit)
                try check(payload, of: bytes)
                if job.traits.contains(.truncate) {
                    #expect(payload.readableBytes <= limit)
                    if payload != whole { shortened += 1 }
                } else {
                    #expect(payload == whole)
                }
            } catch {
                #expect(error.code.rawValue == "PayloadTooLarge" && job.traits.contains(.truncate))
                tooLong += 1
            }
        }
        // With few jobs of any kind, the comparison would prove little.
        #expect(good > 5000 && shortened > 300 && tooLong > 1000, "\(good), \(shortened), \(tooLong)")
    }

    private func check(_ payload: ByteBuffer, of job: [UInt8]) throws(JobError) {
        let bytes = Array(payload.readableBytesView)
        #expect(bytes.jsonError == nil, "\(String(decoding: job, as: UTF8.self))")
        do {
            let object = try JSONSerialization.jsonObject(with: Data(bytes))
            #expect(object is [String: Any])
        } catch {
            // Numbers that a double cannot hold are JSON, but Foundation refuses them.
            #expect(
                ((error as NSError).userInfo[NSDebugDescriptionErrorKey] as? String)?.contains("not representable")
                    == true,
                "\(error) \(String(decoding: job, as: UTF8.self))")
        }
    }
}
