import CAllocationCount
import Glibc

/// The calling thread's usage: CPU time and allocations.
struct Usage {
    var nanoseconds: Int64
    var allocations: UInt64

    static func now() -> Usage {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Usage(
            nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec), allocations: allocation_count())
    }
}

/// The cost of each repetition, summed over many.
struct Cost: Encodable {
    private(set) var times = 0
    private var nanosecondsInAll: Int64 = 0
    private var allocationsInAll: UInt64 = 0

    mutating func add(since start: Usage, times: Int) {
        let end = Usage.now()
        nanosecondsInAll += end.nanoseconds - start.nanoseconds
        allocationsInAll += end.allocations - start.allocations
        self.times += times
    }

    private enum Key: String, CodingKey { case ns, allocations }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        let divisor = Double(max(times, 1))
        try container.encode((Double(nanosecondsInAll) / divisor * 10).rounded() / 10, forKey: .ns)
        try container.encode((Double(allocationsInAll) / divisor * 1000).rounded() / 1000, forKey: .allocations)
    }
}
