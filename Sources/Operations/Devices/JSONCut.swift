import NIOCore
import PushJob

/// A JSON text that omits some elements of all arrays with one name, such as `tokens`. All other bytes stay as they are. The arrays may be
/// at any depth, and even in a string that is JSON itself, as in Sidekiq's arguments.
struct JSONCut {
    let text: ByteBuffer
    /// The number of elements that the arrays still have.
    let kept: Int
    /// True if an array has lost all of its elements.
    let isEmptied: Bool

    /// - Parameter isCut: returns true for an element that is left out.
    /// - Returns: `nil` if the text is not JSON.
    init?(_ text: ByteBuffer, elementsOf name: StaticString, where isCut: (UnsafeRawBufferPointer) -> Bool) {
        let cut: (text: ByteBuffer, kept: Int, isEmptied: Bool)? = text.withUnsafeReadableBytes { bytes in
            // The closure does not outlive the call.
            withoutActuallyEscaping(isCut) { isCut in
                var cutter = Cutter(bytes: bytes, name: name, isCut: isCut)
                var scanner = JSONScanner(bytes)
                do throws(JSONError) {
                    try scanner.begin()
                    try cutter.value(&scanner, isNamed: false)
                    try scanner.finish()
                } catch {
                    return nil
                }
                return (cutter.result, cutter.kept, cutter.isEmptied)
            }
        }
        guard let cut else { return nil }
        (self.text, kept, isEmptied) = cut
    }

    private struct Cutter {
        let bytes: UnsafeRawBufferPointer
        let name: StaticString
        let isCut: (UnsafeRawBufferPointer) -> Bool
        var kept = 0
        var isEmptied = false
        /// In ascending order of the ranges.
        private var edits: [(range: Range<Int>, text: ByteBuffer)] = []

        init(bytes: UnsafeRawBufferPointer, name: StaticString, isCut: @escaping (UnsafeRawBufferPointer) -> Bool) {
            (self.bytes, self.name, self.isCut) = (bytes, name, isCut)
        }

        mutating func value(_ scanner: inout JSONScanner, isNamed: Bool) throws(JSONError) {
            switch scanner.next {
            case UInt8(ascii: "{"):
                var more = try scanner.enterObject()
                while more {
                    let member = try scanner.name()
                    let isNamed = JSONText.withCharacters(of: member, in: bytes) { $0.isEqual(to: name) }
                    try value(&scanner, isNamed: isNamed)
                    more = try scanner.nextMember()
                }
            case UInt8(ascii: "[") where isNamed: try array(&scanner)
            case UInt8(ascii: "["):
                var more = try scanner.enterArray()
                while more {
                    try value(&scanner, isNamed: false)
                    more = try scanner.nextElement()
                }
            case UInt8(ascii: "\""):
                let start = scanner.offset
                nested(try scanner.string(), start..<scanner.offset)
            default: try scanner.skipValue()
            }
        }

        private mutating func array(_ scanner: inout JSONScanner) throws(JSONError) {
            let start = scanner.offset
            var (rest, count, left) = (ByteBuffer(string: "["), 0, 0)
            var more = try scanner.enterArray()
            while more {
                let first = scanner.offset
                try scanner.skipValue()
                count += 1
                let element = UnsafeRawBufferPointer(rebasing: bytes[first..<scanner.offset])
                if !isCut(element) {
                    if left > 0 { rest.writeInteger(UInt8(ascii: ",")) }
                    rest.writeBytes(element)
                    left += 1
                }
                more = try scanner.nextElement()
            }
            kept += left
            guard left < count else { return }
            rest.writeInteger(UInt8(ascii: "]"))
            edits.append((start..<scanner.offset, rest))
            isEmptied = isEmptied || left == 0
        }

        /// Cuts elements in a string that is JSON itself.
        private mutating func nested(_ string: JSONString, _ quoted: Range<Int>) {
            let text = JSONText.withCharacters(of: string, in: bytes) { characters in
                characters.first == UInt8(ascii: "{") ? ByteBuffer(bytes: characters) : nil
            }
            guard let text, let cut = JSONCut(text, elementsOf: name, where: isCut) else { return }
            kept += cut.kept
            isEmptied = isEmptied || cut.isEmptied
            guard cut.text != text else { return }
            var encoded = ByteBuffer()
            encoded.writeJSONString(cut.text)
            edits.append((quoted, encoded))
        }

        var result: ByteBuffer {
            var (result, start) = (ByteBuffer(), 0)
            for edit in edits {
                result.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[start..<edit.range.lowerBound]))
                result.writeImmutableBuffer(edit.text)
                start = edit.range.upperBound
            }
            result.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[start...]))
            return result
        }
    }
}
