/// An answer other than a plain 200, ready to be sent.
struct PreparedAnswer: Equatable, Sendable {
    var status: Int
    var reason: String?
    var body: [UInt8] = []
    var contentType: StaticString = "application/json"
    /// The number of bytes per DATA frame.
    var step = Int.max
    var retryAfter: Int?
    /// `apns-channel-id`; empty to omit the field.
    var channelID: [UInt8] = []

    /// Creates the answer to a request that manages channels.
    init(status: Int, body: String = "", channelID: [UInt8] = []) {
        self.status = status
        self.body = Array(body.utf8)
        self.channelID = channelID
    }

    /// - Parameter milliseconds: the time since 1970, for a 410's `timestamp` if the refusal has none.
    init(_ refusal: Refusal, milliseconds: Int64) {
        self.init(PushAction.Response(refusal), milliseconds: milliseconds)
    }

    /// - Parameter milliseconds: the time since 1970, for a 410's `timestamp` if the rule gives none.
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

    /// The answer as the account names it.
    var name: String { reason.map { "\(status) \($0)" } ?? "\(status)" }

    static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.reason == right.reason && left.body == right.body
            && left.channelID == right.channelID && left.step == right.step && left.retryAfter == right.retryAfter
    }
}
