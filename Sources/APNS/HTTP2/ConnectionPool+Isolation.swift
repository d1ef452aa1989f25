import Logging
import NIOCore

/// How far a notification is kept apart from others.
///
/// One that makes the server, or a proxy on the way, cut the connection takes all others in flight with it. So all that
/// were in flight when a connection was lost are sent again over other connections, on which a second loss concerns few.
public enum Isolation: Int, CaseIterable, Sendable {
    /// Not at all.
    case shared
    /// On a connection with a few others that were in flight when one was lost.
    case withFew
    /// On a connection of its own.
    case alone

    /// The isolation after another loss.
    public var next: Isolation { self == .shared ? .withFew : .alone }
}

/// The identifiers of connections, which a pool shares with its pools of isolated notifications.
final class ConnectionIDs {
    /// The identifier of the newest connection; -1 before the first.
    private(set) var newest = -1

    func next() -> Int {
        newest += 1
        return newest
    }
}

extension ConnectionPool {
    /// The maximum number of requests that share a connection with few others.
    private static let few = 32
    /// The maximum number of connections of each isolation.
    private static let maximumIsolated = 4
    /// The longest pause before the next connection, because each may meet another such notification.
    private static let longestPause = TimeAmount.seconds(1)

    /// See ``Transport/capacity(in:)``.
    public func capacity(in isolation: Isolation) -> Int { pool(isolation)?.capacity ?? 0 }

    /// See ``Transport/submit(_:tag:in:)``.
    public func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        pool(isolation)?.submit(consume notification, tag: tag) ?? false
    }

    /// See ``Transport/requestCapacity(in:)``.
    public func requestCapacity(in isolation: Isolation) {
        if isolated.isEmpty, isolation != .shared, closed == nil {
            isolated = [makePool(of: .withFew), makePool(of: .alone)]
        }
        pool(isolation)?.requestCapacity()
    }

    private func pool(_ isolation: Isolation) -> ConnectionPool? {
        switch isolation {
        case .shared: self
        case .withFew: isolated.first
        case .alone: isolated.last
        }
    }

    private func makePool(of isolation: Isolation) -> ConnectionPool {
        var own = configuration
        own.minimumConnections = 0
        own.maximumConnections = min(configuration.maximumConnections, Self.maximumIsolated)
        own.maximumStreams = isolation == .alone ? 1 : min(configuration.maximumStreams, Self.few)
        own.longestReconnectPause = max(own.reconnectPause, Self.longestPause)
        // Its connections are expected to be lost; the sender logs which notifications are the cause.
        var quiet = logger
        quiet.logLevel = .critical
        let pool = ConnectionPool(own, ids: ids, eventLoop: eventLoop, logger: quiet)
        pool.delegate = delegate
        pool.keepsUniqueIDs = keepsUniqueIDs
        pool.authorization = authorization
        return pool
    }
}
