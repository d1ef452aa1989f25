import NIOCore
import Sockets

/// Decides by time whether the server of a connection still reads and answers, without any I/O.
struct PeerLiveness {
    private var lastRead = NIODeadline.distantPast
    private var pingSent: NIODeadline?
    /// True if that PING went with the first request after idleness.
    private var isWaking = false
    private var handshakeTime = TimeAmount.zero
    /// The time since which nothing more could be written; `nil` if more can be.
    private var stalledSince: NIODeadline?
    /// True if the connection was forgotten on the way while it was idle.
    private(set) var isStale = false

    /// True if nothing more can be written, because the server does not read.
    var isStalled: Bool { stalledSince != nil }

    /// Returns the time since the last read.
    func silence(now: NIODeadline) -> TimeAmount { now - lastRead }

    /// Records the end of the TLS handshake.
    /// - Parameter duration: the time that it took; zero if unknown.
    mutating func connected(after duration: TimeAmount, now: NIODeadline) {
        (handshakeTime, lastRead) = (duration, now)
    }

    /// Records that a PING goes with the first request after idleness, unless one is unanswered.
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

    /// Records whether more can be written.
    mutating func recordWritability(_ isWritable: Bool, now: NIODeadline) {
        stalledSince = isWritable ? nil : stalledSince ?? now
    }

    /// Records that the process did not run for some time, in which nothing could be read.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        lastRead = lastRead.moved(by: time, now: now)
        pingSent = pingSent?.moved(by: time, now: now)
        stalledSince = stalledSince?.moved(by: time, now: now)
    }

    /// Returns what must be done for a server that is silent or does not read.
    /// - Parameter isBusy: true if requests are in flight.
    mutating func check(
        isBusy: Bool, _ limits: HTTP2Limits, now: NIODeadline
    ) -> HTTP2ConnectionState.Check {
        // Applies even if the server still sends: it is alive, but useless.
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
