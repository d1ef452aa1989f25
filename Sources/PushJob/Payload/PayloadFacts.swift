import NIOCore

/// Facts about a payload: enough to infer its push type and to check the rules about it. They are recorded while the job
/// is read, in the pass that validates its JSON.
///
/// This type only notices mistakes; ``Job/mistakes`` describes them.
public struct PayloadFacts: Equatable, Sendable {
    /// A set of members of `aps`, and of `mdm` and `container-identifier` beside it.
    public struct Members: OptionSet, Sendable {
        public let rawValue: UInt32

        public init(rawValue: UInt32) { self.rawValue = rawValue }

        public init(_ member: PayloadMember) { rawValue = 1 &<< UInt32(member.rawValue) }

        public static let alert = Members(.alert)
        public static let badge = Members(.badge)
        public static let sound = Members(.sound)
        public static let contentAvailable = Members(.contentAvailable)
        public static let mutableContent = Members(.mutableContent)
        public static let contentChanged = Members(.contentChanged)
        public static let timestamp = Members(.timestamp)
        public static let event = Members(.event)
        public static let contentState = Members(.contentState)
        public static let attributesType = Members(.attributesType)
        public static let attributes = Members(.attributes)
        public static let inputPushToken = Members(.inputPushToken)
        public static let inputPushChannel = Members(.inputPushChannel)
        public static let encryptedData = Members(.encryptedData)
        public static let sessionIdentifier = Members(.sessionIdentifier)
        public static let keyID = Members(.keyID)
        public static let messageIndex = Members(.messageIndex)
        public static let mdm = Members(.mdm)
        public static let containerIdentifier = Members(.containerIdentifier)
        public static let urlArguments = Members(.urlArguments)

        /// The members that a device shows or plays.
        public static let visible: Members = [.alert, .badge, .sound]
    }

    /// The event of a Live Activity.
    public enum Event: Equatable, Sendable { case start, update, end }

    /// The members that have an effect: not null and, for flags, neither 0 nor false. Their values can be wrong.
    public private(set) var named: Members = []
    /// The named members whose values can be understood.
    public private(set) var valid: Members = []
    /// `event` in `aps`, if it is one that Apple defines.
    public private(set) var event: Event?
    /// True if there is an `aps` of any type.
    public private(set) var hasAPS = false
    /// True if the alert has a text, of its own or from the app's localized strings.
    public private(set) var showsText = false
    /// True if `relevance-score` is not from 0 to 1. Only Live Activities can have such a score.
    public private(set) var hasWideScore = false
    /// True if ``Job/mistakes`` is not empty, and in rare cases if it is empty.
    public internal(set) var mayHaveMistakes = false
    /// True if `aps` has a `timestamp` of any kind.
    private var namesTimestamp = false
    /// The offset of the object `aps` in the payload; of the last one if there are several.
    private var apsStart: Int32?

    init() {}

