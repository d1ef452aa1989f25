import NIOCore

@testable import APNS

/// The owner of a connection in a test: records what completes, and does nothing else.
final class RecordingOwner: HTTP2ConnectionOwner {
    /// The tags of completed requests, in their order.
    private(set) var completed: [UInt64] = []
    private(set) var results: [UInt64: RequestResult] = [:]
    private(set) var closed = 0
    private(set) var error: (any Error)?
    let newestConnection = 0

    func connectionChanged(_ connection: HTTP2Connection) {}
    func connectionWearsOut(_ connection: HTTP2Connection) {}
    func connectionIsStale(_ connection: HTTP2Connection) {}
    func connectionIsRefused(_ connection: HTTP2Connection, reason: String) {}
    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool
    ) {}
    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult) {
        completed.append(tag)
        results[tag] = result
    }
    func connectionClosed(_ connection: HTTP2Connection, error: any Error) {
        closed += 1
        self.error = error
    }
}
