import NIOCore

/// Whether an app's notifications are sent, without any I/O: a fault of its credential or configuration opens the
/// breaker, and a probe now and then finds out whether it can be closed.
struct AppBreaker {
    enum Decision: Equatable {
        case send
        /// This one may be sent, to see whether the fault is gone; no other until it has been answered.
        case probe
        /// Not before this.
        case wait(until: NIODeadline)
    }

    /// The pause before the first probe and the longest one.
    static let firstPause = TimeAmount.seconds(15)
    static let longestPause = TimeAmount.seconds(300)

    private(set) var reason: String?
    private var pausedUntil = NIODeadline.distantPast
    private var pause = AppBreaker.firstPause
    private var isProbing = false

    var isOpen: Bool { reason != nil }

    /// What ``decide(now:)`` would say, without taking the probe.
    func peek(now: NIODeadline) -> Decision {
        var copy = self
        return copy.decide(now: now)
    }

    mutating func decide(now: NIODeadline) -> Decision {
        guard isOpen else { return .send }
        guard now >= pausedUntil else { return .wait(until: pausedUntil) }
        guard !isProbing else { return .wait(until: now + pause) }
        isProbing = true
        return .probe
    }

    /// APNs named a fault of the app.
    /// - Returns: whether this opened the breaker, so that it is told once.
    mutating func trip(reason: String, now: NIODeadline) -> Bool {
        let opens = !isOpen
        // Many requests were under way when the fault showed; their answers are one fault and not many.
        if opens || isProbing {
            pause = opens ? Self.firstPause : min(.nanoseconds(pause.nanoseconds * 2), Self.longestPause)
            pausedUntil = now + pause
        }
        self.reason = reason
        isProbing = false
        return opens
    }

    /// A probe ended in some way that says nothing of the fault.
    mutating func probeInconclusive() { isProbing = false }

    /// APNs took a notification of the app, or refused it for another cause.
    /// - Returns: the reason of the fault that is now gone.
    mutating func worked() -> String? {
        guard let reason else { return nil }
        self = AppBreaker()
        return reason
    }
}
