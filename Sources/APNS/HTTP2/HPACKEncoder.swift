import Glibc

/// The request header fields that an HPACK table can hold, by name.
enum HeaderName: UInt8, CaseIterable {
    case authority, path, authorization, topic, pushType, priority, expiration, collapseID, id, channelID, requestID

    /// The index of the name in HPACK's static table (RFC 7541, Appendix A); 0 if it has none.
    var staticIndex: Int {
        switch self {
        case .authority: 1
        case .path: 4
        case .authorization: 23
        case .topic, .pushType, .priority, .expiration, .collapseID, .id, .channelID, .requestID: 0
        }
    }

    var text: StaticString {
        switch self {
        case .authority: ":authority"
        case .authorization: "authorization"
        case .topic: "apns-topic"
        case .pushType: "apns-push-type"
        case .priority: "apns-priority"
        case .path: ":path"
        case .expiration: "apns-expiration"
        case .collapseID: "apns-collapse-id"
        case .id: "apns-id"
        case .channelID: "apns-channel-id"
        case .requestID: "apns-request-id"
        }
    }
}

/// An encoder of header blocks (RFC 7541).
///
/// Values that repeat are added to the dynamic table, so that one byte represents them afterwards. Values that change with each
/// notification are not added, because they would only evict repeated values. Secrets are not added. Nothing is Huffman-coded, because
/// the code would cost more than the saved bytes.
///
/// Source: Apple, "Sending notification requests to APNs". It asks not to index `:path` and `authorization`, and to index `apns-id`,
/// `apns-expiration` and `apns-collapse-id` only the first time, for their names.
struct HPACKEncoder: ~Copyable {
    /// The static table's entries for whole fields (RFC 7541, Appendix A).
    static let (methodPOST, schemeHTTPS): (UInt8, UInt8) = (3, 7)
    /// The first bits of a field that no table and no proxy may store (RFC 7541 §6.2.3).
    private static let neverIndexed: UInt8 = 0x10
    /// The size of the table in bytes unless the peer sets a smaller one: the default (RFC 9113 §6.5.2).
    static let maximumSize = HPACKDynamicTable.maximumSize

    private struct Entry {
        var name: HeaderName
        var value: UnsafeMutableBufferPointer<UInt8>
        var size: Int { Self.size(name, value.count) }

        /// The entry's size as counted by the table (RFC 7541 §4.1).
        static func size(_ name: HeaderName, _ length: Int) -> Int {
            name.text.utf8CodeUnitCount + length + HPACKDynamicTable.overhead
        }
    }

    /// The oldest entry first.
    private var entries: [Entry] = []
    /// The total number of evicted entries.
    private var evicted = 0
    private var size = 0
    private(set) var capacity = HPACKEncoder.maximumSize
    /// The smallest capacity since the last block, which the next block must begin with; `nil` if it has not changed.
    private var smallestCapacity: Int?
    /// The number of the newest entry with each name, counted from the first entry ever added; -1 for none.
    private var newest = [Int](repeating: -1, count: HeaderName.allCases.count)

    deinit {
        for entry in entries { entry.value.deallocate() }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §4.3.1, RFC 7541 §4.2).
    mutating func limit(to size: Int) {
        let capacity = min(size, Self.maximumSize)
        guard capacity != self.capacity else { return }
        smallestCapacity = min(smallestCapacity ?? self.capacity, capacity)
        self.capacity = capacity
        evict(downTo: capacity)
    }

    /// Begins a block: writes the table's new size if it has changed (RFC 7541 §4.2, §6.3).
    mutating func begin(_ writer: inout ByteWriter) {
        guard let smallest = smallestCapacity else { return }
        smallestCapacity = nil
        if smallest < capacity { writer.integer(smallest, prefix: 5, pattern: 0x20) }
        writer.integer(capacity, prefix: 5, pattern: 0x20)
    }

