import HTTPTypes
import Hummingbird

/// What the feedback service has to tell.
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

    func add(to router: Router<ControlRoutes.Context>) {
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
        router.delete("/feedback") { _, _ in try ControlAnswer.json(["deleted": service.forgetFeedback()]) }
    }

    /// - Parameter now: seconds since 1970, for those that say no time.
    private static func records(_ body: Additions, now: Int64) throws(ControlError) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, entry) in body.records.enumerated() {
            guard let token = SimulatedToken(hex: entry.token) else {
                throw ControlError(
                    .badRequest, "records[\(index)]: token must be 64 to 200 hex digits, an even number of them")
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
