/// An entry that can stand in a line: it holds the index of the one behind it, -1 at the line's end.
protocol LinkedEntry {
    /// An entry that holds nothing.
    init()
    var next: Int { get set }
}

/// Entries at indices that stay theirs until they are released.
///
/// In memory of its own and not in an array: every notification goes through its tables several times, and an array in a
/// class asks each time whether it is shared and whether somebody else is at it, which was a tenth of the lane's own time.
final class EntryTable<Entry: LinkedEntry> {
    private(set) var count = 0
    private var capacity: Int
    private var storage: UnsafeMutablePointer<Entry>
    private var free: Int

    init(capacity: Int = 64) {
        self.capacity = capacity
        storage = .allocate(capacity: capacity)
        free = -1
        makeFree(0..<capacity)
    }

    deinit {
        storage.deinitialize(count: capacity)
        storage.deallocate()
    }

    subscript(index: Int) -> Entry {
        unsafeAddress {
            precondition(index >= 0 && index < capacity, "no such entry")
            return UnsafePointer(storage + index)
        }
        unsafeMutableAddress {
            precondition(index >= 0 && index < capacity, "no such entry")
            return storage + index
        }
    }

    /// All entries, those that hold nothing included. A copy.
    var entries: [Entry] { Array(UnsafeBufferPointer(start: storage, count: capacity)) }

    func insert(_ entry: consuming Entry) -> Int {
        if free < 0 { grow() }
        let index = free
        free = storage[index].next
        storage[index] = entry
        count += 1
        return index
    }

    /// Frees an index; whatever its entry held is let go.
    func release(_ index: Int) {
        storage[index] = Entry()
        storage[index].next = free
        free = index
        count -= 1
    }

    private func grow() {
        let larger = UnsafeMutablePointer<Entry>.allocate(capacity: capacity * 2)
        larger.moveInitialize(from: storage, count: capacity)
        storage.deallocate()
        storage = larger
        let added = capacity..<capacity * 2
        capacity *= 2
        makeFree(added)
    }

    private func makeFree(_ range: Range<Int>) {
        for index in range.reversed() {
            (storage + index).initialize(to: Entry())
            storage[index].next = free
            free = index
        }
    }
}

/// Indices in a line, each entry holding the one behind it.
struct EntryQueue {
    private(set) var head = -1
    private(set) var count = 0
    private var tail = -1

    var isEmpty: Bool { head < 0 }

    mutating func append(_ index: Int, in table: EntryTable<some LinkedEntry>) {
        table[index].next = -1
        if tail >= 0 { table[tail].next = index } else { head = index }
        tail = index
        count += 1
    }

    mutating func prepend(_ index: Int, in table: EntryTable<some LinkedEntry>) {
        table[index].next = head
        if head < 0 { tail = index }
        head = index
        count += 1
    }

    /// Puts a whole line before this one.
    mutating func prepend(contentsOf line: EntryQueue, in table: EntryTable<some LinkedEntry>) {
        guard !line.isEmpty else { return }
        table[line.tail].next = head
        if head < 0 { tail = line.tail }
        head = line.head
        count += line.count
    }

    mutating func removeFirst(in table: EntryTable<some LinkedEntry>) -> Int? {
        guard head >= 0 else { return nil }
        let index = head
        head = table[index].next
        if head < 0 { tail = -1 }
        count -= 1
        return index
    }
}