    /// Writes a field of the static table (RFC 7541 §6.1).
    func writeStatic(_ index: UInt8, _ writer: inout ByteWriter) { writer.byte(0x80 | index) }

    /// Writes a field whose value will repeat: as an index, or as a literal that is added to the table (RFC 7541 §6.1, §6.2.1).
    mutating func writeRepeated(_ name: HeaderName, _ value: UnsafeBufferPointer<UInt8>, _ writer: inout ByteWriter) {
        if let index = index(of: name, value) { return writer.integer(index, prefix: 7, pattern: 0x80) }
        // Adding the field would only empty the table (RFC 7541 §4.4).
        guard Entry.size(name, value.count) <= capacity else {
            return writeLiteral(name, value, pattern: 0x00, prefix: 4, &writer)
        }
        writeLiteral(name, value, pattern: 0x40, prefix: 6, &writer)
        add(name, value)
    }

    /// Writes a field whose value is secret, or long and used once: never indexed (RFC 7541 §6.2.3).
    func writeUnindexed(_ name: HeaderName, _ value: UnsafeBufferPointer<UInt8>, _ writer: inout ByteWriter) {
        writeLiteral(name, value, pattern: Self.neverIndexed, prefix: 4, &writer)
    }

    /// Writes a field with any name, never indexed.
    func writeUnindexed(_ name: String, _ value: String, _ writer: inout ByteWriter) {
        writer.byte(Self.neverIndexed)
        writer.string(name)
        writer.string(value)
    }

    /// Writes `:path` from two parts, never indexed.
    func writePath(
        _ start: UnsafeBufferPointer<UInt8>, _ end: UnsafeBufferPointer<UInt8>, _ writer: inout ByteWriter
    ) {
        writer.integer(HeaderName.path.staticIndex, prefix: 4, pattern: Self.neverIndexed)
        writer.integer(start.count + end.count, prefix: 7, pattern: 0)
        writer.copy(start)
        writer.copy(end)
    }

    // MARK: Fields whose values change: indexed the first time, for their names, and never afterwards

    mutating func write(_ name: HeaderName, _ number: Int64, _ writer: inout ByteWriter) {
        writeChanging(name, size: ByteWriter.digits(of: number), &writer) { $0.string(number) }
    }

    mutating func write(_ name: HeaderName, _ value: UnsafeBufferPointer<UInt8>, _ writer: inout ByteWriter) {
        writeChanging(name, size: value.count, &writer) { $0.string(value) }
    }

    mutating func write(_ name: HeaderName, _ id: APNSID, _ writer: inout ByteWriter) {
        writeChanging(name, size: APNSID.textLength, &writer) { writer in
            writer.byte(UInt8(APNSID.textLength))
            id.write(to: writer.at)
            writer.at += APNSID.textLength
        }
    }

    /// - Parameters:
    ///   - size: the length of the value.
    ///   - write: writes the value, preceded by its length.
    private mutating func writeChanging(
        _ name: HeaderName, size: Int, _ writer: inout ByteWriter, _ write: (inout ByteWriter) -> Void
    ) {
        let isKnown = newest[Int(name.rawValue)] >= evicted
        let isAdded = !isKnown && Entry.size(name, size) <= capacity
        writeName(name, pattern: isAdded ? 0x40 : Self.neverIndexed, prefix: isAdded ? 6 : 4, &writer)
        write(&writer)
        if isAdded { add(name, UnsafeBufferPointer(start: writer.at - size, count: size)) }
    }

