import NIOCore

/// How long the job at the head of a queue has waited, without any I/O.
///
/// Jobs carry no time of their own unless their producer writes `enqueued_at`. Of one without, it is known since when it has
/// been at the head: in a queue that moves that is no time at all, and in one that does not it grows as it should.
struct HeadWatch {
    private var head: ByteBuffer?
    private var since: Int64 = 0

    /// The queue was looked at.
    /// - Parameters:
    ///   - head: the job at the head, empty where it is too large to be told; `nil` where there is none.
    ///   - enqueuedAt: when it was enqueued, as far as it says.
    ///   - now: all times in milliseconds since 1970, by Redis' clock.
    /// - Returns: how long it has waited, in milliseconds.
    mutating func saw(_ head: ByteBuffer?, enqueuedAt: Int64?, now: Int64) -> Int64 {
        if head != self.head { (self.head, since) = (head, now) }
        guard head != nil else { return 0 }
        return max(0, now - min(since, enqueuedAt ?? since))
    }
}
