import NIOCore

/// Device tokens in one buffer, to be looked up together.
public struct TokenList: Sendable {
    private static let separator = UInt8(ascii: ",")

    /// The tokens, with a comma between them.
    private(set) var bytes: ByteBuffer
    /// The number of tokens.
    public private(set) var count = 0

    /// An empty list.
    /// - Parameter expected: the expected number of tokens.
    public init(expecting expected: Int = 64) {
        bytes = ByteBufferAllocator().buffer(capacity: expected * 65)
    }

    /// Adds a token of hex digits.
    public mutating func append(_ token: ByteBuffer) {
        if count > 0 { bytes.writeInteger(Self.separator) }
        bytes.writeImmutableBuffer(token)
        count += 1
    }

    /// Adds a text that another program may have written; one that can't be in the list is never found.
    package mutating func append(anyText text: ByteBuffer) {
        guard text.readableBytes > 0, !text.readableBytesView.contains(Self.separator) else { return appendNothing() }
        append(text)
    }

    /// Adds a placeholder that is never found, for a value that is not a token.
    public mutating func appendNothing() {
        if count > 0 { bytes.writeInteger(Self.separator) }
        bytes.writeInteger(UInt8(ascii: "-"))
        count += 1
    }

    /// Returns the tokens at some places.
    /// - Parameter places: in ascending order.
    public func tokens(at places: [Int]) -> [ByteBuffer] {
        var found: [ByteBuffer] = []
        var wanted = places[...]
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
