import NIOCore

/// Decides if a notification of an app may be sent now. No I/O.
///
/// An operator's pause outranks missing connections, which outrank the scopes. Everything that depends on these asks the gate: claims,
/// submissions, deferrals, and what operators see.
struct Gate {
    enum Decision: Equatable {
        case send
        /// The notification may be sent as a probe: its answer shows if its scopes are good again.
        case probe
        case wait(Obstacle)
    }

    enum Obstacle: Equatable {
        case paused
        /// The app's certificate belongs to another app.
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

        /// The range of the random delay of deferred jobs, in milliseconds, so that they do not all return together. For a slow scope,
        /// ``Scopes/setAside(_:age:now:share:)`` decides.
        var deferral: ClosedRange<Int64> { self == .noConnection ? 2000...10_000 : 1000...5000 }
    }

    /// Jobs wait in this process for at most this long without a connection. After a GOAWAY another connection is available within moments.
    static let patience = TimeAmount.seconds(2)

    var pause: Reason?
    /// A fault of the configuration that only another configuration can end.
    var block: Reason?
    /// The time when the last usable connection was lost; `nil` while a connection accepts requests.
    private var unconnectedSince: NIODeadline?

    /// Returns the obstacle for all of the app's notifications; `nil` if there is none.
    func obstacle(now: NIODeadline) -> Obstacle? {
        if block != nil { return .blocked }
        if pause != nil { return .paused }
        if let unconnectedSince, now - unconnectedSince > Self.patience { return .noConnection }
        return nil
    }

    /// Decides about one notification.
    /// - Parameter scopes: the decision of its scopes.
    func decide(_ scopes: Scopes.Decision, now: NIODeadline) -> Decision {
        if let obstacle = obstacle(now: now) { return .wait(obstacle) }
        switch scopes {
        case .send: return .send
        case .probe: return .probe
        case .wait(let kind): return .wait(.scope(kind))
        }
    }

    /// - Parameter isUsable: true if a connection accepts requests or can be opened on demand.
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
