import NIOCore

/// Device tokens in one buffer, to be looked up together.
public struct TokenList: Sendable {
    private static let separator = UInt8(ascii: ",")

    /// The tokens to look up, with a comma between them.
    private(set) var bytes: ByteBuffer
    /// The number of tokens, including the skipped ones.
    public private(set) var count = 0
    /// The places in the list of the tokens to look up; `nil` if no token was skipped.
    private var places: [Int]?

    public init(expecting expected: Int = 64) {
        bytes = ByteBufferAllocator().buffer(capacity: expected * 65)
    }

    /// A list of tokens. An empty token, or one with a comma, is never found.
    public init(_ tokens: some Collection<ByteBuffer>) {
        self.init(expecting: tokens.count)
        for token in tokens { append(anyText: token) }
    }

    /// True if there is no token to look up.
    public var asksNothing: Bool { bytes.readableBytes == 0 }

    /// Adds a token of hex digits.
    public mutating func append(_ token: ByteBuffer) {
        if bytes.readableBytes > 0 { bytes.writeInteger(Self.separator) }
        bytes.writeImmutableBuffer(token)
        places?.append(count)
        count += 1
    }

    /// Adds a place for a token that needs no lookup, because it is known to be absent.
    public mutating func skip() {
        if places == nil { places = Array(0..<count) }
        count += 1
    }

    /// Returns the place of a token in the list, by its index in ``asked``; `nil` for any other index.
    func place(of index: Int) -> Int? {
        guard let places else { return (0..<count).contains(index) ? index : nil }
        return places.indices.contains(index) ? places[index] : nil
    }

    /// Adds a text that another program may have written. If it is empty or has a comma, it is never found.
    private mutating func append(anyText text: ByteBuffer) {
        guard text.readableBytes > 0, !text.readableBytesView.contains(Self.separator) else { return skip() }
        append(text)
    }

    /// The tokens to look up, in order.
    public var asked: [ByteBuffer] { tokens(at: Array(0..<(places?.count ?? count))) }

    /// Returns tokens by their indexes in ``asked``.
    /// - Parameter indexes: in ascending order.
    public func tokens(at indexes: [Int]) -> [ByteBuffer] {
        var found: [ByteBuffer] = []
        var wanted = indexes[...]
        var (place, start) = (0, bytes.readerIndex)
        let view = bytes.readableBytesView
        while let next = wanted.first, start < bytes.writerIndex {
            let end = view[start...].firstIndex(of: Self.separator) ?? view.endIndex
            if place == next {
                if let token = bytes.getSlice(at: start, length: end - start) { found.append(token) }
                wanted = wanted.drop { $0 == next }
            }
            (place, start) = (place + 1, end + 1)
        }
        return found
    }
}
