import NIOCore
import PrintableText

/// A name that producers choose, such as that of a campaign or a job. Names are compared by their bytes, as in Redis. Swift's strings are
/// equal even if their normal forms differ, such as two forms of `é`.
public struct Name: Sendable, Hashable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// The bytes as text.
    public let text: String

    public init(_ text: String) { self.text = text }
    public init(_ bytes: ByteBuffer) { text = String(buffer: bytes) }
    public init(stringLiteral text: String) { self.text = text }

    public static func == (left: Name, right: Name) -> Bool { left.text.utf8.elementsEqual(right.text.utf8) }

    public func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
    }

    /// The text for people. It is not read back.
    public var description: String { text.shown }
}

extension Name: Comparable {
    public static func < (left: Name, right: Name) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }
}
