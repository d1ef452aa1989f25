import PushJob

/// A JSON value as written: members in their order, numbers as text.
indirect enum JSONTree: Sendable {
    case object([(name: String, value: JSONTree)])
    case array([JSONTree])
    case text(String)
    case number(String)
    case bool(Bool)
    case null

    /// Parses a complete text.
    /// - Throws: `JSONError`, also for nesting beyond `JSONScanner.maximumDepth`, which bounds the recursion.
    init(_ bytes: [UInt8]) throws {
        self = try bytes.withUnsafeBytes { bytes in
            var scanner = JSONScanner(bytes)
            try scanner.begin()
            let tree = try JSONTree(&scanner)
            try scanner.finish()
            return tree
        }
    }

    private init(_ scanner: inout JSONScanner) throws(JSONError) {
        switch scanner.next {
        case UInt8(ascii: "{")?:
            var members: [(name: String, value: JSONTree)] = []
            var more = try scanner.enterObject()
            while more {
                let name = Self.characters(of: try scanner.name(), in: scanner)
                members.append((name, try JSONTree(&scanner)))
                more = try scanner.nextMember()
            }
            self = .object(members)
        case UInt8(ascii: "[")?:
            var elements: [JSONTree] = []
            var more = try scanner.enterArray()
            while more {
                elements.append(try JSONTree(&scanner))
                more = try scanner.nextElement()
            }
            self = .array(elements)
        case UInt8(ascii: "\"")?:
            self = .text(Self.characters(of: try scanner.string(), in: scanner))
        default:
            let start = scanner.offset
            try scanner.skipValue()
            let word = String(decoding: scanner.bytes[start..<scanner.offset], as: UTF8.self)
            self =
                switch word {
                case "true": .bool(true)
                case "false": .bool(false)
                case "null": .null
                default: .number(word)
                }
        }
    }

    private static func characters(of string: JSONString, in scanner: JSONScanner) -> String {
        JSONText.withCharacters(of: string, in: scanner.bytes) { String(decoding: $0, as: UTF8.self) }
    }

    // MARK: Access

    /// The last member with a name; `nil` if there is none or this is not an object.
    subscript(name: String) -> JSONTree? {
        members?.last { $0.name == name }?.value
    }

    var members: [(name: String, value: JSONTree)]? { if case .object(let members) = self { members } else { nil } }
    var elements: [JSONTree]? { if case .array(let elements) = self { elements } else { nil } }
    var string: String? { if case .text(let text) = self { text } else { nil } }
    var integer: Int64? {
        guard case .number(let text) = self else { return nil }
        return Int64(text) ?? Double(text).flatMap { Int64(exactly: $0) }
    }

    /// The type of the value with its article, for use in sentences.
    var kind: String {
        switch self {
        case .object: "an object"
        case .array: "an array"
        case .text: "a string"
        case .number: "a number"
        case .bool: "true or false"
        case .null: "null"
        }
    }

    /// The value for display: a string without quotes, anything else as JSON on one line.
    var plain: String { string ?? line }

    private var line: String {
        switch self {
        case .object(let members):
            "{" + members.map { "\"\($0.name)\": \($0.value.line)" }.joined(separator: ", ") + "}"
        case .array(let elements): "[" + elements.map(\.line).joined(separator: ", ") + "]"
        case .text(let text): "\"\(text)\""
        case .number(let text): text
        case .bool(let value): "\(value)"
        case .null: "null"
        }
    }

    /// Appends all strings and names, for a search.
    func appendTexts(to texts: inout String) {
        switch self {
        case .object(let members):
            for member in members {
                texts += member.name + "\n"
                member.value.appendTexts(to: &texts)
            }
        case .array(let elements): for element in elements { element.appendTexts(to: &texts) }
        case .text(let text): texts += text + "\n"
        case .number, .bool, .null: break
        }
    }
}

package enum PayloadText {
    /// Formats JSON with one value per line; returns anything else unchanged. Numbers and escapes stay as written.
    package static func pretty(_ payload: [UInt8]) -> String {
        do {
            try payload.withUnsafeBytes { try JSONScanner.validate($0) }
        } catch {
            return String(decoding: payload, as: UTF8.self)
        }
        var (text, depth, isInString, isEscaped) = ([] as [UInt8], 0, false, false)
        text.reserveCapacity(payload.count * 2)
        func breakLine() { text += [UInt8(ascii: "\n")] + Array(repeating: UInt8(ascii: " "), count: 2 * depth) }
        var isAfterOpening = false
        for byte in payload {
            if isInString {
                text.append(byte)
                isInString = isEscaped || byte != UInt8(ascii: "\"")
                isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
                continue
            }
            if [0x20, 0x09, 0x0A, 0x0D].contains(byte) { continue }
            let isClosing = byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]")
            if isClosing {
                depth -= 1
                if !isAfterOpening { breakLine() }
            } else if isAfterOpening {
                breakLine()
            }
            isAfterOpening = false
            text.append(byte)
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                isAfterOpening = true
            case UInt8(ascii: ","): breakLine()
            case UInt8(ascii: ":"): text.append(UInt8(ascii: " "))
            case UInt8(ascii: "\""): isInString = true
            default: break
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Returns true if a payload contains a text, in its bytes or in its decoded strings. ASCII letters match in either
    /// case.
    package static func contains(_ wanted: String, in payload: [UInt8]) -> Bool {
        let wanted = Array(wanted.utf8.map(lowercased))
        guard !wanted.isEmpty else { return true }
        if contains(wanted, payload) { return true }
        guard payload.contains(UInt8(ascii: "\\")), let tree = try? JSONTree(payload) else { return false }
        var texts = ""
        tree.appendTexts(to: &texts)
        return contains(wanted, Array(texts.utf8))
    }

    private static func contains(_ wanted: [UInt8], _ bytes: [UInt8]) -> Bool {
        guard wanted.count <= bytes.count else { return false }
        return bytes.withUnsafeBufferPointer { bytes in
            wanted.withUnsafeBufferPointer { wanted in
                (0...(bytes.count - wanted.count)).contains { start in
                    for offset in 0..<wanted.count where lowercased(bytes[start + offset]) != wanted[offset] {
                        return false
                    }
                    return true
                }
            }
        }
    }

    private static func lowercased(_ byte: UInt8) -> UInt8 { byte &- 0x41 < 26 ? byte | 0x20 : byte }
}
