/// The value of the `apns-push-type` header.
///
/// Source: Apple, "Sending notification requests to APNs", table of `apns-push-type` values.
public enum PushType: String, CaseIterable, Sendable {
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

    /// What APNs expects behind the app's bundle identifier in `apns-topic`; empty where the bare identifier is right.
    public var topicSuffix: String {
        switch self {
        case .alert, .background, .mdm: ""
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

    /// The largest payload in bytes that APNs takes for this type over HTTP/2.
    public var maximumPayloadSize: Int { self == .voip ? 5120 : 4096 }

    /// The type of this name; `nil` for any other bytes.
    public init?(bytes: UnsafeRawBufferPointer) {
        for type in Self.allCases where bytes.elementsEqual(type.rawValue.utf8) {
            self = type
            return
        }
        return nil
    }
}
