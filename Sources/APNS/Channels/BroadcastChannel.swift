/// What APNs keeps of the messages on a channel for devices that are not there to get them.
///
/// Source: Apple, "Sending channel management requests to APNs", `message-storage-policy`.
public struct MessageStoragePolicy: RawRepresentable, Hashable, Sendable {
    /// Apple's number for it.
    public var rawValue: Int

    /// Takes a number as it is.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Nothing is kept. Such a channel takes more updates, and only those with expiration 0.
    public static let none = MessageStoragePolicy(rawValue: 0)
    /// The most recent message is kept until it expires.
    public static let mostRecent = MessageStoragePolicy(rawValue: 1)
}

/// A broadcast channel as APNs describes it.
public struct BroadcastChannel: Hashable, Sendable {
    /// The id that devices subscribe to and broadcasts are sent on: base64.
    public var id: String
    /// What is kept for devices that are away.
    public var storagePolicy: MessageStoragePolicy
    /// What may be sent on it; `LiveActivity` is all there is.
    public var pushType: String

    /// The only type of channel that there is.
    public static let liveActivity = "LiveActivity"

    /// Takes what describes a channel.
    public init(id: String, storagePolicy: MessageStoragePolicy, pushType: String = Self.liveActivity) {
        self.id = id
        self.storagePolicy = storagePolicy
        self.pushType = pushType
    }
}
