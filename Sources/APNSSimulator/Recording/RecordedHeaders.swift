/// The headers of a request as received; the checks keep only what they need.
final class RecordedHeaders {
    /// Longer values are truncated: nothing that APNs accepts is nearly as long.
    private static let maximumLength = 1000

    private(set) var method = ""
    private(set) var path = ""
    private(set) var topic: String?
    private(set) var pushType: String?
    private(set) var priority: String?
    private(set) var expiration: String?
    private(set) var collapseID: String?
    private(set) var channelID: String?
    private(set) var id: String?

    func take(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        let text = { String(decoding: value.prefix(Self.maximumLength), as: UTF8.self) }
        // The first of duplicate headers counts, as it does for the checks.
        if name.equals(":method") {
            method = text()
        } else if name.equals(":path") {
            path = text()
        } else if name.equals("apns-topic") {
            topic = topic ?? text()
        } else if name.equals("apns-push-type") {
            pushType = pushType ?? text()
        } else if name.equals("apns-priority") {
            priority = priority ?? text()
        } else if name.equals("apns-expiration") {
            expiration = expiration ?? text()
        } else if name.equals("apns-collapse-id") {
            collapseID = collapseID ?? text()
        } else if name.equals("apns-channel-id") {
            channelID = channelID ?? text()
        } else if name.equals("apns-id") || name.equals("apns-request-id") {
            id = id ?? text()
        }
    }
}
