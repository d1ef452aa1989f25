import APNS
import CNghttp2
import PushJob

/// A rule of the HTTP/2 interface, in the form of `--rule`.
package typealias FaultRule = Rule<PushAction>

/// The effect of a rule on a request over HTTP/2, or on its connection.
///
/// Rules apply to requests that pass every check of `RequestCheck`. With `at=channels`, they apply to requests that manage channels and
/// pass every check of `ChannelResponder`. The first rule with an answer decides. Rules without an answer (`delay`, `streams`) have their
/// effect, and the next rules decide the answer. With `at=connect`, the first rule that applies decides.
package struct PushAction: RuleAction {
    /// The answer in place of the usual 200.
    package enum Answer: Equatable, Sendable {
        case response(Response)
        /// RST_STREAM with this error code.
        case reset(code: UInt32)
        /// GOAWAY. The connection ends when the remaining requests have been answered.
        case goAway(reason: String?, lastStream: LastStream)
        /// Closes the TCP connection without close_notify or GOAWAY.
        case drop
        /// No answer at all.
        case silence
    }

    /// A failure of a connection from its TLS handshake on.
    package enum ConnectionFault: String, CaseIterable, Sendable {
        /// SETTINGS and PINGs are answered and windows granted, but requests are never answered. A load balancer in front of a dead backend
        /// behaves like this.
        case wedge
        /// No window is granted beyond the connection's initial window (65,535 bytes). Streams get no window.
        case noWindow = "no-window"
        /// Nothing is sent, not even SETTINGS.
        case noSettings = "no-settings"
    }

    package struct Response: Equatable, Sendable {
        package var status: Int
        /// The `reason` in the body. It need not be a reason that Apple documents.
        package var reason: String?
        package var body: Body = .whole
        /// The value of `retry-after`, in seconds.
        package var retryAfter: Int?
        /// The `timestamp` in the body of a 410, in milliseconds since 1970; nil for the time of the answer.
        package var timestamp: Int64?
    }

    package enum Body: String, CaseIterable, Sendable {
        /// The body is in one DATA frame, as APNs sends it.
        case whole
        case empty
        /// The body is in DATA frames of three bytes.
        case split
        /// The body is text that is not JSON, as a proxy would send it.
        case text
    }

    /// The last-stream-id of a GOAWAY. Requests above it are reported as unprocessed.
    package enum LastStream: String, CaseIterable, Sendable {
        /// The highest stream that arrived. All requests are answered, including the one that met the rule.
        case exact
        /// The highest stream before the request that met the rule. That request and later ones are unprocessed.
        case accepted
        /// 0, as if nothing had been processed. Notifications that were accepted get no answer.
        case zero
    }

    /// The fault of a connection; `nil` in rules about requests.
    package var connectionFault: ConnectionFault?
    /// The answer to a request; `nil` for the usual answer.
    package var answer: Answer?
    /// True if the notification counts as accepted although its answer is never sent. Rules can set it for `reset`, `drop` and `silence`.
    package var accepts = false
    package var delay: AnswerDelay?
    package var streams: Int?
    /// The stream limit stays lowered for this time, in microseconds; `nil` for the rest of the connection.
    package var streamsDuration: Int64?

    package static let points = [RulePoint.request, .channels, .connect]

    package static func conditions(at point: RulePoint) -> [RuleCondition] {
        [.rate, .times, .after, .connection] + (point == .request ? [.prefix] : [])
    }

    package init(_ reader: inout RuleReader, at point: RulePoint) throws(RuleError) {
        guard point != .connect else {
            connectionFault = try Self.connectionFault(&reader)
            return
        }
        delay = try reader.delay()
        streams = try reader.take("streams", "must be a whole number") { Int($0).flatMap { $0 >= 0 ? $0 : nil } }
        if streams != nil {
            streamsDuration = try reader.take("for", "must be a duration such as 500ms") {
                DurationText.milliseconds($0).map { Int64($0) * 1000 }
            }
        }
        answer = try Self.answer(&reader)
        switch answer {
        case .reset, .drop, .silence:
            accepts = try reader.flag("accept") ?? (answer == .drop)
        case .response, .goAway, nil: break
        }
        guard answer != nil || delay != nil || streams != nil else {
            throw reader.error(nil, "has no effect; add answer=, delay= or streams=")
        }
    }
}

// The parts of a rule that describe the answer.
extension PushAction {
    private static func connectionFault(_ reader: inout RuleReader) throws(RuleError) -> ConnectionFault {
        let names = PushAction.ConnectionFault.allCases.map(\.rawValue).joined(separator: ", ")
        let fault = try reader.take("answer", "must be one of \(names) with at=connect") { name in
            PushAction.ConnectionFault(rawValue: name)
        }
        guard let fault else { throw reader.error(nil, "has no effect; add answer= with one of \(names)") }
        return fault
    }

