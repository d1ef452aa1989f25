import HTTPTypes
import Hummingbird

/// The received notifications, with long polling for the next ones.
struct NotificationRoutes: ControlConcern {
    let recorder: Recorder

    /// The longest time that a request can wait, in seconds.
    private static let maximumWait = 300.0

    let summary = [
        "GET /notifications?after=SEQUENCE&token=HEX&outcome=accepted|refused&limit=NUMBER&wait=SECONDS",
        "DELETE /notifications", "DELETE /notifications/SEQUENCE",
    ]

    func add(to router: Router<ControlContext>) {
        router.get("/notifications") { request, _ in
            let (filter, wait) = try Self.question(request)
            return answer(await recorder.notifications(filter, wait: wait))
        }
        router.delete("/notifications") { _, _ in try ControlAnswer.json(["deleted": recorder.clear()]) }
        router.delete("/notifications/:sequence") { _, context in
            guard let sequence = context.parameters.get("sequence", as: UInt64.self), recorder.remove(sequence) else {
                throw ControlError(.notFound, "no such notification is kept")
            }
            return try ControlAnswer.json(["deleted": 1])
        }
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
        return Response.json(bytes: object.finished)
    }
}

/// The feedback service's records.
struct FeedbackRoutes: ControlConcern {
    let service: SimulatedService

    private struct Waiting: Encodable {
        struct Entry: Encodable {
            let token: String
            let seconds: UInt32
        }

        let records: [Entry]
    }

    private struct Additions: Decodable {
        struct Entry: Decodable {
            let token: String
            let seconds: Int64?
        }

        let records: [Entry]
    }

    let summary = [
        "GET /feedback", "POST /feedback {\"records\":[{\"token\":\"HEX\",\"seconds\":NUMBER}]}", "DELETE /feedback",
    ]

    func add(to router: Router<ControlContext>) {
        router.get("/feedback") { _, _ in
            let records = service.waitingFeedback
            return try ControlAnswer.json(
                Waiting(records: records.map { Waiting.Entry(token: $0.token.hex, seconds: $0.seconds) }))
        }
        router.post("/feedback") { request, _ in
            let body = try await request.control(
                Additions.self, example: #"{"records":[{"token":"00fc…","seconds":1700000000}]}"#)
            let records = try Self.records(body, now: WallClock.milliseconds() / 1000)
            return try ControlAnswer.json(["waiting": service.addFeedback(records)])
        }
        router.delete("/feedback") { _, _ in try ControlAnswer.json(["deleted": service.clearFeedback()]) }
    }

    /// - Parameter now: seconds since 1970, the time of records without one.
    private static func records(_ body: Additions, now: Int64) throws(ControlError) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, entry) in body.records.enumerated() {
            guard let token = SimulatedToken(hex: entry.token),
                token.byteCount <= GatewayNotification.maximumTokenLength
            else {
                throw ControlError(
                    .badRequest, "records[\(index)]: token must be 64 to 2048 hex digits, an even number of them")
            }
            guard let seconds = UInt32(exactly: entry.seconds ?? now) else {
                throw ControlError(
                    .badRequest, "records[\(index)]: seconds must be whole seconds since 1970, up to \(UInt32.max)")
            }
            records.append(FeedbackRecord(token: token, seconds: seconds))
        }
        return records
    }
}

/// The account of the simulator, as `--account` writes it.
struct AccountRoutes: ControlConcern {
    let service: SimulatedService

    let summary = ["GET /account?details=true|false"]

    func add(to router: Router<ControlContext>) {
        router.get("/account") { request, _ in
            var query = try ControlQuery(request)
            let details = try query.take("details", "must be true or false") { Bool($0) }
            try query.finish()
            return Response.json(bytes: try service.account.json(details: details ?? false).utf8)
        }
    }
}
