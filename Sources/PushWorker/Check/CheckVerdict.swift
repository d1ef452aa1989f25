/// A finding of a check of a configuration.
public struct CheckVerdict: Sendable, Equatable, Encodable {
    /// The severity of a finding.
    public enum Level: String, Sendable, Encodable {
        case ok
        /// It works, but needs attention.
        case warning
        /// It does not work.
        case failure
    }

    /// The severity.
    public var level: Level
    /// The subject, such as `redis` or `app shop`.
    public var subject: String
    /// The finding and, if it is a problem, what to do.
    public var sentence: String
    /// The answer to a notification that was sent.
    public var answer: Answer?

    /// The answer to a notification.
    public struct Answer: Sendable, Equatable, Encodable {
        /// The device token, in hex.
        public var token: String
        /// The HTTP status, or the gateway's.
        public var status: Int?
        /// APNs' reason.
        public var reason: String?
        /// The `apns-id` of the request.
        public var apnsID: String?
        /// The `apns-unique-id` of the answer, by which Apple's console finds the notification.
        public var apnsUniqueID: String?
        /// The time since which the token has been invalid, in milliseconds since 1970.
        public var timestamp: Int64?

        enum CodingKeys: String, CodingKey {
            case token, status, reason, timestamp
            case apnsID = "apns_id"
            case apnsUniqueID = "apns_unique_id"
        }
    }

    /// Creates a finding.
    public init(_ level: Level, _ subject: String, _ sentence: String) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
    }
}
