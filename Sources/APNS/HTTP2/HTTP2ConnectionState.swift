import CNghttp2
import NIOCore

/// What a connection to APNs knows and decides, without any I/O: how many streams it may open, whether the peer is
/// alive, and what the end of a stream means.
struct HTTP2ConnectionState {
    /// The times that a connection keeps.
    struct Limits: Sendable {
        /// How long nothing may have been read before the peer is asked whether it is there.
        var pingAfter: TimeAmount = .seconds(15)
        /// How long it may take to answer that.
        var pingTimeout: TimeAmount = .seconds(5)
        /// How long the server may take from the end of the TLS handshake to its SETTINGS.
        var settingsTimeout: TimeAmount = .seconds(10)
    }

    enum Phase: Equatable {
        /// TCP and TLS are being set up.
        case connecting
        /// Requests may be sent, one at a time, but the server's SETTINGS have not come.
        case awaitingSettings
        case open
        /// No new requests; those under way are finished.
        case draining(reason: String?)
        case closed
    }

    enum Check: Equatable {
        case nothing
        case sendPing
        case close(String)
    }

    private(set) var phase = Phase.connecting
    /// How many streams may be open at once: the lesser of the server's limit and our own.
    private(set) var streamLimit = 0
    private(set) var inFlight = 0
    /// Whether this connection has ever got an answer, which tells a working one from one that is only accepted.
    private(set) var hasAnswered = false

    private let limits: Limits
    private let ownStreamLimit: Int
    private var connectedAt = NIODeadline.distantPast
    private var lastRead = NIODeadline.distantPast
    private var pingSent: NIODeadline?
    /// The highest stream that the server has said it will process; anything above is certain not to be.
    private var lastProcessedStream = Int32.max
    private var goAwayReason: String?

    init(ownStreamLimit: Int, limits: Limits = Limits()) {
        self.ownStreamLimit = ownStreamLimit
        self.limits = limits
    }

    /// Streams that may be opened now. Negative limits do not exist, but a lowered limit can be below what is in flight.
    var freeStreams: Int {
        switch phase {
        case .awaitingSettings, .open: max(0, streamLimit - inFlight)
        case .connecting, .draining, .closed: 0
        }
    }

    var isUsable: Bool { phase == .open || phase == .awaitingSettings }

    mutating func handshakeCompleted(now: NIODeadline) {
        guard phase == .connecting else { return }
        phase = .awaitingSettings
        streamLimit = 1
        connectedAt = now
        lastRead = now
    }

    /// The server's SETTINGS, the first or later ones; `nil` is no limit.
    mutating func settings(maximumStreams: Int?) {
        if phase == .awaitingSettings { phase = .open }
        streamLimit = min(ownStreamLimit, maximumStreams ?? ownStreamLimit)
    }

    mutating func submitted() { inFlight += 1 }

    mutating func bytesRead(now: NIODeadline) {
        lastRead = now
        pingSent = nil
    }

    mutating func goAway(lastStream: Int32, reason: String?) {
        lastProcessedStream = min(lastProcessedStream, lastStream)
        goAwayReason = reason ?? goAwayReason
        drain(reason: goAwayReason)
    }

    mutating func drain(reason: String?) {
        guard phase != .closed else { return }
        // What the server gave as its reason outlasts our own hanging up.
        if case .draining(.some) = phase, reason == nil { return }
        phase = .draining(reason: reason)
    }

    mutating func closed() { phase = .closed }

    /// Whether everything that a draining connection had under way has ended.
    var isDrained: Bool {
        if case .draining = phase { inFlight == 0 } else { false }
    }

    /// To be called now and then: is the peer still there?
    mutating func check(now: NIODeadline) -> Check {
        guard phase != .connecting, phase != .closed else { return .nothing }
        if phase == .awaitingSettings, now - connectedAt > limits.settingsTimeout {
            return .close("the server sent no SETTINGS within \(limits.settingsTimeout.inWords)")
        }
        if let pingSent {
            return now - pingSent > limits.pingTimeout
                ? .close("the server did not answer a PING within \(limits.pingTimeout.inWords)") : .nothing
        }
        guard now - lastRead > limits.pingAfter else { return .nothing }
        pingSent = now
        return .sendPing
    }

    /// What the end of a stream means for the request that it carried.
    /// - Parameters:
    ///   - code: the HTTP/2 error code that the stream was closed with.
    ///   - isWritten: whether the whole request had been written.
    ///   - cancelled: why we gave it up ourselves, if we did.
    ///   - response: what was answered, where a status came.
    mutating func ended(
        stream: Int32, code: UInt32, isWritten: Bool, cancelled: RequestFailure?, response: @autoclosure () -> Response?
    ) -> RequestResult {
        inFlight -= 1
        // A server may answer and then reset the stream because it does not care for the request's rest (NO_ERROR,
        // RFC 9113 §8.1; nginx does). With another code, an error's reason may have been cut off: only 200 needs none.
        if let response = response(), code == NGHTTP2_NO_ERROR.rawValue || response.status == 200 {
            hasAnswered = true
            return .response(response)
        }
        if stream > lastProcessedStream { return .notProcessed(.goingAway(reason: goAwayReason)) }
        if code == NGHTTP2_REFUSED_STREAM.rawValue { return .notProcessed(.refusedStream) }
        let failure = cancelled ?? .reset(code: code)
        return isWritten ? .uncertain(failure) : .notProcessed(failure)
    }

    /// What the end of the connection means for a request that was still under way.
    /// - Parameter status: the answer's status, if that much came; 0 otherwise.
    mutating func lost(stream: Int32, isWritten: Bool, status: Int32, why: String) -> RequestResult {
        inFlight -= 1
        if status == 200 { return .response(Response(status: 200)) }
        // A refusal whose reason was cut off: asking again is safe, and tells the reason.
        if status != 0 { return .notProcessed(.connectionLost(why)) }
        if stream > lastProcessedStream { return .notProcessed(.goingAway(reason: goAwayReason)) }
        return isWritten ? .uncertain(.connectionLost(why)) : .notProcessed(.connectionLost(why))
    }
}

extension TimeAmount {
    /// For messages: `1.5 s`.
    var inWords: String {
        let milliseconds = nanoseconds / 1_000_000
        return milliseconds % 1000 == 0 ? "\(milliseconds / 1000) s" : "\(milliseconds) ms"
    }
}
