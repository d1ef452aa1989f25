/// The value of a payload's member, as Apple documents it.
package enum PayloadValue: Equatable, Sendable {
    /// Any string.
    case text
    /// A string that is not empty.
    case name
    /// A broadcast channel's ID.
    case channelID
    /// 1, or absent.
    case flag
    /// True, or absent.
    case truth
    /// 1 or 0.
    case zeroOrOne
    /// An integer of at least 0.
    case count
    /// A number from 0 to 1 or, for a Live Activity, any.
    case score
    /// A number from 0 to 1.
    case fraction
    /// A time in seconds since 1970.
    case time
    case interruptionLevel
    case event
    case object
    /// An array of strings.
    case texts
    /// A string, or an object of ``PayloadParts/alert``.
    case alert
    /// A string, or an object with the key of one in the app's tables.
    case localizedText
    /// The name of a sound, or an object.
    case sound

    static let interruptionLevels: [StaticString] = ["passive", "active", "time-sensitive", "critical"]
    static let events: [StaticString] = ["start", "update", "end"]

    /// The strings that are allowed; `nil` if there is no such list.
    package var choices: [StaticString]? {
        switch self {
        case .interruptionLevel: Self.interruptionLevels
        case .event: Self.events
        default: nil
        }
    }

    /// The members of the value if it is an object; `nil` if it can't be one, or if its members are the app's.
    package var parts: PayloadParts? {
        switch self {
        case .alert: .alert
        case .localizedText: .localizedText
        case .sound: .sound
        default: nil
        }
    }

    /// The description of a valid value, as the end of the sentence "it must be …".
    package func expectation(in dialect: PayloadDialect) -> String {
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
            let names = (choices ?? []).map { "\"\($0)\"" }
            return names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
        case .object: return "an object"
        case .texts: return "an array of strings"
        case .alert: return "a string or an object, such as {\"title\": \"…\", \"body\": \"…\"}"
        case .localizedText: return "a string"
        case .sound: return "the name of a sound, or an object of `name`, `critical` and `volume`"
        }
    }
}

/// The way in which a value is written.
package enum PayloadDialect: Sendable {
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
    /// It is something else. The position of the scanner is undefined.
    case invalid
}

extension JSONScanner {
    /// Reads a value of a payload's member.
    /// - Parameter showsText: set to true if there is a text to show.
    mutating func read(
        _ value: PayloadValue, as dialect: PayloadDialect, showsText: inout Bool
    ) throws(JSONError) -> ValueReading {
        if next == UInt8(ascii: "n") {
            try skipLiteral()
            return .absent
        }
        switch value {
        case .text:
            guard next == UInt8(ascii: "\"") else { return .invalid }
            if !(try string()).range.isEmpty { showsText = true }
            return .valid
        case .name: return try skipText { !$0.isEmpty } ? .valid : .invalid
        case .channelID: return try skipText(MemberRules.isChannelID) ? .valid : .invalid
        case .flag, .truth: return try readFlag(value, dialect)
        case .zeroOrOne:
            let isLiteral = next == UInt8(ascii: "t") || next == UInt8(ascii: "f")
            guard try flag() != nil else { return .invalid }
            return isLiteral && dialect == .payload ? .odd : .valid
        case .count: return try integer(in: 0...Int64.max) != nil ? .valid : .invalid
        case .score: return try finiteNumber() != nil ? .valid : .invalid
        case .fraction: return try finiteNumber().map { (0...1).contains($0) } ?? false ? .valid : .invalid
        case .time:
            if dialect == .job { return try time() != nil ? .valid : .invalid }
            return try number().flatMap { JobTime.seconds($0) } != nil ? .valid : .invalid
        case .interruptionLevel: return try readChoice(PayloadValue.interruptionLevels)
        case .event: return try readChoice(PayloadValue.events)
        case .object:
            guard next == UInt8(ascii: "{") else { return .invalid }
            // It is one level deeper in a payload than in a job.
            try skipValue(levelsDown: dialect == .job ? 1 : 0)
            return .valid
        case .texts: return try skipTexts() ? .valid : .invalid
        case .alert, .localizedText, .sound:
            guard let parts = value.parts, next == UInt8(ascii: "{") else {
                return try read(.text, as: dialect, showsText: &showsText)
            }
            return try readParts(parts, dialect, &showsText)
        }
    }

    private mutating func readParts(
        _ parts: PayloadParts, _ dialect: PayloadDialect, _ showsText: inout Bool
    ) throws(JSONError) -> ValueReading {
        var seen: PayloadParts = []
        var reading = ValueReading.valid
        var more = try enterObject()
        while more {
            if let part = try part(among: parts, dialect), !seen.contains(part) {
                seen.insert(part)
                if next == UInt8(ascii: "\""), part.isShown {
                    // Most values, without the rest.
                    if !(try string()).range.isEmpty { showsText = true }
                    more = try nextMember()
                    continue
                }
                var hasText = false
                switch try read(part.value, as: dialect, showsText: &hasText) {
                case .absent, .valid: break
                case .odd: reading = .odd
                case .invalid: return .invalid
                }
                if hasText, part.isShown { showsText = true }
            } else {
                guard dialect == .payload else { return .invalid }
                reading = .odd
                try skipValue()
            }
            more = try nextMember()
        }
        return reading
    }

    /// Reads the name of an object's member, and moves to its value.
    mutating func part(among parts: PayloadParts, _ dialect: PayloadDialect) throws(JSONError) -> PayloadPart? {
        JSONText.withCharacters(of: try name(), in: bytes) { PayloadPart.named($0, among: parts, in: dialect) }
    }

    private mutating func readFlag(_ value: PayloadValue, _ dialect: PayloadDialect) throws(JSONError) -> ValueReading {
        let isTrue = next == UInt8(ascii: "t")
        guard let isSet = try flag() else { return .invalid }
        guard isSet else { return .absent }
        return isTrue && value == .flag && dialect == .payload ? .odd : .valid
    }

    private mutating func readChoice(_ choices: [StaticString]) throws(JSONError) -> ValueReading {
        try skipText { text in choices.contains { text.isEqual(to: $0) } } ? .valid : .invalid
    }

    /// Steps over a string.
    private mutating func skipText(_ rule: (UnsafeRawBufferPointer) -> Bool = { _ in true }) throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "\"") else { return false }
        return JSONText.withCharacters(of: try string(), in: bytes, rule)
    }

    /// Steps over an array of strings, which may be empty.
    private mutating func skipTexts() throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "[") else { return false }
        var more = try enterArray()
        while more {
            guard try skipText() else { return false }
            more = try nextElement()
        }
        return true
    }

    /// Steps over true, false, 1 or 0.
    mutating func flag() throws(JSONError) -> Bool? {
        switch next {
        case UInt8(ascii: "t"), UInt8(ascii: "f"):
            let isSet = next == UInt8(ascii: "t")
            try skipLiteral()
            return isSet
        default: return try integer(in: 0...1).map { $0 == 1 }
        }
    }

    /// Steps over a number that a `Double` can hold.
    mutating func finiteNumber() throws(JSONError) -> Double? {
        guard let number = try number(), let value = Double(String(decoding: number, as: UTF8.self)), value.isFinite
        else { return nil }
        return value
    }

    /// Steps over a time: seconds since 1970, or ISO 8601.
    /// - Returns: milliseconds since 1970.
    mutating func time() throws(JSONError) -> Int64? {
        guard next == UInt8(ascii: "\"") else { return try number().flatMap { JobTime.seconds($0) } }
        return JSONText.withCharacters(of: try string(), in: bytes) { JobTime.iso8601($0) }
    }
}
