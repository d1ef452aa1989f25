/// A heap by time. Elements of the same time leave it in the order they were inserted.
struct TimeHeap<Time: Comparable, Element> {
    private var entries: [(time: Time, number: Int, element: Element)] = []
    private var inserted = 0

    /// The earliest time; `nil` if the heap is empty.
    var first: Time? { entries.first?.time }

    private func precedes(_ one: Int, _ other: Int) -> Bool {
        let (one, other) = (entries[one], entries[other])
        return one.time < other.time || one.time == other.time && one.number < other.number
    }

    mutating func insert(_ element: Element, at time: Time) {
        inserted += 1
        entries.append((time, inserted, element))
        var index = entries.count - 1
        while index > 0, precedes(index, (index - 1) / 2) {
            entries.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    mutating func popFirst() -> Element? {
        guard let first = entries.first else { return nil }
        entries.swapAt(0, entries.count - 1)
        entries.removeLast()
        var index = 0
        while true {
            var least = index
            for child in 2 * index + 1..<2 * index + 3 where child < entries.count && precedes(child, least) {
                least = child
            }
            guard least != index else { break }
            entries.swapAt(index, least)
            index = least
        }
        return first.element
    }
}
