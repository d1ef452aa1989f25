import NIOCore

/// A dead letter as it stands in Redis: a line of JSON about it, a line feed, and the original's bytes, untouched.
public struct DeadLetter: Sendable, Equatable {
    /// The JSON object about it: `reason`, `at` (ms since 1970), `attempts`, `claim`, `size`, and what else is known.
    public var header: ByteBuffer
    /// What the producer wrote.
    public var original: ByteBuffer

    /// Takes a member of the set apart; `nil` if it is not a dead letter.
    public init?(member: ByteBuffer) {
        let bytes = member.readableBytesView
        guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")),
            let header = member.getSlice(at: member.readerIndex, length: end - bytes.startIndex),
            let original = member.getSlice(at: end + 1, length: bytes.endIndex - end - 1)
        else { return nil }
        self.header = header
        self.original = original
    }
}
