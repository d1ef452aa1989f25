import NIOCore

/// The place of a job's array of tokens, and their number.
struct JobTokenList: Equatable, Sendable {
    /// The array with its brackets.
    var array: JobField
    var count: Int
    /// The offset of the member's name, with its quote.
    var memberStart: Int
    /// The length of each token if the array is regular: all tokens have the same length and no escapes, and only commas are between them.
    /// Otherwise 0.
    var commonLength: Int32

    /// Steps over an array of device tokens.
    /// - Returns: nil if it is not an array of at least one string.
    static func read(
        _ scanner: inout JSONScanner, memberStart: Int
    ) throws(JSONError) -> JobTokenList? {
        guard scanner.next == UInt8(ascii: "[") else { return nil }
        let start = scanner.offset
        var count = 0
        var length = 0
        var isRegular = true
        var more = try scanner.enterArray()
        while more {
            guard let first = scanner.next else { throw scanner.error(.unexpectedEnd) }
            guard first == UInt8(ascii: "\"") else { return nil }
            let token = try scanner.string()
            if count == 0 { length = token.range.count }
            let expected = firstToken(ofArrayAt: start) &+ count &* distance(ofTokensOf: length)
            if token.range.lowerBound != expected || token.range.count != length || token.hasEscapes {
                isRegular = false
            }
            count &+= 1
            more = try scanner.nextElement()
        }
        guard count > 0 else { return nil }
        return JobTokenList(
            array: JobField(start..<scanner.offset), count: count, memberStart: memberStart,
            commonLength: isRegular ? Int32(truncatingIfNeeded: length) : 0)
    }

    /// Returns the range of the member and one comma beside it: the object is still valid without this range.
    /// - Parameter document: the range of the object that has the member.
    func rangeToCut(in bytes: UnsafeRawBufferPointer, of document: Range<Int>) -> Range<Int> {
        var start = memberStart
        var end = array.range.upperBound
        var scanner = JSONScanner(bytes, in: end..<document.upperBound)
        scanner.skipWhitespace()
        if scanner.next == UInt8(ascii: ",") {
            end = scanner.offset + 1
        } else {
            // The last member: cut the comma before it, if there is any other member.
            var before = start - 1
            while before > document.lowerBound, bytes[before] <= 0x20 { before -= 1 }
            if bytes[before] == UInt8(ascii: ",") { start = before }
        }
        return start..<end
    }

    /// The offset of the first token of a regular array, after its bracket and quote.
    static func firstToken(ofArrayAt start: Int) -> Int { start &+ 2 }

    /// The distance between the beginnings of regular tokens of a length: the token, two quotes and a comma.
    static func distance(ofTokensOf length: Int) -> Int { length &+ 3 }
}

/// A job's device tokens, read one by one from its body without making an array.
public struct JobTokens: Sequence, Sendable {
    private let body: ByteBuffer
    private let list: JobTokenList

    init(body: ByteBuffer, list: JobTokenList) {
        self.body = body
        self.list = list
    }

    /// At least one.
    public var count: Int { list.count }

    public var underestimatedCount: Int { list.count }

    public func makeIterator() -> Iterator { Iterator(body: body, list: list) }

    /// Reads token after token. A copy continues at the position of the original.
    public struct Iterator: IteratorProtocol, Sendable {
        private let body: ByteBuffer
        private let commonLength: Int
        private var remaining: Int
        /// The offset of the next token: of its first character if the tokens are regular, else of its quote or of the
        /// white space before it.
        private var position: Int

        init(body: ByteBuffer, list: JobTokenList) {
            self.body = body
            commonLength = Int(list.commonLength)
            remaining = list.count
            position =
                commonLength > 0 ? JobTokenList.firstToken(ofArrayAt: list.array.offset) : list.array.offset &+ 1
        }

        /// Returns the next token, as it is written in the job: ``Job/text(_:)`` decodes it.
        public mutating func next() -> JobField? {
            guard remaining > 0 else { return nil }
            remaining &-= 1
            guard commonLength > 0 else { return scanToken() }
            defer { position &+= JobTokenList.distance(ofTokensOf: commonLength) }
            return JobField(position..<position &+ commonLength)
        }

        private mutating func scanToken() -> JobField? {
            let step = body.withUnsafeReadableBytes { bytes in Self.step(bytes, from: position) }
            position = step?.next ?? position
            return step?.field
        }

        private static func step(_ bytes: UnsafeRawBufferPointer, from position: Int) -> (field: JobField, next: Int)? {
            var scanner = JSONScanner(bytes, in: position..<bytes.count)
            scanner.skipWhitespace()
            // This can't fail, because the decoder has validated the array.
            guard let string = try? scanner.string() else { return nil }
            scanner.skipWhitespace()
            // The position after the comma or, at the end of the array, after its bracket.
            return (JobField(string), scanner.offset &+ 1)
        }
    }
}
