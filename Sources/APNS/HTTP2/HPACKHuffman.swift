/// The reason why a header block cannot be decoded (RFC 7541).
enum HPACKViolation: String, Error {
    /// §5.1
    case integer = "an integer is too large"
    /// §2.3.3, §6.1
    case index = "an index is in no table"
    /// §5.2
    case padding = "the padding of a string is invalid"
    /// §5.2
    case endOfString = "a string contains the end-of-string symbol"
    /// §4.2, §6.3
    case tableSize = "a change of the table's size is too large, or not at the beginning of a header block"
    case truncated = "the last field is incomplete"
}

/// The decoder of HPACK's Huffman code (RFC 7541 §5.2, Appendix B).
///
/// The code is canonical: codes of the same length are consecutive numbers in the order of their symbols, and longer codes follow. So the
/// lengths define it. Codes of at most eight bits, which are letters, digits and most punctuation, are found in a table. Longer codes are
/// found by their length.
///
/// Immutable after `init`, so sharing it between threads is safe.
struct HPACKHuffman: @unchecked Sendable {
    /// The tables, which are never freed.
    static let shared = HPACKHuffman()

    /// The number of bits that are looked up at once. With 13 bits, for two symbols, decoding would take a third less time, but the table
    /// would fill a processor's first cache.
    private static let window = 8
    private static let longest = 30
    /// The symbol that must not occur (RFC 7541 §5.2).
    private static let endOfString = 256

    /// The first code in a sequence of bits.
    private struct Prefix {
        var symbol: UInt8 = 0
        /// The number of the code's bits; 0 if the code is longer than the sequence.
        var length: UInt8 = 0
    }

    /// The codes of one length.
    private struct Group {
        /// The smallest code, and the number after the largest one; both shifted to the highest bits of 32.
        var (first, limit): (UInt64, UInt64)
        /// The place of the first symbol among all symbols.
        var place: Int
    }

    /// The prefixes, by the next ``window`` bits, inverted.
    private let prefixes: UnsafeMutablePointer<Prefix>
    /// The groups, by the length of their codes.
    private let groups: UnsafeMutablePointer<Group>
    /// All symbols, in the order of their codes.
    private let symbols: UnsafeMutablePointer<UInt16>

    private init() {
        prefixes = .allocate(capacity: 1 << Self.window)
        groups = .allocate(capacity: Self.longest + 1)
        symbols = .allocate(capacity: Self.lengths.count)
        var (code, place): (UInt64, Int) = (0, 0)
        for length in 0...Self.longest {
            let (first, start) = (code, place)
            for (symbol, other) in Self.lengths.enumerated() where Int(other) == length {
                (symbols + place).initialize(to: UInt16(symbol))
                place += 1
                code += 1 << (32 - length)
            }
            (groups + length).initialize(to: Group(first: first, limit: code, place: start))
        }
        for bits in 0..<1 << Self.window {
            let (symbol, length) = self.code(UInt64(bits << (32 - Self.window)))
            let inverted = ~bits & (1 << Self.window - 1)
            (prefixes + inverted).initialize(
                to: length > Self.window ? Prefix() : Prefix(symbol: UInt8(symbol), length: UInt8(length)))
        }
    }

    /// Returns the first code in 32 bits.
    private func code(_ bits: UInt64) -> (symbol: UInt16, length: Int) {
        var length = 5
        while bits >= groups[length].limit { length += 1 }
        let group = groups[length]
        return (symbols[group.place + Int((bits - group.first) >> (32 - UInt64(length)))], length)
    }

    /// Returns the maximum number of bytes that ``decode(_:to:)`` writes for a string.
    static func bound(_ count: Int) -> Int { count * 8 / 5 }

    @inline(__always)
    private func beginning(of bits: UInt64) -> Prefix {
        prefixes[Int(truncatingIfNeeded: bits >> UInt64(64 - Self.window))]
    }

    /// Decodes a string.
    /// - Parameter target: memory for ``bound(_:)`` bytes.
    /// - Returns: the number of bytes.
    func decode(
        _ string: UnsafeBufferPointer<UInt8>, to target: UnsafeMutablePointer<UInt8>
    ) throws(HPACKViolation) -> Int {
        guard var next = string.baseAddress else { return 0 }
        let end = next + string.count
        // The next bits, beginning at the highest one, and their number. The bits are inverted, so that the zeros after the last bit mean
        // ones, like valid padding.
        var (bits, count): (UInt64, Int) = (0, 0)
        var output = target
        while true {
            if count < Self.longest {
                if end - next >= 8 {
                    let word = UInt64(bigEndian: UnsafeRawPointer(next).loadUnaligned(as: UInt64.self))
                    bits |= ~word >> UInt64(count)
                    let bytes = (63 - count) >> 3
                    next += bytes
                    count += 8 * bytes
                } else {
                    while count <= 56, next < end {
                        bits |= UInt64(~next.pointee) << UInt64(56 - count)
                        next += 1
                        count += 8
                    }
                }
            }
            // Two symbols at a time, while there are enough bits for two codes of `window` bits.
            while count >= 2 * Self.window {
                let first = beginning(of: bits)
                guard first.length > 0 else { break }
                output[0] = first.symbol
                bits <<= UInt64(first.length)
                let second = beginning(of: bits)
                guard second.length > 0 else {
                    count -= Int(first.length)
                    output += 1
                    break
                }
                output[1] = second.symbol
                bits <<= UInt64(second.length)
                count -= Int(first.length) + Int(second.length)
                output += 2
            }
            if count < Self.longest, next < end { continue }
            let prefix = beginning(of: bits)
            var (symbol, length) = (UInt16(prefix.symbol), Int(prefix.length))
            if length == 0 {
                // Fewer than eight ones are left. They are padding, because no code consists of them.
                if bits == 0, count < 8 { return output - target }
                (symbol, length) = code(~bits >> 32)
            }
            // If the next code is longer than the rest, the rest is neither a code nor padding.
            guard length <= count else { throw .padding }
            guard symbol < Self.endOfString else { throw .endOfString }
            output.pointee = UInt8(truncatingIfNeeded: symbol)
            output += 1
            bits <<= UInt64(length)
            count -= length
        }
    }

    /// The length of each symbol's code in bits (RFC 7541, Appendix B).
    static let lengths: [UInt8] = [
        13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
        28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
        5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
        15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
        7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
        24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
        23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
        26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
        21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
        26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
    ]
}
