import NIOCore
import Sockets
import TLS

/// The tuples that came from a feedback service, the requests for them, and the end of waiting, without any I/O.
struct FeedbackSessionState {
    struct Limits {
        /// How long TLS may take.
        var handshake = TimeAmount.seconds(10)
        /// For how long nothing may come while something is asked for.
        var silence = TimeAmount.seconds(60)
        /// The same once it is to end soon: what is on its way is forgotten at the service, so it is waited for.
        var silenceAtStop = TimeAmount.milliseconds(500)
        /// How long it may go on once it is to end soon.
        var stop = TimeAmount.seconds(5)
    }

    /// The answer to a request for tuples.
    enum Answer {
        case tuples([FeedbackTuple])
        /// Nothing yet: read on.
        case wait
        /// There is nothing more; with an error if that is not how it should end.
        case end(FeedbackError?)
    }

    private let endpoint: APNSEndpoint
    private let limits: Limits
    private var tuples = FeedbackTuples()
    private(set) var isConnected = false
    /// How the connection ended.
    private var ending: Result<Void, FeedbackError>?
    private var handshakeEnd: NIODeadline?
    /// Since when somebody waits for what does not come.
    private var waitingSince: NIODeadline?
    private var stopEnd: NIODeadline?

    init(_ endpoint: APNSEndpoint, _ limits: Limits) {
        self.endpoint = endpoint
        self.limits = limits
    }

    var hasEnded: Bool { ending != nil }

    /// When ``timePassed(now:)`` is to be called.
    var deadline: NIODeadline? {
        guard ending == nil else { return nil }
        guard isConnected else { return handshakeEnd }
        // While nobody asks, the silence is ours: Redis may be away.
        guard let waitingSince else { return nil }
        guard let stopEnd else { return waitingSince + limits.silence }
        return min(stopEnd, waitingSince + min(limits.silenceAtStop, limits.silence))
    }

    /// TLS has begun.
    mutating func handshakeBegan(now: NIODeadline) { handshakeEnd = handshakeEnd ?? now + limits.handshake }

    mutating func handshakeCompleted() { isConnected = true }

    mutating func received(_ bytes: ByteBuffer, now: NIODeadline) {
        guard ending == nil else { return }
        tuples.append(bytes)
        if waitingSince != nil { waitingSince = now }
    }

    /// The connection has broken.
    mutating func failed(_ error: any Error) {
        switch error {
        // Feedback services close without close_notify; whether the last tuple is whole, its length tells.
        case let error as TLSError where error.kind == .truncated: end(.success(()))
        case let error as TLSError: end(.failure(.tls(error)))
        case let error as APNSConnectionError: end(.failure(.connection(error)))
        default:
            end(
                .failure(
                    .connection(.broken(endpoint, whileConnecting: !isConnected, ConnectFailure.reason(error)))))
        }
    }

    /// The connection is closed.
    mutating func closed() {
        end(
            isConnected
                ? .success(()) : .failure(.connection(.closedByPeer(endpoint, whileConnecting: true, reason: nil))))
    }

    /// It is to end soon: what has been sent already is still taken.
    mutating func stop(now: NIODeadline) {
        stopEnd = stopEnd ?? now + limits.stop
        if waitingSince != nil { waitingSince = now }
    }

    mutating func timePassed(now: NIODeadline) {
        guard let deadline, deadline <= now else { return }
        if !isConnected {
            end(
                .failure(
                    .connection(.unresponsive(endpoint, "TLS was not set up within \(limits.handshake.formatted)"))))
        } else if stopEnd != nil {
            end(.failure(.stopped(endpoint)))
        } else {
            let silence = limits.silence.formatted
            end(
                .failure(
                    .connection(
                        .unresponsive(endpoint, "it sent nothing for \(silence), and did not close the connection"))))
        }
    }

    /// Takes tuples that have come; what has come is always given before the end is told.
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
        // With a great deal waiting in the network, a stop would otherwise never come to its end.
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

    /// How many bytes of a tuple have come that did not come whole.
    var incompleteBytes: Int { tuples.remainingBytes }

    /// - Parameter evenIfClosed: wins over a good end, but not over an earlier error.
    private mutating func end(_ result: Result<Void, FeedbackError>, evenIfClosed: Bool = false) {
        if case .success? = ending, evenIfClosed { ending = nil }
        ending = ending ?? result
    }
}
