import APNS

/// What there is to say of the binary gateway besides what every app has.
public struct GatewayOptions: Sendable, Equatable {
    /// Which of the protocol's commands to use.
    public var frame = GatewayFrame.items
    /// Bytes of a write at the most, where a single notification is not larger. By default one TLS record's.
    public var batchBytes = 16_384
    /// How long a write waits for more, in milliseconds.
    public var batchTime = 2
    /// How long the gateway must have had a notification without a word about it, to count as delivered; in milliseconds.
    public var confirmAfter = 2000
    /// Whether a deliberately bad item is sent where certainty is wanted at once.
    public var sendsBarriers = true
    /// Notifications without confirmation on a connection at the most. They are confirmed all at once, and while that many
    /// more are settled than Redis has in work at the most, nothing is claimed: 20,000 gave half the throughput.
    public var windowCount = 5000
    /// Bytes of those at the most.
    public var windowBytes = 32 << 20
    /// The longest payload, in bytes: 2048, or 256 for the oldest.
    public var payloadLimit = 2048

    /// Apple's, as it was at the end.
    public init() {}
}
