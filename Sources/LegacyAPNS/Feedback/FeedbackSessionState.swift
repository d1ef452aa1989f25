import APNS
import NIOCore
import Sockets
import TLS

/// The tuples received from a feedback service, the requests for them, and the timeouts, without any I/O.
struct FeedbackSessionState {
    /// The answer to a request for tuples.
    enum Answer {
        case tuples([FeedbackTuple])
        /// No tuple is complete: read more data.
        case wait
        /// There are no more tuples. The error is set if the session did not end properly.
        case end(FeedbackError?)
    }

    /// The maximum time without data after a stop. Data in flight is waited for, because the service has forgotten it.
    private static let silenceAtStop = TimeAmount.milliseconds(500)
    /// The maximum duration of the session after a stop.
    private static let stop = TimeAmount.seconds(5)

    private let endpoint: APNSEndpoint
    private let handshake: TimeAmount
    /// The maximum time without data while tuples are requested.
    private let silence: TimeAmount
    private(set) var tuples = FeedbackTuples()
    private(set) var isConnected = false
    /// The end of the connection; `nil` before.
    private var ending: Result<Void, FeedbackError>?
    private var handshakeEnd: NIODeadline?
    /// The time when the request for tuples began to wait, or last received data.
    private var waitingSince: NIODeadline?
    private var stopEnd: NIODeadline?

    init(_ endpoint: APNSEndpoint, handshake: TimeAmount = .seconds(10), silence: TimeAmount = .seconds(60)) {
        (self.endpoint, self.handshake, self.silence) = (endpoint, handshake, silence)
    }

    var hasEnded: Bool { ending != nil }

    /// The time to call ``timePassed(now:)``.
    var deadline: NIODeadline? {
        guard ending == nil else { return nil }
        guard isConnected else { return handshakeEnd }
        // Without a request for tuples, nothing is read (Redis may be unavailable), so silence does not count.
        guard let waitingSince else { return nil }
        guard let stopEnd else { return waitingSince + silence }
        return min(stopEnd, waitingSince + min(Self.silenceAtStop, silence))
    }

    /// Records the beginning of the TLS handshake.
    mutating func handshakeBegan(now: NIODeadline) { handshakeEnd = handshakeEnd ?? now + handshake }

    mutating func handshakeCompleted() { isConnected = true }

    mutating func received(_ bytes: ByteBuffer, now: NIODeadline) {
        guard ending == nil else { return }
        tuples.append(bytes)
        if waitingSince != nil { waitingSince = now }
    }

    mutating func failed(_ error: any Error) {
        switch error {
        // Feedback services close without close_notify; a tuple's length shows whether it is complete.
        case let error as TLSError where error.kind == .truncated: end(.success(()))
        case let error as TLSError: end(.failure(.tls(error)))
        case let error as APNSConnectionError: end(.failure(.connection(error)))
        default:
            let reason = ConnectFailure.reason(error)
            end(.failure(.connection(.broken(endpoint, whileConnecting: !isConnected, reason))))
        }
    }

    mutating func closed() {
        end(
            isConnected
                ? .success(()) : .failure(.connection(.closedByPeer(endpoint, whileConnecting: true, reason: nil))))
    }

    /// Makes the session end soon; data that was sent already is still accepted.
    mutating func stop(now: NIODeadline) {
        stopEnd = stopEnd ?? now + Self.stop
        if waitingSince != nil { waitingSince = now }
    }

    mutating func timePassed(now: NIODeadline) {
        guard let deadline, deadline <= now else { return }
        if isConnected, stopEnd != nil { return end(.failure(.stopped(endpoint))) }
        let why =
            isConnected
            ? "it sent nothing for \(silence.formatted), and did not close the connection"
            : "TLS was not set up within \(handshake.formatted)"
        end(.failure(.connection(.unresponsive(endpoint, why))))
    }

    /// Removes and returns received tuples. All of them are returned before the end is reported.
    mutating func next(atMost count: Int, now: NIODeadline) -> Answer {
        var taken: [FeedbackTuple] = []
        do throws(FeedbackTuples.Malformed) {
            while taken.count < count, let tuple = try tuples.next() { taken.append(tuple) }
        } catch {
            end(.failure(.malformed(endpoint, error)), evenIfClosed: true)
        }
        guard taken.isEmpty else {
            waitingSince = nil
            return .tuples(taken)
        }
        // While much data arrives, no wait lasts until the deadline, so a stop must end here.
        if let stopEnd, stopEnd <= now { end(.failure(.stopped(endpoint))) }
        switch ending {
        case nil:
            waitingSince = waitingSince ?? now
            return .wait
        case .failure(let error): return .end(error)
        case .success where tuples.remainingBytes > 0:
            return .end(.incomplete(endpoint, bytes: tuples.remainingBytes))
        case .success: return .end(nil)
        }
    }

    /// - Parameter evenIfClosed: true to replace a successful end; an earlier error stays.
    private mutating func end(_ result: Result<Void, FeedbackError>, evenIfClosed: Bool = false) {
        if case .success? = ending, evenIfClosed { ending = nil }
        ending = ending ?? result
    }
}

/// The reason why a feedback service was not read to its end. Tuples that were returned before are valid.
public enum FeedbackError: Error, Sendable, CustomStringConvertible {
    /// No connection could be made, or it was lost.
    case connection(APNSConnectionError)
    case tls(TLSError)
    case malformed(APNSEndpoint, FeedbackTuples.Malformed)
    /// The service closed the connection in the middle of a tuple, after this many bytes of it.
    case incomplete(APNSEndpoint, bytes: Int)
    /// ``FeedbackSession/stop()`` was called before the service had sent everything.
    case stopped(APNSEndpoint)

    public var description: String {
        switch self {
        case .connection(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .malformed(let endpoint, let error):
            "\(endpoint) does not speak the feedback service's protocol: \(error); is it a feedback service?"
        case .incomplete(let endpoint, let bytes):
            "\(endpoint) closed the connection in the middle of a tuple, after \(bytes) bytes of it"
        case .stopped(let endpoint): "\(endpoint) was not read to the end, because this process is stopping"
        }
    }
}
