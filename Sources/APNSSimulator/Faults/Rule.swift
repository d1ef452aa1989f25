/// One scripted fault: its conditions and its effect.
///
/// A rule is written as keys and values, such as `prefix=dead,answer=410` or `at=connect,answer=close,times=2`. Some keys are conditions,
/// which must all be met. The action reads the other keys.
package struct Rule<Action: RuleAction>: Equatable, Sendable {
    /// The rule as written, without the spaces around its parts.
    package let text: String
    package let point: RulePoint
    /// The token's first digits; `nil` for all tokens.
    private(set) var prefix: TokenPrefix?
    /// The probability that the rule applies, from 0 to 1.
    package private(set) var rate: Double?
    /// The maximum number of times that the rule applies to each target, or to connections.
    package private(set) var times: Int?
    /// The rule applies to every N-th request of a connection, or to every N-th connection.
    package private(set) var after: Int?
    /// The number of the connection, from 1; `nil` for all.
    package private(set) var connection: Int?
    package let action: Action

    /// - Throws: ``RuleError`` that names the rule and the key.
    package init(_ text: String) throws(RuleError) {
        var reader = try RuleReader(text)
        let points = Action.points
        if points.count == 1 {
            point = points[0]
        } else {
            let names = points.map(\.rawValue).joined(separator: ", ")
            point =
                try reader.take("at", "must be one of \(names)") { name in points.first { $0.rawValue == name } }
                ?? points[0]
        }
        let conditions = Action.conditions(at: point)
        if conditions.contains(.rate) {
            rate = try reader.take("rate", "must be a number above 0 and at most 1") { text in
                Double(text).flatMap { $0 > 0 && $0 <= 1 ? $0 : nil }
            }
        }
        if conditions.contains(.times) { times = try reader.count("times") }
        if conditions.contains(.after) { after = try reader.count("after") }
        if conditions.contains(.connection) { connection = try reader.count("connection") }
        if conditions.contains(.prefix) {
            prefix = try reader.take("prefix", "must be 1 to 64 hex digits") { TokenPrefix($0) }
        }
        action = try Action(&reader, at: point)
        try reader.finish()
        self.text = reader.written
    }

    /// Returns true if all conditions except `times` are met.
    func meets(_ event: RuleEvent, _ generator: inout SeededGenerator) -> Bool {
        guard point == event.point, connection == nil || connection == event.connection else { return false }
        if let prefix {
            guard case .device(let token) = event.target, prefix.matches(token) else { return false }
        }
        if let after, event.ordinal % after != 0 { return false }
        if let rate, generator.fraction() >= rate { return false }
        return true
    }
}

/// The effect of a rule; each service of the simulator has its own type.
package protocol RuleAction: Equatable, Sendable {
    /// The values of the key `at`. The first is the default. If there is only one value, rules cannot have this key.
    static var points: [RulePoint] { get }
    static func conditions(at point: RulePoint) -> [RuleCondition]
    /// Reads the keys that describe the effect.
    init(_ reader: inout RuleReader, at point: RulePoint) throws(RuleError)
}

package enum RulePoint: String, Sendable {
    case connect
    /// A request over HTTP/2 to deliver a notification.
    case request
    /// A request over HTTP/2 that manages channels.
    case channels
    /// A notification at the binary gateway.
    case notification
}

/// The conditions that a rule can have. Each is a key.
package enum RuleCondition: Sendable {
    /// The device token's first digits.
    case prefix
    /// A share, from 0 to 1.
    case rate
    /// The first N requests for each target, or the first N connections.
    case times
    /// Every N-th request of a connection, or every N-th connection.
    case after
    /// The N-th connection.
    case connection
}

/// An event that rules are matched against: a request, a notification or a connection.
struct RuleEvent {
    var point: RulePoint
    var target: EventTarget
    /// The number of the request or notification on its connection, from 1. For the event of a connection, equal to ``connection``.
    var ordinal: Int
    /// The number of the connection, from 1.
    var connection: Int

    static func connection(_ number: Int) -> RuleEvent {
        RuleEvent(point: .connect, target: .connection, ordinal: number, connection: number)
    }
}

/// The rules in force, and how often each of the newest targets met them.
struct RuleScript<Action: RuleAction>: Sendable {
    private var rules: [Rule<Action>]
    /// Rules that each apply to one notification for a device, and are then removed. They precede all other rules.
    private var pending: [(token: SimulatedToken, rule: Rule<Action>)] = []
    /// For each rule with `times`, how often each target met the conditions, even beyond the limit.
    private var met: [RecentCounts<EventTarget>]
    private let limit: Int?
    /// The number of connections since these rules came into force, counted by ``nextConnection(_:)``.
    private var connections = 0

    /// - Parameter limit: each rule with `times` remembers at least this many targets; nil for all. A forgotten target is counted from 0
    ///   again.
    init(_ rules: [Rule<Action>] = [], limit: Int? = nil) {
        self.rules = rules
        self.limit = limit
        met = Array(repeating: RecentCounts(limit: limit), count: rules.count)
    }

    /// The rules in the order in which they apply, pending ones first.
    var all: [Rule<Action>] { pending.map(\.rule) + rules }

