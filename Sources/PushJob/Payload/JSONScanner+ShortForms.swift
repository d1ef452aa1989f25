// Steps over the values of short forms. Each function returns whether the value is valid; if not, the position of the
// scanner is undefined.
extension JSONScanner {
    mutating func skipShortForm(_ kind: ShortFormKind) throws(JSONError) -> Bool {
        switch kind {
        case .text: try skipText()
        case .name: try skipText { !$0.isEmpty }
        case .channelID: try skipText(MemberRules.isChannelID)
        case .flag: try flag() != nil
        case .count: try integer(in: 0...Int64.max) != nil
        case .score: try finiteNumber() != nil
        case .time: try time() != nil
        case .interruptionLevel:
            try skipText { text in
                text.isEqual(to: "passive") || text.isEqual(to: "active") || text.isEqual(to: "time-sensitive")
                    || text.isEqual(to: "critical")
            }
        case .event:
            try skipText { $0.isEqual(to: "start") || $0.isEqual(to: "update") || $0.isEqual(to: "end") }
        case .object: try skipObjectOneDeeper()
        case .texts: try skipTexts()
        case .alert: try skipAlert()
        case .sound: try skipSound()
        case .custom: try skipCustom() != nil
        }
    }

    /// Steps over a string.
    mutating func skipText(_ rule: (UnsafeRawBufferPointer) -> Bool = { _ in true }) throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "\"") else { return false }
        return JSONText.withCharacters(of: try string(), in: bytes, rule)
    }

    /// Steps over an array of strings, which may be empty.
    mutating func skipTexts() throws(JSONError) -> Bool {
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

    /// Steps over an object that is one level deeper in the payload than in the job.
    private mutating func skipObjectOneDeeper() throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "{") else { return false }
        try skipValue(levelsDown: 1)
        return true
    }

    /// Steps over a text or an object of the alert's members.
    private mutating func skipAlert() throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "{") else { return try skipText() }
        var seen: UInt32 = 0
        var more = try enterObject()
        while more {
            guard let member = try alertMember(), seen & 1 << member.rawValue == 0 else { return false }
            seen |= 1 << member.rawValue
            guard try skipAlertValue(of: member) else { return false }
            more = try nextMember()
        }
        return true
    }

    /// Reads the name of an alert's member, and moves to its value.
    mutating func alertMember() throws(JSONError) -> AlertMember? {
        JSONText.withCharacters(of: try name(), in: bytes) { AlertMember($0) }
    }

    private mutating func skipAlertValue(of member: AlertMember) throws(JSONError) -> Bool {
        if next == UInt8(ascii: "n") {
            try skipLiteral()
            return true
        }
        if member.isList { return try skipTexts() }
        guard member.isLocalizable, next == UInt8(ascii: "{") else { return try skipText() }
        var seen: UInt32 = 0
        var more = try enterObject()
        while more {
            guard let part = try alertMember(), part == .locKey || part == .locArgs, seen & 1 << part.rawValue == 0
            else { return false }
            seen |= 1 << part.rawValue
            guard try skipAlertValue(of: part) else { return false }
            more = try nextMember()
        }
        return true
    }

    /// Steps over a sound's name or an object of `name`, `critical` and `volume`.
    private mutating func skipSound() throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "{") else { return try skipText() }
        var seen: UInt32 = 0
        var more = try enterObject()
        while more {
            guard let member = try soundMember(), seen & 1 << member.rawValue == 0 else { return false }
            seen |= 1 << member.rawValue
            if next == UInt8(ascii: "n") {
                try skipLiteral()
            } else {
                let isGood =
                    switch member {
                    case .name: try skipText()
                    case .critical: try flag() != nil
                    case .volume: try finiteNumber().map { (0...1).contains($0) } ?? false
                    }
                guard isGood else { return false }
            }
            more = try nextMember()
        }
        return true
    }

    /// Reads the name of a sound's member, and moves to its value.
    mutating func soundMember() throws(JSONError) -> SoundMember? {
        JSONText.withCharacters(of: try name(), in: bytes) { name in
            SoundMember.allCases.first { name.isEqual(to: $0.name) }
        }
    }

    /// Steps over an object without a member `aps`.
    /// - Returns: true if it has a member `mdm`; nil if the value is not such an object.
    mutating func skipCustom() throws(JSONError) -> Bool? {
        guard next == UInt8(ascii: "{") else { return nil }
        var hasMDM = false
        var more = try enterObject()
        while more {
            let name = try name()
            let isAPS = JSONText.withCharacters(of: name, in: bytes) { name in
                if name.isEqual(to: "mdm") { hasMDM = true }
                return name.isEqual(to: "aps")
            }
            if isAPS { return nil }
            try skipValue()
            more = try nextMember()
        }
        return hasMDM
    }
}

/// The members of a sound that is an object (Apple: "Generating a remote notification", table of the `sound`
/// dictionary).
enum SoundMember: UInt8, CaseIterable {
    case critical
    case name
    case volume

    /// Its name, which is the same in jobs and payloads.
    var name: StaticString {
        switch self {
        case .critical: "critical"
        case .name: "name"
        case .volume: "volume"
        }
    }
}
