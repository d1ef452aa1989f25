import NIOCore
import PushJob

/// Writes a value of MessagePack as JSON.
///
/// Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md). Types that JSON does not have are
/// refused: extensions, and numbers that are not finite. A map's names must be strings.
struct MessagePackText {
    /// The reasons why a value has no JSON text.
    enum Malformed: Error, Equatable, CustomStringConvertible {
        case end, trailingBytes, tooDeep, notJSON, notUTF8

        var description: String {
            switch self {
            case .end: "its MessagePack ends early"
            case .trailingBytes: "its MessagePack has bytes after its end"
            case .tooDeep: "its MessagePack is nested too deeply"
            case .notJSON: "its MessagePack has a value that JSON does not have"
            case .notUTF8: "its MessagePack has a text that is not UTF-8"
            }
        }
    }

    private var input: ByteBuffer
    private var output = ByteBuffer()

    /// - Parameter value: one value.
    /// - Returns: its JSON text.
    static func json(_ value: ByteBuffer) throws(Malformed) -> ByteBuffer {
        var text = MessagePackText(input: value)
        try text.write(depth: 0)
        guard text.input.readableBytes == 0 else { throw .trailingBytes }
        return text.output
    }

    private init(input: ByteBuffer) { self.input = input }

    // The depth limits the recursion.
    private mutating func write(depth: Int) throws(Malformed) {
        guard depth <= JSONScanner.maximumDepth else { throw .tooDeep }
        let type = try integer(UInt8.self)
        switch type {
        case 0x00...0x7F: output.writeString("\(type)")
        case 0x80...0x8F: try writeMap(Int(type & 0x0F), depth)
        case 0x90...0x9F: try writeArray(Int(type & 0x0F), depth)
        case 0xA0...0xBF: try writeText(Int(type & 0x1F))
        case 0xC0: output.writeStaticString("null")
        case 0xC2: output.writeStaticString("false")
        case 0xC3: output.writeStaticString("true")
        case 0xC4, 0xD9: try writeText(Int(integer(UInt8.self)))
        case 0xC5, 0xDA: try writeText(Int(integer(UInt16.self)))
        case 0xC6, 0xDB: try writeText(Int(integer(UInt32.self)))
        case 0xCA: try writeNumber(Double(Float(bitPattern: integer(UInt32.self))))
        case 0xCB: try writeNumber(Double(bitPattern: integer(UInt64.self)))
        case 0xCC: output.writeString("\(try integer(UInt8.self))")
        case 0xCD: output.writeString("\(try integer(UInt16.self))")
        case 0xCE: output.writeString("\(try integer(UInt32.self))")
        case 0xCF: output.writeString("\(try integer(UInt64.self))")
        case 0xD0: output.writeString("\(try integer(Int8.self))")
        case 0xD1: output.writeString("\(try integer(Int16.self))")
        case 0xD2: output.writeString("\(try integer(Int32.self))")
        case 0xD3: output.writeString("\(try integer(Int64.self))")
        case 0xDC: try writeArray(Int(integer(UInt16.self)), depth)
        case 0xDD: try writeArray(Int(integer(UInt32.self)), depth)
        case 0xDE: try writeMap(Int(integer(UInt16.self)), depth)
        case 0xDF: try writeMap(Int(integer(UInt32.self)), depth)
        case 0xE0...0xFF: output.writeString("\(Int8(bitPattern: type))")
        // Extensions, and the byte that is never used.
        default: throw .notJSON
        }
    }

    private mutating func integer<Number: FixedWidthInteger>(_: Number.Type) throws(Malformed) -> Number {
        guard let number = input.readInteger(as: Number.self) else { throw .end }
        return number
    }

    private mutating func writeText(_ length: Int) throws(Malformed) {
        guard let text = input.readSlice(length: length) else { throw .end }
        guard String(validating: text.readableBytesView, as: UTF8.self) != nil else { throw .notUTF8 }
        output.writeJSONString(text)
    }

    private mutating func writeNumber(_ number: Double) throws(Malformed) {
        guard number.isFinite else { throw .notJSON }
        output.writeString("\(number)")
    }

    private mutating func writeArray(_ count: Int, _ depth: Int) throws(Malformed) {
        output.writeStaticString("[")
        for index in 0..<count {
            if index > 0 { output.writeStaticString(",") }
            try write(depth: depth + 1)
        }
        output.writeStaticString("]")
    }

    private mutating func writeMap(_ count: Int, _ depth: Int) throws(Malformed) {
        output.writeStaticString("{")
        for index in 0..<count {
            if index > 0 { output.writeStaticString(",") }
            guard let type = input.getInteger(at: input.readerIndex, as: UInt8.self) else { throw .end }
            guard 0xA0...0xBF ~= type || 0xD9...0xDB ~= type || 0xC4...0xC6 ~= type else { throw .notJSON }
            try write(depth: depth + 1)
            output.writeStaticString(":")
            try write(depth: depth + 1)
        }
        output.writeStaticString("}")
    }
}
