import Glibc

/// The processor time of the thread that asks.
struct ThreadClock {
    private var last: Int64 = 0

    /// Nanoseconds of processor time since the last call.
    mutating func sinceLast() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        let now = Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        defer { last = now }
        return now - last
    }
}
