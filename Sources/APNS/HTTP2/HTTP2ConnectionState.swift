import NIOCore
import Sockets
import TLS

/// The state of a connection to APNs, without any I/O. It decides how many streams may be open, whether the peer is alive, and the result
/// of each request.
struct HTTP2ConnectionState {
    /// The connection is replaced from this stream on. The half a million identifiers up to 2³¹ (RFC 9113 §5.1.1) suffice until the
    /// replacement is ready.
    static let wornOutStream = Int32.max - (1 << 20)
    /// After this many consecutive answers with status 500, the server behind the connection is probably broken.
    static let serverErrorLimit = 5

    enum Phase: Equatable {
        /// TCP and TLS are being set up.
        case connecting
        /// TLS is set up. Requests wait for the server's SETTINGS: a server that sends none does not process requests, and the requests
        /// would count as possibly accepted.
        case awaitingSettings
        case open
        /// No new requests are sent; the requests in flight are finished.
        case draining(reason: String?)
        case closed
    }

    private(set) var phase = Phase.connecting
    /// The maximum number of open streams: the lesser of the server's limit and our own.
    private(set) var streamLimit = 0
    private(set) var inFlight = 0
    /// Requests submitted since the start.
    private(set) var requests = 0
    /// Requests answered since the start, with any status.
    private(set) var answers = 0
    /// Consecutive answers with status 500.
    private(set) var serverErrorsInARow = 0
    /// The last time when a request was in flight, with the precision of calls of ``check(now:)``.
    private(set) var lastUsed = NIODeadline.distantPast
    /// True if this side wants the connection to end.
    private(set) var isRetired = false

    private let limits: HTTP2Limits
    /// The end of the TLS handshake; before that, its start.
    private var connectedAt = NIODeadline.distantPast
    private var liveness = PeerLiveness()
    private var goAway: GoAway?
    private var requestsAtCheck = 0
    private var lastStream: Int32 = 0
    private var gauge = FloodGauge()

    private struct GoAway {
        /// The highest stream that the server may process.
        var lastStream = Int32.max
        var reason: String?
    }

    init(_ limits: HTTP2Limits = HTTP2Limits()) { self.limits = limits }

    /// The number of streams that can be opened now. Never negative, although the server may lower its limit below the number in flight.
    var freeStreams: Int {
        // While the server does not read, no requests are added.
        isUsable && !liveness.isStalled ? max(0, streamLimit - inFlight) : 0
    }

    var isUsable: Bool { phase == .open }

    /// True if the connection has got an answer, so that it works.
    var hasAnswered: Bool { answers > 0 }

    /// True once the server has sent GOAWAY.
    var isSentAway: Bool { goAway != nil }

    /// True if a router or firewall forgot the connection while it was idle.
    var isStale: Bool { liveness.isStale }

    mutating func handshakeStarted(now: NIODeadline) { connectedAt = now }

    mutating func handshakeCompleted(now: NIODeadline) {
        guard phase == .connecting else { return }
        phase = .awaitingSettings
        liveness.connected(after: connectedAt > .distantPast ? now - connectedAt : .zero, now: now)
        connectedAt = now
        lastUsed = now
    }

    /// - Parameter maximumStreams: the limit in the server's SETTINGS; `nil` for no limit.
    mutating func settings(maximumStreams: Int?) {
        if phase == .awaitingSettings { phase = .open }
        streamLimit = min(limits.maximumStreams, maximumStreams ?? .max)
    }

    /// Records that a request was submitted.
    /// - Returns: true if this request is the first at or above ``wornOutStream``.
    @discardableResult
    mutating func submitted(stream: Int32 = 0) -> Bool {
        inFlight += 1
        requests += 1
        guard stream >= Self.wornOutStream else { return false }
        let isFirst = lastStream < Self.wornOutStream
        lastStream = stream
        // No identifier follows this one.
        if stream > Int32.max - 2 { drain(reason: Self.wornOutReason) }
        return isFirst
    }

