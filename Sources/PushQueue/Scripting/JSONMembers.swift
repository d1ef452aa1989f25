import NIOCore
import PushJob

/// Members and elements are written with a comma before them, unless they are the first.
extension ByteBuffer {
    private mutating func writeComma() {
        let last = getInteger(at: writerIndex - 1, as: UInt8.self)
        if last != UInt8(ascii: "{"), last != UInt8(ascii: "[") { writeStaticString(",") }
    }

    private mutating func writeName(_ name: StaticString) {
        writeComma()
        writeStaticString("\"")
        writeStaticString(name)
        writeStaticString("\":")
    }

    /// Writes a member of a JSON object, if it has a value.
    mutating func writeMember(_ name: StaticString, _ text: String?) {
        guard let text else { return }
        writeName(name)
        writeJSONString(text)
    }

    mutating func writeMember(_ name: StaticString, _ text: ByteBuffer?) {
        guard let text else { return }
        writeName(name)
        writeJSONString(text)
    }

    mutating func writeMember(_ name: StaticString, _ number: (some FixedWidthInteger)?) {
        guard let number else { return }
        writeName(name)
        writeJSONInteger(Int64(number))
    }

    mutating func writeMember(_ name: StaticString, _ isTrue: Bool) {
        writeName(name)
        writeStaticString(isTrue ? "true" : "false")
    }

    mutating func writeMember(_ name: StaticString, json: ByteBuffer?) {
        guard let json else { return }
        writeName(name)
        writeImmutableBuffer(json)
    }

    /// Writes a member that is an array.
    mutating func writeArray<Element>(
        _ name: StaticString, _ elements: some Sequence<Element>, _ write: (inout ByteBuffer, Element) -> Void
    ) {
        writeName(name)
        writeStaticString("[")
        for element in elements {
            writeComma()
            write(&self, element)
        }
        writeStaticString("]")
    }
}
