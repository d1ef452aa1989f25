import Foundation
import Testing

/// The inputs found by `scripts/fuzz`, without libFuzzer.
@Suite("HTTP/2, with the fuzzer's corpus")
struct FuzzCorpusTests {
    @Test("a session keeps its rules with each input of the corpus")
    func corpus() throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../Fuzzing/Corpus")
        let inputs = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        #expect(inputs.count > 100)
        for input in inputs {
            let bytes = try Array(Data(contentsOf: input))
            do throws(FuzzViolation) { try FuzzClient.run(bytes) } catch {
                Issue.record("\(input.lastPathComponent): \(error)")
            }
        }
    }
}
