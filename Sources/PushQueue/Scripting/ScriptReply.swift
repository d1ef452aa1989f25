import NIOCore
import Redis

/// A script's reply, read from its first element to its last.
///
/// A missing element, or one of another type, reads as an empty value, so that callers need no checks. If an element is missing, of another
/// type or left over, the whole reply is a failure: the server runs another version of the script, or is not Redis.
public struct ScriptReply {
    /// A reply that is not an array.
    private var only: RESPReply.Element?
    private var elements: RESPReply.Children
    private var isUnexpected = false

    private init(_ root: RESPReply.Element) {
        only = root.kind == .array ? nil : root
        elements = root.children
    }

    /// Reads a reply.
    /// - Parameter script: the name of the script.
    /// - Throws: ``QueueFailure/unexpectedReply(_:)``.
    public static func read<Value>(
        _ reply: RESPReply, of script: String, _ body: (inout ScriptReply) -> Value
    ) throws(QueueFailure) -> Value {
        var elements = ScriptReply(reply.root)
        let value = body(&elements)
        guard !elements.isUnexpected, elements.isAtEnd else { throw .unexpectedReply(script) }
        return value
    }

    /// True after the last element.
    public var isAtEnd: Bool { count == 0 }

    /// The number of elements that are left.
    public var count: Int { only == nil ? elements.underestimatedCount : 1 }

    /// Makes the reply a failure.
    public mutating func refuse() { isUnexpected = true }

    /// Reads a number within ±2⁵³.
    public mutating func number() -> Int { read(\.number) ?? 0 }

    /// Reads a number. A negative one means that there is no value.
    public mutating func numberIfAny() -> Int64? {
        let number = number()
        return number < 0 ? nil : Int64(number)
    }

    /// Reads a number that is the raw value of a type.
    public mutating func value<Value: RawRepresentable<Int>>(else empty: Value) -> Value {
        read { $0.number.flatMap(Value.init) } ?? empty
    }

    public mutating func text() -> String { read(\.string) ?? "" }

    /// Reads a text. An empty one means that there is no value.
    public mutating func textIfAny() -> String? {
        let text = text()
        return text.isEmpty ? nil : text
    }

    public mutating func bytes() -> ByteBuffer { read(\.bytes) ?? ByteBuffer() }

    /// Reads all strings that are left.
    public mutating func allBytes() -> [ByteBuffer] {
        guard let all = elements.takeBytes() else {
            refuse()
            return []
        }
        return all
    }

    /// Reads a string, or null.
    public mutating func bytesOrNull() -> ByteBuffer? {
        let element = next()
        if element?.bytes == nil, element?.isNull != true { refuse() }
        return element?.bytes
    }

    public mutating func children() -> RESPReply.Children {
        read { $0.kind == .array ? $0.children : nil } ?? elements
    }

    private mutating func read<Value>(_ value: (RESPReply.Element) -> Value?) -> Value? {
        let found = next().flatMap(value)
        if found == nil { refuse() }
        return found
    }

    private mutating func next() -> RESPReply.Element? {
        defer { only = nil }
        return only ?? elements.next()
    }
}
