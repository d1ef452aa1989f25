/// An answer other than plain success, as it goes out.
struct PreparedAnswer: Equatable, Sendable {
    var status: Int
    var reason: String?
    var body: [UInt8] = []
    var contentType: StaticString = "application/json"
    /// How many bytes a DATA frame takes.
    var step = Int.max
    var retryAfter: Int?
    /// `apns-channel-id`; empty where there is no such field.
    var channelID: [UInt8] = []

    /// The answer to a request that manages channels.
    init(status: Int, body: String = "", channelID: [UInt8] = []) {
        self.status = status
        self.body = Array(body.utf8)
        self.channelID = channelID
    }

    /// - Parameter milliseconds: the time, since 1970, for a 410's `timestamp` if the refusal names none.
    init(_ refusal: Refusal, milliseconds: Int64) {
        self.init(PushAction.Response(refusal), milliseconds: milliseconds)
    }

    /// - Parameter milliseconds: the time, since 1970, for a 410's `timestamp` if the rule names none.
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
            // Source: Apple, "Handling notification responses from APNs": only a 410 carries a timestamp.
            if response.status == 410 { text += ",\"timestamp\":\(response.timestamp ?? milliseconds)" }
            body = Array((text + "}").utf8)
        }
    }

    /// How the account calls it.
    var name: String { reason.map { "\(status) \($0)" } ?? "\(status)" }

    static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.reason == right.reason && left.body == right.body
            && left.channelID == right.channelID && left.step == right.step && left.retryAfter == right.retryAfter
    }
}
