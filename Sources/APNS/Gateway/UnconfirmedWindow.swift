import NIOCore

/// The notifications that were sent on one connection to the gateway and are not confirmed, without any I/O.
///
/// The gateway says nothing of what it takes. So a notification stays here until an error packet names it or one behind it,
/// or until it has been with the gateway for so long that no packet is to be expected any more.
///
///     confirmed │ 17  18  19 │ 20  21  22 │ 23  24          identifiers
///               └ with the gateway since … ┘└ on the way ┘
struct UnconfirmedWindow {
    private struct Sent {
        var tag: UInt64
        var size: Int
    }

    /// The notifications of one write.
    private struct Batch {
        /// The identifier of its last notification.
        var last: UInt32
        /// How far the connection's bytes had come with it.
        var position: Int
        /// Since when the other side's kernel has it.
        var arrivedAt: NIODeadline?
    }

    /// The meaning of an error packet, or of an end without one, for what was sent. Tags, in the order of sending.
    struct Findings: Equatable {
        /// Taken.
        var confirmed: [UInt64] = []
        /// The one that the packet named, and what it said.
        var named: (tag: UInt64, status: GatewayStatus)?
        /// Dropped without having been looked at.
        var discarded: [UInt64] = []
        /// Nobody can tell.
        var uncertain: [UInt64] = []
        /// How many had been taken for confirmed, and were not.
        var lost = 0
        /// The token of the one that the packet named, if that was among them.
        var lateToken: ByteBuffer?

        static func == (one: Findings, other: Findings) -> Bool {
            one.confirmed == other.confirmed && one.discarded == other.discarded && one.uncertain == other.uncertain
                && one.lost == other.lost && one.lateToken == other.lateToken && one.named?.tag == other.named?.tag
                && one.named?.status == other.named?.status
        }
    }

    private var sent = CircularBuffer<Sent>(initialCapacity: 64)
    private var batches = CircularBuffer<Batch>(initialCapacity: 16)
    /// The identifier of the oldest that is not confirmed.
    private(set) var first: UInt32 = 1
    /// Of those that are not confirmed.
    private(set) var bytes = 0
    /// The identifier of the deliberately bad item, when it was sent.
    private(set) var barrier: UInt32?
    private var tokens = RecentTokens()

    /// Notifications that are not confirmed.
    var count: Int { sent.count }
    /// The identifier of what is sent next.
    var next: UInt32 { first + UInt32(sent.count) }
    /// When a batch has come that is not confirmed: of the oldest.
    var oldestArrival: NIODeadline? { batches.first?.arrivedAt }

    /// A notification is sent.
    /// - Parameters:
    ///   - size: of its frame, in bytes.
    ///   - token: remembered for a packet that comes too late.
    /// - Returns: its identifier.
    mutating func send(tag: UInt64, size: Int, token: DeviceToken = .none) -> UInt32 {
        let identifier = next
        tokens.remember(token, of: identifier)
        sent.append(Sent(tag: tag, size: size))
        bytes += size
        return identifier
    }

    /// The bad item is sent, behind which nothing more can be.
    /// - Returns: its identifier.
    mutating func sendBarrier() -> UInt32 {
        let identifier = next
        barrier = identifier
        return identifier
    }

    /// All that was sent so far has been given to the connection.
    /// - Parameter position: how many bytes it has been given in all.
    mutating func left(position: Int) {
        guard !sent.isEmpty, batches.last.map({ $0.last != next - 1 }) ?? true else { return }
        batches.append(Batch(last: next - 1, position: position))
    }

    /// The other side's kernel has all bytes up to a position.
    mutating func arrived(upTo position: Int, now: NIODeadline) {
        for index in batches.indices where batches[index].arrivedAt == nil {
            guard batches[index].position <= position else { return }
            batches[index].arrivedAt = now
        }
    }

