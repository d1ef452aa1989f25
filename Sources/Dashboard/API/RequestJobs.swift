import NIOCore
import PushJob

/// The jobs in the body of a request: one JSON object, an array of objects, or lines with an object each.
struct RequestJobs {
    /// A job, and its number for messages: its first line or, in an array, its place. Both are counted from 1.
    struct Item {
        let number: Int
        let text: ByteBuffer
    }

    static let maximum = 1000

    private(set) var items: [Item] = []
    /// The word for an item's number in messages: `line` or `job`.
    private(set) var unit = "line"

    /// - Throws: ``WebError`` if there are no jobs or too many, or if an array is not valid JSON. Each item may still be an invalid job.
    init(_ body: ByteBuffer) throws {
        try body.withUnsafeReadableBytes { bytes in
            var scanner = JSONScanner(bytes)
            scanner.skipWhitespace()
            if scanner.next == UInt8(ascii: "[") {
                unit = "job"
                do throws(JSONError) {
                    try readArray(&scanner, body)
                } catch {
                    throw WebError(.badRequest, "the array of jobs is not valid JSON: \(error)")
                }
            } else {
                readLines(bytes, body)
            }
        }
        guard !items.isEmpty else {
            throw WebError(.badRequest, "there is no job in the body; send a JSON object, or lines with one each")
        }
        guard items.count <= Self.maximum else {
            throw WebError(.contentTooLarge, "the request has more than \(Self.maximum) jobs; send several requests")
        }
    }

    /// The digest of the jobs. It is the same for lines and for an array, and for any white space between the jobs.
    var digest: String {
        var text = ByteBuffer()
        for item in items {
            text.writeImmutableBuffer(item.text)
            text.writeStaticString("\n")
        }
        return Digest.sha256(String(buffer: text)).prefix(16).hex
    }

    private mutating func readArray(_ scanner: inout JSONScanner, _ body: ByteBuffer) throws(JSONError) {
        var more = try scanner.enterArray()
        while more {
            let start = scanner.offset
            try scanner.skipValue()
            append(items.count + 1, start..<scanner.offset, of: body)
            more = try scanner.nextElement()
        }
        try scanner.finish()
    }

    /// Reads one value after another. A value can span several lines. If a value is not valid JSON, the rest of its line becomes an item,
    /// and the next line begins another.
    private mutating func readLines(_ bytes: UnsafeRawBufferPointer, _ body: ByteBuffer) {
        var (line, counted, start) = (1, 0, 0)
        while items.count <= Self.maximum {
            var scanner = JSONScanner(bytes, in: start..<bytes.count)
            scanner.skipWhitespace()
            start = scanner.offset
            guard start < bytes.count else { return }
            line += bytes[counted..<start].count { $0 == UInt8(ascii: "\n") }
            counted = start
            var end: Int
            do throws(JSONError) {
                try scanner.skipValue()
                end = scanner.offset
            } catch {
                let rest = bytes[start...].firstIndex(of: UInt8(ascii: "\n"))
                end = error.kind == .unexpectedEnd ? bytes.count : rest ?? bytes.count
            }
            append(line, start..<end, of: body)
            start = end
        }
    }

    private mutating func append(_ number: Int, _ range: Range<Int>, of body: ByteBuffer) {
        // The range is within the readable bytes, so there is a slice.
        guard let text = body.getSlice(at: body.readerIndex + range.lowerBound, length: range.count) else { return }
        items.append(Item(number: number, text: text))
    }
}
