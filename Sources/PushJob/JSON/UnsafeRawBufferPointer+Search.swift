import Glibc

extension UnsafeRawBufferPointer {
    /// Whether the bytes are those of a literal, which must not be empty.
    @inline(__always)
    package func isEqual(to literal: StaticString) -> Bool {
        guard count == literal.utf8CodeUnitCount, let baseAddress else { return false }
        return memcmp(baseAddress, literal.utf8Start, literal.utf8CodeUnitCount) == 0
    }

    /// Where a byte is next, counted from the start of the buffer.
    package func firstOffset(of byte: UInt8, from start: Int) -> Int? {
        guard let baseAddress, start < count,
            let found = memchr(baseAddress + start, Int32(byte), count - start)
        else { return nil }
        return UnsafeRawPointer(found) - baseAddress
    }
}
