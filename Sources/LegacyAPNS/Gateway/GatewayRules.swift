import APNS
import NIOCore
import PushJob

/// Finds notifications that the binary gateway can't carry, before sending: its frames have no field for topics, push
/// types, channels or identifiers.
public enum GatewayRules {
    /// A broken rule: APNs' reason over HTTP/2, and one sentence.
    public typealias Refusal = (reason: APNSReason, detail: String)

    /// Returns the first rule that a notification breaks.
    /// - Parameter isOwnTopic: true if the topic is one of the app's. The gateway uses the topic of the certificate.
    public static func refusal(
        _ pushType: PushType, isOnChannel: Bool, isOwnTopic: Bool, payload: ByteBuffer, limit: Int
    ) -> Refusal? {
        if isOnChannel {
            return (
                .invalidPushType,
                "the binary gateway does not support channels; send the job through an app whose transport is http2"
            )
        }
        guard pushType.row.isOfGateway else {
            return (
                .invalidPushType,
                "the binary gateway does not support push type \(pushType.name); send the job through an app whose "
                    + "transport is http2"
            )
        }
        guard isOwnTopic else {
            return (
                .topicDisallowed,
                "the binary gateway uses the topic of the app's certificate, which differs from the job's `topic`; "
                    + "omit it, or add it to the app's topics if the certificate is for it"
            )
        }
        guard payload.readableBytes <= limit else {
            return (
                .payloadTooLarge,
                "the payload has \(payload.readableBytes) bytes; the gateway accepts \(limit); shorten it, or set the "
                    + "job's `truncate` to have the alert's body shortened"
            )
        }
        return nil
    }

    /// Returns the reason why the gateway's frames can't carry a device token, as one sentence; `nil` if they can.
    public static func refusal(_ token: DeviceToken) -> String? {
        let (digits, sizes) = (token.hex.readableBytes, GatewayFrame.tokenSizes)
        guard !sizes.contains(digits / 2) else { return nil }
        return "the device token has \(digits) hex digits; the binary gateway accepts \(sizes.lowerBound * 2) to "
            + "\(sizes.upperBound * 2)"
    }

    /// Returns the `apns-expiration` of a job that specifies none, in seconds since 1970. Over HTTP/2, APNs stores a notification without
    /// expiration for 30 days. The gateway would not store it at all.
    public static func expiration(firstSeen: Int64) -> Int64 { firstSeen / 1000 + 30 * 86_400 }
}
