/// The name and the value of a header field, in memory that belongs to a table, a decoder or its input.
struct HPACKField {
    var name: UnsafeBufferPointer<UInt8>
    var value: UnsafeBufferPointer<UInt8>
}

/// The table of fields that all encoders and decoders share (RFC 7541, Appendix A).
enum HPACKStaticTable {
    /// The number of entries; the indexes of the dynamic table follow.
    static let count = 61

    /// The entries, in the order of their indexes, which begin at 1. They are never changed and never freed.
    nonisolated(unsafe) static let entries: UnsafePointer<HPACKField> = {
        let entries = UnsafeMutablePointer<HPACKField>.allocate(capacity: count)
        for (place, entry) in texts.enumerated() {
            (entries + place).initialize(to: HPACKField(name: entry.0.bytes, value: entry.1.bytes))
        }
        return UnsafePointer(entries)
    }()

    private static let texts: [(StaticString, StaticString)] = [
        (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
        (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
        (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
        ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
        ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
        ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
        ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
        ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
        ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
        ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
        ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
        ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
        ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
    ]
}

/// A decoder's table of the fields that the peer has added (RFC 7541 §2.3.2, §4).
///
/// It is a ring of entries, and a ring of their bytes. The bytes of an entry are contiguous: if they do not fit at the end of the ring,
/// they are at its beginning. That place is free, because the ring has twice the table's size, and the other entries occupy only its end.
struct HPACKDynamicTable: ~Copyable {
    /// The maximum size in bytes: the default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2), which this client keeps.
    static let maximumSize = 4096
    /// The bytes that each entry counts in addition to its name and value (RFC 7541 §4.1).
    static let overhead = 32

    private struct Entry {
        var offset: UInt16
        var nameCount: UInt16
        var valueCount: UInt16
        var size: Int { Int(nameCount) + Int(valueCount) + HPACKDynamicTable.overhead }
    }

    private static let maximumCount = maximumSize / overhead
    private static let room = 2 * maximumSize

    private let entries = UnsafeMutablePointer<Entry>.allocate(capacity: Self.maximumCount)
    private let bytes = UnsafeMutablePointer<UInt8>.allocate(capacity: Self.room)
    /// The place of the next entry, and of its bytes.
    private var (nextEntry, nextByte) = (0, 0)
    private(set) var count = 0
    /// The size in bytes, as RFC 7541 §4.1 counts it.
    private(set) var size = 0
    /// The limit of the size, which the peer's encoder sets (RFC 7541 §4.2).
    private(set) var capacity = Self.maximumSize

    deinit {
        entries.deallocate()
        bytes.deallocate()
    }

    /// Returns an entry; `nil` if the table has fewer.
    /// - Parameter index: 0 for the newest. The field is valid until the table changes.
    func field(_ index: Int) -> HPACKField? {
        guard index < count else { return nil }
        return field(at: (nextEntry - 1 - index) & (Self.maximumCount - 1))
    }

    private func field(at place: Int) -> HPACKField {
        let (entry, start) = (entries[place], bytes + Int(entries[place].offset))
        return HPACKField(
            name: UnsafeBufferPointer(start: start, count: Int(entry.nameCount)),
            value: UnsafeBufferPointer(start: start + Int(entry.nameCount), count: Int(entry.valueCount)))
    }

    /// Adds a field as the newest entry, and evicts the oldest ones to make room (RFC 7541 §4.4). A field that is larger
    /// than the table only empties it.
    /// - Parameter field: its name may be in the memory of an entry, even of an evicted one.
    /// - Returns: the field, valid until the table changes.
    mutating func add(_ field: HPACKField) -> HPACKField {
        let length = field.name.count + field.value.count
        evict(downTo: capacity - length - Self.overhead)
        guard length + Self.overhead <= capacity else { return field }
        if nextByte + length > Self.room { nextByte = 0 }
        let start = bytes + nextByte
        // Copies the name first, because it may be in the memory that the value will overwrite.
        if let name = field.name.baseAddress { start.update(from: name, count: field.name.count) }
        if let value = field.value.baseAddress {
            (start + field.name.count).update(from: value, count: field.value.count)
        }
        let place = nextEntry
        entries[place] = Entry(
            offset: UInt16(nextByte), nameCount: UInt16(field.name.count), valueCount: UInt16(field.value.count))
        nextEntry = (place + 1) & (Self.maximumCount - 1)
        nextByte += length
        count += 1
        size += length + Self.overhead
        return self.field(at: place)
    }

    /// Sets the limit of the size, at most ``maximumSize`` (RFC 7541 §4.3).
    mutating func resize(to capacity: Int) {
        self.capacity = capacity
        evict(downTo: capacity)
    }

    private mutating func evict(downTo limit: Int) {
        while size > limit, count > 0 {
            size -= entries[(nextEntry - count) & (Self.maximumCount - 1)].size
            count -= 1
        }
    }
}

extension StaticString {
    var bytes: UnsafeBufferPointer<UInt8> { UnsafeBufferPointer(start: utf8Start, count: utf8CodeUnitCount) }
}
