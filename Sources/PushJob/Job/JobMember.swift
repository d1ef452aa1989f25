/// The members of a job that the worker knows (docs/jobs.md). All others stay in the job unchanged.
public enum JobMember: UInt8, CaseIterable, Sendable {
    case id, token, tokens, app, topic, pushType, priority
    /// The `apns-expiration` header, or a duration from enqueueing.
    case expiration
    case collapseID, apnsID, payload, sendAt
    /// The time of the device's last registration.
    case registeredAt
    case maxAttempts
    /// The action if an answer never arrives.
    case onUncertain
    /// The time at which the producer made the job.
    case enqueuedAt
    /// The time for which no other job with the same id is sent.
    case uniqueFor
    /// The broadcast channel, instead of a device.
    case channel
    /// True to send notifications with the same content to the same device only once.
    case collapseDuplicates
    /// True to allow the alert's body to be shortened so that the payload fits.
    case truncate
    /// The trace that the job belongs to, in the format of W3C Trace Context.
    case traceparent
    case campaign, labels
    /// True to keep the job's results, whatever results its queue keeps.
    case keepResult
    /// The key of the job's share of the queue.
    case fair
    /// The maximum number of notifications per second for jobs with the same `fair`.
    case fairPerSecond
    /// True to send the job before the other jobs that wait in its queue.
    case urgent
    case environment
    /// Of the jobs with the same key, only the newest is sent.
    case replaces

    // The short forms. Those for `aps` come first, in the order of ``PayloadMember``, which is also their order in a composed payload.
    case alert, badge, sound, threadID, category, contentAvailable, mutableContent, targetContentID, interruptionLevel
    case relevanceScore, filterCriteria, staleDate, contentState, timestamp, event, dismissalDate, attributesType
    case attributes, inputPushToken, inputPushChannel, contentChanged, urlArguments
    /// The push magic, beside `aps`.
    case mdm
    /// Members beside `aps`.
    case custom

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
        case .channel: "channel"
        case .collapseDuplicates: "collapse_duplicates"
        case .truncate: "truncate"
        case .traceparent: "traceparent"
        case .campaign: "campaign"
        case .labels: "labels"
        case .keepResult: "keep_result"
        case .fair: "fair"
        case .fairPerSecond: "fair_per_second"
        case .urgent: "urgent"
        case .environment: "environment"
        case .replaces: "replaces"
        case .alert: "alert"
        case .badge: "badge"
        case .sound: "sound"
        case .threadID: "thread_id"
        case .category: "category"
        case .contentAvailable: "content_available"
        case .mutableContent: "mutable_content"
        case .targetContentID: "target_content_id"
        case .interruptionLevel: "interruption_level"
        case .relevanceScore: "relevance_score"
        case .filterCriteria: "filter_criteria"
        case .staleDate: "stale_date"
        case .contentState: "content_state"
        case .timestamp: "timestamp"
        case .event: "event"
        case .dismissalDate: "dismissal_date"
        case .attributesType: "attributes_type"
        case .attributes: "attributes"
        case .inputPushToken: "input_push_token"
        case .inputPushChannel: "input_push_channel"
        case .contentChanged: "content_changed"
        case .urlArguments: "url_args"
        case .mdm: "mdm"
        case .custom: "custom"
        }
    }

    /// True for the members that identify a job in dead letters, results and logs.
    var identifies: Bool {
        switch self {
        case .id, .token, .channel, .app, .topic, .campaign, .labels, .traceparent: true
        default: false
        }
    }

    /// True for a part of the payload: a job has either short forms or a `payload`.
    public var isShortForm: Bool { rawValue >= JobMember.alert.rawValue }

    /// The short forms that go into `aps`, in the order in which they are written there.
    public static let apsMembers = allCases[(Int(JobMember.alert.rawValue))...Int(JobMember.urlArguments.rawValue)]

    /// The member with this name, spelled without escapes.
    @inline(__always)
    init?(name: UnsafeRawBufferPointer) {
        let candidate: JobMember
        switch name.count {
        case 2: candidate = .id
        case 3: candidate = name[0] == UInt8(ascii: "a") ? .app : .mdm
        case 4: candidate = .fair
        case 5:
            switch name[0] {
            case UInt8(ascii: "t"):
                candidate = name[1] == UInt8(ascii: "o") && name[2] == UInt8(ascii: "k") ? .token : .topic
            case UInt8(ascii: "a"): candidate = .alert
            case UInt8(ascii: "b"): candidate = .badge
            case UInt8(ascii: "s"): candidate = .sound
            default: candidate = .event
            }
        case 6:
            switch name[0] {
            case UInt8(ascii: "t"): candidate = .tokens
            case UInt8(ascii: "l"): candidate = .labels
            case UInt8(ascii: "u"): candidate = .urgent
            default: candidate = .custom
            }
        case 7:
            switch name[0] {
            case UInt8(ascii: "p"): candidate = .payload
            case UInt8(ascii: "a"): candidate = .apnsID
            case UInt8(ascii: "s"): candidate = .sendAt
            default: candidate = .channel
            }
        case 8:
            switch name[0] {
            case UInt8(ascii: "p"): candidate = .priority
            case UInt8(ascii: "c"): candidate = name[2] == UInt8(ascii: "m") ? .campaign : .category
            case UInt8(ascii: "t"): candidate = .truncate
            case UInt8(ascii: "r"): candidate = .replaces
            default: candidate = .urlArguments
            }
        case 9:
            switch name[1] {
            case UInt8(ascii: "u"): candidate = .pushType
            case UInt8(ascii: "h"): candidate = .threadID
            default: candidate = .timestamp
            }
        case 10:
            switch name[0] {
            case UInt8(ascii: "e"): candidate = .expiration
            case UInt8(ascii: "u"): candidate = .uniqueFor
            case UInt8(ascii: "s"): candidate = .staleDate
            default: candidate = .attributes
            }
        case 11:
            switch name[0] {
            case UInt8(ascii: "c"): candidate = .collapseID
            case UInt8(ascii: "t"): candidate = .traceparent
            case UInt8(ascii: "k"): candidate = .keepResult
            default: candidate = name[2] == UInt8(ascii: "v") ? .environment : .enqueuedAt
            }
        case 12: candidate = name[0] == UInt8(ascii: "m") ? .maxAttempts : .onUncertain
        case 13: candidate = name[0] == UInt8(ascii: "r") ? .registeredAt : .contentState
        case 14: candidate = .dismissalDate
        case 15:
            switch name[0] {
            case UInt8(ascii: "r"): candidate = .relevanceScore
            case UInt8(ascii: "m"): candidate = .mutableContent
            case UInt8(ascii: "a"): candidate = .attributesType
            case UInt8(ascii: "f"): candidate = name[1] == UInt8(ascii: "i") ? .filterCriteria : .fairPerSecond
            default: candidate = .contentChanged
            }
        case 16: candidate = .inputPushToken
        case 17: candidate = name[0] == UInt8(ascii: "c") ? .contentAvailable : .targetContentID
        case 18: candidate = name[2] == UInt8(ascii: "t") ? .interruptionLevel : .inputPushChannel
        case 19: candidate = .collapseDuplicates
        default: return nil
        }
        guard name.isEqual(to: candidate.name) else { return nil }
        self = candidate
    }
}

