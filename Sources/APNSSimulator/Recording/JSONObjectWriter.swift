import PrintableText

/// Writes a JSON object, member by member.
///
/// It embeds given JSON unchanged. An encoder would parse it and reformat its numbers.
struct JSONObjectWriter {
    private var bytes: [UInt8] = [UInt8(ascii: "{")]

    var finished: [UInt8] { bytes + [UInt8(ascii: "}")] }

    mutating func member(_ name: String, _ text: String?) {
        guard let text else { return }
        begin(name)
        append(text)
    }

    mutating func member(_ name: String, _ number: (some BinaryInteger)?) {
        if let number { member(name, json: String(number).utf8) }
    }

    mutating func member(_ name: String, _ value: Bool) { member(name, json: String(value).utf8) }

    /// - Parameter json: one JSON value, which is not validated.
    mutating func member(_ name: String, json: some Sequence<UInt8>) {
        begin(name)
        bytes += json
    }

    mutating func member(_ name: String, _ texts: [String: String]) {
        var object = JSONObjectWriter()
        for (name, text) in texts.sorted(by: { $0.key < $1.key }) { object.member(name, text) }
        member(name, json: object.finished)
    }

    mutating func member(_ name: String, _ texts: [String]) {
        begin(name)
        bytes.append(UInt8(ascii: "["))
        for (index, text) in texts.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            append(text)
        }
        bytes.append(UInt8(ascii: "]"))
    }

    private mutating func begin(_ name: String) {
        if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
        append(name)
        bytes.append(UInt8(ascii: ":"))
    }

    private mutating func append(_ text: String) {
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 0..<0x20, 0x7F: bytes += Unicode.Scalar(byte).jsonEscape.utf8
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }
}
