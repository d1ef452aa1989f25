import NIOCore
import PushJob

/// The target of a broadcast: a channel of an app.
///
/// This is a class, so that a notification for a device contains only a null reference.
///
/// Source: Apple, "Sending broadcast push notification requests to APNs".
public final class BroadcastTarget: Sendable {
    /// `apns-channel-id`: base64, as issued by APNs.
    public let channelID: ByteBuffer
    public let bundleID: BundleID
    /// The value of `:path`. It never changes, so its bytes keep their address.
    let path: ByteBuffer

    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case channelID
        case topic(BundleID.Invalid)

        /// The reason that APNs would return for the invalid value.
        public var reason: APNSReason {
            switch self {
            case .channelID: .badChannelID
            case .topic: .badTopic
            }
        }

        public var description: String {
            switch self {
            case .channelID: "a channel's ID must be as APNs gave it: 1 to 255 base64 characters"
            case .topic(let error): "\(error)"
            }
        }
    }

    /// - Parameter topic: the app's bundle identifier, with or without the ending for Live Activities.
    public init(channelID: ByteBuffer, topic: ByteBuffer) throws(Invalid) {
        guard Self.isChannelID(channelID.readableBytesView) else { throw .channelID }
        do throws(BundleID.Invalid) {
            bundleID = try BundleID(topic: String(buffer: topic))
        } catch {
            throw .topic(error)
        }
        self.channelID = channelID
        path = ByteBuffer(string: "/4/broadcasts/apps/\(bundleID)")
    }

    /// Returns true for 1 to 255 characters of either base64 alphabet. Apple documents no maximum; 255 keeps the header small.
    static func isChannelID(_ text: some Collection<UInt8>) -> Bool {
        (1...255).contains(text.count)
            && text.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
                case UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "="), UInt8(ascii: "-"), UInt8(ascii: "_"): true
                default: false
                }
            }
    }
}

/// An app's bundle identifier, safe to use in a path.
public struct BundleID: Hashable, Sendable, CustomStringConvertible {
    /// Such as `com.example.app`.
    public let description: String

    public struct Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        public let description: String
    }

    /// Reads a bundle identifier, or the Live Activities topic derived from one.
    ///
    /// Apple allows letters, digits, hyphens and dots ("CFBundleIdentifier"). Underscores are harmless in a path and
    /// accepted too. Any other character could change the path.
    public init(topic: String) throws(Invalid) {
        let (bundle, type) = PushType.parts(ofTopic: topic)
        let text = type == .liveactivity ? bundle : topic
        let isPlain = text.utf8.allSatisfy { byte in
            byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == 0x2D || byte == 0x2E || byte == 0x5F
        }
        guard isPlain, (1...255).contains(text.utf8.count), !text.utf8.allSatisfy({ $0 == 0x2E }) else {
            throw Invalid(
                description: "the topic of a broadcast must be the app's bundle identifier, "
                    + "made of letters, digits, hyphens, dots and underscores, such as com.example.app")
        }
        description = text
    }
}
