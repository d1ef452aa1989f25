import Glibc

extension ArraySlice<UInt8> {
    /// Returns the first range with the bytes of a text, which must not be empty. The standard library's generic search is slower: it took
    /// 40 ms at the start of each process to search the scripts alone.
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