    /// Replaces the rules and resets their counts.
    mutating func replace(_ rules: [Rule<Action>]) { self = RuleScript(rules, limit: limit) }

    /// Appends a rule. The counts of the other rules continue.
    mutating func add(_ rule: Rule<Action>) {
        rules.append(rule)
        met.append(RecentCounts(limit: limit))
    }

    /// The maximum number of pending rules. Above this number, the oldest rule is dropped.
    static var maximumPending: Int { 1000 }

    /// Adds a rule for one notification to a device. Pending rules for the same device apply in the order in which they were added.
    mutating func addPending(_ rule: Rule<Action>, for token: SimulatedToken) {
        if pending.count >= Self.maximumPending { pending.removeFirst() }
        pending.append((token, rule))
    }

    mutating func removePending(for token: SimulatedToken) { pending.removeAll { $0.token == token } }

    /// Removes the first rule with this text, pending ones first. The counts of the other rules continue.
    /// - Returns: true if there was one.
    mutating func remove(_ text: String) -> Bool {
        if let index = pending.firstIndex(where: { $0.rule.text == text }) {
            pending.remove(at: index)
        } else if let index = rules.firstIndex(where: { $0.text == text }) {
            rules.remove(at: index)
            met.remove(at: index)
        } else {
            return false
        }
        return true
    }

    /// True if any rule applies to something other than connections.
    var judgesMoreThanConnections: Bool { !pending.isEmpty || rules.contains { $0.point != .connect } }

    /// Calls the body with each action that applies, in the order of the rules, until the body returns true.
    mutating func apply(
        to event: RuleEvent, _ generator: inout SeededGenerator, _ decides: (Action) -> Bool
    ) {
        if !pending.isEmpty, case .device(let token) = event.target,
            let index = pending.firstIndex(where: { $0.token == token })
        {
            if decides(pending.remove(at: index).rule.action) { return }
        }
        for index in rules.indices where rules[index].meets(event, &generator) {
            if let times = rules[index].times, met[index].add(event.target) > times { continue }
            if decides(rules[index].action) { return }
        }
    }

    mutating func first(for event: RuleEvent, _ generator: inout SeededGenerator) -> Action? {
        var first: Action?
        apply(to: event, &generator) {
            first = $0
            return true
        }
        return first
    }

    /// Returns the first action that applies to the next connection.
    mutating func nextConnection(_ generator: inout SeededGenerator) -> Action? {
        connections += 1
        return first(for: .connection(connections), &generator)
    }
}

/// An error in the text of a rule, a setting, a device or a key's scope.
package struct RuleError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The kind of text, such as `rule`, `setting` or `device`.
    package let kind: String
    /// The text as it was given.
    package let rule: String
    /// The key with the error; nil if the text as a whole is wrong.
    package let key: String?
    /// The problem, and the remedy.
    package let problem: String

    package var description: String {
        if let key { "\(kind) '\(rule)': \(key): \(problem)" } else { "\(kind) '\(rule)': \(problem)" }
    }
}

/// The keys of a rule, a setting, a device or a scope. Each read removes a key. Keys that remain are unknown.
package struct RuleReader {
    private let kind: String
    let rule: String
    /// The rule without the spaces around its parts.
    private(set) var written = ""
    private var values: [String: String] = [:]

    /// - Parameter kind: the kind of text, for errors.
    init(_ text: String, kind: String = "rule") throws(RuleError) {
        self.kind = kind
        rule = text
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let pair = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let key = Self.trimmed(pair[0])
            guard pair.count == 2, !key.isEmpty else {
                throw error(nil, "'\(part)' does not have the form key=value")
            }
            guard values.updateValue(Self.trimmed(pair[1]), forKey: key) == nil else {
                throw error(key, "is given twice")
            }
            written += (written.isEmpty ? "" : ",") + key + "=" + Self.trimmed(pair[1])
        }
    }

    private static func trimmed(_ text: Substring) -> String {
        String(text.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }

    /// Splits a list such as `com.example.app+com.example.other`.
    static func list(_ text: String) -> [String] { text.split(separator: "+").map(String.init) }

    func error(_ key: String?, _ problem: String) -> RuleError {
        RuleError(kind: kind, rule: rule, key: key, problem: problem)
    }

    mutating func take(_ key: String) -> String? { values.removeValue(forKey: key) }

    mutating func take<Value>(
        _ key: String, _ requirement: String, _ read: (String) -> Value?
    ) throws(RuleError) -> Value? {
        guard let text = take(key) else { return nil }
        guard let value = read(text) else { throw error(key, "\(requirement), not '\(text)'") }
        return value
    }

    func finish() throws(RuleError) {
        guard let key = values.keys.min() else { return }
        throw error(key, "is unknown, or has no effect with the other keys; correct or remove it")
    }
}

extension RuleReader {
    mutating func count(_ key: String) throws(RuleError) -> Int? {
        try take(key, "must be a whole number, at least 1") { Int($0).flatMap { $0 >= 1 ? $0 : nil } }
    }

    mutating func flag(_ key: String) throws(RuleError) -> Bool? {
        try take(key, "must be true or false") { Bool($0) }
    }

    mutating func delay() throws(RuleError) -> AnswerDelay? {
        try take("delay", "must be \(AnswerDelay.form)") { AnswerDelay($0) }
    }
}
