import FoundationEssentials
import NIOCore

/// The rules for the members `campaign` and `labels`, which results, dead letters and logs repeat, and for the keys `fair` and `replaces`.
public enum JobLabels {
    /// The maximum length of a campaign's name and of a key in bytes.
    public static let maximumCampaign = 100
    public static let maximumCount = 4
    /// The maximum length of a label's name and of its value in bytes.
    public static let maximumLength = 64

    public static func isCampaign(_ name: String) -> Bool {
        var name = name
        return name.withUTF8 {
            MemberRules.isIdentifier(
                JSONString(range: 0..<$0.count, hasEscapes: false), in: UnsafeRawBufferPointer($0),
                atMost: maximumCampaign)
        }
    }

    /// Returns true if a string is valid as the name of a campaign, and as a key `fair` or `replaces`.
    static func isCampaign(_ name: JSONString, in bytes: UnsafeRawBufferPointer) -> Bool {
        MemberRules.isIdentifier(name, in: bytes, atMost: maximumCampaign)
    }

    /// Steps over a value.
    /// - Returns: true if it is an object of valid labels.
    static func skip(_ scanner: inout JSONScanner) throws(JSONError) -> Bool {
        guard scanner.next == UInt8(ascii: "{") else {
            try scanner.skipValue()
            return false
        }
        var (count, areValid) = (0, true)
        var more = try scanner.enterObject()
        while more {
            count += 1
            let name = try scanner.name()
            if !MemberRules.isIdentifier(name, in: scanner.bytes, atMost: maximumLength) { areValid = false }
            if scanner.next == UInt8(ascii: "\"") {
                let value = try scanner.string()
                if !MemberRules.isIdentifier(value, in: scanner.bytes, atMost: maximumLength) { areValid = false }
            } else {
                try scanner.skipValue()
                areValid = false
            }
            more = try scanner.nextMember()
        }
        return areValid && count <= maximumCount
    }

    /// Returns the labels of an object; none if it is not valid.
    public static func read(_ object: ByteBuffer) -> [String: String] {
        do {
            return try JSONDecoder().decode([String: String].self, from: Data(object.readableBytesView))
        } catch {
            // Another program can write results, so the object may not be valid.
            return [:]
        }
    }

    /// Returns an object without the white space between its parts.
    /// - Parameter written: valid labels.
    static func compact(_ written: ByteBuffer) -> ByteBuffer {
        // Valid labels have no line ends in their strings. Spaces in strings stay.
        guard written.readableBytesView.contains(where: { $0 <= 0x20 }) else { return written }
        var text = ByteBuffer()
        var (isString, isEscaped) = (false, false)
        for byte in written.readableBytesView {
            if isString {
                if !isEscaped, byte == UInt8(ascii: "\"") { isString = false }
                isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
            } else if byte == UInt8(ascii: "\"") {
                isString = true
            } else if byte <= 0x20 {
                continue
            }
            text.writeInteger(byte)
        }
        return text
    }
}
