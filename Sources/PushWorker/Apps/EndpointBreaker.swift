import NIOCore

/// Decides how much is sent to an endpoint that gives no answers, or server errors only, as one lane sees it, without any I/O.
///
/// Many failures in a row open it: nothing is claimed for the app then, and one notification at a time finds out if the
/// endpoint answers again. It is the lane's own, because other workers may reach the endpoint by another way; an app that APNs
/// itself refuses is paused for the fleet by an ``AppBreaker``.
struct EndpointBreaker {
    /// The number of failures in a row that opens it at once.
    static let limit = 10
    /// The number of failures in a row that opens it when they took at least ``patience``.
    static let fewest = 3
    static let patience = TimeAmount.seconds(30)
    /// The pause before the first probe; it doubles with each further one.
    static let firstPause = TimeAmount.seconds(1)
    /// When it opens again within this time of its closing, pauses go on growing: a server that has just come back must not be
    /// met by everything at once again and again.
    static let memory = TimeAmount.minutes(1)
    /// The time without a job to probe with after which it closes: other lanes took the jobs, or there are none.
    static let idleTime = TimeAmount.seconds(15)

    /// The failure that opened it, or the last one of a probe; `nil` while it is closed.
    private(set) var reason: Reason?
    private var failures = 0
    private var firstFailure = NIODeadline.distantPast
    private var pause = TimeAmount.zero
    private var until = NIODeadline.distantPast
    private var closedAt = NIODeadline.distantPast
    private var isProbing = false
    /// The time at which the last of the jobs is due again that were postponed because of the endpoint.
    private var lastDue = NIODeadline.distantPast

    var isOpen: Bool { reason != nil }

    /// True if the last request that says anything of the endpoint failed.
    var isInDoubt: Bool { failures > 0 }

    /// True if a probe may be sent now.
    func allowsProbe(now: NIODeadline) -> Bool { isOpen && !isProbing && now >= until }

    /// True if a job could be used for a probe before long.
    func wantsProbe(now: NIODeadline) -> Bool { isOpen && !isProbing && now + AppBreaker.patience >= until }

    /// The time until the next probe.
    func wait(now: NIODeadline) -> TimeAmount { max(.zero, until - now) }

    /// Records a request that failed in a way that speaks of the endpoint: a server error, or no answer.
    /// - Parameters:
    ///   - longest: the longest pause between probes.
    ///   - jitter: from 0 to 1, evenly distributed.
    /// - Returns: true if this opened the breaker.
    mutating func failed(
        _ reason: Reason, isProbe: Bool, longest: TimeAmount, now: NIODeadline, jitter: Double
    ) -> Bool {
        if failures == 0 { firstFailure = now }
        failures += 1
        guard isOpen else {
            guard failures >= Self.limit || failures >= Self.fewest && now - firstFailure >= Self.patience else {
                return false
            }
            open(reason, longest: longest, now: now, jitter: jitter)
            return true
        }
        guard isProbe else { return false }
        self.reason = reason
        isProbing = false
        lengthenPause(longest: longest, now: now, jitter: jitter)
        return false
    }

    /// Records that requests were submitted and none has been answered for a while.
    /// - Returns: true if this opened the breaker.
    mutating func foundUnanswered(longest: TimeAmount, now: NIODeadline, jitter: Double) -> Bool {
        guard !isOpen else { return false }
        failures = max(failures, 1)
        open(Reason(.timedOut), longest: longest, now: now, jitter: jitter)
        return true
    }

    /// Records an answer that only a working endpoint gives.
    /// - Returns: the reason for which it was open until now, if it was.
    mutating func answered(now: NIODeadline) -> Reason? {
        failures = 0
        guard let reason else { return nil }
        self.reason = nil
        isProbing = false
        closedAt = now
        return reason
    }

    mutating func probeSent() { isProbing = true }

    /// A probe ended in a way that says nothing of the endpoint.
    mutating func probeInconclusive(now: NIODeadline) {
        guard isProbing else { return }
        isProbing = false
        until = now + Self.firstPause
    }

    /// Records that a job was postponed because of the endpoint.
    mutating func postponed(until due: NIODeadline) { lastDue = max(lastDue, due) }

    /// Closes it if no job has come to probe with since one could be sent.
    /// - Returns: true if it was open.
    mutating func closeIfIdle(now: NIODeadline) -> Bool {
        guard allowsProbe(now: now), now - max(until, lastDue) >= Self.idleTime else { return false }
        return answered(now: now) != nil
    }

    private mutating func open(_ reason: Reason, longest: TimeAmount, now: NIODeadline, jitter: Double) {
        self.reason = reason
        isProbing = false
        if now - closedAt >= Self.memory { pause = .zero }
        lengthenPause(longest: longest, now: now, jitter: jitter)
    }

    private mutating func lengthenPause(longest: TimeAmount, now: NIODeadline, jitter: Double) {
        pause = min(max(pause + pause, Self.firstPause), longest)
        // Lanes that were refused together do not probe together.
        until = now + .nanoseconds(Int64(Double(pause.nanoseconds) * (0.75 + jitter / 4)))
    }
}
