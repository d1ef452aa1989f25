import PrintableText
import Testing

@Suite("The search for a text in bytes")
struct ByteSearchTests {
    @Test(
        "finds the first place",
        arguments: [
            ("", nil), ("a", nil), ("://", 0..<3), ("a://b://", 1..<4), ("a:/:/://", 5..<8), ("::::/", nil),
            ("x:/", nil),
        ])
    func range(text: String, expected: Range<Int>?) {
        #expect(Array(text.utf8)[...].range(of: "://") == expected)
        // The indices of a slice are those of the whole array.
        let behind = Array(("://" + text).utf8)[3...]
        #expect(behind.range(of: "://") == expected.map { $0.lowerBound + 3..<$0.upperBound + 3 })
    }
}
