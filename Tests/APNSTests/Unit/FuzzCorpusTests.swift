import Foundation
import Testing

enum FuzzCorpus {
    /// Returns the inputs of a corpus of `scripts/fuzz`. Each line is an input in base64.
    static func read(_ name: String) throws -> [[UInt8]] {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../Fuzzing/\(name).corpus")
        return try String(contentsOf: file, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
            .dropLast()
            .map { Array(try #require(Data(base64Encoded: String($0)))) }
    }
}

@Suite("HTTP/2, with the fuzzer's corpus")
struct FuzzCorpusTests {
    @Test("a session keeps its rules with each input of the corpus")
    func corpus() throws {
        let inputs = try FuzzCorpus.read("http2")
        #expect(inputs.count > 100)
        for (line, bytes) in inputs.enumerated() {
            do throws(FuzzViolation) { try FuzzClient.run(bytes) } catch {
                Issue.record("http2.corpus:\(line + 1): \(error)")
            }
        }
    }
}
