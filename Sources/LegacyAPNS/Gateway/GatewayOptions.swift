/// The settings of a binary gateway, besides those of its connections.
public struct GatewayOptions: Sendable, Equatable {
    /// The protocol's command to send notifications with.
    public var frame = GatewayFrame.items
    /// Maximum bytes of a write, unless a single notification is larger. The default is the maximum size of a TLS
    /// record.
    public var batchBytes = 16_384
    /// A write waits for more notifications for this time, in milliseconds.
    public var batchTime = 2
    /// A notification counts as accepted at this time after its arrival, in milliseconds, if there was no error packet.
    public var confirmAfter = 2000
    /// True to send a barrier on a draining connection: an invalid item that reveals at once if the notifications before it were accepted.
    public var sendsBarriers = true
    /// Maximum number of unconfirmed notifications on a connection. All of them are confirmed at once, and a consumer claims nothing while
    /// too many settlements wait for Redis. So a value of 20,000 halved the throughput.
    public var windowCount = 5000
    /// Maximum bytes of unconfirmed notifications on a connection.
    public var windowBytes = 32 << 20
    /// Maximum size of a payload in bytes: 2048, or 256 for the oldest gateways.
    public var payloadLimit = 2048

    /// The defaults match Apple's gateway in its last version.
    public init() {}

    /// True if barriers are sent, and an error packet can name them.
    var hasBarriers: Bool { sendsBarriers && frame.hasIdentifier }
}
