import NIOCore

/// Decides if an app's notifications are sent, as one lane sees it, without any I/O: a fault of its credential or
/// configuration opens the breaker for the whole fleet, and a probe now and then finds out whether it can be closed.
///
/// The pause and the probes' times are in Redis; this is what the lane knows of them, and what it is waiting for. It goes by
/// its own clock only as long as Redis has not said otherwise.
struct AppBreaker {
    enum Decision: Equatable {
        case send
        /// Ask Redis whether to send a probe.
        case ask
        /// This one may be sent, to see whether the fault is gone; no other until it has been answered.
        case probe
        /// Not before this.
        case wait(until: NIODeadline)
    }

    /// The event that an open breaker waits for.
    private enum Phase: Equatable {
        case waiting
        /// Redis has been asked for a probe.
        case asking
        /// A probe may be sent.
        case granted
        /// A probe is under way.
        case probing
    }

    /// How long to wait where Redis has not said, or could not be asked.
    static let patience = TimeAmount.seconds(1)

    /// Why it is open.
    var reason: Reason? { block ?? fault }
    /// The fault that pauses the app for all workers; a probe ends it.
    private var fault: Reason?
    /// The fault of this worker's configuration; only another configuration ends it.
    private(set) var block: Reason?
    /// Changes with every change of the app's state, so that what was read before one is not taken for news after it.
    private(set) var version = 0
    private var until = NIODeadline.distantPast
    private var phase = Phase.waiting

    var isOpen: Bool { reason != nil }

    /// True if an operator has paused the app: no probe ends that.
    var isPausedByOperator: Bool { fault != nil && until == .distantFuture }

    /// True if a notification may be sent: any while the breaker is closed, a probe while it is open, none while it is blocked.
    func allows(isProbe: Bool) -> Bool { block == nil && (fault == nil || isProbe) }

    /// Returns true if a job could be used for a probe before long.
    func wantsProbe(now: NIODeadline) -> Bool {
        guard fault != nil, block == nil else { return false }
        return phase == .granted || phase == .asking || (phase == .waiting && now + Self.patience >= until)
    }

    /// Decides on a notification of the app.
    func decide(now: NIODeadline) -> Decision {
        guard block == nil else { return .wait(until: .distantFuture) }
        guard fault != nil else { return .send }
        switch phase {
        case .waiting: return now >= until ? .ask : .wait(until: until)
        case .granted: return .probe
        case .asking, .probing: return .wait(until: max(until, now + Self.patience))
        }
    }

    // MARK: Faults

    /// Forbids sending, probes included, or allows it again.
    /// - Parameter reason: `nil` to allow it.
    mutating func block(_ reason: Reason?) { block = reason }

    /// APNs named a fault of the app.
    /// - Parameter isProbe: whether it was a probe's answer.
    /// - Returns: whether this opened the breaker, so that it is told once.
    mutating func tripped(reason: Reason, isProbe: Bool, now: NIODeadline) -> Bool {
        let opens = fault == nil
        fault = reason
        version += 1
        if opens || isProbe {
            phase = .waiting
            until = now + Self.patience
        }
        return opens
    }

    /// Redis has written that down, or somebody else's fault was read there. While Redis is asked for a probe this says
    /// nothing: the answer to that is newer, and what it grants must not be forgotten, because nobody else is granted one.
    /// - Parameter wait: to the next probe; `nil` where none is to be made.
    /// - Returns: whether this opened the breaker.
    mutating func learned(reason: Reason, wait: TimeAmount?, now: NIODeadline) -> Bool {
        let opens = fault == nil
        if opens { version += 1 }
        if opens || phase == .waiting { self.wait(wait, reason: reason, now: now) }
        return opens
    }

    // MARK: Probes

    /// Redis is asked whether to send a probe.
    mutating func asked() { if fault != nil, phase == .waiting { phase = .asking } }

    /// Redis has said that a probe may be sent.
    mutating func granted() { if fault != nil, phase == .asking { phase = .granted } }

    /// Redis has said that none may be sent yet.
    /// - Parameter wait: to the next probe; `nil` where none is to be made.
    mutating func denied(reason: Reason, wait: TimeAmount?, now: NIODeadline) {
        if fault != nil, phase == .asking { self.wait(wait, reason: reason, now: now) }
    }

    private mutating func wait(_ time: TimeAmount?, reason: Reason, now: NIODeadline) {
        fault = reason
        phase = .waiting
        until = time.map { now + $0 } ?? .distantFuture
    }

    /// Redis could not be asked.
    mutating func askingFailed(now: NIODeadline) {
        guard phase == .asking else { return }
        phase = .waiting
        until = now + Self.patience
    }

    /// The probe is on its way.
    mutating func probeSent() { if phase == .granted { phase = .probing } }

    /// A probe ended in some way that says nothing of the fault.
    mutating func probeInconclusive(now: NIODeadline) {
        guard phase == .probing || phase == .granted else { return }
        phase = .waiting
        until = now + Self.patience
    }

    /// The fault is gone: APNs took a notification of the app, or refused it for another cause; or somebody else has found
    /// out. A block stays.
    /// - Returns: the reason of the fault that is now gone.
    mutating func closed() -> Reason? {
        guard let fault else { return nil }
        let (version, block) = (version + 1, block)
        self = AppBreaker()
        self.version = version
        self.block = block
        return fault
    }
}
