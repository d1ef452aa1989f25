import NIOCore

/// The answer to the question whether one notification of an app may go now. No I/O.
///
/// An operator's pause outranks missing connections, which outrank the scopes. All that depends on them asks here: which
/// jobs are claimed and accepted, what is submitted and deferred, and what operators see.
struct Gate {
    enum Decision: Equatable {
        case send
        /// One notification, whose answer shows whether its scopes are good again.
        case probe
        case wait(Obstacle)
    }

    enum Obstacle: Equatable {
        case paused
        /// The app's certificate is another app's.
        case blocked
        /// There has been no connection for longer than ``Gate/patience``.
        case noConnection
        case scope(ScopeKind)

        /// The reason that deferred jobs carry.
        var reason: Reason {
            switch self {
            case .paused, .blocked: Reason(.appPaused)
            case .noConnection: Reason(.noConnection)
            case .scope(.endpoint): Reason(.endpointUnavailable)
            case .scope: Reason(.setAside)
            }
        }

        /// The milliseconds for which jobs are deferred, spread so that they do not all return together. Those of a slow
        /// scope see ``Scopes/setAside(_:now:share:)``.
        var deferral: ClosedRange<Int64> { self == .noConnection ? 2000...10_000 : 1000...5000 }
    }

    /// The time without a connection after which jobs no longer wait in this process. After a GOAWAY another connection
    /// is available within moments.
    static let patience = TimeAmount.seconds(2)

    var pause: Reason?
    /// The fault of this worker's configuration, which only another configuration ends.
    var block: Reason?
    /// The time since which no connection accepts requests; `nil` while one does.
    private var unconnectedSince: NIODeadline?

    /// Returns the obstacle for all of the app's notifications; `nil` if there is none.
    func obstacle(now: NIODeadline) -> Obstacle? {
        if block != nil { return .blocked }
        if pause != nil { return .paused }
        if let unconnectedSince, now - unconnectedSince > Self.patience { return .noConnection }
        return nil
    }

    /// Decides about one notification.
    /// - Parameter scopes: what its scopes say.
    func decide(_ scopes: Scopes.Decision, now: NIODeadline) -> Decision {
        if let obstacle = obstacle(now: now) { return .wait(obstacle) }
        switch scopes {
        case .send: return .send
        case .probe: return .probe
        case .wait(let kind): return .wait(.scope(kind))
        }
    }

    /// Records whether a connection accepts requests or can be opened on demand.
    mutating func recordConnection(isUsable: Bool, now: NIODeadline) {
        unconnectedSince = isUsable ? nil : unconnectedSince ?? now
    }

    /// Records that requests use other connections from now on.
    mutating func recordOtherConnections() { unconnectedSince = nil }

    /// Records that the process did not run for some time.
    mutating func recordStandstill(of time: TimeAmount, now: NIODeadline) {
        unconnectedSince = unconnectedSince?.moved(by: time, now: now)
    }
}

extension ClosedRange<Int64> {
    func value(at position: Double) -> Int64 {
        lowerBound + Int64((Double(upperBound - lowerBound) * position).rounded())
    }
}

extension NIODeadline {
    /// The time in milliseconds of the lane's clock.
    var milliseconds: Int64 { Int64(uptimeNanoseconds / 1_000_000) }
}
