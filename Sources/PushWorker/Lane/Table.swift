/// The identifier of a job that a lane is working on.
struct JobID: TableID { let index: Int }

/// The identifier of a notification that is in flight or waits to be resent at once.
struct FlightID: TableID { let index: Int }

/// The index of an app on a lane. It never changes, because apps are added and never removed.
struct AppID: Hashable { let index: Int }

/// The index of a queue in the worker's configuration.
struct QueueID: Hashable { let index: Int }

/// The index of an entry in a ``Table``.
protocol TableID: Hashable {
    init(index: Int)
    var index: Int { get }
}

/// An entry of a ``Table``. It holds the index of the next entry in its ``Line``; -1 at the line's end.
protocol LinkedEntry {
    init()
    var next: Int { get set }
}

/// Entries whose indices do not change until they are removed.
///
/// A plain pointer; the owner must call ``deallocate()``. Each notification passes through its tables dozens of times. An object would be
/// retained and released each time, and an array would be checked for uniqueness and exclusive access.
struct Table<ID: TableID, Entry: LinkedEntry> {
    private struct Storage {
        var entries: UnsafeMutablePointer<Entry>
        var capacity: Int
        var count = 0
        var free = -1
    }

    private let storage: UnsafeMutablePointer<Storage>

    init(capacity: Int = 64) {
        storage = .allocate(capacity: 1)
        storage.initialize(to: Storage(entries: .allocate(capacity: capacity), capacity: capacity))
        makeFree(0..<capacity)
    }

    /// Frees the table, which must not be used afterwards.
    func deallocate() {
        storage.pointee.entries.deinitialize(count: storage.pointee.capacity)
        storage.pointee.entries.deallocate()
        storage.deallocate()
    }

    var count: Int { storage.pointee.count }

    subscript(id: ID) -> Entry {
        unsafeAddress { UnsafePointer(pointer(id)) }
        nonmutating unsafeMutableAddress { pointer(id) }
    }

    private func pointer(_ id: ID) -> UnsafeMutablePointer<Entry> {
        precondition(id.index >= 0 && id.index < storage.pointee.capacity, "no such entry")
        return storage.pointee.entries + id.index
    }

    /// A copy of all entries, including empty ones.
    var entries: [Entry] {
        Array(UnsafeBufferPointer(start: storage.pointee.entries, count: storage.pointee.capacity))
    }

    /// Calls the function with each entry, including empty ones, without a copy.
    func forEach(_ body: (borrowing Entry) -> Void) {
        for index in 0..<storage.pointee.capacity { body(storage.pointee.entries[index]) }
    }

    /// Inserts an empty entry. The caller fills it in place, because an entry made elsewhere would be copied.
    func insert() -> ID {
        if storage.pointee.free < 0 { grow() }
        let id = ID(index: storage.pointee.free)
        storage.pointee.free = self[id].next
        self[id].next = -1
        storage.pointee.count += 1
        return id
    }

    func remove(_ id: ID) {
        // In place, because an assignment would copy the old and the new entry.
        let entry = pointer(id)
        entry.deinitialize(count: 1)
        entry.initialize(to: Entry())
        entry.pointee.next = storage.pointee.free
        storage.pointee.free = id.index
        storage.pointee.count -= 1
    }

    private func grow() {
        let capacity = storage.pointee.capacity
        let larger = UnsafeMutablePointer<Entry>.allocate(capacity: capacity * 2)
        larger.moveInitialize(from: storage.pointee.entries, count: capacity)
        storage.pointee.entries.deallocate()
        storage.pointee.entries = larger
        storage.pointee.capacity = capacity * 2
        makeFree(capacity..<capacity * 2)
    }

    private func makeFree(_ range: Range<Int>) {
        for index in range.reversed() {
            let entry = storage.pointee.entries + index
            entry.initialize(to: Entry())
            entry.pointee.next = storage.pointee.free
            storage.pointee.free = index
        }
    }
}

/// A queue of table entries. Each entry holds the index of the next.
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

    /// Inserts a whole line before this one.
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

    /// Removes an entry. The time it takes is proportional to the number of entries before it.
    mutating func remove<Entry: LinkedEntry>(_ id: ID, in table: Table<ID, Entry>) {
        guard head != id.index else {
            _ = removeFirst(in: table)
            return
        }
        var before = head
        while before >= 0, table[ID(index: before)].next != id.index { before = table[ID(index: before)].next }
        guard before >= 0 else { return }
        table[ID(index: before)].next = table[id].next
        if tail == id.index { tail = before }
        count -= 1
    }
}
