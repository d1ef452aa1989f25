import NIOCore

/// Writes an argument of an ActiveJob as the program passed it, without the members that Rails adds to restore Ruby's objects.
///
/// Source: Rails, `ActiveJob::Arguments` and `ActiveJob::Serializers`. Each hash has `_aj_symbol_keys`, `_aj_ruby2_keywords` or
/// `_aj_hash_with_indifferent_access`. A symbol or a time is `{"_aj_serialized":…,"value":"…"}`; the `value` of a duration is a number of
/// seconds. A payload with these members would be sent to the device as it is.
struct ActiveJobArgument {
    private let bytes: UnsafeRawBufferPointer
    private var output = ByteBuffer()

    /// - Parameters:
    ///   - bytes: JSON that the scanner has validated.
    ///   - range: the range of the argument in it.
    /// - Returns: its JSON text.
    static func plain(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) throws(JSONError) -> ByteBuffer {
        var argument = ActiveJobArgument(bytes: bytes)
        argument.output.reserveCapacity(range.count)
        try argument.write(range)
        return argument.output
    }

    private init(bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    // The scanner has limited the depth of the recursion.
    private mutating func write(_ range: Range<Int>) throws(JSONError) {
        switch bytes[range.lowerBound] {
        case UInt8(ascii: "{"): try writeObject(range)
        case UInt8(ascii: "["): try writeArray(range)
        default: output.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[range]))
        }
    }

    private mutating func writeArray(_ range: Range<Int>) throws(JSONError) {
        var separator = UInt8(ascii: "[")
        var scanner = JSONScanner(bytes, in: range)
        var more = try scanner.enterArray()
        while more {
            let start = scanner.offset
            try scanner.skipValue()
            output.writeInteger(separator)
            try write(start..<scanner.offset)
            separator = UInt8(ascii: ",")
            more = try scanner.nextElement()
        }
        if separator == UInt8(ascii: "[") { output.writeInteger(separator) }
        output.writeInteger(UInt8(ascii: "]"))
    }

    private mutating func writeObject(_ range: Range<Int>) throws(JSONError) {
        switch try serialized(range) {
        case .text(let value): return try write(value)
        case .duration(let seconds):
            output.writeString("\"\(seconds)s\"")
            return
        case nil: break
        }
        var separator = UInt8(ascii: "{")
        var scanner = JSONScanner(bytes, in: range)
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let start = scanner.offset
            try scanner.skipValue()
            if !isRails(name) {
                output.writeInteger(separator)
                // Includes the quotes of the name.
                output.writeBytes(
                    UnsafeRawBufferPointer(rebasing: bytes[name.range.lowerBound - 1..<name.range.upperBound + 1]))
                output.writeInteger(UInt8(ascii: ":"))
                try write(start..<scanner.offset)
                separator = UInt8(ascii: ",")
            }
            more = try scanner.nextMember()
        }
        if separator == UInt8(ascii: "{") { output.writeInteger(separator) }
        output.writeInteger(UInt8(ascii: "}"))
    }

    private enum Serialized {
        /// A symbol or a time: the range of its text.
        case text(Range<Int>)
        /// A duration in seconds. Written as a number, it would be read as a time.
        case duration(Int64)
    }

    /// Returns the value of an object that Rails has serialized.
    private func serialized(_ range: Range<Int>) throws(JSONError) -> Serialized? {
        var isSerialized = false
        var isDuration = false
        var value: Range<Int>?
        var scanner = JSONScanner(bytes, in: range)
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let start = scanner.offset
            try scanner.skipValue()
            let end = scanner.offset
            JSONText.withCharacters(of: name, in: bytes) { name in
                if name.isEqual(to: "_aj_serialized") {
                    isSerialized = true
                    isDuration = UnsafeRawBufferPointer(rebasing: bytes[start..<end]).isEqual(
                        to: #""ActiveJob::Serializers::DurationSerializer""#)
                }
                if name.isEqual(to: "value") { value = start..<end }
            }
            more = try scanner.nextMember()
        }
        guard isSerialized, let value else { return nil }
        if bytes[value.lowerBound] == UInt8(ascii: "\"") { return .text(value) }
        guard isDuration else { return nil }
        var number = JSONScanner(bytes, in: value)
        return try number.number().flatMap { JSONNumber.value(of: $0, decimals: 0, exact: false) }
            .flatMap { $0 >= 0 ? .duration($0) : nil }
    }

    private func isRails(_ name: JSONString) -> Bool {
        JSONText.withCharacters(of: name, in: bytes) { name in
            name.count >= 4 && UnsafeRawBufferPointer(rebasing: name[..<4]).isEqual(to: "_aj_")
        }
    }
}
