/// A decoder of header blocks (RFC 7541).
///
/// It allocates no memory for a field, unless its Huffman-coded strings are longer than all before.
struct HPACKDecoder: ~Copyable {
    /// The maximum size in bytes as sent. A longer string exceeds ``HeaderBlock/maximumSize`` even if each code has 30 bits, the maximum.
    static let maximumStringSize = 64 * 1024
    /// A block begins with at most two sizes: the smallest one since the previous block, and the current one (§4.2).
    static let maximumSizeChanges = 2

    private let staticEntries = HPACKStaticTable.entries
    private let huffman = HPACKHuffman.shared
    private(set) var table = HPACKDynamicTable()
    /// The changes of the table's size in this block; `nil` after the first field.
    private var sizeChanges: Int? = 0
    /// The decoded name and value of one field.
    private var decoded = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: 512)

    deinit { decoded.deallocate() }

    /// Decodes the next field of a block.
    /// - Parameter input: the rest of the block, or of a part of it. The field is removed from it.
    /// - Returns: the field, valid until the next call or until the input is freed; `nil` if the input has no complete field.
    mutating func next(_ input: inout UnsafeBufferPointer<UInt8>) throws(HPACKViolation) -> HPACKField? {
        while let start = input.baseAddress, !input.isEmpty {
            let first = start.pointee
            var reader = HPACKReader(at: start, end: start + input.count)
            let field: HPACKField
            if first & 0x80 != 0 {
                // §6.1: an index.
                guard let index = try reader.integer(prefix: 7) else { return nil }
                field = try entry(index)
            } else if first & 0xE0 == 0x20 {
                guard let size = try reader.integer(prefix: 5) else { return nil }
                try resize(to: size)
                input = reader.rest
                continue
            } else {
                // §6.2: a literal, which may be added to the table.
                let isAdded = first & 0x40 != 0
                guard let literal = try literal(&reader, prefix: isAdded ? 6 : 4) else { return nil }
                field = isAdded ? table.add(literal) : literal
            }
            input = reader.rest
            sizeChanges = nil
            return field
        }
        return nil
    }

    /// Ends a block.
    /// - Parameter rest: the input after ``next(_:)`` has returned all fields.
    mutating func end(_ rest: UnsafeBufferPointer<UInt8>) throws(HPACKViolation) {
        guard rest.isEmpty else { throw .truncated }
        sizeChanges = 0
    }

    /// Returns an entry of the static or the dynamic table (§2.3.3).
    private func entry(_ index: Int) throws(HPACKViolation) -> HPACKField {
        if index > 0, index <= HPACKStaticTable.count { return staticEntries[index - 1] }
        guard index > 0, let field = table.field(index - HPACKStaticTable.count - 1) else { throw .index }
        return field
    }

    /// Changes the size of the table (§4.2, §6.3).
    private mutating func resize(to size: Int) throws(HPACKViolation) {
        guard let changes = sizeChanges, changes < Self.maximumSizeChanges, size <= HPACKDynamicTable.maximumSize else {
            throw .tableSize
        }
        sizeChanges = changes + 1
        table.resize(to: size)
    }

    private mutating func literal(_ reader: inout HPACKReader, prefix: Int) throws(HPACKViolation) -> HPACKField? {
        guard let index = try reader.integer(prefix: prefix) else { return nil }
        var name = HPACKString()
        if index == 0 {
            guard let string = try reader.string() else { return nil }
            name = string
        } else {
            name.bytes = try entry(index).name
        }
        guard let value = try reader.string() else { return nil }
        // All memory is reserved first, because the name must not move while the value is decoded.
        reserve(name.bound + value.bound)
        var used = 0
        return HPACKField(name: try decode(name, &used), value: try decode(value, &used))
    }

    private mutating func reserve(_ count: Int) {
        guard count > decoded.count else { return }
        decoded.deallocate()
        decoded = .allocate(capacity: count)
    }

    private func decode(_ string: HPACKString, _ used: inout Int) throws(HPACKViolation) -> UnsafeBufferPointer<UInt8> {
        guard string.isHuffmanCoded, let start = decoded.baseAddress.map({ $0 + used }) else { return string.bytes }
        let count = try huffman.decode(string.bytes, to: start)
        used += string.bound
        return UnsafeBufferPointer(start: start, count: count)
    }
}

/// A string as it is sent (RFC 7541 §5.2).
private struct HPACKString {
    var isHuffmanCoded = false
    var bytes = UnsafeBufferPointer<UInt8>(start: nil, count: 0)

    /// The number of bytes that decoding needs.
    var bound: Int { isHuffmanCoded ? HPACKHuffman.bound(bytes.count) : 0 }
}

/// A reader of the primitive types (RFC 7541 §5). It returns `nil` if the input is incomplete.
private struct HPACKReader {
    var at: UnsafePointer<UInt8>
    let end: UnsafePointer<UInt8>

    /// The maximum number of bytes after the first one of an integer.
    private static let maximumIntegerBytes = 5

    var rest: UnsafeBufferPointer<UInt8> { UnsafeBufferPointer(start: at, count: end - at) }

    /// Reads an integer in the last bits of the next byte, and more bytes if needed (§5.1).
    mutating func integer(prefix: Int) throws(HPACKViolation) -> Int? {
        guard at < end else { return nil }
        let largest = 1 << prefix - 1
        var value = Int(at.pointee) & largest
        at += 1
        guard value == largest else { return value }
        for place in 0..<Self.maximumIntegerBytes {
            guard at < end else { return nil }
            let byte = at.pointee
            at += 1
            value += Int(byte & 0x7F) << (7 * place)
            if byte & 0x80 == 0 { return value }
        }
        throw .integer
    }

    mutating func string() throws(HPACKViolation) -> HPACKString? {
        guard at < end else { return nil }
        let isHuffmanCoded = at.pointee & 0x80 != 0
        guard let count = try integer(prefix: 7) else { return nil }
        guard count <= HPACKDecoder.maximumStringSize else { throw .integer }
        guard count <= end - at else { return nil }
        defer { at += count }
        return HPACKString(isHuffmanCoded: isHuffmanCoded, bytes: UnsafeBufferPointer(start: at, count: count))
    }
}
