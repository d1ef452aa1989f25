import Foundation

extension Data {
    /// Returns the offset of the end of a text's first occurrence; `nil` if there is none.
    ///
    /// Foundation's `range(of:)` copies all bytes for each search.
    /// - Parameter start: the offset at which the search begins.
    package func end(of text: String, from start: Int = 0) -> Int? {
        let sought = Array(text.utf8)
        guard let first = sought.first else { return start }
        return withUnsafeBytes { bytes in
            var rest = UnsafeRawBufferPointer(rebasing: bytes[start...])
            while rest.count >= sought.count, let base = rest.baseAddress,
                let found = memchr(base, Int32(first), rest.count - sought.count + 1)
            {
                let place = UnsafeRawPointer(found) - base
                if memcmp(found, sought, sought.count) == 0 { return bytes.count - rest.count + place + sought.count }
                rest = UnsafeRawBufferPointer(rebasing: rest[(place + 1)...])
            }
            return nil
        }
    }
}
