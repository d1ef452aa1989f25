import Glibc
import NIOCore

/// A point in time, on the two clocks that a connection needs.
struct SimulatedMoment {
    /// Microseconds of a monotonic clock.
    var uptime: Int64
    /// Milliseconds since 1970.
    var date: Int64

    static func now() -> SimulatedMoment {
        SimulatedMoment(uptime: Int64(NIODeadline.now().uptimeNanoseconds / 1000), date: WallClock.milliseconds())
    }
}

/// The date, without Foundation's overhead.
enum WallClock {
    /// Microseconds since 1970.
    static func microseconds() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }

    /// Milliseconds since 1970.
    static func milliseconds() -> Int64 { microseconds() / 1000 }
}

/// One timer per connection, for the first due action. Letting an early timer fire in vain costs less than cancelling it.
///
/// Not thread-safe: it belongs to the connection's event loop.
final class WakeUp {
    private var timer: Scheduled<Void>?
    private var due: Int64 = .max

    /// Schedules an action, unless an earlier one is scheduled.
    /// - Parameter time: microseconds of uptime; `nil` to schedule nothing.
    func set(at time: Int64?, on eventLoop: any EventLoop, _ action: @escaping () -> Void) {
        guard let time, time < due else { return }
        timer?.cancel()
        due = time
        let deadline = NIODeadline.uptimeNanoseconds(UInt64(max(time, 0)) * 1000)
        timer = eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { [self] in
            due = .max
            timer = nil
            action()
        }
    }

    func cancel() {
        timer?.cancel()
        timer = nil
        due = .max
    }
}
