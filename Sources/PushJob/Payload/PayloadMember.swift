/// The members of a payload that Apple documents, written down once: their names, values, places and sources.
///
/// The reader of payloads, the short forms of jobs, errors, hints, the documentation and the simulator's inbox read this table. A test
/// compares the JSON Schema with it.
public enum PayloadMember: UInt8, CaseIterable, Sendable {
    // In `aps`, and short forms: their order is that of a composed payload, and of `JobMember`.
    case alert, badge, sound, threadID, category, contentAvailable, mutableContent, targetContentID, interruptionLevel
    case relevanceScore, filterCriteria
    case staleDate, contentState, timestamp, event, dismissalDate, attributesType, attributes, inputPushToken
    case inputPushChannel, contentChanged, urlArguments
    // In `aps`, and no short forms.
    case encryptedData, sessionIdentifier, keyID, messageIndex
    // Beside `aps`.
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
        /// The time of sending. It may be this many hours old.
        case now(hours: Int64)
        /// A later time, unless the activity ends.
        case ahead
    }

    /// The rule for its time, if there is one. The system ignores an update whose `timestamp` is older than that of the last one, and an
    /// activity is active for eight hours. On iPhones, an update whose `stale-date` has passed is never shown: "the stale-date […]
    /// represents the date at which a Live Activity becomes stale".
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

/// The members of values that are objects: of an alert, of the texts in it, and of a sound.
///
/// Sources: Apple, "Generating a remote notification" (tables of the dictionaries `alert` and `sound`); "Configuring Safari Push
/// Notifications" (`action`); "Starting and updating Live Activities with ActivityKit push notifications" (`sound` in an alert, and a title
/// or body that is an object with a key and arguments). iOS ignores `summary-arg` and `summary-arg-count` since version 15.
public enum PayloadPart: UInt8, CaseIterable, Sendable {
    case title, subtitle, body, launchImage
    case titleLocKey, titleLocArgs, subtitleLocKey, subtitleLocArgs, locKey, locArgs
    case action, actionLocKey, alertSound, summaryArgument, summaryArgumentCount
    // Of a sound.
    case critical, name, volume

    /// Apple's name. A job can spell it with `_` or `-`.
    public var appleName: StaticString {
        switch self {
        case .title: "title"
        case .subtitle: "subtitle"
        case .body: "body"
        case .launchImage: "launch-image"
        case .titleLocKey: "title-loc-key"
        case .titleLocArgs: "title-loc-args"
        case .subtitleLocKey: "subtitle-loc-key"
        case .subtitleLocArgs: "subtitle-loc-args"
        case .locKey: "loc-key"
        case .locArgs: "loc-args"
        case .action: "action"
        case .actionLocKey: "action-loc-key"
        case .alertSound: "sound"
        case .summaryArgument: "summary-arg"
        case .summaryArgumentCount: "summary-arg-count"
        case .critical: "critical"
        case .name: "name"
        case .volume: "volume"
        }
    }

    public var value: PayloadValue {
        switch self {
        case .title, .subtitle, .body: .localizedText
        case .titleLocArgs, .subtitleLocArgs, .locArgs: .texts
        case .summaryArgumentCount: .count
        case .critical: .zeroOrOne
        case .volume: .fraction
        case .launchImage, .titleLocKey, .subtitleLocKey, .locKey, .action, .actionLocKey, .alertSound,
            .summaryArgument, .name:
            .text
        }
    }

    /// True if a device shows its text.
    var isShown: Bool {
        switch self {
        case .title, .subtitle, .body, .titleLocKey, .subtitleLocKey, .locKey: true
        default: false
        }
    }

    /// Its name as it is spelled in a job or a payload.
    func name(in dialect: PayloadDialect) -> String {
        dialect == .job ? "\(appleName)".replacing("-", with: "_") : "\(appleName)"
    }

    /// Reads the name of an object's member, and moves to its value.
    static func read(
        _ scanner: inout JSONScanner, among parts: PayloadParts, in dialect: PayloadDialect
    ) throws(JSONError) -> PayloadPart? {
        JSONText.withCharacters(of: try scanner.name(), in: scanner.bytes) { named($0, among: parts, in: dialect) }
    }

    /// Returns the part with a name, if it is one of `parts`.
    /// - Parameter name: without escapes.
    @inline(__always)
    static func named(
        _ name: UnsafeRawBufferPointer, among parts: PayloadParts, in dialect: PayloadDialect
    ) -> PayloadPart? {
        let candidate: PayloadPart
        switch name.count {
        case 4: candidate = name[0] == UInt8(ascii: "b") ? .body : .name
        case 5: candidate = name[0] == UInt8(ascii: "t") ? .title : .alertSound
        case 6: candidate = name[0] == UInt8(ascii: "a") ? .action : .volume
        case 7: candidate = .locKey
        case 8:
            candidate =
                name[0] == UInt8(ascii: "s") ? .subtitle : name[0] == UInt8(ascii: "l") ? .locArgs : .critical
        case 11: candidate = .summaryArgument
        case 12: candidate = .launchImage
        case 13: candidate = .titleLocKey
        case 14: candidate = name[0] == UInt8(ascii: "t") ? .titleLocArgs : .actionLocKey
        case 16: candidate = .subtitleLocKey
        case 17: candidate = name[2] == UInt8(ascii: "b") ? .subtitleLocArgs : .summaryArgumentCount
        default: return nil
        }
        return parts.contains(candidate) && candidate.isSpelled(name, in: dialect) ? candidate : nil
    }

    private func isSpelled(_ candidate: UnsafeRawBufferPointer, in dialect: PayloadDialect) -> Bool {
        guard candidate.count == appleName.utf8CodeUnitCount else { return false }
        if candidate.isEqual(to: appleName) { return true }
        guard dialect == .job else { return false }
        for (index, byte) in candidate.enumerated() {
            let expected = appleName.utf8Start[index]
            if byte != expected, expected != UInt8(ascii: "-") || byte != UInt8(ascii: "_") { return false }
        }
        return true
    }
}

/// A set of ``PayloadPart``.
public struct PayloadParts: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    private init(_ part: PayloadPart) { rawValue = 1 &<< UInt32(part.rawValue) }

    /// The parts before those of a sound.
    static let alert = PayloadParts(rawValue: PayloadParts(.critical).rawValue &- 1)
    static let localizedText = PayloadParts(.locKey).union(PayloadParts(.locArgs))
    static let sound = PayloadParts(.critical).union(PayloadParts(.name)).union(PayloadParts(.volume))

    @inline(__always)
    func contains(_ part: PayloadPart) -> Bool { rawValue & PayloadParts(part).rawValue != 0 }

    @inline(__always)
    mutating func insert(_ part: PayloadPart) { formUnion(PayloadParts(part)) }
}
