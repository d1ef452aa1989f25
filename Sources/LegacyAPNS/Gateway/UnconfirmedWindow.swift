import APNS
import NIOCore
import Sockets

/// The unconfirmed notifications of one connection to the gateway, without any I/O.
///
/// The gateway does not acknowledge what it accepts. So a notification stays in the window until an error packet names it or a later
/// notification, or until it is too old for an error packet.
///
///     confirmed │ 17  18  19 │ 20  21  22 │ 23  24          identifiers
///               └ with the gateway since … ┘└ on the way ┘
struct UnconfirmedWindow {
    private struct Sent {
        var tag: UInt64
        var size: Int
    }

    private struct Batch {
        /// The identifier of the batch's last notification.
        var last: UInt32
        /// The total number of bytes sent on the connection up to the end of the batch.
        var position: Int
        /// The time when the other side's kernel acknowledged the batch; `nil` before.
        var arrivedAt: NIODeadline?
    }

    /// The notifications whose outcomes an error packet reveals. They are tags, in the order in which they were sent.
    struct Findings: Equatable {
        /// Accepted.
        var confirmed: [UInt64] = []
        /// The notification that the packet named, and its status.
        var named: Named?
        /// The notifications that were dropped without being processed.
        var discarded: [UInt64] = []
        /// Of unknown outcome.
        var uncertain: [UInt64] = []
        /// The number of notifications that were confirmed although the gateway had dropped them.
        var lost = 0
        /// The token of the notification that the packet named, if that notification was confirmed before.
        var lateToken: ByteBuffer?

        struct Named: Equatable {
            var tag: UInt64
            var status: GatewayStatus
        }
    }

    private var sent = CircularBuffer<Sent>(initialCapacity: 64)
    private var batches = CircularBuffer<Batch>(initialCapacity: 16)
    /// The identifier of the oldest unconfirmed notification.
    private(set) var first: UInt32 = 1
    /// The size of the unconfirmed frames.
    private(set) var bytes = 0
    /// The barrier's identifier, once it was sent.
    private(set) var barrier: UInt32?
    private var tokens = RecentTokens()

    var count: Int { sent.count }
    var next: UInt32 { first + UInt32(sent.count) }
    /// True if the other side's kernel has not acknowledged everything.
    var awaitsArrival: Bool { batches.last.map { $0.arrivedAt == nil } ?? false }

    /// Records that a notification is sent.
    /// - Parameters:
    ///   - size: the size of its frame in bytes.
    ///   - token: kept for an error packet that arrives late.
    /// - Returns: its identifier.
    mutating func send(tag: UInt64, size: Int, token: DeviceToken = .none) -> UInt32 {
        let identifier = next
        tokens.remember(token, of: identifier)
        sent.append(Sent(tag: tag, size: size))
        bytes += size
        return identifier
    }

    /// Records that a barrier is sent. Nothing can be sent after it.
    /// - Returns: its identifier.
    mutating func sendBarrier() -> UInt32 {
        let identifier = next
        barrier = identifier
        return identifier
    }

    /// Records that everything sent so far was written to the channel.
    /// - Parameter position: the total number of bytes written.
    mutating func left(position: Int) {
        guard !sent.isEmpty, batches.last.map({ $0.last != next - 1 }) ?? true else { return }
        batches.append(Batch(last: next - 1, position: position))
    }

    /// Records that the other side's kernel has all bytes up to a position.
    mutating func arrived(upTo position: Int, now: NIODeadline) {
        for index in batches.indices where batches[index].arrivedAt == nil {
            guard batches[index].position <= position else { return }
            batches[index].arrivedAt = now
        }
    }

