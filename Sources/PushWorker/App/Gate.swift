import NIOCore

/// The answer to the question whether an app may send now. No I/O.
///
/// An open breaker of the app, which the fleet shares, outranks an open breaker of the endpoint, which each lane has;
/// both outrank missing connections. All that depends on them asks here: which jobs are claimed and accepted, what is
/// submitted and deferred, and what operators see.
struct Gate {
    /// The notifications that may be sent.
    enum Decision: Equatable {
        /// Any notification.
        case send
        /// One notification, whose answer shows whether the obstacle remains.
        case probe(InFlight.Probe)
        /// Nothing until Redis has been asked for a probe.
        case ask
        /// Nothing before a time, because of an obstacle.
        case wait(Obstacle, until: NIODeadline)
    }

    /// The obstacle because of which an app's jobs are deferred.
    enum Obstacle {
        /// APNs refuses the app, or an operator has paused it.
        case pause
        /// The endpoint does not answer, or answers only with server errors.
        case endpoint
        /// There has been no connection for longer than ``Gate/patience``.
        case noConnection

        /// The reason that deferred jobs carry.
        var reason: Reason {
            switch self {
            case .pause: Reason(.appPaused)
            case .endpoint: Reason(.endpointUnavailable)
            case .noConnection: Reason(.noConnection)
            }
        }

        /// The milliseconds by which jobs are deferred beyond the time at which the obstacle may end, spread so that
        /// they do not all return together.
        fileprivate var spread: ClosedRange<Int64> {
            switch self {
            case .pause, .endpoint: 1000...5000
            case .noConnection: 2000...10_000
            }
        }
    }

    /// The time without a connection after which jobs no longer wait in this process. After a GOAWAY another connection
    /// is available within moments.
    static let patience = TimeAmount.seconds(2)
    /// The longest time for which a job is deferred because of a breaker.
    private static let longestDeferral = TimeAmount.minutes(1)

    var app = AppBreaker()
    var endpoint = EndpointBreaker()
    /// The time since which no connection accepts requests; `nil` while one does.
    private var unconnectedSince: NIODeadline?

    /// True if neither breaker is open.
    var sendsFreely: Bool { !app.isOpen && !endpoint.isOpen }

    /// The state of both breakers, for metrics.
    var state: BreakerState {
        app.isPausedByOperator ? .paused : app.isOpen ? .open : endpoint.isOpen ? .unavailable : .closed
    }

    /// The problem with an app that prevents it from sending, as a sentence; `nil` if it may send.
    /// - Parameter isConnected: false if no connection accepts requests and none is opened on demand.
    func problem(of name: String, isConnected: Bool) -> String? {
        if let reason = app.reason { return "the app \(name) is paused: \(reason.explanation)" }
        if let reason = endpoint.reason {
            return reason.isNoAnswer
                ? "the app \(name) gets no answers from APNs"
                : "the app \(name) gets server errors from APNs: \(reason.explanation)"
        }
        return isConnected ? nil : "the app \(name) has no connection to APNs"
    }

    // MARK: Decisions

    /// Returns the obstacle to sending more than probes; `nil` if all may be sent.
    func obstacle(now: NIODeadline) -> Obstacle? {
        if app.isOpen { return .pause }
        if endpoint.isOpen { return .endpoint }
        if let unconnectedSince, now - unconnectedSince > Self.patience { return .noConnection }
        return nil
    }

    /// Decides what may be sent.
    func decide(now: NIODeadline) -> Decision {
        switch obstacle(now: now) {
        case nil: .send
        case .pause: app.decide(now: now)
        case .endpoint: endpoint.decide(now: now)
        case .noConnection: .wait(.noConnection, until: now)
        }
    }

    /// Decides about a notification that was sent before. The probe of a paused app may be sent again, unless only
    /// another configuration can end the pause.
    /// - Parameter probe: the question that it answers.
    func decide(resending probe: InFlight.Probe?, now: NIODeadline) -> Decision {
        probe == .ofApp && app.isOpen && app.block == nil ? .send : decide(now: now)
    }

    /// True if a job could soon be used for a probe.
    func wantsProbe(now: NIODeadline) -> Bool {
        app.isOpen ? app.wantsProbe(now: now) : endpoint.wantsProbe(now: now)
    }

    /// Returns the milliseconds for which to defer a job because of an obstacle. A longer time would only make it late
    /// if the obstacle ends sooner than expected.
    /// - Parameters:
    ///   - longest: the longest pause between probes.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    func deferral(because obstacle: Obstacle, now: NIODeadline, longest: TimeAmount, jitter: Double) -> Int64 {
        var delay = obstacle.spread.value(at: jitter)
        if case .wait(obstacle, let until) = decide(now: now) {
            delay += max(.zero, min(until - now, Self.longestDeferral, longest)).nanoseconds / 1_000_000
        }
        return delay
    }

    // MARK: Events

    /// Records whether a connection accepts requests or can be opened on demand.
    mutating func recordConnection(isUsable: Bool, now: NIODeadline) {
        unconnectedSince = isUsable ? nil : unconnectedSince ?? now
    }

    /// Records that requests use other connections from now on.
    mutating func recordOtherConnections() {
        unconnectedSince = nil
        endpoint = EndpointBreaker()
    }

    /// Records that a probe was submitted.
    mutating func recordProbe(_ probe: InFlight.Probe) {
        switch probe {
        case .ofApp: app.recordProbe()
        case .ofEndpoint: endpoint.recordProbe()
        }
    }

    /// Records that a probe ended without showing anything about the obstacle.
    mutating func recordInconclusive(_ probe: InFlight.Probe, now: NIODeadline) {
        switch probe {
        case .ofApp: app.recordInconclusiveProbe(now: now)
        case .ofEndpoint: endpoint.recordInconclusiveProbe(now: now)
        }
    }

    /// Records that the process did not run for some time.
    mutating func recordStandstill(of time: TimeAmount, now: NIODeadline) {
        endpoint.recordStandstill(of: time, now: now)
        unconnectedSince = unconnectedSince?.moved(by: time, now: now)
    }
}

extension ClosedRange<Int64> {
    /// Returns the value at a position from 0 to 1.
    func value(at position: Double) -> Int64 {
        lowerBound + Int64((Double(upperBound - lowerBound) * position).rounded())
    }
}
