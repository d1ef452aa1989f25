/// A reader of untrusted DER, element by element.
struct DERReader {
    /// The universal tags that Apple's extensions use (X.680).
    enum Tag {
        static let utf8String: UInt8 = 0x0C
        static let sequence: UInt8 = 0x30
    }

    struct Element {
        var tag: UInt8
        var contents: ArraySlice<UInt8>
    }

    struct Malformed: Error {}

    private var rest: ArraySlice<UInt8>

    init(_ bytes: some Collection<UInt8>) {
        rest = Array(bytes)[...]
    }

    /// Returns the next element; nil at the end.
    mutating func next() throws(Malformed) -> Element? {
        guard let tag = rest.popFirst() else { return nil }
        // Indefinite lengths are not DER, and Apple's extensions have no tags of several bytes.
        guard tag & 0x1F != 0x1F, let first = rest.popFirst(), first != 0x80 else { throw Malformed() }
        var length = Int(first)
        if first > 0x80 {
            let digits = Int(first & 0x7F)
            guard digits <= 3, rest.count >= digits else { throw Malformed() }
            length = rest.prefix(digits).reduce(0) { $0 << 8 | Int($1) }
            rest.removeFirst(digits)
        }
        guard rest.count >= length else { throw Malformed() }
        defer { rest.removeFirst(length) }
        return Element(tag: tag, contents: rest.prefix(length))
    }
}
