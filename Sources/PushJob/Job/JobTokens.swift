import NIOCore

/// Where a job's array of tokens stands, and how many it has.
struct JobTokenList: Equatable, Sendable {
    /// The array with its brackets.
    var array: JobField
    var count: Int
    /// Where the member's name starts, with its quote.
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

/// A job's device tokens, read one by one from its body: no array is made of them.
public struct JobTokens: Sequence, Sendable {
    private let body: ByteBuffer
    private let list: JobTokenList

    init(body: ByteBuffer, list: JobTokenList) {
        self.body = body
        self.list = list
    }

    /// How many tokens there are; at least one.
    public var count: Int { list.count }

    /// As many as there are.
    public var underestimatedCount: Int { list.count }

    /// Starts at the first token.
    public func makeIterator() -> Iterator { Iterator(body: body, next: list.array.offset + 1) }

    /// Goes from token to token. A copy of it goes on from where the original stood.
    public struct Iterator: IteratorProtocol, Sendable {
        private let body: ByteBuffer
        private var position: Int?

        init(body: ByteBuffer, next: Int) {
            self.body = body
            position = next
        }

        /// The next token, as it is written in the job: ``Job/text(_:)`` reads it.
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
            // The decoder has been over the array, so that neither can fail.
            guard let string = try? scanner.string() else { return nil }
            scanner.skipWhitespace()
            let isLast = scanner.next != UInt8(ascii: ",")
            return (JobField(string), isLast ? nil : scanner.offset + 1)
        }
    }
}
