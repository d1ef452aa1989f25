import APNS
import CNghttp2

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

extension FaultRule {
    /// Reads a rule such as `prefix=dead,answer=410` or `rate=0.01,answer=500,retry-after=2`.
    ///
    /// Keys that say which requests it meets (all must agree; without any, every request):
    /// `prefix` hex digits, `rate` 0 to 1, `times` first N of each token, `after` every N-th of a connection.
    /// Keys that say what happens: `answer` (a status, a reason, `reset`, `goaway`, `drop`, `silence`), `delay`,
    /// `streams` with `for`; and details of the answer: `reason`, `body`, `retry-after`, `timestamp`, `code`,
    /// `last-stream`, `accept`.
    /// - Throws: ``FaultRuleError`` naming the rule and the key.
    public init(_ text: String) throws(FaultRuleError) {
        var reader = try FaultRuleReader(text)
        try self.init(&reader)
        try reader.finish()
        self.text = reader.written
    }

    private init(_ reader: inout FaultRuleReader) throws(FaultRuleError) {
        prefix = try reader.take("prefix", "must be 1 to 64 hex digits") { TokenPrefix($0) }
        rate = try reader.take("rate", "must be a number above 0, up to 1") { text in
            Double(text).flatMap { $0 > 0 && $0 <= 1 ? $0 : nil }
        }
        times = try reader.take("times", "must be a whole number from 1", FaultRuleReader.positive)
        after = try reader.take("after", "must be a whole number from 1", FaultRuleReader.positive)
        delay = try reader.take("delay", "must be a time such as 20ms or 20ms±5ms, up to an hour") { AnswerDelay($0) }
        streams = try reader.take("streams", "must be a whole number") { Int($0).flatMap { $0 >= 0 ? $0 : nil } }
        if streams != nil {
            streamsDuration = try reader.take("for", "must be a time such as 500ms") { AnswerDelay.microseconds($0) }
        }
        answer = try reader.answer()
        switch answer {
        case .reset, .drop, .silence:
            accepts = try reader.take("accept", "must be true or false") { Bool($0) } ?? (answer == .drop)
        case .response, .goAway, nil: break
        }
        guard answer != nil || delay != nil || streams != nil else {
            throw reader.error(nil, "does nothing; give it answer=, delay= or streams=")
        }
    }
}

/// The keys of a rule, taken one by one so that what is left over is known to be wrong.
private struct FaultRuleReader {
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

    static func positive(_ text: String) -> Int? { Int(text).flatMap { $0 >= 1 ? $0 : nil } }

    func error(_ key: String?, _ problem: String) -> FaultRuleError {
        FaultRuleError(rule: rule, key: key, problem: problem)
    }

    mutating func take<Value>(
        _ key: String, _ requirement: String, _ read: (String) -> Value?
    ) throws(FaultRuleError) -> Value? {
        guard let text = values.removeValue(forKey: key) else { return nil }
        guard let value = read(text) else { throw error(key, "\(requirement), not '\(text)'") }
        return value
    }

    mutating func answer() throws(FaultRuleError) -> FaultRule.Answer? {
        guard let text = values.removeValue(forKey: "answer") else { return nil }
        switch text {
        case "drop": return .drop
        case "silence": return .silence
        case "reset":
            let names = Self.errorCodes.map(\.0).joined(separator: ", ")
            let code = try take("code", "must be one of \(names)") { name in
                Self.errorCodes.first { $0.0 == name }?.1
            }
            return .reset(code: code ?? NGHTTP2_REFUSED_STREAM.rawValue)
        case "goaway":
            let reason = try takeReason()
            let last = try take("last-stream", "must be exact, accepted or zero") { FaultRule.LastStream(rawValue: $0) }
            return .goAway(reason: reason, lastStream: last ?? .exact)
        default: return .response(try response(text))
        }
    }

    private mutating func response(_ text: String) throws(FaultRuleError) -> FaultRule.Response {
        var response: FaultRule.Response
        if let reason = Reason(rawValue: text) {
            response = FaultRule.Response(status: reason.status, reason: reason.rawValue)
        } else if let status = Int(text), (200...599).contains(status) {
            let reason = try takeReason()
            response = FaultRule.Response(
                status: status, reason: reason ?? FaultRule.defaultReason(status: status)?.rawValue)
            if response.reason == nil, (400...403).contains(status) {
                throw error("answer", "\(status) has several reasons; name one, such as answer=BadDeviceToken")
            }
        } else {
            throw error(
                "answer", "must be a status, a reason of APNs, reset, goaway, drop or silence, not '\(text)'")
        }
        response.body =
            try take("body", "must be whole, empty, split or text") { FaultRule.Body(rawValue: $0) } ?? .whole
        response.retryAfter = try take("retry-after", "must be whole seconds") {
            Int($0).flatMap { $0 >= 0 ? $0 : nil }
        }
        response.timestamp = try take("timestamp", "must be milliseconds since 1970") { Int64($0) }
        return response
    }

    private mutating func takeReason() throws(FaultRuleError) -> String? {
        try take("reason", "must be letters and digits") { text in
            !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber) } ? text : nil
        }
    }

    func finish() throws(FaultRuleError) {
        guard let key = values.keys.min() else { return }
        throw error(key, "is unknown, or says nothing beside the other keys")
    }

    /// RFC 9113, section 7.
    private static let errorCodes: [(String, UInt32)] = [
        ("NO_ERROR", 0), ("PROTOCOL_ERROR", 1), ("INTERNAL_ERROR", 2), ("FLOW_CONTROL_ERROR", 3),
        ("SETTINGS_TIMEOUT", 4), ("STREAM_CLOSED", 5), ("FRAME_SIZE_ERROR", 6), ("REFUSED_STREAM", 7), ("CANCEL", 8),
        ("COMPRESSION_ERROR", 9), ("CONNECT_ERROR", 10), ("ENHANCE_YOUR_CALM", 11), ("INADEQUATE_SECURITY", 12),
        ("HTTP_1_1_REQUIRED", 13),
    ]
}
