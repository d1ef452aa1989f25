import Glibc

/// Finds the time at which a notification was sent in its payload: a member of a given name with microseconds since 1970.
struct SendTime: Sendable {
    private let pattern: [UInt8]

    /// - Parameter member: the member's name.
    init(member: String) { pattern = Array("\"\(member)\":".utf8) }

    /// The time, or nil when the payload has none.
    ///
    /// The payload is searched as text: the name must stand in it once, followed by its colon without a space.
    func find(in payload: UnsafeBufferPointer<UInt8>) -> Int64? {
        guard let base = payload.baseAddress else { return nil }
        var next = 0
        while payload.count - next > pattern.count,
            let quote = memchr(base + next, Int32(UInt8(ascii: "\"")), payload.count - pattern.count - next)
        {
            next = UnsafeRawPointer(quote) - UnsafeRawPointer(base)
            if memcmp(quote, pattern, pattern.count) == 0 { return number(payload[(next + pattern.count)...]) }
            next += 1
        }
        return nil
    }

    // Eighteen digits are what every 64-bit number can hold.
    private func number(_ text: Slice<UnsafeBufferPointer<UInt8>>) -> Int64? {
        let digits = text.prefix(18).prefix { $0 &- 0x30 < 10 }
        return digits.isEmpty ? nil : digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
    }
}
