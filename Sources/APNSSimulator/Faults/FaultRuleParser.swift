import APNS
import CNghttp2

extension FaultRule {
    /// Reads a rule such as `prefix=dead,answer=410` or `rate=0.01,answer=500,retry-after=2`.
    ///
    /// Keys that say which requests it meets (all must agree; without any, every request):
    /// `prefix` hex digits, `rate` 0 to 1, `times` first N of each token, `after` every N-th of a connection,
    /// `connection` those of the N-th connection.
    /// Keys that say what happens: `answer` (a status, a reason, `reset`, `goaway`, `drop`, `silence`), `delay`,
    /// `streams` with `for`; and details of the answer: `reason`, `body`, `retry-after`, `timestamp`, `code`,
    /// `last-stream`, `accept`.
    /// With `at=connect` it meets connections instead, by `rate`, `times`, `after` and `connection`, and `answer` is
    /// `wedge`, `no-window` or `no-settings`.
    /// - Throws: ``FaultRuleError`` naming the rule and the key.
    public init(_ text: String) throws(FaultRuleError) {
        var reader = try RuleReader(text)
        try self.init(&reader)
        try reader.finish()
        self.text = reader.written
    }

    private init(_ reader: inout RuleReader) throws(FaultRuleError) {
        let isAboutConnections =
            try reader.take("at", "must be connect or request") { ["connect": true, "request": false][$0] } ?? false
        rate = try reader.rate()
        times = try reader.count("times")
        after = try reader.count("after")
        connection = try reader.count("connection")
        guard !isAboutConnections else {
            connectionFault = try reader.connectionFault()
            return
        }
        prefix = try reader.prefix()
        delay = try reader.delay()
        streams = try reader.take("streams", "must be a whole number") { Int($0).flatMap { $0 >= 0 ? $0 : nil } }
        if streams != nil {
            streamsDuration = try reader.take("for", "must be a time such as 500ms") { AnswerDelay.microseconds($0) }
        }
        answer = try reader.answer()
        switch answer {
        case .reset, .drop, .silence:
            accepts = try reader.flag("accept") ?? (answer == .drop)
        case .response, .goAway, nil: break
        }
        guard answer != nil || delay != nil || streams != nil else {
            throw reader.error(nil, "does nothing; give it answer=, delay= or streams=")
        }
    }
}

extension RuleReader {
    fileprivate mutating func connectionFault() throws(FaultRuleError) -> FaultRule.ConnectionFault {
        let names = FaultRule.ConnectionFault.allCases.map(\.rawValue).joined(separator: ", ")
        let fault = try take("answer", "must be one of \(names) with at=connect") { name in
            FaultRule.ConnectionFault(rawValue: name)
        }
        guard let fault else { throw error(nil, "does nothing; give it answer= with one of \(names)") }
        return fault
    }

    fileprivate mutating func answer() throws(FaultRuleError) -> FaultRule.Answer? {
        guard let text = take("answer") else { return nil }
        guard FaultRule.ConnectionFault(rawValue: text) == nil else {
            throw error("answer", "\(text) is about a connection; add at=connect")
        }
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
        if let reason = APNSReason(rawValue: text) {
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

    /// RFC 9113, section 7.
    private static let errorCodes: [(String, UInt32)] = [
        ("NO_ERROR", 0), ("PROTOCOL_ERROR", 1), ("INTERNAL_ERROR", 2), ("FLOW_CONTROL_ERROR", 3),
        ("SETTINGS_TIMEOUT", 4), ("STREAM_CLOSED", 5), ("FRAME_SIZE_ERROR", 6), ("REFUSED_STREAM", 7), ("CANCEL", 8),
        ("COMPRESSION_ERROR", 9), ("CONNECT_ERROR", 10), ("ENHANCE_YOUR_CALM", 11), ("INADEQUATE_SECURITY", 12),
        ("HTTP_1_1_REQUIRED", 13),
    ]
}
