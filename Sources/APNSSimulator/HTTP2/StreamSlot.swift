import APNS

/// The memory of one stream. Later streams reuse it.
///
/// It holds the bytes of the answer until nghttp2 has sent them.
final class StreamSlot {
    enum Fate {
        case undecided
        /// Accepted, but not answered yet.
        case accepted
        /// An answer was passed to nghttp2. nghttp2 may still fail to send it.
        case answered(accepted: Bool)
        case refused
    }

    /// The number of bytes of a body that are kept: the size of the largest payload that APNs accepts.
    static let bodyCapacity = 5120

    /// The number of the stream; 0 while no stream uses the slot.
    var stream: Int32 = 0
    var request = PushRequest()
    var fate = Fate.undecided
    /// The answer until it is sent; nil for a plain 200.
    var heldAnswer: PreparedAnswer?
    /// The number of bytes of ``heldAnswer`` that nghttp2 has read.
    var answerOffset = 0
    /// The pseudo-headers and the `apns-` headers as received; nil unless notifications are recorded. An `apns-request-id` is recorded as
    /// the `apns-id`.
    var recorded: [String: String]?

    /// The `apns-id` or `apns-request-id` of the answer, 36 characters.
    let idText: UnsafeMutablePointer<UInt8>
    /// The `apns-unique-id` of the answer, 36 characters; nil if the answer has none.
    private(set) var uniqueID: UnsafeMutablePointer<UInt8>?
    private let uniqueText: UnsafeMutablePointer<UInt8>
    private let body: UnsafeMutablePointer<UInt8>

    init() {
        idText = .allocate(capacity: APNSID.textLength)
        uniqueText = .allocate(capacity: APNSID.textLength)
        body = .allocate(capacity: Self.bodyCapacity)
    }

    deinit {
        idText.deallocate()
        uniqueText.deallocate()
        body.deallocate()
    }

    func begin(stream: Int32) {
        self.stream = stream
        request = PushRequest()
        fate = .undecided
        heldAnswer = nil
        uniqueID = nil
    }

    func setUniqueID(_ id: APNSID) {
        id.writeUpperCase(to: uniqueText)
        uniqueID = uniqueText
    }

    /// Records a header if notifications are recorded.
    func record(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        guard recorded != nil, name.first == UInt8(ascii: ":") || name.starts(with: "apns-".utf8) else { return }
        let name = name.equals("apns-request-id") ? "apns-id" : String(decoding: name, as: UTF8.self)
        // The first of duplicate headers counts, as in the checks. Long values are truncated: APNs accepts nothing nearly as long.
        if recorded?[name] == nil { recorded?[name] = String(decoding: value.prefix(1000), as: UTF8.self) }
    }

    /// Returns the notification with the request's headers and payload.
    func complete(_ notification: ReceivedNotification) -> ReceivedNotification {
        guard let headers = recorded else { return notification }
        var notification = notification
        let (method, path) = (headers[":method"] ?? "", headers[":path"] ?? "")
        switch request.path {
        case .device: notification.token = request.token?.hex ?? String(path.dropFirst("/3/device/".count))
        case .broadcast: notification.channel = headers["apns-channel-id"]
        case .withoutToken, .other, .channels, .allChannels: break
        }
        if request.method != .post || request.path == .other { notification.request = "\(method) \(path)" }
        if let topic = headers["apns-topic"] { notification.topic = topic }
        if request.path == .broadcast { notification.topic = String(decoding: request.bundleID, as: UTF8.self) }
        notification.pushType = headers["apns-push-type"]
        notification.collapseID = headers["apns-collapse-id"]
        notification.apnsID = String(
            decoding: UnsafeBufferPointer(start: idText, count: APNSID.textLength), as: UTF8.self)
        if case .bad = request.id { notification.malformedHeaders["apns-id"] = headers["apns-id"] }
        notification.priority = headers["apns-priority"].flatMap { Int($0) }
        if notification.priority == nil { notification.malformedHeaders["apns-priority"] = headers["apns-priority"] }
        notification.expiration = headers["apns-expiration"].flatMap { Int64($0) }
        if notification.expiration == nil {
            notification.malformedHeaders["apns-expiration"] = headers["apns-expiration"]
        }
        notification.payload = Array(bodyBytes)
        notification.payloadSize = request.bodyLength
        return notification
    }

    func append(_ bytes: UnsafePointer<UInt8>, count: Int) {
        let kept = min(count, Self.bodyCapacity - min(request.bodyLength, Self.bodyCapacity))
        if kept > 0 { (body + request.bodyLength).update(from: bytes, count: kept) }
        request.bodyLength += count
    }

    var bodyBytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: body, count: min(request.bodyLength, Self.bodyCapacity))
    }
}

/// An answer other than a plain 200, ready to be sent.
struct PreparedAnswer: Sendable {
    var status: Int
    var reason: String?
    var body: [UInt8] = []
    var contentType: StaticString = "application/json"
    /// The number of bytes per DATA frame.
    var step = Int.max
    var retryAfter: Int?
    /// `apns-channel-id`; empty to omit the field.
    var channelID: [UInt8] = []

    init(status: Int, body: String = "", channelID: [UInt8] = []) {
        self.status = status
        self.body = Array(body.utf8)
        self.channelID = channelID
    }

    /// - Parameter milliseconds: the time since 1970, for a 410's `timestamp` if the response has none.
    init(_ response: PushAction.Response, milliseconds: Int64) {
        status = response.status
        reason = response.reason
        retryAfter = response.retryAfter
        switch response.body {
        case .empty: break
        case .text:
            contentType = "text/plain"
            body = Array("\(response.reason ?? "Something") went wrong\n".utf8)
        case .whole, .split:
            if response.body == .split { step = 3 }
            guard let reason = response.reason else { break }
            var text = "{\"reason\":\"\(reason)\""
            // Source: Apple, "Handling notification responses from APNs": only a 410 has a timestamp.
            if response.status == 410 { text += ",\"timestamp\":\(response.timestamp ?? milliseconds)" }
            body = Array((text + "}").utf8)
        }
    }

    /// The answer in the account, such as `410 Unregistered`.
    var name: String { reason.map { "\(status) \($0)" } ?? "\(status)" }
}
