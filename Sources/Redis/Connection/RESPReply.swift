import NIOCore

/// One reply of Redis: its elements in preorder, and the bytes of all its strings in one buffer.
///
/// Elements are never allocated: an `Element` is an index into the reply.
public struct RESPReply: Sendable {
    public enum Kind: UInt8, Sendable {
        case string
        /// A short text such as `OK`.
        case status
        /// An error; inside an array it does not fail the command.
        case error
        /// A signed 64-bit number.
        case integer
        /// No value: a null string or null array.
        case null
        /// Elements, perhaps none.
        case array
    }

    /// `value` is the integer, the offset of the bytes, or the number of children. `length` is the number of bytes.
    /// `end` is the index of the first node after this one and its descendants.
    struct Node: Sendable {
        var value: Int
        var length: UInt32
        var end: UInt32
        var kind: Kind
    }

    let nodes: [Node]
    let arena: ByteBuffer

    public var root: Element { Element(reply: self, index: 0) }

    /// The error, if the whole reply is one.
    public var error: RedisServerError? { root.error }

    public struct Element: Sendable {
        fileprivate let reply: RESPReply
        fileprivate let index: Int

        private var node: Node { reply.nodes[index] }

        public var kind: Kind { node.kind }

        public var isNull: Bool { node.kind == .null }

        public var integer: Int? { node.kind == .integer ? node.value : nil }

        /// The bytes of a string, status or error. They share the reply's storage: while this buffer lives, all bytes
        /// of the reply stay in memory.
        public var bytes: ByteBuffer? {
            let node = node
            guard node.kind.hasBytes else { return nil }
            return reply.arena.getSlice(at: node.value, length: Int(node.length))
        }

        /// The text of a string, status or error, as UTF-8 with replacement characters for invalid bytes.
        public var string: String? {
            let node = node
            guard node.kind.hasBytes else { return nil }
            return reply.arena.getString(at: node.value, length: Int(node.length))
        }

        public var error: RedisServerError? {
            guard node.kind == .error, let text = string else { return nil }
            return RedisServerError(text: text)
        }

        /// The number of children of an array; 0 for other elements.
        public var count: Int { node.kind == .array ? node.value : 0 }

        /// A child of an array. If a child is a non-empty array, this walks over the preceding children; otherwise it takes constant time.
        ///
        /// - Precondition: `position` is from 0 to `count - 1`.
        public subscript(position: Int) -> Element {
            precondition(position >= 0 && position < count, "no such element in this reply")
            if Int(node.end) == index + 1 + count { return Element(reply: reply, index: index + 1 + position) }
            var child = index + 1
            for _ in 0..<position { child = Int(reply.nodes[child].end) }
            return Element(reply: reply, index: child)
        }

        /// The children of an array in order; none for other elements.
        public var children: Children { Children(reply: reply, index: index + 1, left: count) }
    }

    public struct Children: Sequence, IteratorProtocol, Sendable {
        fileprivate let reply: RESPReply
        fileprivate var index: Int
        fileprivate var left: Int

        /// The number of children that are left.
        public var underestimatedCount: Int { left }

        public mutating func next() -> Element? {
            guard left > 0 else { return nil }
            left -= 1
            defer { index = Int(reply.nodes[index].end) }
            return Element(reply: reply, index: index)
        }

        /// Returns the bytes of all remaining children; `nil` if a child has no bytes. It makes no `Element`s, because their copies would
        /// cost as much as the bytes.
        public mutating func takeBytes() -> [ByteBuffer]? {
            var all: [ByteBuffer] = []
            all.reserveCapacity(left)
            while left > 0 {
                let node = reply.nodes[index]
                guard node.kind.hasBytes, let bytes = reply.arena.getSlice(at: node.value, length: Int(node.length))
                else { return nil }
                all.append(bytes)
                (index, left) = (Int(node.end), left - 1)
            }
            return all
        }
    }
}

extension RESPReply.Kind {
    var hasBytes: Bool {
        switch self {
        case .string, .status, .error: true
        case .integer, .null, .array: false
        }
    }
}

extension RESPReply: Redacted {
    /// The kind and the sizes only, because replies contain payloads.
    public var description: String { "\(root.kind) (\(nodes.count) elements, \(arena.readableBytes) bytes)" }
}

extension RESPReply.Element: Redacted {
    /// The kind and the sizes.
    public var description: String {
        switch kind {
        case .array: "array (\(count) elements)"
        case .string, .status, .error: "\(kind) (\(reply.nodes[index].length) bytes)"
        case .integer, .null: "\(kind)"
        }
    }
}
