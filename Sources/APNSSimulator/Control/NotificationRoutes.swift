import Hummingbird

/// What the simulator has received, and what comes next.
struct NotificationRoutes: ControlConcern {
    let recorder: Recorder

    /// How long a request may wait, in seconds.
    private static let maximumWait = 300.0

    let summary = [
        "GET /notifications?after=SEQUENCE&token=HEX&outcome=accepted|refused&limit=NUMBER&wait=SECONDS",
        "DELETE /notifications",
    ]

    func add(to router: Router<ControlRoutes.Context>) {
        router.get("/notifications") { request, _ in
            let (filter, wait) = try Self.question(request)
            return answer(await recorder.notifications(filter, wait: wait))
        }
        router.delete("/notifications") { _, _ in try ControlAnswer.json(["deleted": recorder.clear()]) }
    }

    private static func question(_ request: Request) throws(ControlError) -> (NotificationFilter, Duration) {
        var query = try ControlQuery(request)
        var filter = NotificationFilter()
        filter.after = try query.take("after", "must be a number of the recording") { UInt64($0) } ?? 0
        filter.token = try query.take("token", "must be a device token") { $0.isEmpty ? nil : $0 }
        filter.accepted = try query.take("outcome", "must be accepted or refused") { text in
            text == "accepted" ? true : text == "refused" ? false : nil
        }
        filter.limit =
            try query.take("limit", "must be a whole number from 1") { Int($0).flatMap { $0 >= 1 ? $0 : nil } }
            ?? filter.limit
        let wait = try query.take("wait", "must be seconds, up to \(Int(maximumWait))") { text in
            Double(text).flatMap { $0 >= 0 && $0 <= maximumWait ? $0 : nil }
        }
        try query.finish()
        return (filter, .seconds(wait ?? 0))
    }

    private func answer(_ page: NotificationPage) -> Response {
        var list: [UInt8] = [UInt8(ascii: "[")]
        for (index, entry) in page.entries.enumerated() {
            if index > 0 { list.append(UInt8(ascii: ",")) }
            list += entry.notification.json(sequence: entry.sequence)
        }
        list.append(UInt8(ascii: "]"))
        var object = JSONObjectWriter()
        object.member("notifications", json: list)
        object.member("last", page.last)
        object.member("overwritten", page.overwritten)
        return ControlAnswer.json(bytes: object.finished)
    }
}
