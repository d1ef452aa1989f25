/// The memory of one stream, reused by a later one after it has closed.
///
/// It holds the bytes of the answer until nghttp2 has sent them.
final class RequestSlot {
    /// The state of the notification.
    enum Fate {
        case undecided
        /// Accepted, but not answered yet.
        case accepted
        /// An answer was passed to nghttp2, which may still fail to send it.
        case answered(accepted: Bool)
        case refused
    }

    /// The largest body that is kept: the largest payload that APNs accepts.
    static let bodyCapacity = 5120

    /// 0 while no stream uses it.
    var stream: Int32 = 0
    var request = PushRequest()
    var fate = Fate.undecided
    /// A delayed answer; nil for a plain 200.
    var heldAnswer: PreparedAnswer?
    var answerBody: [UInt8] = []
    var answerBodyOffset = 0
    var answerBodyStep = Int.max
    /// The pseudo-headers and those of APNs as received, because the checks keep only what they need; nil unless
    /// notifications are recorded. An `apns-request-id` takes the place of the `apns-id`.
    var recorded: [String: String]?

    /// The `apns-id` or `apns-request-id` of the answer, 36 characters.
    let idText: UnsafeMutablePointer<UInt8>
    /// The `apns-unique-id` of the answer, 36 characters; nil if the answer has none.
    private(set) var uniqueID: UnsafeMutablePointer<UInt8>?
    private let uniqueText: UnsafeMutablePointer<UInt8>
    private let body: UnsafeMutablePointer<UInt8>

    init() {
        idText = .allocate(capacity: NotificationID.textLength)
        uniqueText = .allocate(capacity: NotificationID.textLength)
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

    func setUniqueID(_ id: NotificationID) {
        id.write(to: uniqueText)
        uniqueID = uniqueText
    }

    func record(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        guard recorded != nil, name.first == UInt8(ascii: ":") || name.starts(with: "apns-".utf8) else { return }
        let name = name.equals("apns-request-id") ? "apns-id" : String(decoding: name, as: UTF8.self)
        // The first of duplicate headers counts, as it does for the checks. Long values are truncated: nothing that APNs
        // accepts is nearly as long.
        if recorded?[name] == nil { recorded?[name] = String(decoding: value.prefix(1000), as: UTF8.self) }
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
