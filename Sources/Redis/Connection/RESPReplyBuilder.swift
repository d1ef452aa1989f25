import NIOCore

/// Builds a reply from the elements that hiredis reports, parents before children.
struct RESPReplyBuilder {
    /// A reply with more bytes of strings than this counts as a broken stream. (Offsets in a `ByteBuffer` are 32 bits.)
    static let maximumSize = 1 << 30
    /// The maximum number of bytes allocated in advance for strings.
    private static let reserveLimit = 128 * 1024

    /// True if a reply was too large and has been cut off; the stream cannot be read further.
    private(set) var isTooLarge = false

    private var nodes: [RESPReply.Node] = []
    private var arena = ByteBuffer()
    /// The arrays that are incomplete, outermost first.
    private var open: [(node: Int, missing: Int)] = []

    mutating func add(_ kind: RESPReply.Kind, bytes: UnsafeRawBufferPointer) {
        guard arena.readableBytes + bytes.count <= Self.maximumSize else {
            isTooLarge = true
            return
        }
        if arena.writableBytes < bytes.count { reserve(for: bytes.count) }
        add(kind, value: arena.writerIndex, length: bytes.count)
        arena.writeBytes(bytes)
    }

    mutating func add(integer: Int) {
        add(.integer, value: integer, length: 0)
    }

    mutating func addNull() {
        add(.null, value: 0, length: 0)
    }

    mutating func addArray(count: Int) {
        // The peer's count is trusted only up to a limit.
        if nodes.isEmpty { nodes.reserveCapacity(min(count, 4096) + 1) }
        let index = nodes.count
        nodes.append(RESPReply.Node(value: count, length: 0, end: UInt32(index + 1), kind: .array))
        if count > 0 {
            open.append((node: index, missing: count))
        } else {
            close()
        }
    }

    /// Returns the reply, and resets the builder for the next one.
    mutating func finish() -> RESPReply {
        defer {
            nodes = []
            arena = ByteBuffer()
            open.removeAll(keepingCapacity: true)
        }
        return RESPReply(nodes: nodes, arena: arena)
    }

    private mutating func add(_ kind: RESPReply.Kind, value: Int, length: Int) {
        let end = UInt32(nodes.count + 1)
        nodes.append(RESPReply.Node(value: value, length: UInt32(length), end: end, kind: kind))
        close()
    }

    /// Records that an element is complete. This may also complete the arrays around it.
    private mutating func close() {
        while !open.isEmpty {
            open[open.count - 1].missing -= 1
            guard open[open.count - 1].missing == 0 else { return }
            nodes[open.removeLast().node].end = UInt32(nodes.count)
        }
    }

    /// Allocates once for all following strings, if they are about as long as this one. This is so in the reply to a claim.
    private mutating func reserve(for length: Int) {
        let expected = open.reduce(length + 16) { $0.multipliedSaturating(by: $1.missing) }
        arena.reserveCapacity(
            minimumWritableBytes: open.isEmpty ? length : max(length, min(expected, Self.reserveLimit)))
    }
}

extension Int {
    fileprivate func multipliedSaturating(by other: Int) -> Int {
        let (product, overflow) = multipliedReportingOverflow(by: other)
        return overflow ? .max : product
    }
}
