/// Answers held back, by the millisecond they are due: a ring of buckets, so that holding one back costs an append and a
/// tick hands out all that are due, however many streams wait.
///
/// Time is in milliseconds of any clock that only goes forward. What is due later than the ring is long stays in its
/// bucket for another round.
struct DelayWheel {
    private struct Entry {
        let due: Int64
        let stream: Int32
    }

    private static let size: Int64 = 1024
    private var buckets = [[Entry]](repeating: [], count: Int(size))
    private var handedOutThrough: Int64
    /// How many answers wait.
    private(set) var count = 0

    init(now: Int64) { handedOutThrough = now }

    /// Holds back the answer of a stream. One due already is handed out at the next tick.
    mutating func hold(stream: Int32, until due: Int64) {
        let due = max(due, handedOutThrough + 1)
        buckets[Int(due % Self.size)].append(Entry(due: due, stream: stream))
        count += 1
    }

    /// Hands out every stream due by now, those due earlier first.
    mutating func advance(to now: Int64, _ body: (Int32) -> Void) {
        guard now > handedOutThrough else { return }
        // After a round every bucket has been seen, however long the loop was away.
        let ticks = min(now - handedOutThrough, Self.size)
        if count > 0 {
            for tick in now - ticks + 1...now {
                let index = Int(tick % Self.size)
                guard !buckets[index].isEmpty else { continue }
                var kept = 0
                for position in buckets[index].indices {
                    let entry = buckets[index][position]
                    if entry.due <= now {
                        count -= 1
                        body(entry.stream)
                    } else {
                        buckets[index][kept] = entry
                        kept += 1
                    }
                }
                buckets[index].removeSubrange(kept...)
            }
        }
        handedOutThrough = now
    }

    /// When to look again: the next millisecond with a bucket that holds something, or nil when nothing waits.
    var next: Int64? {
        guard count > 0 else { return nil }
        for tick in handedOutThrough + 1...handedOutThrough + Self.size
        where !buckets[Int(tick % Self.size)].isEmpty {
            return tick
        }
        return nil
    }
}
