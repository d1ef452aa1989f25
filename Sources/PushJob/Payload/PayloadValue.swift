import PrintableText

/// The value of a payload's member, as Apple documents it.
public enum PayloadValue: Equatable, Sendable {
    case text
    /// A string that is not empty.
    case name
    case channelID
    /// 1, or absent.
    case flag
    /// True, or absent.
    case truth
    /// 1 or 0.
    case zeroOrOne
    /// An integer of at least 0.
    case count
    /// A number from 0 to 1 or, for a Live Activity, any number.
    case score
    /// A number from 0 to 1.
    case fraction
    /// A time in seconds since 1970.
    case time
    case interruptionLevel, event, object
    case texts
    /// A string, or an object of ``PayloadParts/alert``.
    case alert
    /// A string, or an object with the key of a localized string of the app.
    case localizedText
    /// The name of a sound, or an object.
    case sound

    static let interruptionLevels: [StaticString] = ["passive", "active", "time-sensitive", "critical"]
    static let events: [StaticString] = ["start", "update", "end"]

    /// The strings that are allowed; `nil` if there is no such list.
    public var choices: [StaticString]? {
        switch self {
        case .interruptionLevel: Self.interruptionLevels
        case .event: Self.events
        default: nil
        }
    }

    /// The members of the value if it is an object; `nil` if it can't be one, or if its members are the app's.
    public var parts: PayloadParts? {
        switch self {
        case .alert: .alert
        case .localizedText: .localizedText
        case .sound: .sound
        default: nil
        }
    }

    /// The end of the sentence "it must be …".
    public func expectation(in dialect: PayloadDialect) -> String {
        switch self {
        case .text: return "a string"
        case .name: return "a string that is not empty"
        case .channelID: return "a channel ID as APNs gave it: a string of 1 to 255 base64 characters"
        case .flag: return dialect == .job ? "true, false, 1 or 0" : "the number 1"
        case .truth: return dialect == .job ? "true, false, 1 or 0" : "true"
        case .zeroOrOne: return dialect == .job ? "true, false, 1 or 0" : "the number 1 or 0"
        case .count: return "an integer of at least 0"
        case .score: return "a number from 0 to 1 or, for a Live Activity, any number"
        case .fraction: return "a number from 0 to 1"
        case .time where dialect == .job:
            return "a time in seconds (not milliseconds) since 1970, or an ISO 8601 time with Z or an offset,"
                + " such as \"2030-01-31T12:00:00Z\""
        case .time: return "a number of seconds (not milliseconds) since 1970"
        case .interruptionLevel, .event:
            return (choices ?? []).map { "\"\($0)\"" }.joined(by: "or")
        case .object: return "an object"
        case .texts: return "an array of strings"
        case .alert: return "a string or an object, such as {\"title\": \"…\", \"body\": \"…\"}"
        case .localizedText: return "a string"
        case .sound: return "the name of a sound, or an object of `name`, `critical` and `volume`"
        }
    }

    /// The kinds of values that can be valid.
    func kinds(in dialect: PayloadDialect) -> Set<JSONKind> {
        switch self {
        case .text, .name, .channelID, .interruptionLevel, .event: [.text]
        case .flag, .truth, .zeroOrOne: dialect == .job ? [.number, .truth] : [.number]
        case .count, .score, .fraction: [.number]
        case .time: dialect == .job ? [.number, .text] : [.number]
        case .object: [.object]
        case .texts: [.array]
        case .alert, .localizedText, .sound: [.text, .object]
        }
    }
}

/// The spelling of a value.
public enum PayloadDialect: Sendable {
    /// As a short form of a job: with `_` in names, flags as true or 1, and times in all forms of a job.
    case job
    /// As Apple documents it for a payload.
    case payload
}

/// The result of reading a value.
enum ValueReading {
    /// It has no effect: null or, for a flag, 0 or false.
    case absent
    case valid
    /// It can be understood, but it is not as Apple documents it, or has members that Apple does not document.
    case odd
    /// It can't be understood. The position of the scanner is undefined.
    case invalid
}

