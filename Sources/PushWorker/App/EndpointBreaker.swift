import NIOCore
import Sockets

/// Decides how much one lane sends to an endpoint that does not answer or answers only with server errors. No I/O.
///
/// Consecutive failures open it: nothing is claimed for the app then, and one notification at a time finds out whether
/// the endpoint answers again. Each lane has its own, because other workers may reach the endpoint over another route.
/// An app that APNs itself refuses is paused for the fleet by an ``AppBreaker``.
struct EndpointBreaker {
    /// The number of consecutive failures that open it at once.
    static let limit = 10
    /// The number of consecutive failures that open it if they span at least ``patience``.
    static let fewest = 3
    static let patience = TimeAmount.seconds(30)
    /// The pause before the first probe; it doubles with each further one.
    static let firstPause = TimeAmount.seconds(1)
    /// If it opens again within this time of its closing, its pauses continue to grow, so that a server that has just
    /// recovered is not hit by the whole load again and again.
    static let memory = TimeAmount.minutes(1)
    /// The time without a job to probe with after which it closes: other lanes claimed the jobs, or there are none.
    static let idleTime = TimeAmount.seconds(15)

    /// The failure that opened it, or that of the last probe; `nil` while it is closed.
    private(set) var reason: Reason?
    private var failures = 0
    private var firstFailure = NIODeadline.distantPast
    private var pause = TimeAmount.zero
    private var until = NIODeadline.distantPast
    private var closedAt = NIODeadline.distantPast
    private var isProbing = false
    /// The latest time at which a job that was postponed because of the endpoint is due.
    private var lastDue = NIODeadline.distantPast

    var isOpen: Bool { reason != nil }

    /// True if the last conclusive request failed.
    var isInDoubt: Bool { failures > 0 }

    /// Decides what may be sent to the endpoint.
    func decide(now: NIODeadline) -> Gate.Decision {
        guard isOpen else { return .send }
        return isProbing || now < until ? .wait(.endpoint, until: until) : .probe(.ofEndpoint)
    }

    /// True if a job could soon be used for a probe.
    func wantsProbe(now: NIODeadline) -> Bool { isOpen && !isProbing && now + AppBreaker.patience >= until }

    /// Records a request whose failure indicates a fault of the endpoint: a server error, or no answer.
    /// - Parameters:
    ///   - longest: the longest pause between probes.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    /// - Returns: true if this opened the breaker.
    mutating func recordFailure(
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

    /// Records that requests were submitted and none has been answered for some time.
    /// - Returns: true if this opened the breaker.
    mutating func recordUnanswered(longest: TimeAmount, now: NIODeadline, jitter: Double) -> Bool {
        guard !isOpen else { return false }
        failures = max(failures, 1)
        open(Reason(.timedOut), longest: longest, now: now, jitter: jitter)
        return true
    }

    /// Records an answer that only a working endpoint gives.
    /// - Returns: the reason for which it was open; `nil` if it was closed.
    mutating func recordAnswer(now: NIODeadline) -> Reason? {
        failures = 0
        guard let reason else { return nil }
        self.reason = nil
        isProbing = false
        closedAt = now
        return reason
    }

    mutating func recordProbe() { isProbing = true }

    /// Records that a probe ended without showing anything about the endpoint.
    mutating func recordInconclusiveProbe(now: NIODeadline) {
        guard isProbing else { return }
        isProbing = false
        until = now + Self.firstPause
    }

    /// Records that the process did not run for some time, in which no request could be answered.
    mutating func recordStandstill(of time: TimeAmount, now: NIODeadline) {
        firstFailure = firstFailure.moved(by: time, now: now)
        if until < now { until = until.moved(by: time, now: now) }
    }

    /// Records that a job was postponed because of the endpoint.
    mutating func recordPostponement(until due: NIODeadline) { lastDue = max(lastDue, due) }

    /// Closes it if no job to probe with has arrived since a probe was allowed.
    /// - Returns: true if it was open.
    mutating func closeIfIdle(now: NIODeadline) -> Bool {
        guard decide(now: now) == .probe(.ofEndpoint), now - max(until, lastDue) >= Self.idleTime else { return false }
        return recordAnswer(now: now) != nil
    }

    private mutating func open(_ reason: Reason, longest: TimeAmount, now: NIODeadline, jitter: Double) {
        self.reason = reason
        isProbing = false
        if now - closedAt >= Self.memory { pause = .zero }
        lengthenPause(longest: longest, now: now, jitter: jitter)
    }

    private mutating func lengthenPause(longest: TimeAmount, now: NIODeadline, jitter: Double) {
        pause = min(max(pause + pause, Self.firstPause), longest)
        // Spread out the probes of lanes that failed together.
        until = now + .nanoseconds(Int64(Double(pause.nanoseconds) * (0.75 + jitter / 4)))
    }
}
