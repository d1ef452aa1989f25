import NIOCore

/// A pool that sends isolated notifications through pools of its own.
public protocol IsolatingPool: PoolOwner, Transport {
    var connections: PoolConnections<Self> { get }
    /// The pools of isolated notifications, ``Isolation/withFew`` and ``Isolation/alone``; empty until there are some.
    var isolated: [Self] { get set }

    /// Makes the pool of an isolation.
    func makePool(of isolation: Isolation) -> Self
}

extension IsolatingPool {
    /// The error of the last connection that failed; `nil` once a connection has worked.
    public var lastFailure: (any Error)? { connections.failures.last }

    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] {
        isolated.reduce(connections.failures.counts) { $0.merging($1.connections.failures.counts, uniquingKeysWith: +) }
    }

    public var canClose: Bool { isolated.isEmpty }

    /// The pool of an isolation, if there is one.
    public func pool(_ isolation: Isolation) -> Self? {
        switch isolation {
        case .shared: self
        case .withFew: isolated.first
        case .alone: isolated.last
        }
    }

    /// Makes the pools of isolated notifications, unless there are some or the pool is closing.
    public func isolate() {
        if isolated.isEmpty, !connections.isClosing { isolated = [makePool(of: .withFew), makePool(of: .alone)] }
    }

    /// Finishes what is in flight, and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        for pool in isolated where !connections.isClosing {
            pool.close().assumeIsolated().whenComplete { [self] _ in
                isolated.removeAll { $0 === pool }
                connections.finishClosing()
            }
        }
        return connections.close()
    }

    /// Closes all connections at once; what is in flight completes as uncertain.
    public func closeNow() {
        _ = close()
        for pool in isolated { pool.closeNow() }
        connections.closeNow()
    }
}
