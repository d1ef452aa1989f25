import APNS
import PushQueue

/// The words that `reason` labels are made of. Reasons come from APNs, or from whatever answers in its place: one that is
/// not known must not become a series of its own.
enum MetricReason {
    /// For every word that is not known.
    static let other = "other"

    /// The word for a reason. Some reasons have an explanation behind their word.
    static func word(_ reason: String) -> String {
        let word = reason.prefix { $0 != " " }
        return known.contains(word) ? String(word) : other
    }

    private static let known: Set<Substring> = {
        var words: Set<Substring> = [""]
        words.formUnion(APNSReason.allCases.map { Substring($0.rawValue) })
        // APNs' statuses, and those of proxies and load balancers in between.
        for status in [400, 401, 403, 404, 405, 408, 410, 413, 429, 431, 500, 501, 502, 503, 504] {
            words.insert("HTTP\(status)")
        }
        // Requests without an answer, and the binary gateway's words.
        words.formUnion([
            "RefusedStream", "GoAway", "StreamReset", "NoAnswer", "ConnectionLost", "Unresponsive",
            "NoOtherConnection", "Discarded", "HungUp",
            "ProcessingError", "MissingPayload", "InvalidTokenSize", "InvalidTopicSize", "InvalidPayloadSize",
            "InvalidToken", "ProtocolError", "UnknownError",
        ])
        // The worker's own.
        words.formUnion([
            "AppPaused", "AttemptsExhausted", "BadPayload", "ChannelAndToken", "Drained", "Duplicate",
            "DuplicateMember", "Expired", "InvalidMember", "JobTooLarge", "MalformedJSON", "MalformedToken",
            "MissingID", "MissingPayload", "MissingToken", "NoApp", "NoConnection", "NotAnObject", "NotSidekiqJob",
            "OtherClass", "PayloadAndShortForm", "Poison", "RateLimited", "Suppressed", "Throttled", "TokenAndTokens",
            "TooDeep", "TooLarge", "UnknownApp", "UnreadableClaim",
        ])
        return words
    }()
}
