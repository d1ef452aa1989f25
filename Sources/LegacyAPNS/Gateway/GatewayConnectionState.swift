import APNS
import NIOCore
import Sockets

extension APNSConnectionError.HangUp {
    /// The gateway closed the connection after TLS, without an error packet, and before any notification was confirmed.
    static let beforeConfirmation = Self(
        "set up TLS and closed the connection without an answer; "
            + "it may not accept the client certificate for this environment")
}

/// The state of a connection to the gateway, without any I/O. It decides what can be sent, what is confirmed, and whether the other side is
/// alive.
struct GatewayConnectionState {
    enum Phase: Equatable {
        /// TCP and TLS are being set up.
        case connecting
        case open
        /// Nothing more is sent. The connection waits for unconfirmed notifications.
        case draining
        case closed
    }

    struct Check: Equatable {
        /// The tags of notifications confirmed by age.
        var confirmed: [UInt64] = []
        var unresponsive: String?
    }

    /// From this identifier on, the connection is replaced, long before identifiers run out at 2³².
    static let wornOutIdentifier = UInt32(Int32.max)

    private(set) var phase = Phase.connecting
    private(set) var window = UnconfirmedWindow()
    /// True if a notification on this connection was confirmed, or named by an error packet.
    private(set) var isProven = false
    private(set) var hasSent = false
    /// The last time when something was sent, or was unconfirmed.
    private(set) var lastUsed = NIODeadline.distantPast
    /// True if this side wants the connection to end.
    private(set) var isRetired = false
    private(set) var isWritable = true
    private(set) var openedAt = NIODeadline.distantPast

    let options: GatewayOptions
    /// The maximum time for which written data may be unacknowledged.
    private let stallTimeout: TimeAmount
    /// The connection is replaced at this age; `nil` for never.
    private let maximumAge: TimeAmount?
    /// A notification counts as accepted at this time after its arrival, if there was no error packet.
    private var confirmAfter: TimeAmount
    private var acknowledged = 0
    private var acknowledgedAt = NIODeadline.distantPast

    init(
        _ options: GatewayOptions = GatewayOptions(), stallTimeout: TimeAmount = .seconds(20),
        maximumAge: TimeAmount? = nil
    ) {
        (self.options, self.stallTimeout, self.maximumAge) = (options, stallTimeout, maximumAge)
        confirmAfter = .milliseconds(Int64(options.confirmAfter))
    }

    var isUsable: Bool { phase == .open }

    /// True if nothing can be sent until something is confirmed.
    var isFull: Bool { window.count >= options.windowCount || window.bytes >= options.windowBytes }

    /// True if another connection will soon be needed.
    var isFilling: Bool { window.count >= options.windowCount / 2 || window.bytes >= options.windowBytes / 2 }

    /// True if less than a third of the window is free.
    var isNearlyFull: Bool { phase == .open && window.count * 3 > options.windowCount * 2 }

    /// Returns the number of notifications that can be sent now.
    /// - Parameter limit: the maximum number of unconfirmed notifications.
    func capacity(limit: Int) -> Int {
        guard phase == .open, isWritable, window.bytes < options.windowBytes else { return 0 }
        return max(0, min(options.windowCount, limit) - window.count)
    }

    /// True if a draining connection has nothing left to wait for.
    var isDrained: Bool { phase == .draining && window.count == 0 }

    func isWornOut(now: NIODeadline) -> Bool {
        guard phase == .open else { return false }
        return window.next >= Self.wornOutIdentifier || maximumAge.map { now - openedAt >= $0 } ?? false
    }

    mutating func opened(now: NIODeadline) {
        guard phase == .connecting else { return }
        phase = .open
        (openedAt, lastUsed, acknowledgedAt) = (now, now, now)
    }

    /// Records that a notification is sent.
    /// - Parameter size: the size of its frame in bytes.
    mutating func send(tag: UInt64, size: Int, token: DeviceToken = .none) {
        hasSent = true
        _ = window.send(tag: tag, size: size, token: token)
    }

    /// Sets the time after which notifications are confirmed, including notifications that were already sent.
    mutating func confirm(after time: TimeAmount) { confirmAfter = time }

    /// Records that everything sent so far was written to the channel.
    /// - Parameter position: the total number of bytes written.
    mutating func left(position: Int, now: NIODeadline) {
        if !window.awaitsArrival { acknowledgedAt = now }
        lastUsed = now
        window.left(position: position)
    }

    mutating func writability(_ isWritable: Bool) { self.isWritable = isWritable }

    /// Stops sending.
    /// - Returns: the identifier of the barrier to send; `nil` for none. See ``GatewayFrame/writeBarrier(identifier:into:)``.
    mutating func drain() -> UInt32? {
        guard phase == .open else { return nil }
        phase = .draining
        isRetired = true
        guard options.hasBarriers, window.count > 0 else { return nil }
        return window.sendBarrier()
    }

    /// Confirms notifications by age, and checks whether the other side is alive. Call this several times per second.
    /// - Parameter acknowledged: the total number of bytes that the other side's kernel has acknowledged.
    mutating func check(acknowledged: Int, now: NIODeadline) -> Check {
        guard phase == .open || phase == .draining else { return Check() }
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged
            acknowledgedAt = now
            window.arrived(upTo: acknowledged, now: now)
        }
        var check = Check()
        // An acknowledgement means only that the gateway's kernel has the data. The gateway needs time to read it.
        check.confirmed = window.confirm(arrivedBefore: now - confirmAfter)
        if !check.confirmed.isEmpty { isProven = true }
        if window.count > 0 { lastUsed = now }
        // If TLS refused a write, a notification is missing from the written bytes, although all of them are acknowledged.
        if window.awaitsArrival, now - acknowledgedAt >= stallTimeout {
            check.unresponsive =
                "no written data was acknowledged for \((now - acknowledgedAt).formatted)"
        }
        return check
    }

    /// Records that the process did not run for some time. An error packet may have arrived and not been read.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        acknowledgedAt = acknowledgedAt.moved(by: time, now: now)
        window.stoodStill(for: time, now: now)
    }

    mutating func answered(_ packet: GatewayPacket) -> UnconfirmedWindow.Findings {
        let findings = window.answered(packet)
        if !findings.confirmed.isEmpty || findings.named != nil { isProven = true }
        phase = .draining
        return findings
    }

    /// Records the end of the connection. Returns the tags in the window, whose outcome is unknown.
    mutating func ended() -> [UInt64] {
        phase = .closed
        return window.takeAll()
    }
}
