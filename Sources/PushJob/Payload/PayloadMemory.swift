import Glibc

/// The last payload that was read. Producers send many jobs with the same payload: if the bytes are the same, they are not read again.
///
/// The comparison ends at the length of the last payload, because its last byte is the brace that ends the object.
///
/// Not thread-safe.
public final class PayloadMemory {
    /// The maximum length in bytes of a payload that is kept.
    private static let maximumLength = 4096

    private let text = UnsafeMutableRawPointer.allocate(byteCount: maximumLength, alignment: 8)
    private var length = 0
    /// The number of objects and arrays around the payload. Inside of more objects and arrays, its own nesting may be too deep.
    private var depth = 0
    private var facts = PayloadFacts()

    public init() {}

    deinit { text.deallocate() }

    /// Reads a payload.
    /// - Parameters:
    ///   - scanner: at the first byte of the payload, an object.
    ///   - facts: the initial facts, which are replaced.
    func read(_ scanner: inout JSONScanner, _ facts: inout PayloadFacts) throws(JSONError) {
        let start = scanner.offset
        let rest = UnsafeRawBufferPointer(rebasing: scanner.bytes[start..<scanner.end])
        guard let base = rest.baseAddress else { return try facts.readPayload(&scanner) }
        if length > 0, length <= rest.count, depth == scanner.depth, memcmp(base, text, length) == 0 {
            facts = self.facts
            scanner.offset = start &+ length
            return
        }
        try facts.readPayload(&scanner)
        length = scanner.offset &- start
        guard length <= Self.maximumLength else {
            length = 0
            return
        }
        text.copyMemory(from: base, byteCount: length)
        depth = scanner.depth
        self.facts = facts
    }
}
