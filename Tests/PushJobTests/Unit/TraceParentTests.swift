import NIOCore
import Testing

@testable import PushJob

@Suite("A job's trace")
struct TraceParentTests {
    static let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @Test("is read from a valid traceparent, of a later version too")
    func isRead() throws {
        for text in [
            Self.valid, Self.valid.replacing("00-", with: "cc-", maxReplacements: 1),
            "01" + Self.valid.dropFirst(2) + "-more",
        ] {
            let trace = try #require(TraceParent(ByteBuffer(string: text)), "\(text)")
            #expect(trace.traceID == "0af7651916cd43dd8448eb211c80319c" && trace.parentID == "b7ad6b7169203331")
        }
    }

    @Test(
        "is absent if the specification ignores the header",
        arguments: [
            "", "00", valid.uppercased(), valid + "-more", valid + "x", String(valid.dropLast()),
            "ff" + valid.dropFirst(2), "01" + valid.dropFirst(2) + "more", "0x" + valid.dropFirst(2),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n",
        ])
    func invalid(_ text: String) { #expect(TraceParent(ByteBuffer(string: text)) == nil) }

    @Test("is found in a job, written with escapes or not, and in what a retry wraps")
    func inJob() throws {
        let job = #"{"traceparent":"\#(Self.valid)","tracestate":"a=1","token":"ab","payload":{}}"#
        let escaped = job.replacing("00-0af", with: #"\u0030\u0030-0af"#)
        for body in [job, escaped, #"{"apns_worker":1,"attempt":2,"job":\#(job)}"#] {
            let decoded = try JobDecoder.decode(ByteBuffer(string: body))
            #expect(decoded.trace?.traceID == "0af7651916cd43dd8448eb211c80319c", "\(body)")
        }
    }

    @Test(
        "that is invalid, or not a string, does not make a job invalid",
        arguments: ["\"x\"", "1", "{\"a\":[]}", "null", "true"])
    func ignored(_ value: String) throws {
        let job = try JobDecoder.decode(ByteBuffer(string: #"{"traceparent":\#(value),"token":"ab","payload":{}}"#))
        #expect(job.trace == nil)
    }
}
