import TestSupport

@testable import APNS

/// Writes random valid header blocks (RFC 7541) in all representations. Simple and slow: its table is an array.
struct HPACKScript {
    private var generator: SeededGenerator
    /// The newest entry first.
    private var table: [HPACKComparison.Field] = []
    private var capacity = HPACKDynamicTable.maximumSize

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    mutating func block() -> (bytes: [UInt8], fields: [HPACKComparison.Field]) {
        var (bytes, fields): ([UInt8], [HPACKComparison.Field]) = ([], [])
        if number(0..<6) == 0 {
            for _ in 0..<number(1..<3) {
                capacity = one(of: [0, 31, 32, 64, 100, 200, 1000, 4095, 4096])
                bytes += Self.integer(capacity, prefix: 5, pattern: 0x20)
                evict(downTo: capacity)
            }
        }
        for _ in 0..<number(0..<7) {
            let field = number(0..<3) == 0 ? writeIndexed(&bytes) : writeLiteral(&bytes)
            fields.append(field)
        }
        return (bytes, fields)
    }

    mutating func damaged(_ block: [UInt8]) -> [UInt8] {
        var block = block
        for _ in 0..<number(1..<4) {
            let place = number(0..<block.count + 1)
            switch number(0..<6) {
            case 0: block.insert(.random(in: 0...255, using: &generator), at: place)
            case 1: block.removeLast(min(block.count, number(0..<4)))
            case 2 where place < block.count: block.remove(at: place)
            case 3 where place < block.count: block[place] = one(of: [0x00, 0x20, 0x3F, 0x7F, 0x80, 0xBE, 0xFF])
            case 4 where place < block.count: block[place] ^= 1 << UInt8(number(0..<8))
            default: if place < block.count { block[place] = .random(in: 0...255, using: &generator) }
            }
        }
        return block
    }

    mutating func number(_ range: Range<Int>) -> Int { .random(in: range, using: &generator) }

    private mutating func one<Choice>(of choices: [Choice]) -> Choice {
        choices.randomElement(using: &generator)!
    }

    private mutating func writeIndexed(_ bytes: inout [UInt8]) -> HPACKComparison.Field {
        let index = randomIndex()
        bytes += Self.integer(index, prefix: 7, pattern: 0x80)
        return entry(index)
    }

    private mutating func writeLiteral(_ bytes: inout [UInt8]) -> HPACKComparison.Field {
        let (pattern, prefix): (UInt8, Int) = one(of: [(0x40, 6), (0x40, 6), (0x00, 4), (0x10, 4)])
        let index = number(0..<2) == 0 ? 0 : randomIndex()
        bytes += Self.integer(index, prefix: prefix, pattern: pattern)
        var name: [UInt8] = []
        if index == 0 {
            name = text(one(of: [0, 1, 7, 14, 126, 127, 300]))
            bytes += string(name)
        } else {
            name = entry(index).name
        }
        let value = text(one(of: [0, 1, 2, 3, 20, 36, 36, 36, 127, 128, 255, 500, 2000, 3900, 5000]))
        bytes += string(value)
        let field = HPACKComparison.Field(name: name, value: value)
        if pattern == 0x40 {
            evict(downTo: capacity - Self.size(field))
            if Self.size(field) <= capacity { table.insert(field, at: 0) }
        }
        return field
    }

    private static func size(_ field: HPACKComparison.Field) -> Int { field.name.count + field.value.count + 32 }

    private mutating func evict(downTo limit: Int) {
        while !table.isEmpty, table.reduce(0, { $0 + Self.size($1) }) > limit { table.removeLast() }
    }

    private mutating func randomIndex() -> Int {
        table.isEmpty || number(0..<4) == 0
            ? number(1..<HPACKStaticTable.count + 1) : number(0..<table.count) + HPACKStaticTable.count + 1
    }

    private func entry(_ index: Int) -> HPACKComparison.Field {
        guard index <= HPACKStaticTable.count else { return table[index - HPACKStaticTable.count - 1] }
        let field = HPACKStaticTable.entries[index - 1]
        return HPACKComparison.Field(name: Array(field.name), value: Array(field.value))
    }

    /// Has its own arithmetic, because the standard library's is generic and slow in a debug build.
    private mutating func text(_ count: Int) -> [UInt8] {
        let kind = number(0..<3)
        var text: [UInt8] = []
        text.reserveCapacity(count)
        var random: UInt64 = 0
        while text.count < count {
            if text.count % 8 == 0 { random = generator.next() }
            let byte = UInt8(truncatingIfNeeded: random)
            random >>= 8
            switch kind {
            case 0: text.append(Self.digits[Int(byte % 17)])
            case 1: text.append(0x20 + byte % 95)
            default: text.append(byte)
            }
        }
        return text
    }

    private static let digits = Array("0123456789ABCDEF-".utf8)

    private mutating func string(_ text: [UInt8]) -> [UInt8] {
        guard number(0..<3) > 0 else { return Self.integer(text.count, prefix: 7, pattern: 0) + text }
        let coded = Self.huffmanCoded(text)
        return Self.integer(coded.count, prefix: 7, pattern: 0x80) + coded
    }

    static func integer(_ value: Int, prefix: Int, pattern: UInt8) -> [UInt8] {
        let largest = 1 << prefix - 1
        guard value >= largest else { return [pattern | UInt8(value)] }
        var (bytes, rest) = ([pattern | UInt8(largest)], value - largest)
        while rest >= 0x80 {
            bytes.append(UInt8(rest & 0x7F) | 0x80)
            rest >>= 7
        }
        return bytes + [UInt8(rest)]
    }

    /// The code of each symbol. nghttp2's decoder verifies them.
    private static let codes: [UInt32] = {
        var (codes, code, length) = ([UInt32](repeating: 0, count: HPACKHuffman.lengths.count), UInt32(0), UInt8(0))
        for symbol in codes.indices.sorted(by: {
            (HPACKHuffman.lengths[$0], $0) < (HPACKHuffman.lengths[$1], $1)
        }) {
            code <<= UInt32(HPACKHuffman.lengths[symbol] - length)
            length = HPACKHuffman.lengths[symbol]
            codes[symbol] = code
            code += 1
        }
        return codes
    }()

    static func huffmanCoded(_ text: [UInt8]) -> [UInt8] {
        var (bytes, bits, count): ([UInt8], UInt64, Int) = ([], 0, 0)
        for byte in text {
            bits = bits << UInt64(HPACKHuffman.lengths[Int(byte)]) | UInt64(codes[Int(byte)])
            count += Int(HPACKHuffman.lengths[Int(byte)])
            while count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt64(count)))
            }
        }
        if count > 0 {
            bytes.append(UInt8(truncatingIfNeeded: bits << UInt64(8 - count)) | UInt8(0xFF) >> UInt8(count))
        }
        return bytes
    }
}
