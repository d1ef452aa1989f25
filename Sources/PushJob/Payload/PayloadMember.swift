/// The members of a payload that Apple documents, written down once: their names, values, places and sources.
///
/// The reader of payloads, the short forms of jobs, errors, hints, the documentation and the simulator's inbox read this table. A test
/// compares the JSON Schema with it.
public enum PayloadMember: UInt8, CaseIterable, Sendable {
    // Members of `aps` that have short forms, in the order of a composed payload and of `JobMember`.
    case alert, badge, sound, threadID, category, contentAvailable, mutableContent, targetContentID, interruptionLevel
    case relevanceScore, filterCriteria
    case staleDate, contentState, timestamp, event, dismissalDate, attributesType, attributes, inputPushToken
    case inputPushChannel, contentChanged, urlArguments
    // Members of `aps` without short forms.
    case encryptedData, sessionIdentifier, keyID, messageIndex
    // Members beside `aps`.
    case mdm, containerIdentifier

    /// Apple's name.
    public var name: StaticString {
        switch self {
        case .alert: "alert"
        case .badge: "badge"
        case .sound: "sound"
        case .threadID: "thread-id"
        case .category: "category"
        case .contentAvailable: "content-available"
        case .mutableContent: "mutable-content"
        case .targetContentID: "target-content-id"
        case .interruptionLevel: "interruption-level"
        case .relevanceScore: "relevance-score"
        case .filterCriteria: "filter-criteria"
        case .staleDate: "stale-date"
        case .contentState: "content-state"
        case .timestamp: "timestamp"
        case .event: "event"
        case .dismissalDate: "dismissal-date"
        case .attributesType: "attributes-type"
        case .attributes: "attributes"
        case .inputPushToken: "input-push-token"
        case .inputPushChannel: "input-push-channel"
        case .contentChanged: "content-changed"
        case .urlArguments: "url-args"
        case .encryptedData: "encryptedData"
        case .sessionIdentifier: "sessionIdentifier"
        case .keyID: "keyID"
        case .messageIndex: "messageIndex"
        case .mdm: "mdm"
        case .containerIdentifier: "container-identifier"
        }
    }

    public var value: PayloadValue {
        switch self {
        case .alert: .alert
        case .badge: .count
        case .sound: .sound
        case .threadID, .category, .targetContentID, .filterCriteria: .text
        case .contentAvailable, .mutableContent, .inputPushToken: .flag
        case .contentChanged: .truth
        case .interruptionLevel: .interruptionLevel
        case .relevanceScore: .score
        case .staleDate, .timestamp, .dismissalDate: .time
        case .contentState, .attributes: .object
        case .event: .event
        case .attributesType, .encryptedData, .sessionIdentifier, .keyID, .messageIndex, .mdm, .containerIdentifier:
            .name
        case .inputPushChannel: .channelID
        case .urlArguments: .texts
        }
    }

    /// A rule that compares a time with the time of sending.
    public enum Clock: Equatable, Sendable {
        /// The time of sending, or a time up to this many hours earlier.
        case now(hours: Int64)
        /// A time after the time of sending, unless the activity ends.
        case ahead
    }

    /// The rule for the member's time, if there is one. An activity is active for eight hours, and the system ignores an update whose
    /// `timestamp` is older than that of the previous update. On iPhones, an update whose `stale-date` has passed is never shown: "the
    /// stale-date […] represents the date at which a Live Activity becomes stale".
    public var clock: Clock? {
        switch self {
        case .timestamp: .now(hours: 8)
        case .staleDate: .ahead
        default: nil
        }
    }

    /// True if its value can be any string.
    @inline(__always)
    var canBeText: Bool {
        switch value {
        case .text, .alert, .sound, .localizedText: true
        default: false
        }
    }

    /// The page of Apple's documentation that describes it.
    public var source: String {
        switch self {
        case .alert, .badge, .sound, .threadID, .category, .contentAvailable, .mutableContent, .targetContentID,
            .interruptionLevel, .relevanceScore, .filterCriteria:
            "Generating a remote notification"
        case .staleDate, .contentState, .timestamp, .event, .dismissalDate, .attributesType, .attributes,
            .inputPushToken, .inputPushChannel:
            "Starting and updating Live Activities with ActivityKit push notifications"
        case .contentChanged: "Updating widgets with WidgetKit push notifications"
        case .urlArguments: "Configuring Safari Push Notifications"
        case .encryptedData, .sessionIdentifier, .keyID, .messageIndex: "Accessory notifications"
        case .mdm: "Sending MDM commands to a device"
        case .containerIdentifier: "Using push notifications to signal changes"
        }
    }

    /// The member of this name in `aps`.
    /// - Parameter name: without escapes.
    @inline(__always)
    init?(inAPS name: UnsafeRawBufferPointer) {
        let candidate: PayloadMember
        switch name.count {
        case 5:
            switch name[0] {
            case UInt8(ascii: "a"): candidate = .alert
            case UInt8(ascii: "b"): candidate = .badge
            case UInt8(ascii: "s"): candidate = .sound
            case UInt8(ascii: "k"): candidate = .keyID
            default: candidate = .event
            }
        case 8: candidate = name[0] == UInt8(ascii: "c") ? .category : .urlArguments
        case 9: candidate = name[1] == UInt8(ascii: "h") ? .threadID : .timestamp
        case 10: candidate = name[0] == UInt8(ascii: "s") ? .staleDate : .attributes
        case 12: candidate = .messageIndex
        case 13: candidate = name[0] == UInt8(ascii: "c") ? .contentState : .encryptedData
        case 14: candidate = .dismissalDate
        case 15:
            switch name[0] {
            case UInt8(ascii: "m"): candidate = .mutableContent
            case UInt8(ascii: "r"): candidate = .relevanceScore
            case UInt8(ascii: "f"): candidate = .filterCriteria
            case UInt8(ascii: "a"): candidate = .attributesType
            default: candidate = .contentChanged
            }
        case 16: candidate = .inputPushToken
        case 17:
            switch name[0] {
            case UInt8(ascii: "c"): candidate = .contentAvailable
            case UInt8(ascii: "s"): candidate = .sessionIdentifier
            default: candidate = .targetContentID
            }
        case 18: candidate = name[2] == UInt8(ascii: "t") ? .interruptionLevel : .inputPushChannel
        default: return nil
        }
        guard name.isEqual(to: candidate.name) else { return nil }
        self = candidate
    }

    /// The members that belong into `aps`.
    public static let inAPS = allCases.filter { $0.rawValue < PayloadMember.mdm.rawValue }

    /// True if its name is so common that an app can have data of its own with this name beside `aps`.
    var isCommonName: Bool {
        switch self {
        case .category, .timestamp, .event, .attributes, .encryptedData, .sessionIdentifier, .keyID, .messageIndex:
            true
        default: false
        }
    }
}
