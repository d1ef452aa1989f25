import NIOCore

/// Decides whether one lane sends an app's notifications. No I/O. A fault of the app's credential or configuration
/// opens the breaker for all workers with the same configuration; an occasional probe finds out whether it can be closed.
///
/// The pause and the times of probes are in Redis. This value holds what the lane knows of them and which reply it is
/// waiting for. It relies on its own clock only until Redis has answered.
struct AppBreaker {
    /// The event that an open breaker waits for.
    private enum Phase: Equatable {
        case waiting
        /// Redis has been asked for a probe.
        case asking
        /// A probe may be sent.
        case granted
        /// A probe is in flight.
        case probing
    }

    /// The wait when Redis has given no time or could not be reached.
    static let patience = TimeAmount.seconds(1)

    /// The reason for which it is open.
    var reason: Reason? { block ?? fault }
    /// The fault that pauses the app for all workers; a probe ends it.
    private var fault: Reason?
    /// The fault of this worker's configuration, which only another configuration ends.
    private(set) var block: Reason?
    /// Changes with every change of the app's state, to detect state that was read before such a change.
    private(set) var version = 0
    private var until = NIODeadline.distantPast
    private var phase = Phase.waiting

    var isOpen: Bool { reason != nil }

    /// True if an operator has paused the app, which no probe ends.
    var isPausedByOperator: Bool { fault != nil && until == .distantFuture }

    /// True if a job could soon be used for a probe.
    func wantsProbe(now: NIODeadline) -> Bool {
        guard fault != nil, block == nil else { return false }
        return phase == .granted || phase == .asking || (phase == .waiting && now + Self.patience >= until)
    }

    /// Decides what may be sent of the app.
    func decide(now: NIODeadline) -> Gate.Decision {
        guard block == nil else { return .wait(.pause, until: .distantFuture) }
        guard fault != nil else { return .send }
        switch phase {
        case .waiting: return now >= until ? .ask : .wait(.pause, until: until)
        case .granted: return .probe(.ofApp)
        case .asking, .probing: return .wait(.pause, until: max(until, now + Self.patience))
        }
    }

    // MARK: Faults

    /// Forbids sending, probes included, or allows it again.
    /// - Parameter reason: `nil` to allow it.
    mutating func block(_ reason: Reason?) { block = reason }

    /// Records that APNs reported a fault of the app.
    /// - Parameter isProbe: true if a probe was answered.
    /// - Returns: true if this opened the breaker, which is reported once.
    mutating func recordFault(reason: Reason, isProbe: Bool, now: NIODeadline) -> Bool {
        let opens = fault == nil
        fault = reason
        version += 1
        if opens || isProbe {
            phase = .waiting
            until = now + Self.patience
        }
        return opens
    }

    /// Records a fault that Redis has stored or that another worker reported there.
    ///
    /// Ignored while Redis is being asked for a probe: that reply is newer, and a probe that it grants must not be
    /// lost, because no other lane is granted one.
    /// - Parameter wait: the time to the next probe; `nil` for no probes.
    /// - Returns: true if this opened the breaker.
    mutating func recordPause(reason: Reason, wait: TimeAmount?, now: NIODeadline) -> Bool {
        let opens = fault == nil
        if opens { version += 1 }
        if opens || phase == .waiting { self.wait(wait, reason: reason, now: now) }
        return opens
    }

    // MARK: Probes

    /// Records that Redis is being asked for a probe.
    mutating func recordQuestion() { if fault != nil, phase == .waiting { phase = .asking } }

    /// Records that Redis has granted a probe.
    mutating func recordGrant() { if fault != nil, phase == .asking { phase = .granted } }

    /// Records that Redis has denied a probe for now.
    /// - Parameter wait: the time to the next probe; `nil` for no probes.
    mutating func recordDenial(reason: Reason, wait: TimeAmount?, now: NIODeadline) {
        if fault != nil, phase == .asking { self.wait(wait, reason: reason, now: now) }
    }

    private mutating func wait(_ time: TimeAmount?, reason: Reason, now: NIODeadline) {
        fault = reason
        phase = .waiting
        until = time.map { now + $0 } ?? .distantFuture
    }

    /// Records that Redis could not be asked.
    mutating func recordFailedQuestion(now: NIODeadline) {
        guard phase == .asking else { return }
        phase = .waiting
        until = now + Self.patience
    }

    /// Records that the probe was sent.
    mutating func recordProbe() { if phase == .granted { phase = .probing } }

    /// Records that a probe ended without showing anything about the fault.
    mutating func recordInconclusiveProbe(now: NIODeadline) {
        guard phase == .probing || phase == .granted else { return }
        phase = .waiting
        until = now + Self.patience
    }

    /// Records the end of the fault: APNs accepted a notification of the app or refused it for another cause, or
    /// another worker has found the fault ended. A block remains.
    /// - Returns: the reason of the fault that has ended.
    mutating func recordEnd() -> Reason? {
        guard let fault else { return nil }
        let (version, block) = (version + 1, block)
        self = AppBreaker()
        self.version = version
        self.block = block
        return fault
    }
}