    /// Confirms what has been with the gateway for long enough.
    mutating func confirm(arrivedBefore time: NIODeadline) -> [UInt64] {
        var last: UInt32?
        while let batch = batches.first, let arrivedAt = batch.arrivedAt, arrivedAt <= time {
            last = batch.last
            batches.removeFirst()
        }
        return last.map { take(through: $0) } ?? []
    }

    /// An error packet has come; the connection ends with it.
    mutating func answered(_ packet: GatewayPacket) -> Findings {
        var findings = Findings()
        let identifier = packet.identifier
        // Both say that the named one was taken.
        let isGood = packet.status == .shutdown || packet.status == .noError
        if let barrier, identifier == barrier {
            findings.confirmed = take(through: next - 1)
        } else if identifier >= first, identifier < next {
            findings.confirmed = take(through: isGood ? identifier : identifier - 1)
            if !isGood, let named = take(through: identifier).first { findings.named = (named, packet.status) }
            findings.discarded = takeAll()
        } else if identifier == first - 1, isGood {
            // The last that was confirmed; or 0, before anything was.
            findings.discarded = takeAll()
        } else if identifier > 0, identifier < first {
            // Confirmed for its age, wrongly.
            findings.lost = Int(first - identifier) - (isGood ? 1 : 0)
            if !isGood { findings.lateToken = tokens.token(of: identifier, next: next) }
            findings.discarded = takeAll()
        } else {
            findings.uncertain = takeAll()
        }
        return findings
    }

    /// The connection has ended without an error packet.
    mutating func lost() -> [UInt64] { takeAll() }

    private mutating func takeAll() -> [UInt64] { take(through: next - 1) }

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

/// The tokens of the newest notifications of a connection, by identifier: an error packet may name one that was confirmed.
struct RecentTokens {
    /// The number of tokens that are remembered.
    static let capacity = 16_384
    /// The digits of each, of 32 bytes; longer tokens are not remembered.
    private static let digits = 2 * GatewayFrame.tokenSizes.lowerBound

    /// Empty until the first is remembered, and then a megabyte.
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

    /// The token of a notification, if it is still remembered.
    /// - Parameter next: the identifier of what is sent next.
    func token(of identifier: UInt32, next: UInt32) -> ByteBuffer? {
        guard !bytes.isEmpty, identifier < next, next - identifier <= Self.capacity else { return nil }
        let start = Self.start(of: identifier)
        guard bytes[start] != 0 else { return nil }
        return ByteBuffer(bytes: bytes[start..<start + Self.digits])
    }

    private static func start(of identifier: UInt32) -> Int { Int(identifier) % capacity * digits }
}

/// How far to run ahead of what the gateway can have looked at, without any I/O.
///
/// Whatever is sent behind a bad item is dropped and has to be sent again. In a list with a bad token in a hundred, whoever
/// sends twenty thousand ahead sends everything a hundred times. So after an error packet no more is sent ahead than twice
/// what the connection had taken until then; and with each moment without another packet, twice as much as before.
struct AdaptiveWindow {
    /// Below this, running ahead less saves nothing that the round trips would not cost.
    static let least = 64
    /// How long there must have been no error packet for the limit to be doubled.
    static let pause = TimeAmount.milliseconds(100)

    /// Notifications without confirmation on a connection at the most.
    private(set) var limit = Int.max
    private var changedAt = NIODeadline.distantPast

    /// An error packet said that an item was bad.
    /// - Parameter progress: how many its connection had taken before it.
    mutating func refused(progress: Int, now: NIODeadline) {
        limit = max(Self.least, progress.multipliedReportingOverflow(by: 2).partialValue)
        changedAt = now
    }

    /// To be called a few times a second.
    /// - Parameter window: the limit that there is anyway.
    mutating func check(window: Int, now: NIODeadline) {
        guard limit != .max, now - changedAt >= Self.pause else { return }
        changedAt = now
        limit = limit >= window / 2 ? .max : limit * 2
    }
}
