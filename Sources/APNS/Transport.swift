import NIOCore
import TLS

/// The receiver of a transport's events. Called on the transport's event loop.
public protocol TransportDelegate: AnyObject {
    func transport(_ transport: any Transport, completed tag: UInt64, with result: RequestResult)
    /// Called when the capacity or the connections have changed.
    func transportChanged(_ transport: any Transport)
    /// True if ``Response/uniqueID`` is used. Read several times per second.
    var keepsUniqueIDs: Bool { get }
}

extension TransportDelegate {
    public var keepsUniqueIDs: Bool { false }
}

/// The connections of one app to APNs, on one event loop, whatever the protocol.
///
/// Not thread-safe: call everything on the event loop, on which the transport calls back. Call ``check(now:)`` several
/// times per second.
public protocol Transport: AnyObject {
    /// The receiver of completions. Held strongly until ``close()`` has completed.
    var delegate: (any TransportDelegate)? { get set }
    /// Connections that accept notifications.
    var usableConnections: Int { get }
    /// True if there is no connection because nothing waits to be sent. Call ``requestCapacity()`` for the first notification.
    var isDormant: Bool { get }
    var statistics: PoolStatistics { get }
    /// The error of the last connection that failed; `nil` once a connection has worked.
    var lastFailure: (any Error)? { get }
    /// The number of connections that could not be made, or failed before an answer, by error code.
    var failureCounts: [String: Int] { get }

    /// The time after which notifications count as accepted, if the protocol does not acknowledge them; zero if each is answered.
    var confirmationTime: TimeAmount { get }

    /// Returns the number of notifications that can be submitted now; zero without a connection.
    /// - Parameter isolation: how far the notifications are kept apart from others.
    func capacity(in isolation: Isolation) -> Int
    /// Submits a notification.
    /// - Parameters:
    ///   - tag: returned with the result.
    ///   - isolation: how far the notification is kept apart from others.
    /// - Returns: `false` if the notification was not accepted, because there is no capacity. That can happen even after ``capacity(in:)``
    ///   returned more than zero: a connection may have ended since.
    func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool
    func requestCapacity(in isolation: Isolation)

    /// Enforces deadlines, and closes and opens connections.
    func check(now: NIODeadline)
    /// Moves all deadlines because the process did not run for some time, so that what has arrived is read first. Call this before
    /// ``check(now:)``.
    func stoodStill(for time: TimeAmount, now: NIODeadline)

    /// Sets the provider token of further requests; `nil` for certificate credentials.
    func setProviderToken(_ providerToken: String?)
    /// Sets the trusted authorities and the certificate of connections made from now on.
    func setTLS(_ tls: TLSContext)
    /// Replaces all connections, each when its replacement is ready.
    /// - Parameter reason: for the log.
    func replaceConnections(reason: String)
    /// Retires all connections, and opens others.
    /// - Parameter reason: for the log.
    func retireConnections(reason: String)

    /// Closes all connections when the outcomes of all submitted notifications are known.
    func close() -> EventLoopFuture<Void>
    /// Closes all connections at once; requests in flight complete as lost.
    func closeNow()
}

extension Transport {
    public var confirmationTime: TimeAmount { .zero }
    public var capacity: Int { capacity(in: .shared) }
    public func requestCapacity() { requestCapacity(in: .shared) }
}

/// How far a notification is kept apart from others.
///
/// If a notification makes the server or a proxy cut the connection, all others in flight are lost with it. So the lost notifications are
/// resent over other connections, where a second loss concerns few.
public enum Isolation: Int, CaseIterable, Sendable {
    case shared
    /// The notification is on a connection with few others, which were also in flight when a connection was lost.
    case withFew
    /// The notification is on a connection of its own.
    case alone

    /// The isolation in which a notification is resent after another loss.
    public var next: Isolation { self == .shared ? .withFew : .alone }
}

/// The state of a pool's connections, for metrics.
public struct PoolStatistics: Sendable, Equatable {
    /// Connections being made: name resolution, TCP, proxy and TLS.
    public var connecting = 0
    public var usable = 0
    /// Connections made since the start.
    public var made = 0
    /// Connections that finish their requests in flight and close.
    public var draining = 0
    /// Requests in flight, on all connections.
    public var streamsInUse = 0
    /// The number of concurrent requests that the usable connections allow.
    public var streamLimit = 0
    /// Consecutive connections that could not be made, or failed before an answer.
    public var failures = 0
    /// True if no request is answered, although connections can be made. False if the server's protocol never answers what it accepts.
    public var isUnanswered = false

    public init() {}
}
