import NIOCore

/// Where a broadcast goes: a channel of an app.
///
/// An object, so that a notification for a device pays for no more than an empty reference.
///
/// Source: Apple, "Sending broadcast push notification requests to APNs".
public final class BroadcastTarget: Sendable {
    /// `apns-channel-id`: base64, as APNs gave it.
    public let channelID: ByteBuffer
    /// The app.
    public let bundleID: BundleID
    /// `:path`. Never written to again, so that its bytes stay where they are.
    let path: ByteBuffer

    /// What is wrong with one.
    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case channelID
        case topic(BundleID.Invalid)

        /// What APNs would have answered.
        public var reason: APNSReason {
            switch self {
            case .channelID: .badChannelID
            case .topic: .badTopic
            }
        }

        /// What is wrong and what to do.
        public var description: String {
            switch self {
            case .channelID: "a channel's id has to be as APNs gave it: 1 to 255 base64 characters"
            case .topic(let error): "\(error)"
            }
        }
    }

    /// - Parameters:
    ///   - channelID: the channel's id.
    ///   - topic: the app's bundle identifier, with or without the ending for Live Activities.
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

    /// Whether these are base64 characters of either alphabet, 1 to 255 of them. Apple gives no length; a header has its
    /// limits.
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
