/// A timer wheel of delayed answers, with a bucket per millisecond. Delaying an answer costs an append. A tick visits only due answers,
/// however many streams wait.
///
/// Time is in milliseconds of any monotonic clock. An answer that is due after more than one round of the wheel stays in its bucket for
/// another round.
struct DelayWheel {
    private struct Entry {
        let due: Int64
        let stream: Int32
    }

    private static let size: Int64 = 1024
    private var buckets = [[Entry]](repeating: [], count: Int(size))
    private var handedOutThrough: Int64
    /// The number of waiting answers.
    private(set) var count = 0

    init(now: Int64) { handedOutThrough = now }

    /// Delays the answer of a stream. If the answer is already due, the next tick passes it on.
    mutating func hold(stream: Int32, until due: Int64) {
        let due = max(due, handedOutThrough + 1)
        buckets[Int(due % Self.size)].append(Entry(due: due, stream: stream))
        count += 1
    }

    /// Calls the body with every stream whose answer is due, the earliest first.
    mutating func advance(to now: Int64, _ body: (Int32) -> Void) {
        guard now > handedOutThrough else { return }
        // One round visits every bucket, however long the event loop was blocked.
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

    /// The next time to call ``advance(to:_:)``: the next millisecond whose bucket is not empty. nil if no answer waits.
    var next: Int64? {
        guard count > 0 else { return nil }
        for tick in handedOutThrough + 1...handedOutThrough + Self.size
        where !buckets[Int(tick % Self.size)].isEmpty {
            return tick
        }
        return nil
    }
}
