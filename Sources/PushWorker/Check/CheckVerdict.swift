/// One line of what a check of a configuration found.
public struct CheckVerdict: Sendable, Equatable, Encodable {
    /// How it is.
    public enum Level: String, Sendable, Encodable {
        case ok
        /// It works, and somebody should know.
        case warning
        /// It does not work.
        case failure
    }

    /// How it is.
    public var level: Level
    /// The subject, such as `redis` or `app shop`.
    public var subject: String
    /// The finding and, if it is bad, what to do.
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
        /// The `apns-id` that was sent.
        public var apnsID: String?
        /// The `apns-unique-id` that APNs answered, by which Apple's console finds the notification.
        public var apnsUniqueID: String?
        /// The time since which the token is not valid, in milliseconds since 1970.
        public var timestamp: Int64?

        enum CodingKeys: String, CodingKey {
            case token, status, reason, timestamp
            case apnsID = "apns_id"
            case apnsUniqueID = "apns_unique_id"
        }
    }

    /// Makes a verdict.
    public init(_ level: Level, _ subject: String, _ sentence: String) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
    }
}
