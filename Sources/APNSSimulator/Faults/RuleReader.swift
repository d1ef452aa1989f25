/// What is wrong with the text of a rule, and where.
public struct FaultRuleError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The rule as it was given.
    public let rule: String
    /// The key at fault; nil when it is the rule as a whole.
    public let key: String?
    /// What is wrong and what would be right.
    public let problem: String

    /// One sentence with all three.
    public var description: String {
        if let key { "rule '\(rule)': \(key): \(problem)" } else { "rule '\(rule)': \(problem)" }
    }
}

/// The keys of a rule, taken one by one so that what is left over is known to be wrong.
struct RuleReader {
    let rule: String
    /// The rule without the spaces around its parts.
    private(set) var written = ""
    private var values: [String: String] = [:]

    init(_ text: String) throws(FaultRuleError) {
        rule = text
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let pair = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let key = Self.trimmed(pair[0])
            guard pair.count == 2, !key.isEmpty else {
                throw error(nil, "'\(part)' is not of the form key=value")
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

    func error(_ key: String?, _ problem: String) -> FaultRuleError {
        FaultRuleError(rule: rule, key: key, problem: problem)
    }

    mutating func take(_ key: String) -> String? { values.removeValue(forKey: key) }

    mutating func take<Value>(
        _ key: String, _ requirement: String, _ read: (String) -> Value?
    ) throws(FaultRuleError) -> Value? {
        guard let text = take(key) else { return nil }
        guard let value = read(text) else { throw error(key, "\(requirement), not '\(text)'") }
        return value
    }

    func finish() throws(FaultRuleError) {
        guard let key = values.keys.min() else { return }
        throw error(key, "is unknown, or says nothing beside the other keys")
    }
}

// What is written the same in rules of every kind.
extension RuleReader {
    mutating func prefix() throws(FaultRuleError) -> TokenPrefix? {
        try take("prefix", "must be 1 to 64 hex digits") { TokenPrefix($0) }
    }

    mutating func rate() throws(FaultRuleError) -> Double? {
        try take("rate", "must be a number above 0, up to 1") { text in
            Double(text).flatMap { $0 > 0 && $0 <= 1 ? $0 : nil }
        }
    }

    mutating func count(_ key: String) throws(FaultRuleError) -> Int? {
        try take(key, "must be a whole number from 1") { Int($0).flatMap { $0 >= 1 ? $0 : nil } }
    }

    mutating func flag(_ key: String) throws(FaultRuleError) -> Bool? {
        try take(key, "must be true or false") { Bool($0) }
    }

    mutating func delay() throws(FaultRuleError) -> AnswerDelay? {
        try take("delay", "must be a time such as 20ms or 20ms±5ms, up to an hour") { AnswerDelay($0) }
    }
}