// Reading a value.
extension PayloadValue {
    /// - Parameters:
    ///   - scanner: at the value.
    ///   - showsText: set to true if there is a text to show.
    func read(
        _ scanner: inout JSONScanner, as dialect: PayloadDialect, showsText: inout Bool
    ) throws(JSONError) -> ValueReading {
        if scanner.next == UInt8(ascii: "n") {
            try scanner.skipLiteral()
            return .absent
        }
        switch self {
        case .text:
            guard scanner.next == UInt8(ascii: "\"") else { return .invalid }
            if !(try scanner.string()).range.isEmpty { showsText = true }
            return .valid
        case .name: return try Self.skipText(&scanner) { !$0.isEmpty } ? .valid : .invalid
        case .channelID: return try Self.skipText(&scanner, MemberRules.isChannelID) ? .valid : .invalid
        case .flag, .truth: return try readFlag(&scanner, dialect)
        case .zeroOrOne:
            let isLiteral = scanner.next == UInt8(ascii: "t") || scanner.next == UInt8(ascii: "f")
            guard try scanner.flag() != nil else { return .invalid }
            return isLiteral && dialect == .payload ? .odd : .valid
        case .count: return try scanner.integer(in: 0...Int64.max) != nil ? .valid : .invalid
        case .score: return try scanner.finiteNumber() != nil ? .valid : .invalid
        case .fraction: return try scanner.finiteNumber().map { (0...1).contains($0) } ?? false ? .valid : .invalid
        case .time:
            if dialect == .job { return try JobTime.read(&scanner) != nil ? .valid : .invalid }
            return try scanner.number().flatMap { JobTime.seconds($0) } != nil ? .valid : .invalid
        case .interruptionLevel: return try Self.readChoice(&scanner, Self.interruptionLevels)
        case .event: return try Self.readChoice(&scanner, Self.events)
        case .object:
            if dialect == .job, try scanner.skipEmptyArray() { return .valid }
            guard scanner.next == UInt8(ascii: "{") else { return .invalid }
            // The object is one level deeper in a payload than in a job.
            try scanner.skipValue(levelsDown: dialect == .job ? 1 : 0)
            return .valid
        case .texts: return try Self.skipTexts(&scanner) ? .valid : .invalid
        case .alert, .localizedText, .sound:
            guard let parts, scanner.next == UInt8(ascii: "{") else {
                return try PayloadValue.text.read(&scanner, as: dialect, showsText: &showsText)
            }
            return try Self.readParts(&scanner, parts, dialect, &showsText)
        }
    }

    private static func readParts(
        _ scanner: inout JSONScanner, _ parts: PayloadParts, _ dialect: PayloadDialect, _ showsText: inout Bool
    ) throws(JSONError) -> ValueReading {
        var seen: PayloadParts = []
        var reading = ValueReading.valid
        var more = try scanner.enterObject()
        while more {
            if let part = try PayloadPart.read(&scanner, among: parts, in: dialect), !seen.contains(part) {
                seen.insert(part)
                if scanner.next == UInt8(ascii: "\""), part.isShown {
                    // A shortcut for most values.
                    if !(try scanner.string()).range.isEmpty { showsText = true }
                    more = try scanner.nextMember()
                    continue
                }
                var hasText = false
                switch try part.value.read(&scanner, as: dialect, showsText: &hasText) {
                case .absent, .valid: break
                case .odd: reading = .odd
                case .invalid: return .invalid
                }
                if hasText, part.isShown { showsText = true }
            } else {
                guard dialect == .payload else { return .invalid }
                reading = .odd
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        return reading
    }

    private func readFlag(
        _ scanner: inout JSONScanner, _ dialect: PayloadDialect
    ) throws(JSONError) -> ValueReading {
        let isTrue = scanner.next == UInt8(ascii: "t")
        guard let isSet = try scanner.flag() else { return .invalid }
        guard isSet else { return .absent }
        return isTrue && self == .flag && dialect == .payload ? .odd : .valid
    }

    private static func readChoice(
        _ scanner: inout JSONScanner, _ choices: [StaticString]
    ) throws(JSONError) -> ValueReading {
        try skipText(&scanner) { text in choices.contains { text.isEqual(to: $0) } } ? .valid : .invalid
    }

    private static func skipText(
        _ scanner: inout JSONScanner, _ rule: (UnsafeRawBufferPointer) -> Bool = { _ in true }
    ) throws(JSONError) -> Bool {
        guard scanner.next == UInt8(ascii: "\"") else { return false }
        return JSONText.withCharacters(of: try scanner.string(), in: scanner.bytes, rule)
    }

    /// Steps over an array of strings, which may be empty.
    private static func skipTexts(_ scanner: inout JSONScanner) throws(JSONError) -> Bool {
        guard scanner.next == UInt8(ascii: "[") else { return false }
        var more = try scanner.enterArray()
        while more {
            guard try skipText(&scanner) else { return false }
            more = try scanner.nextElement()
        }
        return true
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

    /// All parts before `critical`, the first part of a sound.
    static let alert = PayloadParts(rawValue: PayloadParts(.critical).rawValue &- 1)
    static let localizedText = PayloadParts(.locKey).union(PayloadParts(.locArgs))
    static let sound = PayloadParts(.critical).union(PayloadParts(.name)).union(PayloadParts(.volume))

    @inline(__always)
    func contains(_ part: PayloadPart) -> Bool { rawValue & PayloadParts(part).rawValue != 0 }

    @inline(__always)
    mutating func insert(_ part: PayloadPart) { formUnion(PayloadParts(part)) }
}
