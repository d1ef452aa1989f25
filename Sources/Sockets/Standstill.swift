import NIOCore

/// The time in which the process did not run: it was frozen (SIGSTOP, a container's freezer, a suspended machine), it had no processor, or
/// its event loop was blocked.
///
/// Nothing was read in that time, so the data that a time-out waits for may have arrived. A timer that fires late must therefore decide
/// nothing. First the process reads what has arrived, and moves its deadlines by the delay of the timer.
public enum Standstill {
    /// The least delay of a timer that counts as a standstill.
    public static let least = TimeAmount.milliseconds(250)

    /// Returns the length of a standstill; `nil` if there was none.
    /// - Parameter due: the time of a timer that fires now.
    public static func duration(due: NIODeadline, now: NIODeadline) -> TimeAmount? {
        now - due >= least ? now - due : nil
    }
}

extension NIODeadline {
    /// Returns a past time moved by a standstill, so that the standstill does not count as time since then.
    public func moved(by standstill: TimeAmount, now: NIODeadline) -> NIODeadline {
        self > .distantPast ? min(self + standstill, now) : self
    }
}

/// The timer of a time-out. It waits a moment longer if the process stood still, so that what has arrived is read first.
///
/// Belongs to its event loop.
public final class TimeLimit {
    /// The time to read everything that has arrived.
    private static let grace = TimeAmount.seconds(1)

    private let eventLoop: any EventLoop
    private let isOver: () -> Void
    private var timer: Scheduled<Void>?

    /// - Parameters:
    ///   - deadline: the end of the time limit.
    ///   - isOver: called when it is reached.
    public init(at deadline: NIODeadline, on eventLoop: any EventLoop, isOver: @escaping () -> Void) {
        self.eventLoop = eventLoop
        self.isOver = isOver
        schedule(at: deadline)
    }

    /// - Parameter limit: the time from now on.
    public convenience init(in limit: TimeAmount, on eventLoop: any EventLoop, isOver: @escaping () -> Void) {
        self.init(at: eventLoop.now + limit, on: eventLoop, isOver: isOver)
    }

    /// Ends the time limit without an effect.
    public func cancel() { timer?.cancel() }

    private func schedule(at deadline: NIODeadline) {
        timer = eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { [self] in
            guard let late = Standstill.duration(due: deadline, now: eventLoop.now) else { return isOver() }
            schedule(at: eventLoop.now + min(late, Self.grace))
        }
    }
}
