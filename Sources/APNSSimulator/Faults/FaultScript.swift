/// The rules in force and how often each has met each token.
struct FaultScript: Sendable {
    /// Where a notification goes, or that it is a connection which is judged.
    enum Target: Hashable {
        case device(SimulatedToken)
        case channel([UInt8])
        case connection
    }

    /// What the rules make of one request.
    struct Verdict {
        var answer: FaultRule.Answer?
        var accepts = true
        /// How long to hold the answer back, in microseconds.
        var delay: Int64 = 0
        /// The stream limit to set, and for how many microseconds.
        var streams: (limit: Int, duration: Int64?)?
    }

    private(set) var rules: [FaultRule]
    /// How long every answer is held back, unless a rule says otherwise.
    var delay: AnswerDelay?
    private var met: [[Target: Int]]

    /// - Parameter delay: how long every answer is held back, unless a rule says otherwise.
    init(rules: [FaultRule], delay: AnswerDelay?) {
        self.rules = rules
        self.delay = delay
        met = Array(repeating: [:], count: rules.count)
    }

    /// Adds a rule behind the others.
    mutating func add(_ rule: FaultRule) {
        rules.append(rule)
        met.append([:])
    }

    /// What happens to a request that would be accepted.
    /// - Parameters:
    ///   - ordinal: which request of its connection it is, from 1.
    ///   - connection: which connection that is, from 1.
    mutating func judge(
        _ target: Target, ordinal: Int, connection: Int, _ generator: inout SeededGenerator
    ) -> Verdict {
        var verdict = Verdict()
        var delay = self.delay
        for index in rules.indices
        where rules[index].connectionFault == nil && meets(index, target, ordinal, connection, &generator) {
            if let own = rules[index].delay { delay = own }
            if let limit = rules[index].streams { verdict.streams = (limit, rules[index].streamsDuration) }
            if let answer = rules[index].answer {
                verdict.answer = answer
                verdict.accepts = Self.accepts(answer, rules[index])
                break
            }
        }
        if let delay { verdict.delay = delay.draw(&generator) }
        return verdict
    }

    /// Returns the failure of a new connection; `nil` for one that works.
    /// - Parameter connection: which connection it is, from 1.
    mutating func judge(connection: Int, _ generator: inout SeededGenerator) -> FaultRule.ConnectionFault? {
        for index in rules.indices {
            if let fault = rules[index].connectionFault,
                meets(index, .connection, connection, connection, &generator)
            {
                return fault
            }
        }
        return nil
    }

    /// How long to hold back an answer that no rule was asked about.
    func ordinaryDelay(_ generator: inout SeededGenerator) -> Int64 { delay?.draw(&generator) ?? 0 }

    private static func accepts(_ answer: FaultRule.Answer, _ rule: FaultRule) -> Bool {
        switch answer {
        case .response(let response): response.status == 200
        case .goAway(_, let lastStream): lastStream == .exact
        case .reset, .drop, .silence: rule.accepts
        }
    }

    private mutating func meets(
        _ index: Int, _ target: Target, _ ordinal: Int, _ connection: Int, _ generator: inout SeededGenerator
    ) -> Bool {
        if let wanted = rules[index].connection, wanted != connection { return false }
        if let prefix = rules[index].prefix {
            guard case .device(let token) = target, prefix.matches(token) else { return false }
        }
        if let after = rules[index].after, ordinal % after != 0 { return false }
        if let rate = rules[index].rate, generator.fraction() >= rate { return false }
        if let times = rules[index].times {
            let soFar = met[index][target, default: 0]
            guard soFar < times else { return false }
            met[index][target] = soFar + 1
        }
        return true
    }
}
