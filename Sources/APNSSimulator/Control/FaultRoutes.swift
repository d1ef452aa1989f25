import Hummingbird

/// Faults that affect all current connections at once.
struct FaultRoutes: ControlConcern {
    let target: ControlTarget

    let summary = [
        "POST /faults/goaway?reason=REASON", "POST /faults/drop", "POST /faults/wedge",
        "POST /faults/stop-listening", "POST /faults/start-listening",
    ]

    func add(to router: Router<ControlContext>) {
        router.post("/faults/goaway") { request, _ in
            var query = try ControlQuery(request)
            let reason = try query.take("reason", "must be letters and digits") { text in
                !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber) } ? text : nil
            }
            try query.finish()
            let count = target.connections.fire(SimulatorShutdown(reason: reason ?? "Shutdown"))
            return try ControlAnswer.json(["connections": count])
        }
        router.post("/faults/drop") { _, _ in
            try ControlAnswer.json(["connections": target.connections.fire(SimulatorDrop())])
        }
        router.post("/faults/wedge") { _, _ in
            try ControlAnswer.json(["connections": target.connections.fire(SimulatorWedge())])
        }
        router.post("/faults/stop-listening") { _, _ in
            try await target.listeners.stop()
            return try await listening()
        }
        router.post("/faults/start-listening") { _, _ in
            do {
                try await target.listeners.start()
            } catch {
                throw ControlError(.conflict, "the ports cannot be reopened: \(error)")
            }
            return try await listening()
        }
    }

    private func listening() async throws -> Response {
        try ControlAnswer.json(["listening": await target.listeners.main.isListening])
    }
}

/// The delay of all answers, in the form of `--delay`.
struct DelayRoutes: ControlConcern {
    let service: SimulatedService

    private struct Delay: Codable {
        let delay: String?

        // Encodes nil as null, where the synthesized encoder would omit the member.
        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(delay, forKey: .delay)
        }

        // The member must be present, even if it is null: a body without it was meant for another route.
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

    func add(to router: Router<ControlContext>) {
        router.get("/delay") { _, _ in try answer() }
        router.put("/delay") { request, _ in
            let body = try await request.control(Delay.self, example: #"{"delay":"20ms±5ms"} or {"delay":null}"#)
            service.delay = try body.delay.map { text in
                guard let delay = AnswerDelay(text) else {
                    throw ControlError(
                        .badRequest, "delay must be \(AnswerDelay.form), not '\(text)'")
                }
                return delay
            }
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(Delay(delay: service.delay?.description)) }
}

/// The fault rules of one kind.
struct RuleRoutes<Action: RuleAction>: ControlConcern {
    let path: RouterPath
    /// A rule of this kind, for errors.
    let example: String
    let read: @Sendable () -> [Rule<Action>]
    let replace: @Sendable ([Rule<Action>]) -> Void
    let add: @Sendable (Rule<Action>) -> Void

    private var ruleList: String { #"{"rules":["\#(example)"]}"# }
    private var oneRule: String { #"{"rule":"\#(example)"}"# }

    var summary: [String] {
        [
            "GET \(path)", "PUT \(path) {\"rules\":[\"RULE\"]}", "POST \(path) {\"rule\":\"RULE\"}",
            "DELETE \(path)",
        ]
    }

    func add(to router: Router<ControlContext>) {
        router.get(path) { _, _ in try answer() }
        router.put(path) { request, _ in
            let body = try await request.control(RuleList.self, example: ruleList)
            replace(try body.rules.map { try Rule<Action>($0) })
            return try answer()
        }
        router.post(path) { request, _ in
            let body = try await request.control(OneRule.self, example: oneRule)
            add(try Rule<Action>(body.rule))
            return try answer()
        }
        router.delete(path) { _, _ in
            replace([])
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(RuleList(rules: read().map(\.text))) }
}

extension RuleRoutes<PushAction> {
    /// The rules of HTTP/2, in the form of `--rule`.
    init(service: SimulatedService) {
        self.init(
            path: "/rules", example: "prefix=dead,answer=410", read: { service.rules },
            replace: { service.setRules($0) }, add: { service.addRule($0) })
    }
}

extension RuleRoutes<GatewayAction> {
    /// The rules of the binary gateway, in the form of `--gateway-rule`.
    init(gateway service: SimulatedService) {
        self.init(
            path: "/gateway-rules", example: "prefix=dead,answer=8", read: { service.gatewayRules },
            replace: { service.setGatewayRules($0) }, add: { service.addGatewayRule($0) })
    }
}

private struct RuleList: Codable {
    let rules: [String]
}

private struct OneRule: Decodable {
    let rule: String
}
