/// A finding of a check of a configuration.
package struct CheckVerdict: Sendable, Equatable, Encodable {
    package enum Level: String, Sendable, Encodable {
        case ok
        /// The subject works, but needs attention.
        case warning
        /// The subject does not work.
        case failure
    }

    package var level: Level
    /// The subject, such as `redis` or `app shop`.
    package var subject: String
    /// The finding and, for a problem, the first step to mend it.
    package var sentence: String
    package var answer: Answer?

    /// The answer to a notification.
    package struct Answer: Sendable, Equatable, Encodable {
        /// The device token, in hex.
        package var token: String
        /// The HTTP status, or the status of the gateway.
        package var status: Int?
        package var reason: String?
        package var apnsID: String?
        /// The `apns-unique-id` of the answer, which finds the notification in Apple's console.
        package var apnsUniqueID: String?
        /// The time since which the token is invalid according to APNs, in milliseconds since 1970.
        package var timestamp: Int64?

        enum CodingKeys: String, CodingKey {
            case token, status, reason, timestamp
            case apnsID = "apns_id"
            case apnsUniqueID = "apns_unique_id"
        }
    }

    package init(_ level: Level, _ subject: String, _ sentence: String) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
    }
}
