import Hummingbird

/// The rules for what goes wrong, in the form of `--rule`.
struct RuleRoutes: ControlConcern {
    let service: SimulatedService

    private struct Rules: Codable {
        let rules: [String]
    }

    private struct Rule: Decodable {
        let rule: String
    }

    let summary = [
        "GET /rules", "PUT /rules {\"rules\":[\"RULE\"]}", "POST /rules {\"rule\":\"RULE\"}", "DELETE /rules",
    ]

    func add(to router: Router<ControlRoutes.Context>) {
        router.get("/rules") { _, _ in try answer() }
        router.put("/rules") { request, _ in
            let body = try await request.control(Rules.self, example: #"{"rules":["prefix=dead,answer=410"]}"#)
            service.setRules(try body.rules.map { try FaultRule($0) })
            return try answer()
        }
        router.post("/rules") { request, _ in
            let body = try await request.control(Rule.self, example: #"{"rule":"prefix=dead,answer=410"}"#)
            service.addRule(try FaultRule(body.rule))
            return try answer()
        }
        router.delete("/rules") { _, _ in
            service.setRules([])
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(Rules(rules: service.rules.map(\.text))) }
}
