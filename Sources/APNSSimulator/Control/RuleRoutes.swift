import Hummingbird

/// A rule as it is written, in the form of an option such as `--rule`.
protocol WrittenRule: Sendable {
    /// The rule as it was written, without the spaces around its parts.
    var text: String { get }
    init(_ text: String) throws(FaultRuleError)
}

extension FaultRule: WrittenRule {}
extension GatewayRule: WrittenRule {}

/// The rules for what goes wrong, of one kind.
struct RuleRoutes<Rule: WrittenRule>: ControlConcern {
    let path: RouterPath
    /// A rule of this kind, for errors.
    let example: String
    let read: @Sendable () -> [Rule]
    let replace: @Sendable ([Rule]) -> Void
    let add: @Sendable (Rule) -> Void

    private var ruleList: String { #"{"rules":["\#(example)"]}"# }
    private var oneRule: String { #"{"rule":"\#(example)"}"# }

    var summary: [String] {
        [
            "GET \(path)", "PUT \(path) {\"rules\":[\"RULE\"]}", "POST \(path) {\"rule\":\"RULE\"}",
            "DELETE \(path)",
        ]
    }

    func add(to router: Router<ControlRoutes.Context>) {
        router.get(path) { _, _ in try answer() }
        router.put(path) { request, _ in
            let body = try await request.control(RuleList.self, example: ruleList)
            replace(try body.rules.map { try Rule($0) })
            return try answer()
        }
        router.post(path) { request, _ in
            let body = try await request.control(OneRule.self, example: oneRule)
            add(try Rule(body.rule))
            return try answer()
        }
        router.delete(path) { _, _ in
            replace([])
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(RuleList(rules: read().map(\.text))) }
}

extension RuleRoutes<FaultRule> {
    /// Those of HTTP/2, as of `--rule`.
    init(service: SimulatedService) {
        self.init(
            path: "/rules", example: "prefix=dead,answer=410", read: { service.rules },
            replace: { service.setRules($0) }, add: { service.addRule($0) })
    }
}

extension RuleRoutes<GatewayRule> {
    /// Those of the binary gateway, as of `--gateway-rule`.
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
