import CNghttp2

@testable import APNS

/// Decodes the same header blocks with ``HPACKDecoder`` and with nghttp2's decoder.
final class HPACKComparison {
    struct Field: Equatable {
        var name: [UInt8]
        var value: [UInt8]
    }

    enum Outcome: Equatable {
        case fields([Field])
        /// Both decoders refuse the block.
        case refused(HPACKViolation)
        /// Only our decoder refuses the block, because the block changes the table's size more than twice (RFC 7541 §4.2). nghttp2 accepts
        /// any number of changes.
        case refusedForSizeChanges
    }

    private var decoder = HPACKDecoder()
    private let reference = HeaderDecoder()

    /// The size of the table in bytes.
    var tableSize: Int { decoder.table.size }

    /// Runs an input of libFuzzer: blocks, each after its length and the length of its parts.
    static func run(_ input: [UInt8]) throws(FuzzViolation) {
        let comparison = HPACKComparison()
        var rest = input[...]
        while rest.count >= 2 {
            let (size, part) = (Int(rest.removeFirst()), Int(rest.removeFirst()))
            let block = rest.prefix(size)
            rest = rest.dropFirst(size)
            guard case .fields = try comparison.decode(Array(block), inPartsOf: max(part, 1)) else { return }
        }
    }

    /// Decodes a block, and compares the fields and both tables. After a refused block, no further block can be decoded.
    /// - Parameter part: the number of bytes of each part except the last.
    func decode(_ block: [UInt8], inPartsOf part: Int = .max) throws(FuzzViolation) -> Outcome {
        let (own, expected) = (decodeOwn(block, part), decodeReference(block))
        switch (own, expected) {
        case (.success(let fields), let expected?):
            guard fields == expected else { throw FuzzViolation(description: "fields \(fields), not \(expected)") }
            try compareTables()
            return .fields(fields)
        case (.failure(.tableSize), .some) where Self.sizeChanges(block) > HPACKDecoder.maximumSizeChanges:
            return .refusedForSizeChanges
        case (.failure(let violation), nil): return .refused(violation)
        case (.failure(let violation), .some): throw FuzzViolation(description: "refused: \(violation.rawValue)")
        case (.success(let fields), nil): throw FuzzViolation(description: "accepted: \(fields)")
        }
    }

    /// Returns the number of changes of the table's size at the beginning of a block.
    private static func sizeChanges(_ block: [UInt8]) -> Int {
        var (count, rest) = (0, block[...])
        while let first = rest.popFirst(), first & 0xE0 == 0x20 {
            if first == 0x3F { while let byte = rest.popFirst(), byte & 0x80 != 0 {} }
            count += 1
        }
        return count
    }

    private func decodeOwn(_ block: [UInt8], _ part: Int) -> Result<[Field], HPACKViolation> {
        var (fields, rest, offset): ([Field], [UInt8], Int) = ([], [], 0)
        repeat {
            let size = min(part, block.count - offset)
            rest += block[offset..<offset + size]
            offset += size
            let result: Result<Int, HPACKViolation> = rest.withUnsafeBufferPointer { bytes in
                var input = bytes
                do throws(HPACKViolation) {
                    while let field = try decoder.next(&input) {
                        fields.append(Field(name: Array(field.name), value: Array(field.value)))
                    }
                    if offset == block.count { try decoder.end(input) }
                    return .success(bytes.count - input.count)
                } catch {
                    return .failure(error)
                }
            }
            switch result {
            case .success(let count): rest.removeFirst(count)
            case .failure(let violation): return .failure(violation)
            }
        } while offset < block.count
        return .success(fields)
    }

    /// Returns the fields that nghttp2 decodes; `nil` if it refuses the block.
    private func decodeReference(_ block: [UInt8]) -> [Field]? {
        do throws(HeaderDecoder.Failure) {
            return try reference.decodeBytes(block).map { Field(name: $0.name, value: $0.value) }
        } catch {
            return nil
        }
    }

    private func compareTables() throws(FuzzViolation) {
        let (count, size) = (decoder.table.count, decoder.table.size)
        let staticCount = HPACKStaticTable.count
        guard size == nghttp2_hd_inflate_get_dynamic_table_size(reference.inflater),
            staticCount + count == nghttp2_hd_inflate_get_num_table_entries(reference.inflater)
        else { throw FuzzViolation(description: "\(count) entries with \(size) bytes") }
        for index in 0..<count {
            guard let own = decoder.table.field(index),
                let other = nghttp2_hd_inflate_get_table_entry(reference.inflater, staticCount + 1 + index)?.pointee,
                own.name.elementsEqual(UnsafeBufferPointer(start: other.name, count: other.namelen)),
                own.value.elementsEqual(UnsafeBufferPointer(start: other.value, count: other.valuelen))
            else { throw FuzzViolation(description: "the entry \(index) of the table is another") }
        }
    }
}
