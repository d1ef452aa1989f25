/// The settings of a binary gateway, besides those of its connections.
public struct GatewayOptions: Sendable, Equatable {
    /// The command of the protocol to use.
    public var frame = GatewayFrame.items
    /// Maximum bytes of a write, unless a single notification is larger. The default is the maximum size of a TLS
    /// record.
    public var batchBytes = 16_384
    /// The time for which a write waits for more notifications, in milliseconds.
    public var batchTime = 2
    /// The time after its arrival from which a notification without an error packet counts as accepted, in
    /// milliseconds.
    public var confirmAfter = 2000
    /// True if a draining connection is sent a deliberately invalid item, to learn at once whether the notifications
    /// before it were accepted.
    public var sendsBarriers = true
    /// Maximum number of unconfirmed notifications on a connection. They are confirmed all at once, and nothing is
    /// claimed while more settlements wait for Redis than a consumer allows; a value of 20,000 halved the throughput.
    public var windowCount = 5000
    /// Maximum bytes of unconfirmed notifications on a connection.
    public var windowBytes = 32 << 20
    /// Maximum size of a payload in bytes: 2048, or 256 for the oldest gateways.
    public var payloadLimit = 2048

    /// Creates the options that match Apple's gateway in its last version.
    public init() {}

    /// True if a draining connection is sent an invalid item, and its error packet can name that item.
    var hasBarriers: Bool { sendsBarriers && frame.hasIdentifier }
}
