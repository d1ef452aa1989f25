import PushJob

/// Checks of a payload, which must be one JSON object.
enum JSONObjectCheck {
    static func accepts(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        var scanner = JSONScanner(UnsafeRawBufferPointer(bytes))
        do throws(JSONError) {
            try scanner.begin()
            guard scanner.next == UInt8(ascii: "{") else { return false }
            try scanner.skipValue()
            try scanner.finish()
            return true
        } catch {
            return false
        }
    }

    /// The top-level members that the binary gateway checks.
    struct Members {
        var hasAPS = false
        var hasContentAvailableOnly = false
        /// The value of the sought member as text, without the quotes of a string.
        var sought: UnsafeBufferPointer<UInt8>?
    }

    /// - Parameter name: the member to look for. It is not found if the payload writes it with escapes.
    /// - Returns: nil if the bytes are not one JSON object.
    static func members(of bytes: UnsafeBufferPointer<UInt8>, seeking name: [UInt8]?) -> Members? {
        var scanner = JSONScanner(UnsafeRawBufferPointer(bytes))
        var members = Members()
        do throws(JSONError) {
            try scanner.begin()
            guard scanner.next == UInt8(ascii: "{") else { return nil }
            var more = try scanner.enterObject()
            while more {
                let member = bytes[try scanner.name().range]
                let start = scanner.offset
                if member.elementsEqual("aps".utf8), scanner.next == UInt8(ascii: "{") {
                    members.hasAPS = true
                    members.hasContentAvailableOnly = try hasContentAvailableOnly(&scanner, bytes)
                } else {
                    try scanner.skipValue()
                }
                if let name, member.elementsEqual(name) {
                    let quotes = bytes[start] == UInt8(ascii: "\"") ? 1 : 0
                    members.sought = UnsafeBufferPointer(rebasing: bytes[start + quotes..<scanner.offset - quotes])
                }
                more = try scanner.nextMember()
            }
            try scanner.finish()
            return members
        } catch {
            return nil
        }
    }

    /// Steps over the object at the scanner's position.
    private static func hasContentAvailableOnly(
        _ scanner: inout JSONScanner, _ bytes: UnsafeBufferPointer<UInt8>
    ) throws(JSONError) -> Bool {
        var (count, isThere) = (0, false)
        var more = try scanner.enterObject()
        while more {
            let member = bytes[try scanner.name().range]
            count += 1
            isThere = isThere || member.elementsEqual("content-available".utf8)
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return count == 1 && isThere
    }
}
