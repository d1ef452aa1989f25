import NIOCore
import Sockets

/// The state of a connection to the gateway and its decisions, without any I/O: what may be sent on it, what of that is
/// confirmed, and whether the other side is alive.
struct GatewayConnectionState {
    struct Limits: Sendable {
        /// Notifications without confirmation at the most.
        var windowCount = 5000
        /// Bytes of their frames at the most.
        var windowBytes = 32 << 20
        /// For how long the gateway must have had a notification without a word.
        var confirmAfter = TimeAmount.seconds(2)
        /// True if a deliberately bad item is sent where certainty is wanted at once.
        var sendsBarriers = true
        /// How long the other side may leave what was written unacknowledged.
        var stallTimeout = TimeAmount.seconds(20)
        /// After how long the connection is to be replaced; `nil` is never.
        var maximumAge: TimeAmount?
    }

    enum Phase: Equatable {
        /// TCP and TLS are being set up.
        case connecting
        case open
        /// Nothing more is sent; what was is waited for.
        case draining
        case closed
    }

    /// The actions that are due.
    struct Check: Equatable {
        /// Tags that are confirmed for their age.
        var confirmed: [UInt64] = []
        /// Why to give the connection up.
        var unresponsive: String?
    }

    /// From this identifier on the connection is to be replaced, long before identifiers run out at 2³².
    static let wornOutIdentifier = UInt32(Int32.max)

    private(set) var phase = Phase.connecting
    private(set) var window = UnconfirmedWindow()
    /// True if the gateway has ever taken something on this connection, or named it.
    private(set) var isProven = false
    /// True if anything was ever sent.
    private(set) var hasSent = false
    /// When something was last sent or awaited.
    private(set) var lastUsed = NIODeadline.distantPast
    /// True if this side wants it to end.
    private(set) var isRetired = false
    /// True if the channel takes writes.
    private(set) var isWritable = true
    private(set) var openedAt = NIODeadline.distantPast

    private var limits: Limits
    private var position = 0
    private var acknowledged = 0
    private var acknowledgedAt = NIODeadline.distantPast

    init(_ limits: Limits) {
        self.limits = limits
    }

    var isUsable: Bool { phase == .open }

    /// True if there is no more room until something is confirmed.
    var isFull: Bool { window.count >= limits.windowCount || window.bytes >= limits.windowBytes }

    /// True if a bad item can tell what was taken of what is in the window.
    var sendsBarriers: Bool { limits.sendsBarriers }

    /// True if another connection will soon be needed.
    var isFilling: Bool { window.count >= limits.windowCount / 2 || window.bytes >= limits.windowBytes / 2 }

    /// True if less than a third is left of what may be without confirmation.
    var isNearlyFull: Bool { phase == .open && window.count * 3 > limits.windowCount * 2 }

    /// How many notifications may be sent now.
    /// - Parameter limit: how many may be without confirmation.
    func capacity(limit: Int) -> Int {
        guard phase == .open, isWritable, window.bytes < limits.windowBytes else { return 0 }
        return max(0, min(limits.windowCount, limit) - window.count)
    }

    /// True if nothing is left to wait for.
    var isDrained: Bool { phase == .draining && window.count == 0 }

    /// Returns true if another connection should take its place.
    func isWornOut(now: NIODeadline) -> Bool {
        guard phase == .open else { return false }
        return window.next >= Self.wornOutIdentifier || limits.maximumAge.map { now - openedAt >= $0 } ?? false
    }

    mutating func opened(now: NIODeadline) {
        guard phase == .connecting else { return }
        phase = .open
        (openedAt, lastUsed, acknowledgedAt) = (now, now, now)
    }

    /// A notification is sent.
    /// - Parameter size: of its frame, in bytes.
    mutating func send(tag: UInt64, size: Int, token: DeviceToken = .none) {
        hasSent = true
        _ = window.send(tag: tag, size: size, token: token)
    }

    /// Confirms what is sent from now on, and what is not confirmed yet, after this time.
    mutating func confirm(after time: TimeAmount) { limits.confirmAfter = time }

    /// All that was sent so far has been given to the channel.
    /// - Parameter position: how many bytes it has been given in all.
    mutating func left(position: Int, now: NIODeadline) {
        if acknowledged == self.position { acknowledgedAt = now }
        self.position = position
        lastUsed = now
        window.left(position: position)
    }

    mutating func writability(_ isWritable: Bool) { self.isWritable = isWritable }

    /// Nothing more is to be sent.
    /// - Returns: the identifier of the bad item to send, which tells what of the others was taken.
    mutating func drain() -> UInt32? {
        guard phase == .open else { return nil }
        phase = .draining
        isRetired = true
        guard limits.sendsBarriers, window.count > 0 else { return nil }
        return window.sendBarrier()
    }

    /// To be called a few times a second.
    /// - Parameter acknowledged: how many bytes the other side's kernel has acknowledged.
    mutating func check(acknowledged: Int, now: NIODeadline) -> Check {
        guard phase == .open || phase == .draining else { return Check() }
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged
            acknowledgedAt = now
            window.arrived(upTo: acknowledged, now: now)
        }
        var check = Check()
        // TCP may have got a notification all the way, and the gateway still need not read it: hence the time besides.
        check.confirmed = window.confirm(arrivedBefore: now - limits.confirmAfter)
        if !check.confirmed.isEmpty { isProven = true }
        if window.count > 0 { lastUsed = now }
        if acknowledged < position, now - acknowledgedAt >= limits.stallTimeout {
            check.unresponsive =
                "no written data was acknowledged for \((now - acknowledgedAt).formatted)"
        }
        return check
    }

    mutating func answered(_ packet: GatewayPacket) -> UnconfirmedWindow.Findings {
        let findings = window.answered(packet)
        if !findings.confirmed.isEmpty || findings.named != nil { isProven = true }
        phase = .draining
        return findings
    }

    /// The connection has ended; what is left in the window nobody can tell of.
    mutating func ended() -> [UInt64] {
        phase = .closed
        return window.lost()
    }
}
