import APNS
import NIOCore

/// Finds notifications that the binary gateway can't carry, before sending: its frames have no field for topics, push
/// types, channels or identifiers.
enum GatewayRules {
    /// Returns the first rule that a notification breaks.
    /// - Parameters:
    ///   - isOwnTopic: true if the topic is one of the app's; the gateway uses the topic of the certificate.
    ///   - payload: the payload to send.
    static func refusal(
        _ pushType: PushType, isOnChannel: Bool, isOwnTopic: Bool, payload: ByteBuffer, limit: Int
    ) -> Reason? {
        if isOnChannel {
            return Reason(
                APNSReason.invalidPushType,
                detail:
                    "the binary gateway does not support channels; "
                    + "send the job through an app whose transport is http2")
        }
        guard isKnown(pushType) else {
            return Reason(
                APNSReason.invalidPushType,
                detail: "the binary gateway does not support push type \(pushType.rawValue); "
                    + "send the job through an app whose transport is http2")
        }
        guard isOwnTopic else {
            return Reason(
                APNSReason.topicDisallowed,
                detail:
                    "the binary gateway uses the topic of the app's certificate, which differs from the job's `topic`; "
                    + "omit it, or add it to the app's topics if the certificate is for it")
        }
        guard payload.readableBytes <= limit else {
            return Reason(
                APNSReason.payloadTooLarge,
                detail:
                    "the payload has \(payload.readableBytes) bytes; the gateway accepts \(limit); shorten it, or set "
                    + "the job's `truncate` to have the alert's body shortened")
        }
        return nil
    }

    /// Checks that the gateway's frames can carry a device token.
    static func check(_ token: DeviceToken) throws(DeviceToken.Invalid) {
        let digits = token.hex.readableBytes
        guard GatewayFrame.tokenSizes.contains(digits / 2) else { throw .notForGateway(digits: digits) }
    }

    /// Returns the `apns-expiration` of a job that specifies none, in seconds since 1970. The gateway interprets an
    /// absent one as "do not store"; over HTTP/2 APNs stores such a notification for 30 days.
    static func expiration(firstSeen: Int64) -> Int64 { firstSeen / 1000 + 30 * 86_400 }

    /// True for push types that the protocol supported, which are identified by the payload or the certificate.
    private static func isKnown(_ pushType: PushType) -> Bool {
        switch pushType {
        case .alert, .background, .voip, .complication, .fileprovider, .mdm: true
        case .accessory, .controls, .liveactivity, .location, .other, .pushtotalk, .widgets: false
        }
    }
}
