import NIOCore

/// The time in which the process did not run: it was frozen (SIGSTOP, a container's freezer, a suspended machine), it had
/// no processor, or its event loop was blocked.
///
/// In that time nothing could be read, so what a time-out would miss may have arrived long ago. A timer that fires late
/// therefore decides nothing: what has arrived is read first, and deadlines are moved by the time by which it was late.
public enum Standstill {
    /// The lateness of a timer from which the process counts as having stood still.
    public static let least = TimeAmount.milliseconds(250)

    /// Returns the time for which the process stood still; `nil` if it did not.
    /// - Parameter due: the time of a timer that fires now.
    public static func duration(due: NIODeadline, now: NIODeadline) -> TimeAmount? {
        now - due >= least ? now - due : nil
    }
}

extension NIODeadline {
    /// Returns a past time, moved by a standstill, which must not count as time since then.
    public func moved(by standstill: TimeAmount, now: NIODeadline) -> NIODeadline {
        self > .distantPast ? min(self + standstill, now) : self
    }
}

/// The timer of a time-out. It waits a moment longer if the process stood still, so that what has arrived is read first.
///
/// Belongs to its event loop.
public final class TimeLimit {
    /// The time in which everything that has arrived is read.
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
