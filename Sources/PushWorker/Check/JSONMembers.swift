import NIOCore
import PushJob

/// Reads and writes JSON objects whose values stay texts.
enum JSONMembers {
    /// Returns the members of an object; `nil` for another value.
    static func read(_ text: ByteBuffer) throws(JSONError) -> [(name: String, value: ByteBuffer)]? {
        try text.withUnsafeReadableBytes { bytes throws(JSONError) in
            var scanner = JSONScanner(bytes)
            try scanner.begin()
            guard scanner.next == UInt8(ascii: "{") else {
                try scanner.skipValue()
                try scanner.finish()
                return nil
            }
            var members: [(name: String, value: ByteBuffer)] = []
            var more = try scanner.enterObject()
            while more {
                let name = try scanner.name()
                let start = scanner.offset
                try scanner.skipValue()
                let value = ByteBuffer(bytes: UnsafeRawBufferPointer(rebasing: bytes[start..<scanner.offset]))
                let characters = JSONText.withCharacters(of: name, in: bytes) { String(decoding: $0, as: UTF8.self) }
                members.append((characters, value))
                more = try scanner.nextMember()
            }
            try scanner.finish()
            return members
        }
    }

    /// Returns the characters of a JSON string; `nil` for another value.
    static func text(_ value: ByteBuffer) -> String? {
        value.withUnsafeReadableBytes { bytes in
            guard bytes.first == UInt8(ascii: "\"") else { return nil }
            var scanner = JSONScanner(bytes)
            do throws(JSONError) {
                let string = try scanner.string()
                return JSONText.withCharacters(of: string, in: bytes) { String(decoding: $0, as: UTF8.self) }
            } catch {
                return nil
            }
        }
    }

    static func isJSON(_ text: ByteBuffer) -> Bool {
        text.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                return true
            } catch {
                return false
            }
        }
    }

    /// True for a value that Ruby treats as true.
    static func isTruthy(_ value: ByteBuffer) -> Bool {
        value != ByteBuffer(string: "null") && value != ByteBuffer(string: "false")
    }

    /// Writes an object.
    struct Writer {
        private var members = ByteBuffer()

        /// The object's JSON text.
        var text: ByteBuffer {
            var text = ByteBuffer(string: "{")
            text.writeImmutableBuffer(members)
            text.writeStaticString("}")
            return text
        }

        mutating func write(_ name: String, json value: ByteBuffer) {
            begin(name)
            members.writeImmutableBuffer(value)
        }

        mutating func write(_ name: String, text value: String) {
            begin(name)
            members.writeJSONString(value)
        }

        /// Writes a number, or a text that is not one.
        mutating func write(_ name: String, numberOrText value: String) {
            begin(name)
            if let number = Int64(value) { members.writeString("\(number)") } else { members.writeJSONString(value) }
        }

        private mutating func begin(_ name: String) {
            if members.readableBytes > 0 { members.writeStaticString(",") }
            members.writeJSONString(name)
            members.writeStaticString(":")
        }
    }
}
