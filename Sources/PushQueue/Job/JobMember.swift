/// The members of a job that mean something to the worker (design, section 5). All others are carried along untouched.
public enum JobMember: UInt8, CaseIterable, Sendable {
    /// The producer's id.
    case id
    /// The device token.
    case token
    /// The device tokens, if the notification goes to many.
    case tokens
    /// Which configured app to send through.
    case app
    /// The `apns-topic` header.
    case topic
    /// The `apns-push-type` header.
    case pushType
    /// The `apns-priority` header.
    case priority
    /// The `apns-expiration` header, or a duration from enqueueing.
    case expiration
    /// The `apns-collapse-id` header.
    case collapseID
    /// The `apns-id` header.
    case apnsID
    /// The APNs payload.
    case payload
    /// Not before this time.
    case sendAt
    /// When the device last registered.
    case registeredAt
    /// How many attempts the job has.
    case maxAttempts
    /// What to do when an answer never came.
    case onUncertain
    /// When the producer made the job.
    case enqueuedAt
    /// For how long no other job with the same id is sent.
    case uniqueFor

    /// The member's name in a job.
    public var name: StaticString {
        switch self {
        case .id: "id"
        case .token: "token"
        case .tokens: "tokens"
        case .app: "app"
        case .topic: "topic"
        case .pushType: "push_type"
        case .priority: "priority"
        case .expiration: "expiration"
        case .collapseID: "collapse_id"
        case .apnsID: "apns_id"
        case .payload: "payload"
        case .sendAt: "send_at"
        case .registeredAt: "registered_at"
        case .maxAttempts: "max_attempts"
        case .onUncertain: "on_uncertain"
        case .enqueuedAt: "enqueued_at"
        case .uniqueFor: "unique_for"
        }
    }

    /// What a good value is, as the end of the sentence "it must be …".
    public var expectation: String {
        switch self {
        case .id, .app: "a string of 1 to 255 bytes without control characters"
        case .token: "a string of hex digits"
        case .tokens: "an array of at least one string of hex digits"
        case .topic, .pushType: "a string of 1 to 255 printable ASCII characters without spaces"
        case .priority: "1, 5 or 10"
        case .expiration:
            "0, a time in seconds (not milliseconds) since 1970, or a duration such as \"45s\", \"30m\", \"1h30m\" or \"7d\""
        case .collapseID: "a string of 1 to 64 printable ASCII characters with no space at either end"
        case .apnsID: "a UUID in the form of 8-4-4-4-12 hex digits"
        case .payload: "an object"
        case .sendAt, .registeredAt, .enqueuedAt:
            "a time in seconds (not milliseconds) since 1970, or an ISO 8601 time with Z or an offset,"
                + " such as \"2030-01-31T12:00:00Z\""
        case .maxAttempts: "an integer from 1 to 1000"
        case .onUncertain: "\"resend\" or \"drop\""
        case .uniqueFor: "a duration from one second to 30 days, such as \"45s\", \"1h30m\" or \"7d\""
        }
    }

    /// The member with this name, spelled without escapes.
    @inline(__always)
    init?(name: UnsafeRawBufferPointer) {
        let candidate: JobMember
        switch name.count {
        case 2: candidate = .id
        case 3: candidate = .app
        case 5: candidate = name[1] == UInt8(ascii: "o") && name[2] == UInt8(ascii: "k") ? .token : .topic
        case 6: candidate = .tokens
        case 7:
            switch name[0] {
            case UInt8(ascii: "p"): candidate = .payload
            case UInt8(ascii: "a"): candidate = .apnsID
            default: candidate = .sendAt
            }
        case 8: candidate = .priority
        case 9: candidate = .pushType
        case 10: candidate = name[0] == UInt8(ascii: "e") ? .expiration : .uniqueFor
        case 11: candidate = name[0] == UInt8(ascii: "c") ? .collapseID : .enqueuedAt
        case 12: candidate = name[0] == UInt8(ascii: "m") ? .maxAttempts : .onUncertain
        case 13: candidate = .registeredAt
        default: return nil
        }
        guard candidate.isNamed(name) else { return nil }
        self = candidate
    }

    @inline(__always)
    private func isNamed(_ candidate: UnsafeRawBufferPointer) -> Bool {
        candidate.isEqual(to: name)
    }
}
