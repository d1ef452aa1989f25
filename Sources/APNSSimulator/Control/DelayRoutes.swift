import Hummingbird

/// How long every answer is held back, in the form of `--delay`.
struct DelayRoutes: ControlConcern {
    let service: SimulatedService

    private struct Delay: Codable {
        let delay: String?

        // As null, where an encoder left to itself would leave it out.
        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(delay, forKey: .delay)
        }

        // That it is there, even if as null: a body without it is one that was meant for something else.
        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            delay = try container.decode(String?.self, forKey: .delay)
        }

        init(delay: String?) { self.delay = delay }

        private enum CodingKeys: CodingKey {
            case delay
        }
    }

    let summary = ["GET /delay", "PUT /delay {\"delay\":\"20ms±5ms\"|null}"]

    func add(to router: Router<ControlRoutes.Context>) {
        router.get("/delay") { _, _ in try answer() }
        router.put("/delay") { request, _ in
            let body = try await request.control(Delay.self, example: #"{"delay":"20ms±5ms"} or {"delay":null}"#)
            service.delay = try body.delay.map { text in
                guard let delay = AnswerDelay(text) else {
                    throw ControlError(
                        .badRequest, "delay must be a time such as 20ms or 20ms±5ms, up to an hour, not '\(text)'")
                }
                return delay
            }
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(Delay(delay: service.delay?.description)) }
}
