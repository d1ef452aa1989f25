import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("The body of an error response")
struct ResponseBodyTests {
    private func read(_ text: String) -> ResponseBody? { ResponseBody(ByteBuffer(string: text)) }

    @Test("is read in APNs' own spelling", arguments: APNSReason.allCases)
    func exact(reason: APNSReason) {
        #expect(read(#"{"reason":"\#(reason.rawValue)"}"#) == ResponseBody(reason: reason.rawValue))
        #expect(
            read(#"{"reason":"\#(reason.rawValue)","timestamp":1792800000123}"#)
                == ResponseBody(reason: reason.rawValue, timestamp: 1_792_800_000_123))
    }

    @Test(
        "means the same in any other spelling of the JSON",
        arguments: [
            #" {"reason":"Unregistered","timestamp":1792800000123}"#,
            #"{ "reason" : "Unregistered" , "timestamp" : 1792800000123 }"#,
            #"{"timestamp":1792800000123,"reason":"Unregistered"}"#,
            "{\n\"reason\":\"Unregistered\",\n\"timestamp\":1792800000123\n}\n",
            #"{"reason":"Unregistered","timestamp":1792800000123,"more":[1,{"a":null}]}"#,
            #"{"reason":"Unre\u0067istered","timestamp":1792800000123}"#,
        ])
    func spellings(text: String) {
        #expect(read(text) == ResponseBody(reason: "Unregistered", timestamp: 1_792_800_000_123))
    }

    @Test(
        "keeps its reason when the timestamp is not a number of milliseconds",
        arguments: [
            #"{"reason":"Unregistered","timestamp":"1792800000123"}"#, #"{"reason":"Unregistered","timestamp":null}"#,
            #"{"reason":"Unregistered","timestamp":1.5}"#, #"{"reason":"Unregistered","timestamp":{}}"#,
            #"{"reason":"Unregistered","timestamp":99999999999999999999999}"#,
        ])
    func oddTimestamps(text: String) { #expect(read(text) == ResponseBody(reason: "Unregistered")) }

    @Test(
        "is ignored if it is not the object that APNs documents",
        arguments: [
            "", " ", "{}", "[]", "null", "\"Unregistered\"", #"{"reason":1}"#, #"{"reason":null}"#, #"{"reason":"#,
            #"{"reason":"Unregistered""#, #"{"reason":"Unregistered"}}"#, #"{"reason":"Unregistered","timestamp":}"#,
            #"{"reason":"Unregistered","timestamp":17"#, "<html><body>503 Service Unavailable</body></html>",
            #"{"Reason":"Unregistered"}"#,
        ])
    func junk(text: String) { #expect(read(text) == nil) }

    @Test("that is not UTF-8 or far too long is ignored")
    func hostile() {
        let notUTF8 = Array(#"{"reason":""#.utf8) + [0xFF, 0xFE] + Array(#""}"#.utf8)
        #expect(ResponseBody(ByteBuffer(bytes: notUTF8)) == nil)
        #expect(read(#"{"reason":""# + String(repeating: "a", count: ResponseBody.maximumSize) + #""}"#) == nil)
        #expect(read(String(repeating: "[", count: ResponseBody.maximumSize)) == nil)
    }

    @Test("of random bytes never stops the process")
    func random() {
        var generator = SeededGenerator(seed: 11)
        let seed = Array(#"{"reason":"Unregistered","timestamp":1792800000123}"#.utf8)
        for _ in 0..<3000 {
            var bytes = seed
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                bytes[Int.random(in: 0..<bytes.count, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            bytes.removeLast(Int.random(in: 0..<bytes.count, using: &generator) / 4)
            if let body = ResponseBody(ByteBuffer(bytes: bytes)) { #expect(body.reason.utf8.count < 100) }
        }
    }

    @Test("becomes a response that keeps a reason Apple adds later as text")
    func response() {
        let known = Response(
            status: 410, body: ByteBuffer(string: #"{"reason":"Unregistered","timestamp":5}"#), retryAfter: nil)
        #expect(known == Response(status: 410, reason: .unregistered, timestamp: 5))
        let new = Response(status: 400, body: ByteBuffer(string: #"{"reason":"BadMood"}"#), retryAfter: 3)
        #expect(new == Response(status: 400, reason: nil, reasonText: "BadMood", retryAfter: 3))
        #expect(Response(status: 502, body: ByteBuffer(string: "<html>"), retryAfter: nil) == Response(status: 502))
        #expect(Response(status: 503, body: nil, retryAfter: nil) == Response(status: 503))
    }
}
