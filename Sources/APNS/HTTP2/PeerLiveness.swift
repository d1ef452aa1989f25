import NIOCore
import Sockets

/// The timeouts of a connection, and the limit of its streams.
public struct HTTP2Limits: Sendable {
    /// The maximum number of concurrent requests, even if the server allows more.
    public var maximumStreams: Int
    /// While requests are in flight, the peer is sent a PING after this time without a read.
    public var pingAfter: TimeAmount = .seconds(15)
    /// While no request is in flight, the peer is sent a PING after this time without a read. Apple allows a PING after an hour of
    /// inactivity ("Sending notification requests to APNs").
    public var idlePingAfter: TimeAmount = .hours(1)
    /// After this time without a read, a PING goes with the next request, because a NAT or a firewall may have forgotten the connection.
    public var wakeAfter: TimeAmount = .seconds(5)
    /// The timeout of the answer to the PING of ``wakeAfter``, or four times the duration of the TLS handshake if that is longer.
    public var wakeTimeout: TimeAmount = .milliseconds(1500)
    /// The timeout of the answer to a PING of ``pingAfter`` or ``idlePingAfter``.
    public var pingTimeout: TimeAmount = .seconds(5)
    /// The timeout from the end of the TLS handshake to the server's SETTINGS.
    public var settingsTimeout: TimeAmount = .seconds(5)
    /// The connection is closed if the server reads so little that nothing more could be written for this time.
    public var stallTimeout: TimeAmount = .seconds(20)
    /// The connection is replaced at this age; `nil` for never.
    var lifetime: TimeAmount?

    public init(maximumStreams: Int = 1000) { self.maximumStreams = maximumStreams }
}

/// Decides by time if the server of a connection still reads and answers, without any I/O.
struct PeerLiveness {
    enum Check: Equatable {
        case nothing
        case sendPing
        case close(String)
        /// Close the connection, and send its requests on another one.
        case closeStale(String)
    }

    private var lastRead = NIODeadline.distantPast
    private var pingSent: NIODeadline?
    /// True if the PING of ``pingSent`` went with the first request after idleness.
    private var isWaking = false
    private var handshakeTime = TimeAmount.zero
    /// The time when writing became impossible; `nil` if it is possible.
    private var stalledSince: NIODeadline?
    /// True if a router or firewall forgot the connection while it was idle.
    private(set) var isStale = false

    /// True if nothing more can be written, because the server does not read.
    var isStalled: Bool { stalledSince != nil }

    func silence(now: NIODeadline) -> TimeAmount { now - lastRead }

    /// Records the end of the TLS handshake.
    /// - Parameter duration: the duration of the handshake; zero if unknown.
    mutating func connected(after duration: TimeAmount, now: NIODeadline) {
        (handshakeTime, lastRead) = (duration, now)
    }

    /// Records that a PING goes with the first request after idleness, unless another PING is unanswered.
    /// - Returns: true if the PING must be sent.
    mutating func wakes(now: NIODeadline) -> Bool {
        guard pingSent == nil else { return false }
        (pingSent, isWaking) = (now, true)
        return true
    }

    mutating func recordRead(now: NIODeadline) {
        lastRead = now
        (pingSent, isWaking) = (nil, false)
    }

    mutating func recordWritability(_ isWritable: Bool, now: NIODeadline) {
        stalledSince = isWritable ? nil : stalledSince ?? now
    }

    /// Records that the process did not run for some time, so that nothing could be read.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        lastRead = lastRead.moved(by: time, now: now)
        pingSent = pingSent?.moved(by: time, now: now)
        stalledSince = stalledSince?.moved(by: time, now: now)
    }

    /// Returns the next action if the server is silent or does not read.
    /// - Parameter isBusy: true if requests are in flight.
    mutating func check(
        isBusy: Bool, _ limits: HTTP2Limits, now: NIODeadline
    ) -> Check {
        // The connection is closed even if the server still sends: it is alive, but useless.
        if let stalledSince, now - stalledSince > limits.stallTimeout {
            return .close("the server has read nothing for \(limits.stallTimeout.formatted)")
        }
        if let pingSent, isWaking {
            let timeout = min(limits.pingTimeout, max(limits.wakeTimeout, handshakeTime * 4))
            guard now - pingSent > timeout else { return .nothing }
            isStale = true
            return .closeStale("the server did not answer a PING within \(timeout.formatted) after idleness")
        }
        if let pingSent {
            return now - pingSent > limits.pingTimeout
                ? .close("the server did not answer a PING within \(limits.pingTimeout.formatted)") : .nothing
        }
        guard now - lastRead > (isBusy ? limits.pingAfter : limits.idlePingAfter) else { return .nothing }
        pingSent = now
        return .sendPing
    }
}
