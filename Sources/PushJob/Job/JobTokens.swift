import NIOCore

/// The place of a job's array of tokens, and their number.
struct JobTokenList: Equatable, Sendable {
    /// The array with its brackets.
    var array: JobField
    var count: Int
    /// The offset of the member's name, with its quote.
    var memberStart: Int

    /// Steps over an array of device tokens.
    /// - Returns: nil if it is not an array of at least one string.
    static func read(
        _ scanner: inout JSONScanner, memberStart: Int
    ) throws(JSONError) -> JobTokenList? {
        guard scanner.next == UInt8(ascii: "[") else { return nil }
        let start = scanner.offset
        var count = 0
        var more = try scanner.enterArray()
        while more {
            guard let first = scanner.next else { throw scanner.error(.unexpectedEnd) }
            guard first == UInt8(ascii: "\"") else { return nil }
            _ = try scanner.string()
            count &+= 1
            more = try scanner.nextElement()
        }
        guard count > 0 else { return nil }
        return JobTokenList(array: JobField(start..<scanner.offset), count: count, memberStart: memberStart)
    }
}

/// A job's device tokens, read one by one from its body without making an array.
public struct JobTokens: Sequence, Sendable {
    private let body: ByteBuffer
    private let list: JobTokenList

    init(body: ByteBuffer, list: JobTokenList) {
        self.body = body
        self.list = list
    }

    /// The number of tokens; at least one.
    public var count: Int { list.count }

    /// The number of tokens.
    public var underestimatedCount: Int { list.count }

    /// Returns an iterator at the first token.
    public func makeIterator() -> Iterator { Iterator(body: body, next: list.array.offset + 1) }

    /// Reads token after token. A copy continues at the position of the original.
    public struct Iterator: IteratorProtocol, Sendable {
        private let body: ByteBuffer
        private var position: Int?

        init(body: ByteBuffer, next: Int) {
            self.body = body
            position = next
        }

        /// Returns the next token, as it is written in the job: ``Job/text(_:)`` decodes it.
        public mutating func next() -> JobField? {
            guard let position else { return nil }
            let step = body.withUnsafeReadableBytes { bytes in Self.step(bytes, from: position) }
            self.position = step?.next
            return step?.field
        }

        private static func step(
            _ bytes: UnsafeRawBufferPointer, from position: Int
        ) -> (field: JobField, next: Int?)? {
            var scanner = JSONScanner(bytes, in: position..<bytes.count)
            scanner.skipWhitespace()
            // The decoder has validated the array, so neither can fail.
            guard let string = try? scanner.string() else { return nil }
            scanner.skipWhitespace()
            let isLast = scanner.next != UInt8(ascii: ",")
            return (JobField(string), isLast ? nil : scanner.offset + 1)
        }
    }
}
