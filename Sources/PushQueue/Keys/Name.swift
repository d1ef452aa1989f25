import NIOCore
import PrintableText

/// The name of a campaign, job, app or another thing that producers name: its bytes, and nothing else. Swift's texts are
/// equal if they look alike, as `é` in two normal forms does; Redis compares bytes, and so do names.
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
