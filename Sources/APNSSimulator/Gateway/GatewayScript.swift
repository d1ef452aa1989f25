/// The gateway's rules in force and how often each has met each token.
struct GatewayScript: Sendable {
    /// What a rule makes of a notification or a connection.
    struct Verdict: Equatable {
        var answer: GatewayRule.Answer
        var accepts: Bool
        /// In microseconds.
        var delay: Int64
    }

    private(set) var rules: [GatewayRule]
    private var metTokens: [[SimulatedToken: Int]]
    private var metConnections: [Int]
    private var connections = 0

    init(rules: [GatewayRule]) {
        self.rules = rules
        metTokens = Array(repeating: [:], count: rules.count)
        metConnections = Array(repeating: 0, count: rules.count)
    }

    /// Adds a rule behind the others.
    mutating func add(_ rule: GatewayRule) {
        rules.append(rule)
        metTokens.append([:])
        metConnections.append(0)
    }

    /// Whether any rule is about notifications.
    var judgesNotifications: Bool { rules.contains { $0.point == .notification } }

    /// What happens to a connection whose client is taken; nil for nothing out of the ordinary.
    mutating func judgeConnection(_ generator: inout SeededGenerator) -> Verdict? {
        connections += 1
        for index in rules.indices where rules[index].point == .connect {
            guard meets(rules[index], ordinal: connections, &generator) else { continue }
            if let times = rules[index].times {
                guard metConnections[index] < times else { continue }
                metConnections[index] += 1
            }
            return verdict(rules[index], &generator)
        }
        return nil
    }

    /// What happens to a notification that would be accepted; nil for nothing out of the ordinary.
    /// - Parameter ordinal: which notification of its connection it is, from 1.
    mutating func judge(
        _ token: SimulatedToken, ordinal: Int, _ generator: inout SeededGenerator
    ) -> Verdict? {
        for index in rules.indices where rules[index].point == .notification {
            if let prefix = rules[index].prefix, !prefix.matches(token) { continue }
            guard meets(rules[index], ordinal: ordinal, &generator) else { continue }
            if let times = rules[index].times {
                let soFar = metTokens[index][token, default: 0]
                guard soFar < times else { continue }
                metTokens[index][token] = soFar + 1
            }
            return verdict(rules[index], &generator)
        }
        return nil
    }

    private func meets(_ rule: GatewayRule, ordinal: Int, _ generator: inout SeededGenerator) -> Bool {
        if let after = rule.after, ordinal % after != 0 { return false }
        if let rate = rule.rate, generator.fraction() >= rate { return false }
        return true
    }

    private func verdict(_ rule: GatewayRule, _ generator: inout SeededGenerator) -> Verdict {
        Verdict(answer: rule.answer, accepts: rule.accepts, delay: rule.delay?.draw(&generator) ?? 0)
    }
}
