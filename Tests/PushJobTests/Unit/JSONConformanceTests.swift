import TestSupport
import Testing

@testable import PushJob

@Suite("JSON conformance")
struct JSONConformanceTests {
    @Test("accepts what the grammar allows and refuses everything else", arguments: JSONCase.all)
    func conforms(_ example: JSONCase) {
        let error = example.bytes.jsonError
        #expect((error == nil) == example.isGood, "\(example.name): \(error.map(\.description) ?? "was taken")")
        if let error { #expect((0...example.bytes.count).contains(error.offset)) }
    }

    @Test("the corpus has unique names and is large enough")
    func corpus() {
        #expect(Set(JSONCase.all.map(\.name)).count == JSONCase.all.count)
        #expect(JSONCase.all.count >= 150)
    }
}

extension [UInt8] {
    /// The scanner's error for these bytes as a document.
    var jsonError: JSONError? {
        withUnsafeBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                return nil
            } catch {
                return error
            }
        }
    }
}

extension JSONCase: CustomTestStringConvertible {
    package var testDescription: String { name }
}