    private static func answer(_ reader: inout RuleReader) throws(RuleError) -> Answer? {
        guard let text = reader.take("answer") else { return nil }
        guard PushAction.ConnectionFault(rawValue: text) == nil else {
            throw reader.error("answer", "\(text) applies to connections; add at=connect")
        }
        switch text {
        case "drop": return .drop
        case "silence": return .silence
        case "reset":
            let names = Self.errorCodes.map(\.0).joined(separator: ", ")
            let code = try reader.take("code", "must be one of \(names)") { name in
                Self.errorCodes.first { $0.0 == name }?.1
            }
            return .reset(code: code ?? NGHTTP2_REFUSED_STREAM.rawValue)
        case "goaway":
            let reason = try takeReason(&reader)
            let last = try reader.take("last-stream", "must be exact, accepted or zero") {
                PushAction.LastStream(rawValue: $0)
            }
            return .goAway(reason: reason, lastStream: last ?? .exact)
        default: return .response(try response(text, &reader))
        }
    }

    private static func response(_ text: String, _ reader: inout RuleReader) throws(RuleError) -> Response {
        var response: PushAction.Response
        if let refusal = Refusal(named: text) {
            response = refusal
        } else if let status = Int(text), (200...599).contains(status) {
            let reason = try takeReason(&reader)
            response = PushAction.Response(
                status: status, reason: reason ?? PushAction.defaultReason(status: status)?.rawValue)
            if response.reason == nil, (400...403).contains(status) {
                throw reader.error("answer", "\(status) has several reasons; name one, such as answer=BadDeviceToken")
            }
        } else {
            throw reader.error(
                "answer", "must be a status, an APNs reason, reset, goaway, drop or silence, not '\(text)'")
        }
        response.body =
            try reader.take("body", "must be whole, empty, split or text") { PushAction.Body(rawValue: $0) } ?? .whole
        response.retryAfter = try reader.take("retry-after", "must be whole seconds") {
            Int($0).flatMap { $0 >= 0 ? $0 : nil }
        }
        response.timestamp = try reader.take("timestamp", "must be milliseconds since 1970") { Int64($0) }
        return response
    }

    private static func takeReason(_ reader: inout RuleReader) throws(RuleError) -> String? {
        try reader.take("reason", "must be letters, digits and spaces") { text in
            !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == " ") } ? text : nil
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

extension PushAction {
    /// Returns the reason for a status if the rule gives no reason.
    static func defaultReason(status: Int) -> APNSReason? {
        switch status {
        case 404: .badPath
        case 405: .methodNotAllowed
        case 410: .unregistered
        case 413: .payloadTooLarge
        case 429: .tooManyRequests
        case 500: .internalServerError
        case 503: .serviceUnavailable
        default: nil
        }
    }
}

/// The answer to a refused request. It has a reason.
typealias Refusal = PushAction.Response

extension PushAction.Response: Error {
    init(_ reason: APNSReason, timestamp: Int64? = nil) {
        self.init(status: reason.status, reason: reason.rawValue, timestamp: timestamp)
    }

    /// The answer to a provider token whose key is for the other environment. Apple documents "BadEnvironmentKeyIdInToken", but the service
    /// sends this spelling.
    static let badEnvironmentKeyInToken = Refusal(status: 403, reason: "BadEnvironmentKeyInToken")
    /// The answer for an app without broadcasts. Apple documents "FeatureNotEnabled", but the service sends this spelling.
    static let broadcastFeatureNotEnabled = Refusal(status: 400, reason: "BroadcastFeatureNotEnabled")

    /// Returns nil unless Apple documents the reason or APNs was observed to send it. "Service Unavailable" with a space is in Apple,
    /// "Handling error responses from Apple Push Notification service".
    init?(named reason: String) {
        let observed = [
            Self.badEnvironmentKeyInToken, Self.broadcastFeatureNotEnabled,
            Refusal(status: 503, reason: "Service Unavailable"),
        ]
        if let known = APNSReason(rawValue: reason) {
            self.init(known)
        } else if let known = observed.first(where: { $0.reason == reason }) {
            self = known
        } else {
            return nil
        }
    }
}

/// The rules' decision on a request that would be accepted.
struct PushEffect {
    var answer: PushAction.Answer?
    var accepts = true
    /// The delay of the answer, in microseconds.
    var delay: Int64 = 0
    /// The stream limit to set, and its duration in microseconds.
    var streams: (limit: Int, duration: Int64?)?
}

extension PushEffect {
    /// - Parameter delay: the delay of the answer, unless a rule sets another.
    init(
        of script: inout RuleScript<PushAction>, on event: RuleEvent, delay: AnswerDelay?,
        _ generator: inout SeededGenerator
    ) {
        var effect = PushEffect()
        var delay = delay
        script.apply(to: event, &generator) { action in
            if let own = action.delay { delay = own }
            if let limit = action.streams { effect.streams = (limit, action.streamsDuration) }
            guard let answer = action.answer else { return false }
            effect.answer = answer
            effect.accepts =
                switch answer {
                case .response(let response): (200..<300).contains(response.status)
                case .goAway(_, let lastStream): lastStream == .exact
                case .reset, .drop, .silence: action.accepts
                }
            return true
        }
        if let delay { effect.delay = delay.draw(&generator) }
        self = effect
    }

    var outcome: ReceivedNotification.Outcome {
        switch answer {
        case nil: .answered(status: 200, reason: nil)
        case .response(let response): .answered(status: response.status, reason: response.reason)
        case .reset: .reset
        // With last-stream=exact, the request is still answered.
        case .goAway(_, .exact): .answered(status: 200, reason: nil)
        case .goAway: .goAway
        case .drop: .dropped
        case .silence: .silenced
        }
    }
}