    /// Reads a payload. There are no facts if it is not an object; `nil` if it is not JSON.
    public init?(_ payload: [UInt8]) {
        var facts = PayloadFacts()
        let isJSON = payload.withUnsafeBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                var scanner = JSONScanner(bytes)
                scanner.skipWhitespace()
                if scanner.next == UInt8(ascii: "{") { try facts.readPayload(&scanner) }
                return true
            } catch { return false }
        }
        guard isJSON else { return nil }
        self = facts
    }

    /// True if `aps` has `event` (`start`, `update` or `end`) beside `content-state` or `timestamp`, or any `event` beside both.
    /// An `event` alone is not sufficient, because an app may have data of its own with this name.
    var isLiveActivity: Bool {
        guard named.contains(.event) else { return false }
        return event != nil
            ? !valid.isDisjoint(with: [.contentState, .timestamp])
            : valid.isSuperset(of: [.contentState, .timestamp])
    }

    // MARK: Reading

    /// Reads a payload as a producer wrote it.
    /// - Parameter scanner: at the first byte of the payload, an object.
    mutating func readPayload(_ scanner: inout JSONScanner) throws(JSONError) {
        let start = scanner.offset
        var names = SeenNames()
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let (isAPS, isRepeated) = JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                (name.isEqual(to: "aps"), names.insert(name))
            }
            if isRepeated { mayHaveMistakes = true }
            if isAPS {
                hasAPS = true
                if scanner.next == UInt8(ascii: "{") {
                    apsStart = Int32(truncatingIfNeeded: scanner.offset - start)
                    try readAPS(&scanner)
                } else {
                    mayHaveMistakes = true
                    try scanner.skipValue()
                }
            } else {
                try readOwn(name, &scanner)
            }
            more = try scanner.nextMember()
        }
        if !hasAPS, !named.contains(.mdm) { mayHaveMistakes = true }
    }

    private mutating func readAPS(_ scanner: inout JSONScanner) throws(JSONError) {
        var seen: Members = []
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let member = JSONText.withCharacters(of: name, in: scanner.bytes) { PayloadMember(inAPS: $0) }
            if let member {
                if !seen.insert(Members(member)).inserted { mayHaveMistakes = true }
                if scanner.next == UInt8(ascii: "\""), member.canBeText {
                    // A shortcut for most values.
                    let text = try scanner.string()
                    named.insert(Members(member))
                    // An empty sound is not played.
                    if member != .sound || !text.range.isEmpty { valid.insert(Members(member)) }
                    if member == .alert { showsText = !text.range.isEmpty }
                } else {
                    var trial = scanner
                    if try read(member, as: .payload, &trial) == .invalid {
                        try scanner.skipValue()
                    } else {
                        scanner = trial
                    }
                }
            } else {
                mayHaveMistakes = true
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        if seen.contains(.timestamp) { namesTimestamp = true }
    }

    /// Reads the value of a member of `aps`, or of a short form.
    mutating func read(
        _ member: PayloadMember, as dialect: PayloadDialect, _ scanner: inout JSONScanner
    ) throws(JSONError) -> ValueReading {
        let start = scanner.offset
        var hasText = false
        let reading = try member.value.read(&scanner, as: dialect, showsText: &hasText)
        switch reading {
        case .absent: return .absent
        case .valid: valid.insert(Members(member))
        case .odd:
            valid.insert(Members(member))
            mayHaveMistakes = true
        case .invalid: mayHaveMistakes = true
        }
        named.insert(Members(member))
        guard reading != .invalid else { return .invalid }
        switch member {
        case .alert: showsText = hasText
        case .event: event = try Self.event(scanner, at: start)
        case .relevanceScore: hasWideScore = try Self.isWide(scanner, at: start)
        default: break
        }
        return reading
    }

    /// Reads a member beside `aps`, of a payload or of `custom`.
    mutating func readOwn(_ name: JSONString, _ scanner: inout JSONScanner) throws(JSONError) {
        let member = JSONText.withCharacters(of: name, in: scanner.bytes) { name -> PayloadMember? in
            if name.isEqual(to: "mdm") { return .mdm }
            if name.isEqual(to: "container-identifier") { return .containerIdentifier }
            if name.mayBeHeader { mayHaveMistakes = true }
            return PayloadMember(inAPS: name)
        }
        if let member, member == .mdm || member == .containerIdentifier {
            // An app can have data of its own with these names.
            if scanner.next == UInt8(ascii: "\"") {
                named.insert(Members(member))
                valid.insert(Members(member))
            }
        } else if let member, !member.isCommonName {
            mayHaveMistakes = true
        }
        try scanner.skipValue()
    }

    /// Reads the members beside `aps` of a job with short forms.
    /// - Returns: true if there is a member `mdm`; `nil` if there is an `aps`, which can't be beside itself.
    mutating func readCustom(_ scanner: inout JSONScanner) throws(JSONError) -> Bool? {
        var names = SeenNames()
        var hasMDM = false
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let (isAPS, isRepeated) = JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                if name.isEqual(to: "mdm") { hasMDM = true }
                return (name.isEqual(to: "aps"), names.insert(name))
            }
            if isAPS { return nil }
            if isRepeated { mayHaveMistakes = true }
            try readOwn(name, &scanner)
            more = try scanner.nextMember()
        }
        return hasMDM
    }

    /// Records that the payload is composed of short forms.
    /// - Parameter hasAPS: false if its only members are `mdm` and the app's own.
    mutating func compose(hasAPS: Bool) {
        self.hasAPS = hasAPS
        apsStart = hasAPS ? Int32(PayloadComposer.start.utf8CodeUnitCount - 1) : nil
    }

    private static func event(_ scanner: JSONScanner, at start: Int) throws(JSONError) -> Event {
        var again = JSONScanner(scanner.bytes, in: start..<scanner.offset)
        return JSONText.withCharacters(of: try again.string(), in: again.bytes) { text in
            text.isEqual(to: "start") ? .start : text.isEqual(to: "update") ? .update : .end
        }
    }

    private static func isWide(_ scanner: JSONScanner, at start: Int) throws(JSONError) -> Bool {
        var again = JSONScanner(scanner.bytes, in: start..<scanner.offset)
        return try again.finiteNumber().map { !(0...1).contains($0) } ?? false
    }

    /// Returns a time in the `aps` of the payload that these facts describe, in seconds since 1970.
    public func time(_ member: PayloadMember, in payload: ByteBuffer) -> Int64? {
        guard let apsStart, valid.contains(Members(member)) else { return nil }
        return payload.withUnsafeReadableBytes { bytes in
            // The payload was validated when the job was read.
            try? Self.time(member, JSONScanner(bytes, in: Int(apsStart)..<bytes.count))
        }
    }

    private static func time(_ member: PayloadMember, _ aps: JSONScanner) throws(JSONError) -> Int64? {
        var scanner = aps
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            if JSONText.withCharacters(of: name, in: scanner.bytes, { PayloadMember(inAPS: $0) }) == member {
                return try scanner.number().flatMap { JobTime.seconds($0) }.map { $0 / 1000 }
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return nil
    }

    // MARK: Filling in

    /// Returns the payload that these facts describe, with a `timestamp` added as the first member of its `aps`.
    /// - Parameter second: seconds since 1970.
    /// - Returns: nil if there already is a `timestamp`, or there is no `aps`.
    public func fillingTimestamp(in payload: ByteBuffer, _ second: Int64) -> ByteBuffer? {
        guard let apsStart, !namesTimestamp, !named.contains(.timestamp) else { return nil }
        let brace = payload.readerIndex + Int(apsStart)
        guard let before = payload.getSlice(at: payload.readerIndex, length: Int(apsStart) + 1),
            let after = payload.getSlice(at: brace + 1, length: payload.writerIndex - brace - 1)
        else { return nil }
        var filled = ByteBuffer()
        filled.reserveCapacity(payload.readableBytes + Self.longestTimestamp)
        filled.writeImmutableBuffer(before)
        filled.writeStaticString("\"timestamp\":")
        filled.writeJSONInteger(second)
        if after.readableBytesView.first(where: { $0 > 0x20 }) != UInt8(ascii: "}") { filled.writeStaticString(",") }
        filled.writeImmutableBuffer(after)
        return filled
    }

    /// The maximum number of bytes that ``fillingTimestamp(in:_:)`` adds.
    public static let longestTimestamp = 25
}

extension UnsafeRawBufferPointer {
    /// True for a name such as `apns-priority` or `headers`.
    fileprivate var mayBeHeader: Bool {
        count == 7 && self[0] | 0x20 == UInt8(ascii: "h")
            || count > 5 && self[3] | 0x20 == UInt8(ascii: "s")
                && self[0] | 0x20 == UInt8(ascii: "a") && self[1] | 0x20 == UInt8(ascii: "p")
    }
}

/// Notices a name that occurs twice in an object. Two sets of 64 bits represent all names: a repeated name is always noticed, and a new
/// name is rarely mistaken for a repeated one.
private struct SeenNames {
    private var first: UInt64 = 0
    private var second: UInt64 = 0

    /// - Returns: true if the name may have been inserted before.
    @inline(__always)
    mutating func insert(_ name: UnsafeRawBufferPointer) -> Bool {
        let hash = name.nameHash
        let one: UInt64 = 1 &<< (hash &>> 58)
        let two: UInt64 = 1 &<< (hash &>> 32 & 63)
        defer {
            first |= one
            second |= two
        }
        return first & one != 0 && second & two != 0
    }
}