    /// Decides if a request needs a PING, because it is the first one after idleness. Records the PING.
    /// - Returns: true if the PING must be sent.
    mutating func wakes(now: NIODeadline) -> Bool {
        guard isIdle(now: now) else { return false }
        return liveness.wakes(now: now)
    }

    /// Returns true if nothing was read for ``HTTP2Limits/wakeAfter``, so that the next request needs a PING.
    func isIdle(now: NIODeadline) -> Bool { isUsable && inFlight == 0 && liveness.silence(now: now) > limits.wakeAfter }

    mutating func bytesRead(_ count: Int = 0, now: NIODeadline) {
        liveness.recordRead(now: now)
        gauge.received(count)
    }

    /// The number of bytes received that belong to no answer, if it is too high.
    var flood: Int? { gauge.isOverflowing(inFlight: inFlight) ? gauge.level : nil }

    mutating func writability(_ isWritable: Bool, now: NIODeadline) {
        liveness.recordWritability(isWritable, now: now)
    }

    func replacementReason(now: NIODeadline) -> String? {
        guard isUsable else { return nil }
        if lastStream >= Self.wornOutStream { return Self.wornOutReason }
        if let age = limits.lifetime, now - connectedAt >= age { return "it has reached its maximum age" }
        return nil
    }

    private static let wornOutReason = "its stream identifiers have run out"

    mutating func goAway(lastStream: Int32, reason: String?) {
        var goAway = goAway ?? GoAway()
        goAway.lastStream = min(goAway.lastStream, lastStream)
        goAway.reason = reason ?? goAway.reason
        self.goAway = goAway
        drain(reason: goAway.reason)
    }

    mutating func drain(reason: String?) {
        guard phase != .closed else { return }
        // A drain without a reason keeps the server's reason.
        if case .draining(.some) = phase, reason == nil { return }
        phase = .draining(reason: reason)
    }

    /// Lets the connection end when its requests in flight have ended.
    mutating func retire(reason: String) {
        guard phase != .closed else { return }
        isRetired = true
        drain(reason: reason)
    }

    mutating func closed() { phase = .closed }

    /// True if all requests of a draining connection have ended.
    var isDrained: Bool {
        if case .draining = phase { inFlight == 0 } else { false }
    }

    /// Records that the process did not run for some time, so that nothing could be read.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        if phase == .awaitingSettings { connectedAt = connectedAt.moved(by: time, now: now) }
        liveness.stoodStill(for: time, now: now)
    }

    /// Checks whether the peer is still alive. Call this periodically.
    mutating func check(now: NIODeadline) -> PeerLiveness.Check {
        guard phase != .connecting, phase != .closed else { return .nothing }
        if inFlight > 0 || requests != requestsAtCheck { lastUsed = now }
        requestsAtCheck = requests
        gauge.check(now: now)
        if phase == .awaitingSettings, now - connectedAt > limits.settingsTimeout {
            return .close(
                "it set up TLS and sent no HTTP/2 SETTINGS within \(limits.settingsTimeout.formatted); "
                    + "check the endpoint, and the proxy or load balancer in front of it")
        }
        return liveness.check(isBusy: inFlight > 0, limits, now: now)
    }

    /// Returns the result of a request whose stream has ended.
    /// - Parameters:
    ///   - code: the stream's HTTP/2 error code.
    ///   - isWritten: true if the whole request had been written.
    ///   - cancelled: the reason why this side cancelled the request, if it did.
    ///   - response: the answer, if a valid one was received.
    mutating func ended(
        stream: Int32, code: UInt32, isWritten: Bool, cancelled: RequestFailure?, response: @autoclosure () -> Response?
    ) -> RequestResult {
        inFlight -= 1
        gauge.requestEnded()
        // A server may answer and then reset the stream with NO_ERROR, because it does not need the rest of the request (RFC 9113 §8.1;
        // nginx does). With another code the answer is incomplete, whatever its status.
        if code == HTTP2ErrorCode.noError.rawValue, let response = response() {
            answers += 1
            serverErrorsInARow = response.status == 500 ? serverErrorsInARow + 1 : 0
            return .response(response)
        }
        if let goAway, stream > goAway.lastStream { return .notProcessed(.goingAway(reason: goAway.reason)) }
        if code == HTTP2ErrorCode.refusedStream.rawValue { return .notProcessed(.refusedStream) }
        let failure = cancelled ?? .reset(code: code)
        return isWritten ? .uncertain(failure) : .notProcessed(failure)
    }

    /// Returns the result of a request that was in flight when the connection ended. A part of an answer counts for nothing.
    /// - Parameter failure: the failure of a request that the server may have processed.
    mutating func lost(
        stream: Int32, isWritten: Bool, failure: RequestFailure? = nil, why: String
    ) -> RequestResult {
        inFlight -= 1
        gauge.requestEnded()
        if let goAway, stream > goAway.lastStream { return .notProcessed(.goingAway(reason: goAway.reason)) }
        guard isWritten else { return .notProcessed(.connectionLost(why)) }
        return .uncertain(failure ?? .connectionLost(why))
    }
}

