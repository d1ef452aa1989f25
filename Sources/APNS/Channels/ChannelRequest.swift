import FoundationEssentials
import NIOCore

/// A request to channel management.
///
/// Source: Apple, "Sending channel management requests to APNs".
enum ChannelRequest: Equatable, Sendable {
    case create(MessageStoragePolicy)
    case read(id: String)
    case delete(id: String)
    case list

    /// - Parameter authorization: the header's value; `nil` if the credential is a certificate.
    func message(of app: BundleID, authority: String, authorization: String?) -> HTTP2Request {
        var request = HTTP2Request(method: method, authority: authority, path: path(of: app))
        if let authorization { request.headers.append(("authorization", authorization)) }
        switch self {
        case .create(let policy):
            request.headers.append(("content-type", "application/json"))
            request.body = Array(
                #"{"message-storage-policy":\#(policy.rawValue),"push-type":"\#(BroadcastChannel.liveActivity)"}"#.utf8)
        case .read(let id), .delete(let id): request.headers.append(("apns-channel-id", id))
        case .list: break
        }
        return request
    }

    private var method: String {
        switch self {
        case .create: "POST"
        case .read, .list: "GET"
        case .delete: "DELETE"
        }
    }

    private func path(of app: BundleID) -> String {
        self == .list ? "/1/apps/\(app)/all-channels" : "/1/apps/\(app)/channels"
    }

    // MARK: Answers

    private struct Description: Decodable {
        let policy: Int
        let pushType: String

        enum CodingKeys: String, CodingKey {
            case policy = "message-storage-policy"
            case pushType = "push-type"
        }
    }

    private struct List: Decodable {
        let channels: [String]
    }

    /// Returns the new channel's ID from a 201 response.
    static func created(_ response: ControlHandler.Response) -> String? {
        response.headers["apns-channel-id"].flatMap { BroadcastTarget.isChannelID($0.utf8) ? $0 : nil }
    }

    /// Returns the channel described by the 200 response to a read.
    static func channel(_ id: String, _ response: ControlHandler.Response) -> BroadcastChannel? {
        decode(Description.self, response).map {
            BroadcastChannel(id: id, storagePolicy: .init(rawValue: $0.policy), pushType: $0.pushType)
        }
    }

    /// Returns the IDs in the 200 response to a list. Anything that is not a channel ID is dropped, because the list is printed.
    static func channels(_ response: ControlHandler.Response) -> [String]? {
        decode(List.self, response)?.channels.filter { BroadcastTarget.isChannelID($0.utf8) }
    }

    // The caller reports that the body has an unexpected shape; details would not help.
    private static func decode<Body: Decodable>(_: Body.Type, _ response: ControlHandler.Response) -> Body? {
        try? JSONDecoder().decode(Body.self, from: Data(response.body.readableBytesView))
    }
}

/// The number of messages that APNs stores in a channel for offline devices.
///
/// Source: Apple, "Sending channel management requests to APNs", `message-storage-policy`.
public struct MessageStoragePolicy: RawRepresentable, Hashable, Sendable {
    public var rawValue: Int

    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Nothing is stored. Such a channel allows more updates, and accepts only messages with expiration 0.
    public static let none = MessageStoragePolicy(rawValue: 0)
    /// The most recent message is stored until it expires.
    public static let mostRecent = MessageStoragePolicy(rawValue: 1)
}

public struct BroadcastChannel: Hashable, Sendable {
    /// The ID, in base64, that devices subscribe to and broadcasts name.
    public var id: String
    public var storagePolicy: MessageStoragePolicy
    /// The push type of the channel's messages; `LiveActivity` is the only one.
    public var pushType: String

    public static let liveActivity = "LiveActivity"

    public init(id: String, storagePolicy: MessageStoragePolicy, pushType: String = Self.liveActivity) {
        self.id = id
        self.storagePolicy = storagePolicy
        self.pushType = pushType
    }
}
