import Glibc
import NIOCore
import Sockets

/// The timer of a lane's ticks. It decides when the next tick is due, and detects that the process did not run.
struct TickClock {
    private static let interval = TimeAmount.milliseconds(100)
    /// The interval while there is nothing to do, because each tick wakes a processor.
    private static let idleInterval = TimeAmount.seconds(1)

    /// True if the next tick is later than it would be with work to do.
    private(set) var isSlow = false
    private var scheduled: Scheduled<Void>?
    private var dueAt = NIODeadline.distantFuture
    private var lastFullSecond = NIODeadline.distantPast
    private var thread = ThreadClock()

    /// Records a tick.
    /// - Returns: the duration of a standstill of the process, if there was one; and true about once per second.
    mutating func recordTick(now: NIODeadline) -> (standstill: TimeAmount?, isFullSecond: Bool) {
        let standstill = Standstill.duration(due: dueAt, now: now)
        dueAt = .distantFuture
        let isFullSecond = now - lastFullSecond >= .seconds(1)
        if isFullSecond { lastFullSecond = now }
        return (standstill, isFullSecond)
    }

    /// Returns the time of the next tick; `nil` if a tick is scheduled early enough.
    /// - Parameter polls: the due times of the queues' polls; `nil` while there is work.
    mutating func next(now: NIODeadline, polls: [NIODeadline]?) -> NIODeadline? {
        var next = now + Self.interval
        if let polls { next = max(next, min(now + Self.idleInterval, Self.firstPoll(of: polls))) }
        guard next < dueAt else { return nil }
        isSlow = next - now > Self.interval
        return next
    }

    /// Returns the time of the first poll, delayed by up to 100 ms if other polls are due then. Polls in one write cost Redis half as much.
    private static func firstPoll(of times: [NIODeadline]) -> NIODeadline {
        guard let first = times.min(), first < .distantFuture else { return .distantFuture }
        return times.filter { $0 <= first + interval }.max() ?? first
    }

    /// Replaces the scheduled tick.
    mutating func schedule(at time: NIODeadline, on eventLoop: any EventLoop, _ tick: @escaping () -> Void) {
        scheduled?.cancel()
        dueAt = time
        scheduled = eventLoop.assumeIsolated().scheduleTask(deadline: time, tick)
    }

    mutating func cancel() { scheduled?.cancel() }

    /// Returns true if the thread has used less than half of a processor's time since the last call. Valid only at the interval of a lane
    /// that works.
    mutating func hasProcessorTime() -> Bool { thread.sinceLast() < Self.interval.nanoseconds / 2 }
}

/// The processor time used by the calling thread.
struct ThreadClock {
    private var last: Int64 = 0

    /// Returns the nanoseconds of processor time since the last call.
    mutating func sinceLast() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        let now = Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        defer { last = now }
        return now - last
    }
}