    private mutating func add(_ name: HeaderName, _ value: UnsafeBufferPointer<UInt8>) {
        let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: value.count)
        _ = copy.initialize(fromContentsOf: value)
        let entry = Entry(name: name, value: copy)
        evict(downTo: capacity - entry.size)
        newest[Int(name.rawValue)] = evicted + entries.count
        entries.append(entry)
        size += entry.size
    }

    private func writeLiteral(
        _ name: HeaderName, _ value: UnsafeBufferPointer<UInt8>, pattern: UInt8, prefix: Int, _ writer: inout ByteWriter
    ) {
        writeName(name, pattern: pattern, prefix: prefix, &writer)
        writer.string(value)
    }

    private func writeName(_ name: HeaderName, pattern: UInt8, prefix: Int, _ writer: inout ByteWriter) {
        let number = newest[Int(name.rawValue)]
        let known = number >= evicted ? index(ofNumber: number) : name.staticIndex
        writer.integer(known, prefix: prefix, pattern: pattern)
        if known == 0 { writer.string(name.text.bytes) }
    }

    /// Returns an entry's index: the newest entry has the first index after the static table (RFC 7541 §2.3.3).
    private func index(ofNumber number: Int) -> Int { HPACKStaticTable.count + evicted + entries.count - number }

    private func index(of name: HeaderName, _ value: UnsafeBufferPointer<UInt8>) -> Int? {
        let number = newest[Int(name.rawValue)]
        guard number >= evicted else { return nil }
        if entries[number - evicted].value.holds(value) { return index(ofNumber: number) }
        for place in stride(from: number - evicted - 1, through: 0, by: -1)
        where entries[place].name == name && entries[place].value.holds(value) {
            return index(ofNumber: evicted + place)
        }
        return nil
    }

    private mutating func evict(downTo limit: Int) {
        var count = 0
        while size > limit, count < entries.count {
            size -= entries[count].size
            entries[count].value.deallocate()
            count += 1
        }
        guard count > 0 else { return }
        entries.removeFirst(count)
        evicted += count
    }
}

extension UnsafeMutableBufferPointer<UInt8> {
    fileprivate func holds(_ other: UnsafeBufferPointer<UInt8>) -> Bool {
        guard count == other.count else { return false }
        guard let baseAddress, let address = other.baseAddress else { return true }
        return memcmp(baseAddress, address, count) == 0
    }
}

/// Writes to memory without checking its size.
struct ByteWriter {
    var at: UnsafeMutablePointer<UInt8>

    mutating func byte(_ byte: UInt8) {
        at.pointee = byte
        at += 1
    }

    /// Writes an integer (RFC 7541 §5.1): in `prefix` bits of the first byte, whose other bits are `pattern`, and more
    /// bytes if needed.
    mutating func integer(_ value: Int, prefix: Int, pattern: UInt8) {
        let largest = 1 << prefix - 1
        guard value >= largest else { return byte(pattern | UInt8(value)) }
        byte(pattern | UInt8(largest))
        var rest = value - largest
        while rest >= 0x80 {
            byte(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        byte(UInt8(rest))
    }

    /// Writes a string without Huffman coding (RFC 7541 §5.2).
    mutating func string(_ bytes: UnsafeBufferPointer<UInt8>) {
        integer(bytes.count, prefix: 7, pattern: 0)
        copy(bytes)
    }

    mutating func string(_ text: String) {
        integer(text.utf8.count, prefix: 7, pattern: 0)
        for unit in text.utf8 { byte(unit) }
    }

    mutating func copy(_ bytes: UnsafeBufferPointer<UInt8>) {
        // An empty buffer may have no address.
        guard let source = bytes.baseAddress else { return }
        UnsafeMutableRawPointer(at).copyMemory(from: source, byteCount: bytes.count)
        at += bytes.count
    }

    static func digits(of number: Int64) -> Int {
        var digits = 1
        var power: Int64 = 10
        while digits < 19, number >= power {
            digits += 1
            power = digits < 19 ? power * 10 : .max
        }
        return digits
    }

    /// Writes a decimal number as a string.
    mutating func string(_ number: Int64) {
        let digits = Self.digits(of: number)
        byte(UInt8(digits))
        var rest = max(number, 0)
        for position in stride(from: digits - 1, through: 0, by: -1) {
            at[position] = 0x30 + UInt8(rest % 10)
            rest /= 10
        }
        at += digits
    }
}
