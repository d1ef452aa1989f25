import Glibc

extension ArraySlice<UInt8> {
    /// Returns the first place of a text that is not empty; `nil` if it does not occur. The standard library's search compares in a generic
    /// function: for the scripts alone, it took 40 ms at the start of each process.
    public func range(of text: StaticString) -> Range<Int>? {
        withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress else { return nil }
            let length = text.utf8CodeUnitCount
            var place = 0
            while place + length <= bytes.count,
                let found = memchr(base + place, Int32(text.utf8Start[0]), bytes.count - length - place + 1)
            {
                place = UnsafeRawPointer(found) - base
                if memcmp(found, text.utf8Start, length) == 0 {
                    return startIndex + place..<startIndex + place + length
                }
                place += 1
            }
            return nil
        }
    }
}
