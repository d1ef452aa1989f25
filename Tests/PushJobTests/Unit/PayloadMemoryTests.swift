import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("Payload memory")
struct PayloadMemoryTests {
    /// Returns the result of reading a job, as text.
    private static func outcome(
        _ body: String, as format: JobFormat = .native, _ memory: PayloadMemory? = nil
    ) -> String {
        do throws(JobError) {
            let job = try JobDecoder.decode(ByteBuffer(string: body), as: format, memory)
            return """
                payload \(String(buffer: job.bytes(job.payload))) id \(job.id.map { String(buffer: job.text($0)) } ?? "-")
                \(job.facts) mistakes \(job.mistakes) names \(job.otherNames)
                """
        } catch {
            return "refused: \(error)"
        }
    }

    private static let deep = String(repeating: "[", count: 61) + String(repeating: "]", count: 61)
    private static let payloads = [
        #"{"aps":{"alert":"a"}}"#, #"{"aps":{"alert":"b"}}"#, #"{"aps":{"alert":"a"},"x":1}"#, #"{"aps":{}}"#, "{}",
        #"{"aps":{"alert":"a","bagde":1}}"#, #"{"aps":{"event":"end","timestamp":1}}"#, #"{"mdm":"push-magic"}"#,
        #"{"aps":{"alert":"a"}"#, #"{"aps":{"alert":"a"}}}"#, #"{"aps":{"alert":"a"}},"aps":{}"#, #"["aps"]"#, "7",
        #"{"aps":{"alert":"\#(String(repeating: "x", count: 4096))"}}"#, #"{"x":\#(deep)}"#,
    ]

    @Test("5,000 jobs in any order read with a memory as without one")
    func sequences() {
        var random = SeededGenerator(seed: 0xFACE)
        let memory = PayloadMemory()
        var refused = 0
        for number in 0..<5000 {
            let payload = Self.payloads[Int.random(in: 0..<Self.payloads.count, using: &random)]
            let rest =
                ["", #","alert":"short""#, #","payload":{"aps":{}}"#, #","other":{}"#, "}"]
                .randomElement(using: &random) ?? ""
            let isFirst = Bool.random(using: &random)
            let job =
                #"{"id":"\#(number)",\#(isFirst ? "\"payload\":\(payload)," : "")"token":"ab"\#(rest)\#(isFirst ? "" : ",\"payload\":\(payload)")}"#
            let isSidekiq = Int.random(in: 0..<4, using: &random) == 0
            let body = isSidekiq ? #"{"class":"PushJob","args":[\#(job)]}"# : job
            let format: JobFormat = isSidekiq ? .sidekiq(classes: []) : .native
            let expected = Self.outcome(body, as: format)
            #expect(Self.outcome(body, as: format, memory) == expected, "\(body.prefix(300))")
            if expected.hasPrefix("refused") { refused += 1 }
        }
        // With few jobs of either kind, the comparison would prove little.
        #expect((1000..<4000).contains(refused), "\(refused) jobs were refused")
    }

    @Test(
        "a payload that is nested as deeply as allowed is refused where it is nested more deeply, also the second time")
    func depth() {
        let memory = PayloadMemory()
        let job = #"{"token":"ab","payload":{"x":\#(Self.deep)}}"#
        let nested = #"{"class":"PushJob","args":[\#(job)]}"#
        #expect(!Self.outcome(job, as: .native, memory).hasPrefix("refused"))
        #expect(Self.outcome(nested, as: .sidekiq(classes: []), memory).hasPrefix("refused"))
    }

    @Test("a payload is read again after another one, and recognized after itself")
    func recognition() throws {
        let memory = PayloadMemory()
        let text = #"{"aps":{"alert":"a","bagde":1},"n":[1,2,3]}"#
        func steps(_ text: String) throws -> Int {
            try ByteBuffer(string: text).withUnsafeReadableBytes { bytes in
                var (scanner, facts) = (JSONScanner(bytes), PayloadFacts())
                try memory.read(&scanner, &facts)
                #expect(facts.mayHaveMistakes == text.contains("bagde"))
                return scanner.offset
            }
        }
        for _ in 0..<3 {
            #expect(try steps(text + "}") == text.utf8.count)
            #expect(try steps(#"{"aps":{}}"#) == 10)
            #expect(try steps(#"{"aps":{}}"#) == 10)
        }
    }
}
