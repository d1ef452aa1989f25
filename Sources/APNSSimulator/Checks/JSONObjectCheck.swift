/// Checks that bytes are one JSON object (RFC 8259) without building it.
///
/// Checks the whole grammar, and that escaped surrogates are in pairs, but not that strings are valid UTF-8.
struct JSONObjectCheck {
    private var position: UnsafePointer<UInt8>
    private let end: UnsafePointer<UInt8>
    private var notes: Members?
    private var name: [UInt8]?
    /// The members of the object being read, one level down.
    private var inner = (count: 0, hasContentAvailable: false)
    /// Deeper nesting is treated as an attack.
    private static let maximumDepth = 64

    static func accepts(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        var check = JSONObjectCheck(bytes)
        return check?.isObject() ?? false
    }

    /// The top-level members that the binary gateway checks.
    struct Members {
        /// True if there is an `aps` object.
        var hasAPS = false
        /// True if `aps` has `content-available` and nothing else.
        var hasContentAvailableOnly = false
        /// The text of the sought member, without the quotes of a string.
        var sought: UnsafeBufferPointer<UInt8>?
    }

    /// - Parameter name: the member to look for; a name written with escapes is not found.
    /// - Returns: nil if the bytes are not one JSON object.
    static func members(of bytes: UnsafeBufferPointer<UInt8>, seeking name: [UInt8]?) -> Members? {
        guard var check = JSONObjectCheck(bytes) else { return nil }
        check.notes = Members()
        check.name = name
        return check.isObject() ? check.notes : nil
    }

    private init?(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let start = bytes.baseAddress else { return nil }
        (position, end) = (start, start + bytes.count)
    }

    private mutating func isObject() -> Bool {
        skipSpace()
        guard peek == 0x7B, value(depth: 0) else { return false }
        skipSpace()
        return position == end
    }

    private mutating func note(
        _ member: UnsafeBufferPointer<UInt8>, from start: UnsafePointer<UInt8>
    ) {
        if member.equals("aps"), start.pointee == 0x7B {
            notes?.hasAPS = true
            notes?.hasContentAvailableOnly = inner.count == 1 && inner.hasContentAvailable
        }
        if let name, name.count == member.count, name.elementsEqual(member) {
            let quotes = start.pointee == 0x22 ? 1 : 0
            notes?.sought = UnsafeBufferPointer(start: start + quotes, count: position - start - 2 * quotes)
        }
    }

    // Returns 0 at the end; JSON does not allow NUL anywhere either.
    private var peek: UInt8 { position < end ? position.pointee : 0 }

    private mutating func skipSpace() {
        while position < end {
            switch position.pointee {
            case 0x20, 0x0A, 0x0D, 0x09: position += 1
            default: return
            }
        }
    }

    private mutating func value(depth: Int) -> Bool {
        guard depth < Self.maximumDepth else { return false }
        switch peek {
        case 0x7B: return members(depth: depth)
        case 0x5B: return elements(depth: depth)
        case 0x22: return string()
        case 0x74: return word("true")
        case 0x66: return word("false")
        case 0x6E: return word("null")
        default: return number()
        }
    }

    private mutating func members(depth: Int) -> Bool {
        position += 1
        skipSpace()
        if peek == 0x7D {
            position += 1
            return true
        }
        while true {
            skipSpace()
            let nameStart = position + 1
            guard peek == 0x22, string() else { return false }
            let nameLength = position - nameStart - 1
            skipSpace()
            guard peek == 0x3A else { return false }
            position += 1
            skipSpace()
            let valueStart = position
            if notes != nil {
                if depth == 0 { inner = (0, false) }
                if depth == 1 {
                    let member = UnsafeBufferPointer(start: nameStart, count: nameLength)
                    inner = (inner.count + 1, inner.hasContentAvailable || member.equals("content-available"))
                }
            }
            guard value(depth: depth + 1) else { return false }
            if depth == 0, notes != nil {
                note(UnsafeBufferPointer(start: nameStart, count: nameLength), from: valueStart)
            }
            skipSpace()
            switch peek {
            case 0x2C: position += 1
            case 0x7D:
                position += 1
                return true
            default: return false
            }
        }
    }

    private mutating func elements(depth: Int) -> Bool {
        position += 1
        skipSpace()
        if peek == 0x5D {
            position += 1
            return true
        }
        while true {
            skipSpace()
            guard value(depth: depth + 1) else { return false }
            skipSpace()
            switch peek {
            case 0x2C: position += 1
            case 0x5D:
                position += 1
                return true
            default: return false
            }
        }
    }

    private mutating func string() -> Bool {
        position += 1
        while position < end {
            let byte = position.pointee
            position += 1
            if byte == 0x22 { return true }
            if byte < 0x20 { return false }
            if byte == 0x5C {
                switch peek {
                case 0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74: position += 1
                case 0x75:
                    guard let unit = escapedUnit() else { return false }
                    switch unit {
                    case 0xD800..<0xDC00:
                        // The second half of the pair must follow.
                        guard peek == 0x5C else { return false }
                        position += 1
                        guard peek == 0x75, let second = escapedUnit(), 0xDC00..<0xE000 ~= second else { return false }
                    case 0xDC00..<0xE000: return false
                    default: break
                    }
                default: return false
                }
            }
        }
        return false
    }

    /// Reads `u` and four hex digits, a code unit of UTF-16.
    private mutating func escapedUnit() -> UInt16? {
        guard end - position >= 5 else { return nil }
        var unit: UInt16 = 0
        for offset in 1...4 {
            let digit = Hexadecimal.value(position[offset])
            guard digit <= 15 else { return nil }
            unit = unit << 4 | UInt16(digit)
        }
        position += 5
        return unit
    }

    private mutating func word(_ expected: StaticString) -> Bool {
        guard end - position >= expected.utf8CodeUnitCount else { return false }
        for offset in 0..<expected.utf8CodeUnitCount where position[offset] != expected.utf8Start[offset] {
            return false
        }
        position += expected.utf8CodeUnitCount
        return true
    }

    private mutating func digits() -> Bool {
        guard peek &- 0x30 < 10 else { return false }
        while peek &- 0x30 < 10 { position += 1 }
        return true
    }

    private mutating func number() -> Bool {
        if peek == 0x2D { position += 1 }
        if peek == 0x30 {
            position += 1
        } else {
            guard digits() else { return false }
        }
        if peek == 0x2E {
            position += 1
            guard digits() else { return false }
        }
        if peek | 0x20 == 0x65 {
            position += 1
            if peek == 0x2B || peek == 0x2D { position += 1 }
            guard digits() else { return false }
        }
        return true
    }
}
