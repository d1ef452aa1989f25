import APNS

/// One scripted fault: which requests or connections it meets and what happens to them.
///
/// Rules apply to requests that pass every check of `RequestCheck`, in the order they are given. The first that meets
/// a request and has an answer decides; rules without one (`delay`, `streams`) do their part and let the next ones speak.
/// Rules with a ``ConnectionFault`` apply to connections; the first that meets a connection decides.
public struct FaultRule: Equatable, Sendable {
    /// What happens instead of, or after, accepting the notification.
    public enum Answer: Equatable, Sendable {
        /// An HTTP response.
        case response(Response)
        /// RST_STREAM with this error code.
        case reset(code: UInt32)
        /// GOAWAY, and the end of the connection once what is left has been answered.
        case goAway(reason: String?, lastStream: LastStream)
        /// The TCP connection closes, without a word in TLS or HTTP/2.
        case drop
        /// No answer, ever.
        case silence
    }

    /// A failure of a connection, from its TLS handshake to its end.
    public enum ConnectionFault: String, CaseIterable, Sendable {
        /// SETTINGS and PINGs are answered and windows granted, and no request is answered, as by a load balancer in front
        /// of a dead backend.
        case wedge
        /// No window is granted beyond the one that each connection begins with (65,535 bytes), and none for streams.
        case noWindow = "no-window"
        /// Nothing is sent at all, not even SETTINGS.
        case noSettings = "no-settings"
    }

    /// An HTTP response.
    public struct Response: Equatable, Sendable {
        /// The value of `:status`.
        public var status: Int
        /// The `reason` of the body; one that Apple does not document is sent as it is.
        public var reason: String?
        /// How the body is written.
        public var body: Body = .whole
        /// The value of `retry-after`, in seconds.
        public var retryAfter: Int?
        /// The `timestamp` of a 410's body, in milliseconds since 1970; the time of the answer if nil.
        public var timestamp: Int64?
    }

    /// How an error's body is written.
    public enum Body: String, CaseIterable, Sendable {
        /// As APNs does, in one DATA frame.
        case whole
        /// Not at all.
        case empty
        /// In DATA frames of three bytes.
        case split
        /// As text that is not JSON, as a proxy in between would.
        case text
    }

    /// Which last-stream-id a GOAWAY names, and with it what it says of the streams under way.
    public enum LastStream: String, CaseIterable, Sendable {
        /// The highest that arrived: all are answered, also the one that met the rule.
        case exact
        /// The highest that was processed before: the one that met the rule and those above it are not.
        case accepted
        /// 0: nothing was processed, it says; notifications accepted already lose their answer.
        case zero
    }

    /// The rule as it was written, without the spaces around its parts.
    public internal(set) var text = ""
    /// The token's first digits; nil meets all.
    var prefix: TokenPrefix?
    /// The share of requests it meets, 0 to 1.
    public var rate: Double?
    /// It meets the first so many requests of each token, or the first so many connections.
    public var times: Int?
    /// It meets every so-manieth request of a connection, or connection.
    public var after: Int?
    /// The one connection it meets, or whose requests it meets, counted from 1; `nil` meets all.
    public var connection: Int?
    /// The failure of the connections that it meets; `nil` for a rule about requests.
    public var connectionFault: ConnectionFault?
    /// What happens, if anything.
    public var answer: Answer?
    /// Whether the notification counts as accepted although its answer never comes (`reset`, `drop`, `silence`).
    public var accepts = false
    /// Holds the answer back.
    public var delay: AnswerDelay?
    /// Lowers the stream limit to this.
    public var streams: Int?
    /// How long the stream limit stays lowered, in microseconds; for as long as the connection lives if nil.
    public var streamsDuration: Int64?
}

extension FaultRule {
    /// What answers a status when a rule names no reason.
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
