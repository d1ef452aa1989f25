import NIOCore
import PushJob

/// One notification for one device, or for all subscribers of a channel. It becomes one HTTP/2 request.
///
/// Texts are slices of the buffers they arrived in. The caller must have checked that `topic` and `collapseID` are
/// printable ASCII, because they become header values unchanged.
public struct Notification: Sendable {
    /// The device; ``DeviceToken/none`` for a ``broadcast``.
    public var deviceToken: DeviceToken
    /// The JSON object to deliver, sent byte for byte.
    public var payload: ByteBuffer
    /// `apns-topic`: the app's bundle identifier, with the push type's suffix. The header is not sent if this is empty, or for a broadcast.
    public var topic: ByteBuffer
    /// `apns-push-type`.
    public var pushType: PushType
    /// The name of the push type if it is ``PushType/other``.
    public var unknownPushType: UnknownPushType?
    /// `apns-priority`: 10, 5 or 1; `nil` for APNs' default (10).
    public var priority: UInt8?
    /// `apns-expiration`: seconds since 1970, 0 for "now or never"; `nil` for APNs' default.
    public var expiration: Int64?
    /// `apns-collapse-id`: at most 64 bytes; `nil` sends no header. Broadcasts have none: each replaces the previous
    /// one.
    public var collapseID: ByteBuffer?
    /// `apns-id`, or `apns-request-id` of a broadcast; `nil` lets APNs choose one.
    public var apnsID: APNSID?
    /// The channel to send to, instead of a device.
    public var broadcast: BroadcastTarget?

    /// `apns-channel-id`; `nil` for a device.
    public var channelID: ByteBuffer? { broadcast?.channelID }

    public init(
        deviceToken: DeviceToken, payload: ByteBuffer, topic: ByteBuffer, pushType: PushType = .alert,
        unknownPushType: UnknownPushType? = nil, priority: UInt8? = nil, expiration: Int64? = nil,
        collapseID: ByteBuffer? = nil, apnsID: APNSID? = nil, broadcast: BroadcastTarget? = nil
    ) {
        self.deviceToken = deviceToken
        self.payload = payload
        self.topic = topic
        self.pushType = pushType
        self.unknownPushType = unknownPushType
        self.priority = priority
        self.expiration = expiration
        self.collapseID = collapseID
        self.apnsID = apnsID
        self.broadcast = broadcast
    }
}
