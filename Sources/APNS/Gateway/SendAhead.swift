import NIOCore

/// How far to run ahead of what the gateway can have looked at, without any I/O.
///
/// Whatever is sent behind a bad item is dropped and has to be sent again. In a list with a bad token in a hundred, whoever
/// sends twenty thousand ahead sends everything a hundred times. So after an error packet no more is sent ahead than twice
/// what the connection had taken until then; and with each moment without another packet, twice as much as before.
struct SendAhead {
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
