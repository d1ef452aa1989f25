import NIOCore
import TLS

/// The events that a transport reports to its user, on the transport's event loop.
public protocol TransportDelegate: AnyObject {
    /// A notification has got its end.
    func transport(_ transport: any Transport, completed tag: UInt64, with result: RequestResult)
    /// There is room for more, or connections came or went.
    func transportChanged(_ transport: any Transport)
    /// The binary gateway named a notification that had been completed as confirmed.
    /// - Parameter token: its device token, as hexadecimal digits.
    func transport(_ transport: any Transport, refusedLate token: ByteBuffer, with status: GatewayStatus)
}

extension TransportDelegate {
    /// Does nothing.
    public func transport(_ transport: any Transport, refusedLate token: ByteBuffer, with status: GatewayStatus) {}
}

/// The state of the answers to a transport's requests.
public enum AnswerState: Sendable {
    /// They are, or nothing is known: the binary gateway answers nothing that it accepts.
    case answered
    /// None is, although connections can be made.
    case unanswered
    /// The last ones were not, and none has been sent for a while.
    case unansweredLately
}

/// The way of one app's notifications to APNs, on one event loop: HTTP/2, or the binary gateway of old.
///
/// Not thread-safe: everything is called on, and calls back on, the event loop. ``check(now:)`` has to be called a few
/// times a second.
public protocol Transport: AnyObject {
    /// The receiver of completions. Held strongly until ``close()`` is done.
    var delegate: (any TransportDelegate)? { get set }
    /// How many notifications can be submitted now.
    var capacity: Int { get }
    /// Connections that take notifications.
    var usableConnections: Int { get }
    /// The number of connections that were made since the start.
    var connectionsMade: Int { get }
    /// True if there is no connection because nothing waits to be sent; the first notification opens one.
    var isDormant: Bool { get }
    /// The state of the answers to its requests.
    var answerState: AnswerState { get }
    /// The connections' state.
    var statistics: PoolStatistics { get }
    /// Why the last connection could not be made or was given up; `nil` once one has worked since.
    var lastFailure: (any Error)? { get }
    /// How many connections could not be made or were given up before they got an answer, by the word of what was wrong.
    var failureCounts: [String: Int] { get }

    /// True if responses have their ``Response/uniqueID``.
    var keepsUniqueIDs: Bool { get set }
    /// The number of notifications that the binary gateway dropped after they had been completed as confirmed.
    var droppedAfterConfirmation: Int { get }

    /// Sends a notification.
    /// - Parameter tag: comes back with the result.
    /// - Returns: `false` where there is no room; the notification has then not been taken.
    func submit(_ notification: consuming Notification, tag: UInt64) -> Bool
    /// Says that notifications wait and there is no room for them: another connection is opened if there may be one.
    func requestCapacity()
    /// Says that nothing more will be submitted for now, and that the ends of what was are awaited.
    func flushConfirmations()
    /// Keeps deadlines, gives connections up and opens others.
    func check(now: NIODeadline)

    /// Sets the provider token of the requests to come; `nil` for certificate credentials.
    func setProviderToken(_ providerToken: String?)
    /// Sets what the connections that are made from now on trust and present.
    func setTLS(_ tls: TLSContext)
    /// Replaces all connections, each when another has taken its place.
    /// - Parameter reason: for the log.
    func replaceConnections(reason: String)
    /// Sends nothing more on the connections that there are, and opens others.
    /// - Parameter reason: for the log.
    func retireConnections(reason: String)
    /// Sends nothing more on one connection.
    /// - Parameters:
    ///   - connection: as ``Response/connection`` names it.
    ///   - reason: for the log.
    /// - Returns: the newest connection there has been; those that are made from now on have higher numbers.
    func retireConnection(_ connection: Int, reason: String) -> Int

    /// Finishes what is under way and closes all connections.
    func close() -> EventLoopFuture<Void>
    /// Closes all connections at once; what is under way completes as lost.
    func closeNow()
}

extension Transport {
    /// Does nothing: a transport whose answers name no connection.
    public func retireConnection(_ connection: Int, reason: String) -> Int { 0 }
    /// False: answers have none.
    public var keepsUniqueIDs: Bool {
        get { false }
        set {}
    }
    /// None: each request has an answer of its own.
    public var droppedAfterConfirmation: Int { 0 }
    /// None are counted.
    public var connectionsMade: Int { 0 }
}

/// The state of a pool's connections, for metrics.
public struct PoolStatistics: Sendable, Equatable {
    /// Connections that are being made: name, TCP, proxy and TLS.
    public var connecting = 0
    /// Connections that take requests.
    public var usable = 0
    /// Connections that finish what is under way and end.
    public var draining = 0
    /// Requests under way, on all of them.
    public var streamsInUse = 0
    /// Requests that the usable connections allow at once.
    public var streamLimit = 0
    /// Connections that could not be made or failed before an answer, in a row.
    public var failures = 0

    /// All zero.
    public init() {}
}
