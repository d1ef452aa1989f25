import NIOCore

/// Facts about a payload, for the rules about it. One pass over its bytes records them without extracting a value.
public struct PayloadFacts: Equatable, Sendable {
    /// The members that are present with the type that Apple documents; null and other types count as absent.
    public struct Members: OptionSet, Sendable {
        /// One bit per member.
        public let rawValue: UInt32

        /// Makes a set of the bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// An object `aps`. The following are members of it unless stated otherwise.
        public static let aps = Members(rawValue: 1)
        /// `alert`: a text or an object.
        public static let alert = Members(rawValue: 2)
        /// `badge` of any type.
        public static let badge = Members(rawValue: 4)
        /// `sound` of any type.
        public static let sound = Members(rawValue: 8)
        /// `content-available` that is neither 0 nor false.
        public static let contentAvailable = Members(rawValue: 16)
        /// `content-changed` that is neither 0 nor false.
        public static let contentChanged = Members(rawValue: 32)
        /// `timestamp`: a number.
        public static let timestamp = Members(rawValue: 64)
        /// `content-state`: an object.
        public static let contentState = Members(rawValue: 128)
        /// `attributes-type`: a string.
        public static let attributesType = Members(rawValue: 256)
        /// `attributes`: an object.
        public static let attributes = Members(rawValue: 512)
        /// `mdm` beside `aps`: a string.
        public static let mdm = Members(rawValue: 1024)
        /// `container-identifier` beside `aps`: a string.
        public static let containerIdentifier = Members(rawValue: 2048)
        /// The name `aps` itself, with a value of any type.
        public static let apsName = Members(rawValue: 4096)
    }

    /// The event of a Live Activity.
    public enum Event: Equatable, Sendable {
        case start
        case update
        case end
        /// `event` has another value.
        case other
    }

    /// The members that are present.
    public private(set) var members: Members = []
    /// `event` in `aps`.
    public private(set) var event: Event?
    /// The offset of the object `aps` in the payload; of the last one if there are several.
    private var apsStart: Int?
    /// True if `aps` has a `timestamp` of any type.
    private var namesTimestamp = false
    private var apsIsEmpty = true

    /// Reads a payload.
    /// - Parameter payload: the JSON text.
    /// - Throws: ``JSONError`` if it is not JSON. JSON that is not an object has no facts.
    public init(_ payload: ByteBuffer) throws(JSONError) {
        try payload.withUnsafeReadableBytes { bytes throws(JSONError) in
            var scanner = JSONScanner(bytes)
            try scanner.begin()
            try read(&scanner)
            try scanner.finish()
        }
    }

    private mutating func read(_ scanner: inout JSONScanner) throws(JSONError) {
        guard scanner.next == UInt8(ascii: "{") else { return try scanner.skipValue() }
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let member: Members = JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                if name.isEqual(to: "aps") { return .aps }
                if name.isEqual(to: "mdm") { return .mdm }
                return name.isEqual(to: "container-identifier") ? .containerIdentifier : []
            }
            if member == .aps {
                members.insert(.apsName)
                try readAPS(&scanner)
            } else {
                if scanner.next == UInt8(ascii: "\"") { members.insert(member) }
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
    }

    private mutating func readAPS(_ scanner: inout JSONScanner) throws(JSONError) {
        guard scanner.next == UInt8(ascii: "{") else { return try scanner.skipValue() }
        members.insert(.aps)
        apsStart = scanner.offset
        var more = try scanner.enterObject()
        apsIsEmpty = !more
        while more {
            let name = try scanner.name()
            let start = scanner.offset
            if JSONText.withCharacters(of: name, in: scanner.bytes, { $0.isEqual(to: "event") }) {
                event = try Self.event(&scanner)
            } else {
                try scanner.skipValue()
                let value = UnsafeRawBufferPointer(rebasing: scanner.bytes[start..<scanner.offset])
                JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                    if let member = Self.member(name, with: value) { members.insert(member) }
                    if name.isEqual(to: "timestamp") { namesTimestamp = true }
                }
            }
            more = try scanner.nextMember()
        }
    }

    private static func event(_ scanner: inout JSONScanner) throws(JSONError) -> Event? {
        guard scanner.next == UInt8(ascii: "\"") else {
            let isNull = scanner.next == UInt8(ascii: "n")
            try scanner.skipValue()
            return isNull ? nil : .other
        }
        return JSONText.withCharacters(of: try scanner.string(), in: scanner.bytes) { text in
            if text.isEqual(to: "start") { return .start }
            if text.isEqual(to: "update") { return .update }
            return text.isEqual(to: "end") ? .end : .other
        }
    }

    /// Returns the member of this name, if its value has the right type.
    private static func member(_ name: UnsafeRawBufferPointer, with value: UnsafeRawBufferPointer) -> Members? {
        let first = value[0]
        let isString = first == UInt8(ascii: "\"")
        let isObject = first == UInt8(ascii: "{")
        if first == UInt8(ascii: "n") { return nil }
        if name.isEqual(to: "alert") { return isString || isObject ? .alert : nil }
        if name.isEqual(to: "badge") { return .badge }
        if name.isEqual(to: "sound") { return .sound }
        if name.isEqual(to: "content-available") { return isSet(value) ? .contentAvailable : nil }
        if name.isEqual(to: "content-changed") { return isSet(value) ? .contentChanged : nil }
        if name.isEqual(to: "timestamp") {
            return first == UInt8(ascii: "-") || first &- UInt8(ascii: "0") < 10 ? .timestamp : nil
        }
        if name.isEqual(to: "content-state") { return isObject ? .contentState : nil }
        if name.isEqual(to: "attributes-type") { return isString ? .attributesType : nil }
        if name.isEqual(to: "attributes") { return isObject ? .attributes : nil }
        return nil
    }

    /// Returns a payload of these facts with a `timestamp` added as the first member of its `aps`.
    /// - Parameter second: seconds since 1970.
    /// - Returns: nil if there already is a `timestamp`, or there is no `aps`.
    public func fillingTimestamp(in payload: ByteBuffer, _ second: Int64) -> ByteBuffer? {
        guard let apsStart, !namesTimestamp else { return nil }
        let place = payload.readerIndex + apsStart + 1
        var filled = ByteBuffer()
        filled.reserveCapacity(payload.readableBytes + Self.longestTimestamp)
        guard let before = payload.getSlice(at: payload.readerIndex, length: apsStart + 1),
            let after = payload.getSlice(at: place, length: payload.writerIndex - place)
        else { return nil }
        filled.writeImmutableBuffer(before)
        filled.writeStaticString("\"timestamp\":")
        filled.writeJSONInteger(second)
        if !apsIsEmpty { filled.writeStaticString(",") }
        filled.writeImmutableBuffer(after)
        return filled
    }

    /// The maximum number of bytes that ``fillingTimestamp(in:_:)`` adds.
    public static let longestTimestamp = 25

    /// Returns true if the value is neither 0 nor false.
    private static func isSet(_ value: UnsafeRawBufferPointer) -> Bool {
        !value.isEqual(to: "0") && !value.isEqual(to: "false")
    }
}
