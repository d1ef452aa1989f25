import NIOCore

/// Shortens the body of a payload's alert so that the payload fits.
///
/// All else stays byte for byte as it was. The body ends at a character's end as people count characters (an extended
/// grapheme cluster: a family of emoji, a flag, a letter with its marks), and at a word's end if there is one near, with
/// an ellipsis behind it.
enum PayloadShortener {
    /// So many characters are given up at the most for the sake of a word's end.
    static let longestWordPart = 20
    private static let ellipsis: StaticString = "…"

    /// - Parameters:
    ///   - payload: a JSON object, longer than the limit.
    ///   - limit: how many bytes it may have.
    /// - Throws: ``JobError/payloadTooLong(excess:limit:)`` if it does not fit even with an empty body, or has none.
    static func shorten(_ payload: ByteBuffer, to limit: Int) throws(JobError) -> ByteBuffer {
        let excess = payload.readableBytes - limit
        return try payload.withUnsafeReadableBytes { bytes throws(JobError) in
            let body: JSONString?
            do throws(JSONError) {
                var scanner = JSONScanner(bytes)
                body = try scanner.alertBody()
            } catch {
                throw .malformedPayload(error)
            }
            let room = (body?.range.count ?? 0) - excess
            guard let body, room >= 0 else { throw .payloadTooLong(excess: -room, limit: limit) }
            var shortened = ByteBuffer()
            shortened.reserveCapacity(limit)
            shortened.writeBytes(bytes[..<body.range.lowerBound])
            // An empty body is all that fits where the ellipsis does not.
            if room >= ellipsis.utf8CodeUnitCount {
                let kept = length(of: body, in: bytes, atMost: room - ellipsis.utf8CodeUnitCount)
                shortened.writeBytes(bytes[body.range.lowerBound..<(body.range.lowerBound + kept)])
                shortened.writeStaticString(ellipsis)
            }
            shortened.writeBytes(bytes[body.range.upperBound...])
            return shortened
        }
    }

    /// How many bytes, as written, of a body to keep.
    private static func length(of body: JSONString, in bytes: UnsafeRawBufferPointer, atMost limit: Int) -> Int {
        let text = JSONText.withCharacters(of: body, in: bytes) { String(decoding: $0, as: UTF8.self) }
        let raw = UnsafeRawBufferPointer(rebasing: bytes[body.range])
        var kept = 0
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
        guard let wordEnd, count - wordEnd.count <= longestWordPart else { return kept }
        return wordEnd.length
    }
}

extension JSONScanner {
    /// Looks for the text of the alert that a payload's `aps` has: `alert` itself or its `body`. Where a name is there
    /// twice the last one counts, as it does for most readers.
    fileprivate mutating func alertBody() throws(JSONError) -> JSONString? {
        try begin()
        return try memberOfObject("aps") { scanner throws(JSONError) in
            try scanner.memberOfObject("alert") { scanner throws(JSONError) in
                if scanner.next == UInt8(ascii: "\"") { return try scanner.string() }
                return try scanner.memberOfObject("body") { scanner throws(JSONError) in
                    if scanner.next == UInt8(ascii: "\"") { return try scanner.string() }
                    try scanner.skipValue()
                    return nil
                }
            }
        }
    }

    /// Steps over a value.
    /// - Returns: what `read` says of the member of this name, if the value is an object that has it.
    private mutating func memberOfObject(
        _ wanted: StaticString, _ read: (inout JSONScanner) throws(JSONError) -> JSONString?
    ) throws(JSONError) -> JSONString? {
        guard next == UInt8(ascii: "{") else {
            try skipValue()
            return nil
        }
        var found: JSONString?
        var more = try enterObject()
        while more {
            let name = try name()
            if JSONText.withCharacters(of: name, in: bytes, { $0.isEqual(to: wanted) }) {
                found = try read(&self)
            } else {
                try skipValue()
            }
            more = try nextMember()
        }
        return found
    }
}
