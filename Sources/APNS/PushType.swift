import NIOCore

/// The value of the `apns-push-type` header.
///
/// Source: Apple, "Sending notification requests to APNs", table of `apns-push-type` values; for `accessory` (iOS 26.5)
/// "Responding to forwarded notifications".
package enum PushType: String, CaseIterable, Sendable {
    case accessory
    case alert
    case background
    case complication
    case controls
    case fileprovider
    case liveactivity
    case location
    case mdm
    case pushtotalk
    case voip
    case widgets
    /// A type that this version does not know; ``Notification/unknownPushType`` has its name.
    case other

    /// The types that this version knows.
    package static let allCases: [PushType] = [
        .alert, .background, .complication, .controls, .fileprovider, .liveactivity, .location, .mdm, .pushtotalk,
        .voip, .widgets, .accessory,
    ]

    /// The value of the header, at an address that never changes.
    var headerValue: StaticString {
        switch self {
        case .accessory: "accessory"
        case .alert: "alert"
        case .background: "background"
        case .complication: "complication"
        case .controls: "controls"
        case .fileprovider: "fileprovider"
        case .liveactivity: "liveactivity"
        case .location: "location"
        case .mdm: "mdm"
        case .other: "other"
        case .pushtotalk: "pushtotalk"
        case .voip: "voip"
        case .widgets: "widgets"
        }
    }

    /// The suffix that APNs expects after the app's bundle identifier in `apns-topic`; empty for the bare identifier.
    /// For `mdm` the topic is the one in the MDM certificate's subject.
    ///
    /// Source: Apple, "Sending notification requests to APNs", "Know when to use push types". That page misspells two
    /// of them (`push-type.liveactivity`, `h.complication`); the correct ones are from "Starting and updating Live
    /// Activities with ActivityKit push notifications" and from the certificates' list of topics.
    package var topicSuffix: String {
        switch self {
        case .alert, .background, .mdm, .other: ""
        case .accessory: ".push-type.accessory"
        case .complication: ".complication"
        case .controls: ".push-type.controls"
        case .fileprovider: ".pushkit.fileprovider"
        case .liveactivity: ".push-type.liveactivity"
        case .location: ".location-query"
        case .pushtotalk: ".voip-ptt"
        case .voip: ".voip"
        case .widgets: ".push-type.widgets"
        }
    }

    /// Returns the topic of this type for a bundle identifier, or for a topic that already has the suffix. Allocates
    /// nothing if nothing is added.
    package func topic(_ base: ByteBuffer) -> ByteBuffer {
        let suffix = topicSuffix.utf8
        guard !suffix.isEmpty, !base.readableBytesView.suffix(suffix.count).elementsEqual(suffix) else { return base }
        var topic = ByteBuffer()
        topic.reserveCapacity(base.readableBytes + suffix.count)
        topic.writeImmutableBuffer(base)
        topic.writeString(topicSuffix)
        return topic
    }

    /// The maximum payload size in bytes that APNs accepts for this type over HTTP/2, for one device.
    package var maximumPayloadSize: Int { self == .voip ? 5120 : 4096 }

    /// The maximum payload size in bytes that APNs accepts for a broadcast on a channel (Apple: "Sending broadcast push
    /// notification requests to APNs").
    package static let maximumBroadcastSize = 5120

    /// Finds the type with a name; `nil` for any other bytes.
    package init?(bytes: UnsafeRawBufferPointer) {
        let name = bytes.bindMemory(to: UInt8.self)
        guard let type = Self.allCases.first(where: { name.equals($0.headerValue) }) else { return nil }
        self = type
    }
}

/// The name of a push type that this version does not know: 1 to 32 lower-case letters.
///
/// A class, so that other notifications carry only a null reference.
package final class UnknownPushType: Sendable {
    /// The value of the header. Never changed, so that its bytes keep their address.
    package let name: ByteBuffer

    /// Reads a name; `nil` if no push type of APNs could have it.
    package init?(_ name: ByteBuffer) {
        let bytes = name.readableBytesView
        guard (1...32).contains(bytes.count), bytes.allSatisfy({ $0 &- 0x61 < 26 }) else { return nil }
        self.name = name
    }
}
