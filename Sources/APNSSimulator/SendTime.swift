#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Finds the time at which a notification was sent in its payload: a member of a given name with microseconds since 1970.
struct SendTime: Sendable {
    private let pattern: [UInt8]

    /// - Parameter member: the member's name.
    init(member: String) { pattern = Array("\"\(member)\":".utf8) }

    /// The time, or nil when the payload has none.
    ///
    /// The payload is searched as text: the name must stand in it once, followed by its colon without a space.
    func find(in payload: UnsafeBufferPointer<UInt8>) -> Int64? {
        guard let base = payload.baseAddress,
            let found = memmem(base, payload.count, pattern, pattern.count)
        else { return nil }
        var index = UnsafeRawPointer(found) - UnsafeRawPointer(base) + pattern.count
        let start = index
        var value: Int64 = 0
        while index < payload.count, case let digit = payload[index] &- 0x30, digit < 10, index - start < 18 {
            value = value * 10 + Int64(digit)
            index += 1
        }
        return index > start ? value : nil
    }
}