    /// Records that the process did not run for some time. Error packets may have arrived and not been read.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for index in batches.indices {
            batches[index].arrivedAt = batches[index].arrivedAt?.moved(by: time, now: now)
        }
    }

    /// Confirms the notifications that arrived by this time, and returns their tags.
    mutating func confirm(arrivedBefore time: NIODeadline) -> [UInt64] {
        var last: UInt32?
        while let batch = batches.first, let arrivedAt = batch.arrivedAt, arrivedAt <= time {
            last = batch.last
            batches.removeFirst()
        }
        return last.map { take(through: $0) } ?? []
    }

    /// Interprets an error packet. The connection ends with it.
    mutating func answered(_ packet: GatewayPacket) -> Findings {
        var findings = Findings()
        let identifier = packet.identifier
        // Both statuses mean that the named notification was accepted.
        let isGood = packet.status == .shutdown || packet.status == .noError
        if let barrier, identifier == barrier {
            findings.confirmed = take(through: next - 1)
        } else if identifier >= first, identifier < next {
            findings.confirmed = take(through: isGood ? identifier : identifier - 1)
            if !isGood, let named = take(through: identifier).first {
                findings.named = .init(tag: named, status: packet.status)
            }
            findings.discarded = takeAll()
        } else if identifier == first - 1, isGood {
            // The packet names the last confirmed notification, or 0 if there is none.
            findings.discarded = takeAll()
        } else if identifier > 0, identifier < first {
            // The named notification was wrongly confirmed by age.
            findings.lost = Int(first - identifier) - (isGood ? 1 : 0)
            if !isGood { findings.lateToken = tokens.token(of: identifier, next: next) }
            findings.discarded = takeAll()
        } else {
            findings.uncertain = takeAll()
        }
        return findings
    }

    /// Empties the window. Returns the tags of all notifications.
    mutating func takeAll() -> [UInt64] { take(through: next - 1) }

    private mutating func take(through identifier: UInt32) -> [UInt64] {
        guard identifier >= first else { return [] }
        let count = Int(identifier - first) + 1
        let taken = sent.prefix(count).map(\.tag)
        bytes -= sent.prefix(count).reduce(0) { $0 + $1.size }
        sent.removeFirst(count)
        first = identifier + 1
        while let batch = batches.first, batch.last < first { batches.removeFirst() }
        return taken
    }
}

/// The tokens of a connection's newest notifications by identifier. An error packet may name a notification that is confirmed already.
struct RecentTokens {
    static let capacity = 16_384
    /// The hex digits of a token of 32 bytes; longer tokens are not kept.
    private static let digits = 2 * GatewayFrame.tokenSizes.lowerBound

    /// The tokens: empty until the first one is kept, and then 1 MiB.
    private var bytes: [UInt8] = []

    mutating func remember(_ token: DeviceToken, of identifier: UInt32) {
        let hex = token.hex
        guard hex.readableBytes > 0 else { return }
        if bytes.isEmpty { bytes = [UInt8](repeating: 0, count: Self.capacity * Self.digits) }
        let start = Self.start(of: identifier)
        let isKept = hex.readableBytes == Self.digits
        hex.withUnsafeReadableBytes { hex in
            for offset in 0..<Self.digits { bytes[start + offset] = isKept ? hex[offset] : 0 }
        }
    }

    /// Returns the token of a notification, if it is still kept.
    /// - Parameter next: the identifier of the next notification.
    func token(of identifier: UInt32, next: UInt32) -> ByteBuffer? {
        guard !bytes.isEmpty, identifier < next, next - identifier <= Self.capacity else { return nil }
        let start = Self.start(of: identifier)
        guard bytes[start] != 0 else { return nil }
        return ByteBuffer(bytes: bytes[start..<start + Self.digits])
    }

    private static func start(of identifier: UInt32) -> Int { Int(identifier) % capacity * digits }
}

/// Decides how far to send ahead of what the gateway has processed, without any I/O.
///
/// The gateway drops everything that was sent after a bad item, and the dropped notifications must be resent. With 1 % bad tokens, sending
/// 20,000 ahead would send everything a hundred times. So after an error packet, the limit is twice the number that the connection had
/// accepted. It doubles after each pause without another error packet.
struct AdaptiveWindow {
    /// The lowest limit. Below it, the additional round trips would cost more than the resends.
    static let least = 64
    /// The limit doubles after this time without an error packet.
    static let pause = TimeAmount.milliseconds(100)

    /// Maximum unconfirmed notifications per connection.
    private(set) var limit = Int.max
    private var changedAt = NIODeadline.distantPast

    /// Records that an error packet reported a bad item.
    /// - Parameter progress: the number of notifications that the connection had accepted before the item.
    mutating func refused(progress: Int, now: NIODeadline) {
        limit = max(Self.least, progress.multipliedReportingOverflow(by: 2).partialValue)
        changedAt = now
    }

    /// Doubles the limit if ``pause`` has passed. Call this several times per second.
    /// - Parameter window: the configured limit.
    mutating func check(window: Int, now: NIODeadline) {
        guard limit != .max, now - changedAt >= Self.pause else { return }
        changedAt = now
        limit = limit >= window / 2 ? .max : limit * 2
    }
}
