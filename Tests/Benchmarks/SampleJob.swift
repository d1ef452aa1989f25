import ArgumentParser
import FoundationEssentials
import NIOCore

/// The job of all measurements: a file's text with the placeholders `@id@`, `@token@` and `@sent@` for the parts that
/// differ between jobs.
struct SampleJob: Sendable {
    private let parts: [String]

    init(file: String) throws {
        let text = String(decoding: try Data(contentsOf: URL(filePath: file)), as: UTF8.self)
        var parts: [String] = []
        var rest = text[...]
        for marker in ["@id@", "@token@", "@sent@"] {
            guard let range = rest.firstRange(of: marker) else {
                throw ValidationError("\(file) has no \(marker) where it should be")
            }
            parts.append(String(rest[..<range.lowerBound]))
            rest = rest[range.upperBound...]
        }
        parts.append(String(rest.trimmingSuffix { $0.isWhitespace }))
        self.parts = parts
    }

    /// - Parameter sent: microseconds since 1970.
    func job(number: Int, sent: Int64) -> ByteBuffer {
        let digits = String(number, radix: 16)
        // The odd factor spreads the numbers over all digits, as those of real tokens are.
        let spread = String(UInt64(truncatingIfNeeded: number) &* 0x9E37_79B9_7F4A_7C15 | 1 << 63, radix: 16)
        let token = spread + spread + spread + String(repeating: "0", count: 16 - digits.count) + digits
        var buffer = ByteBuffer()
        buffer.writeString(
            "\(parts[0])job-\(number)\(parts[1])\(token)\(parts[2])\(sent)\(parts[3])")
        return buffer
    }
}

extension Substring {
    fileprivate func trimmingSuffix(while condition: (Character) -> Bool) -> Substring {
        var rest = self
        while let last = rest.last, condition(last) { rest.removeLast() }
        return rest
    }
}
