import NIOCore

/// Shortens the body of a payload's alert so that the payload fits.
///
/// All else stays unchanged, byte for byte. The body is cut at the end of a user-perceived character (an extended grapheme cluster: a
/// family of emoji, a flag, a letter with its marks), and at the end of a word if there is one near; then it ends with an ellipsis.
enum PayloadShortener {
    /// The maximum number of characters that are removed so that the text ends with a whole word.
    static let longestWordPart = 20
    private static let ellipsis: StaticString = "…"

    /// - Parameters:
    ///   - payload: a JSON object, longer than the limit.
    ///   - limit: the maximum number of bytes.
    /// - Throws: ``JobError/payloadTooLong(excess:limit:)`` if it does not fit even with an empty body, or has none.
    static func shorten(_ payload: ByteBuffer, to limit: Int) throws(JobError) -> ByteBuffer {
        let excess = payload.readableBytes - limit
        return try payload.withUnsafeReadableBytes { bytes throws(JobError) in
            let body: JSONString?
            do throws(JSONError) {
                var scanner = JSONScanner(bytes)
                body = try alertBody(&scanner)
            } catch {
                throw .malformedPayload(error)
            }
            let space = (body?.range.count ?? 0) - excess
            guard let body, space >= 0 else { throw .payloadTooLong(excess: -space, limit: limit) }
            var shortened = ByteBuffer()
            shortened.reserveCapacity(limit)
            shortened.writeBytes(bytes[..<body.range.lowerBound])
            // The body stays empty if not even the ellipsis fits.
            if space >= ellipsis.utf8CodeUnitCount {
                let kept = length(of: body, in: bytes, atMost: space - ellipsis.utf8CodeUnitCount)
                shortened.writeBytes(bytes[body.range.lowerBound..<(body.range.lowerBound + kept)])
                shortened.writeStaticString(ellipsis)
            }
            shortened.writeBytes(bytes[body.range.upperBound...])
            return shortened
        }
    }

    /// Returns the number of bytes, as written, of a body to keep.
    private static func length(of body: JSONString, in bytes: UnsafeRawBufferPointer, atMost limit: Int) -> Int {
        let raw = UnsafeRawBufferPointer(rebasing: bytes[body.range])
        // Swift takes 90 ns to find a character's end, so only the text around the limit is read if possible: between two places, before
        // and after the limit, where characters are known to end.
        if let start = plainPlace(in: raw, from: limit - lookback, through: limit - 4 * lookback, by: -1),
            let end = plainPlace(in: raw, from: limit + 1, through: limit + 4 * lookback, by: 1),
            let length = length(in: raw, start..<end, atMost: limit, havingRead: longestWordPart + 1)
        {
            return length
        }
        return length(in: raw, 0..<raw.count, atMost: limit, havingRead: 0) ?? 0
    }

    /// A number of bytes that usually hold more than ``longestWordPart`` characters.
    private static let lookback = 96

    /// - Parameters:
    ///   - range: the part to read. It begins and ends between two characters.
    ///   - minimum: the minimum number of the part's characters to keep: more than ``longestWordPart`` if text precedes the part, because a
    ///     word may begin there.
    /// - Returns: nil if fewer characters fit.
    private static func length(
        in raw: UnsafeRawBufferPointer, _ range: Range<Int>, atMost limit: Int, havingRead minimum: Int
    ) -> Int? {
        let part = JSONString(range: range, hasEscapes: true)
        let text = JSONText.withCharacters(of: part, in: raw) { String(decoding: $0, as: UTF8.self) }
        var kept = range.lowerBound
        var count = 0
        var endsInSpace = true
        var wordEnd: (length: Int, count: Int)?
        for character in text {
            if character.isWhitespace, !endsInSpace { wordEnd = (kept, count) }
            endsInSpace = character.isWhitespace
            let end = JSONText.offset(in: raw, after: character.utf8.count, from: kept)
            guard end <= limit else { break }
            kept = end
            count += 1
        }
        guard count >= minimum else { return nil }
        guard let wordEnd, count - wordEnd.count <= longestWordPart else { return kept }
        return wordEnd.length
    }

    /// Returns a place between two printable ASCII characters, which never combine to one. The place is not inside an escape: no backslash
    /// is among the six bytes before it, and the longest escape is `\u` with four digits.
    private static func plainPlace(
        in raw: UnsafeRawBufferPointer, from first: Int, through last: Int, by step: Int
    ) -> Int? {
        for place in stride(from: first, through: last, by: step) where place >= 6 && place < raw.count {
            guard isPlain(raw[place]), isPlain(raw[place - 1]) else { continue }
            if !raw[(place - 6)..<place].contains(UInt8(ascii: "\\")) { return place }
        }
        return nil
    }

    private static func isPlain(_ byte: UInt8) -> Bool { (0x20..<0x7F).contains(byte) && byte != UInt8(ascii: "\\") }

    // MARK: The alert's body

    /// Finds the text of the alert in a payload's `aps`: `alert` itself or its `body`. If a name occurs twice, the last
    /// one counts, as it does for most readers.
    private static func alertBody(_ scanner: inout JSONScanner) throws(JSONError) -> JSONString? {
        try scanner.begin()
        return try member("aps", &scanner) { scanner throws(JSONError) in
            try member("alert", &scanner) { scanner throws(JSONError) in
                if scanner.next == UInt8(ascii: "\"") { return try scanner.string() }
                return try member("body", &scanner) { scanner throws(JSONError) in
                    if scanner.next == UInt8(ascii: "\"") { return try scanner.string() }
                    try scanner.skipValue()
                    return nil
                }
            }
        }
    }

    /// Steps over a value.
    /// - Returns: the result of `read` for the member of this name, if the value is an object that has it.
    private static func member(
        _ wanted: StaticString, _ scanner: inout JSONScanner,
        _ read: (inout JSONScanner) throws(JSONError) -> JSONString?
    ) throws(JSONError) -> JSONString? {
        guard scanner.next == UInt8(ascii: "{") else {
            try scanner.skipValue()
            return nil
        }
        var found: JSONString?
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            if JSONText.withCharacters(of: name, in: scanner.bytes, { $0.isEqual(to: wanted) }) {
                found = try read(&scanner)
            } else {
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        return found
    }
}