extension HTTP2ConnectionState {
    func closedByPeer(_ endpoint: APNSEndpoint) -> APNSConnectionError {
        switch phase {
        case .connecting: .closedByPeer(endpoint, whileConnecting: true, reason: nil)
        case .awaitingSettings: .hungUp(endpoint, .beforeSettings)
        case .open where !hasAnswered && requests > 0: .hungUp(endpoint, .beforeAnswer)
        case .draining(let reason):
            .closedByPeer(endpoint, whileConnecting: false, reason: reason ?? (isSentAway ? "GOAWAY" : nil))
        case .open, .closed: .closedByPeer(endpoint, whileConnecting: false, reason: nil)
        }
    }

    /// Translates a channel's error. Servers end a connection properly, by just closing, or by a reset.
    func meaning(of error: any Error, _ endpoint: APNSEndpoint) -> any Error {
        if error is APNSConnectionError { return error }
        if let error = error as? TLSError, error.kind != .truncated { return error }
        let closed = closedByPeer(endpoint)
        if case .hungUp = closed { return closed }
        // Without a request in flight, a truncation loses nothing.
        if error is TLSError, inFlight == 0 { return closed }
        if error is TLSError { return error }
        return APNSConnectionError.broken(endpoint, whileConnecting: phase == .connecting, "\(error)")
    }
}

/// Detects a server that floods the connection, by the number of bytes alone.
///
/// A frame has at least nine bytes (RFC 9113 §4.1). So a bound on bytes that belong to no answer bounds all kinds of frames at once: PING,
/// SETTINGS, RST_STREAM, WINDOW_UPDATE, PRIORITY, CONTINUATION, empty DATA and unknown ones. It costs an addition per read instead of a
/// call per frame. It is a leaky bucket: received bytes fill it, and time and the ends of requests empty it.
struct FloodGauge {
    /// The number of bytes that may arrive without belonging to a request.
    static let burst = 256 * 1024
    /// The number of bytes that leak per second: 960 PINGs, or 1,800 of the smallest frames.
    static let leak = 16 * 1024
    /// The number of bytes that an answer may have: as much of the header fields and of the body as is kept.
    static let answer = 32 * 1024

    private(set) var level = 0
    private var leakedAt = NIODeadline.distantPast

    mutating func received(_ bytes: Int) { level += bytes }

    mutating func requestEnded() { level = max(0, level - Self.answer) }

    /// Empties the bucket by the time that has passed. Call this periodically.
    mutating func check(now: NIODeadline) {
        // The first call only starts the clock.
        defer { leakedAt = now }
        guard leakedAt > .distantPast else { return }
        let milliseconds = min((now - leakedAt).nanoseconds / 1_000_000, 3_600_000)
        level = max(0, level - Int(milliseconds) * Self.leak / 1000)
    }

    /// Returns true if more was received than the answers to this many requests can have.
    func isOverflowing(inFlight: Int) -> Bool { level > Self.burst + Self.answer * max(inFlight, 0) }
}