// Values.
extension JobMember {
    /// The end of the sentence "it must be …".
    public var expectation: String {
        switch self {
        case .id, .app: "a string of 1 to 255 bytes without control characters"
        case .token: "a string of hex digits or base64"
        case .tokens: "an array of at least one string of hex digits or base64"
        case .topic, .pushType: "a string of 1 to 255 printable ASCII characters without spaces"
        case .priority: "1, 5 or 10"
        case .expiration:
            "0, a time in seconds (not milliseconds) since 1970, an ISO 8601 time with Z or an offset, or a duration such as"
                + " \"45s\", \"30m\", \"1h30m\" or \"7d\""
        case .collapseID: "a string of 1 to 64 printable ASCII characters with no space at either end"
        case .apnsID: "a UUID in the form of 8-4-4-4-12 hex digits"
        case .payload: "an object"
        case .sendAt, .registeredAt, .enqueuedAt: PayloadValue.time.expectation(in: .job)
        case .maxAttempts: "an integer from 1 to 1000"
        case .onUncertain: "\"resend\" or \"drop\""
        case .uniqueFor: "a duration from one second to 30 days, such as \"45s\", \"1h30m\" or \"7d\""
        case .channel: PayloadValue.channelID.expectation(in: .job)
        case .collapseDuplicates, .truncate, .keepResult, .urgent: "true or false"
        case .environment: "\"production\" or \"sandbox\""
        case .fairPerSecond: "an integer from 1 to 1000000"
        case .traceparent:
            "a W3C traceparent such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        case .campaign, .fair, .replaces:
            "a string of 1 to \(JobLabels.maximumCampaign) bytes without control characters"
        case .labels:
            "an object of up to \(JobLabels.maximumCount) strings, with names and values of 1 to \(JobLabels.maximumLength)"
                + " bytes without control characters"
        case .custom: "an object without `aps`, and without `mdm` if the job has its own `mdm`"
        default: payloadMember?.value.expectation(in: .job) ?? "a valid value"
        }
    }

    /// The kinds of values that can be valid.
    var kinds: Set<JSONKind> {
        switch self {
        case .id, .token, .app, .topic, .pushType, .collapseID, .apnsID, .onUncertain, .uniqueFor, .channel,
            .traceparent, .campaign, .fair, .environment, .replaces:
            [.text]
        case .tokens: [.array]
        case .priority, .maxAttempts, .fairPerSecond: [.number]
        case .expiration, .sendAt, .registeredAt, .enqueuedAt: [.number, .text]
        case .collapseDuplicates, .truncate, .keepResult, .urgent: [.truth]
        case .payload, .labels, .custom: [.object]
        default: payloadMember?.value.kinds(in: .job) ?? []
        }
    }

    /// The payload's member for a short form; `nil` for `custom` and for other members.
    public var payloadMember: PayloadMember? {
        if self == .mdm { return .mdm }
        guard rawValue >= JobMember.alert.rawValue, rawValue <= JobMember.urlArguments.rawValue else { return nil }
        return PayloadMember(rawValue: rawValue - JobMember.alert.rawValue)
    }
}
