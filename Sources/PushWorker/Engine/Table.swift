/// The identifier of a job that a lane works on.
struct JobID: TableID { let index: Int }

/// The identifier of a notification in flight, or of one that waits to be sent again at once.
struct FlightID: TableID { let index: Int }

/// The identifier of an app on a lane. Apps are added and never removed, so it is also the app's index.
struct AppID: Hashable { let index: Int }

/// The identifier of a queue of a worker, and its index in the configuration.
struct QueueID: Hashable { let index: Int }

/// The index of an entry in a ``Table``.
protocol TableID: Hashable {
    init(index: Int)
    var index: Int { get }
}

/// An entry of a ``Table``. It holds the index of the entry behind it in a ``Line``, -1 at the line's end.
protocol LinkedEntry {
    /// An entry that holds nothing.
    init()
    var next: Int { get set }
}

/// Entries at indices that stay theirs until they are removed.
///
/// In memory of its own and not in an array: every notification goes through its tables several times, and an array in a
/// class checks each time for uniqueness and exclusive access, which was a tenth of the lane's own time.
final class Table<ID: TableID, Entry: LinkedEntry> {
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

    subscript(id: ID) -> Entry {
        unsafeAddress {
            precondition(id.index >= 0 && id.index < capacity, "no such entry")
            return UnsafePointer(storage + id.index)
        }
        unsafeMutableAddress {
            precondition(id.index >= 0 && id.index < capacity, "no such entry")
            return storage + id.index
        }
    }

    /// All entries, those that hold nothing included. A copy.
    var entries: [Entry] { Array(UnsafeBufferPointer(start: storage, count: capacity)) }

    func insert(_ entry: consuming Entry) -> ID {
        if free < 0 { grow() }
        let index = free
        free = storage[index].next
        storage[index] = entry
        count += 1
        return ID(index: index)
    }

    /// Removes an entry.
    func remove(_ id: ID) {
        storage[id.index] = Entry()
        storage[id.index].next = free
        free = id.index
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

/// Entries of a table in a line, each holding the index of the one behind it.
struct Line<ID: TableID> {
    private var head = -1
    private(set) var count = 0
    private var tail = -1

    var isEmpty: Bool { head < 0 }

    var first: ID? { head < 0 ? nil : ID(index: head) }

    mutating func append<Entry: LinkedEntry>(_ id: ID, in table: Table<ID, Entry>) {
        table[id].next = -1
        if tail >= 0 { table[ID(index: tail)].next = id.index } else { head = id.index }
        tail = id.index
        count += 1
    }

    mutating func prepend<Entry: LinkedEntry>(_ id: ID, in table: Table<ID, Entry>) {
        table[id].next = head
        if head < 0 { tail = id.index }
        head = id.index
        count += 1
    }

    /// Puts a whole line before this one.
    mutating func prepend<Entry: LinkedEntry>(contentsOf line: Line<ID>, in table: Table<ID, Entry>) {
        guard !line.isEmpty else { return }
        table[ID(index: line.tail)].next = head
        if head < 0 { tail = line.tail }
        head = line.head
        count += line.count
    }

    mutating func removeFirst<Entry: LinkedEntry>(in table: Table<ID, Entry>) -> ID? {
        guard head >= 0 else { return nil }
        let id = ID(index: head)
        head = table[id].next
        if head < 0 { tail = -1 }
        count -= 1
        return id
    }
}
