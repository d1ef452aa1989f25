extension Job {
    /// The kind of notification of a job without ``pushType``.
    public enum Kind: Equatable, Sendable {
        /// Any other notification.
        case alert
        /// `content-available` 1 and nothing to show: no `alert`, `badge` or `sound` (Apple: "Pushing background
        /// updates to your App").
        case background
        /// For a channel, because broadcasts are for Live Activities alone; with the short form `event` or
        /// `content_state`; or with a payload whose `aps` has `event` (`start`, `update` or `end`) beside
        /// `content-state` or `timestamp`.
        case liveActivity
        /// With the short form `mdm`, or a payload with `mdm` and without `aps`.
        case mdm
        /// `content-changed`, for widgets or for controls: the topic, which could distinguish them, does not.
        case widgetOrControl
        /// `content-changed`, and a topic that ends in `.push-type.widgets`.
        case widgets
        /// `content-changed`, and a topic that ends in `.push-type.controls`.
        case controls
    }

    /// The kind of notification. Short forms were read with the job; a payload is searched on each call. Use it only
    /// for jobs without ``pushType``.
    public var kind: Kind {
        if channel != nil { return .liveActivity }
        guard traits.contains(.shortForms) else { return kindOfPayload }
        if traits.contains(.mdm) { return .mdm }
        if traits.contains(.liveActivity) { return .liveActivity }
        if traits.contains(.contentChanged) { return kindOfReload }
        return traits.contains(.contentAvailable) && !traits.contains(.visible) ? .background : .alert
    }

    /// True if the payload, as it was written or as it will be composed, is a background notification's: see
    /// ``Kind/background``.
    public var payloadIsBackground: Bool {
        traits.contains(.shortForms) ? kind == .background : kindOfPayload == .background
    }

    private var kindOfPayload: Kind {
        let signs = body.withUnsafeReadableBytes { bytes -> PayloadSigns in
            // Nearly all payloads end here.
            let payload = UnsafeRawBufferPointer(rebasing: bytes[self.payload.range])
            guard payload.mayHaveSigns else { return [] }
            var scanner = JSONScanner(payload)
            // It was validated before, so nothing is thrown.
            return (try? PayloadSigns(&scanner)) ?? []
        }
        if signs.isEmpty { return .alert }
        if signs.isSuperset(of: [.event, .liveActivity]) { return .liveActivity }
        if signs.isSuperset(of: [.contentAvailable]), !signs.contains(.visible) { return .background }
        if signs.contains(.mdm), !signs.contains(.aps) { return .mdm }
        return signs.contains(.contentChanged) && !signs.contains(.visible) ? kindOfReload : .alert
    }

    private var kindOfReload: Kind {
        guard let topic else { return .widgetOrControl }
        let text = self.text(topic).readableBytesView
        if text.suffix(18).elementsEqual(".push-type.widgets".utf8) { return .widgets }
        return text.suffix(19).elementsEqual(".push-type.controls".utf8) ? .controls : .widgetOrControl
    }
}

/// The members of a payload from which its push type can be inferred.
private struct PayloadSigns: OptionSet {
    let rawValue: UInt8

    /// `content-available` 1.
    static let contentAvailable = PayloadSigns(rawValue: 1)
    /// `alert`, `badge` or `sound`.
    static let visible = PayloadSigns(rawValue: 2)
    /// `event` that is `start`, `update` or `end`.
    static let event = PayloadSigns(rawValue: 4)
    /// `content-state`, an object, or `timestamp`, a number.
    static let liveActivity = PayloadSigns(rawValue: 8)
    /// `content-changed` that is 1 or true.
    static let contentChanged = PayloadSigns(rawValue: 16)
    /// `aps` of any type.
    static let aps = PayloadSigns(rawValue: 32)
    /// `mdm` beside `aps`: a string.
    static let mdm = PayloadSigns(rawValue: 64)
}

extension PayloadSigns {
    /// Reads a payload.
    init(_ scanner: inout JSONScanner) throws(JSONError) {
        self = []
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let sign: PayloadSigns = JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                name.isEqual(to: "aps") ? .aps : name.isEqual(to: "mdm") ? .mdm : []
            }
            if sign == .mdm, scanner.next != UInt8(ascii: "\"") {
                try scanner.skipValue()
            } else {
                formUnion(sign)
                if sign == .aps, scanner.next == UInt8(ascii: "{") {
                    try readAPS(&scanner)
                } else {
                    try scanner.skipValue()
                }
            }
            more = try scanner.nextMember()
        }
    }

    /// Reads the members of `aps`.
    private mutating func readAPS(_ scanner: inout JSONScanner) throws(JSONError) {
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let start = scanner.offset
            try scanner.skipValue()
            let value = UnsafeRawBufferPointer(rebasing: scanner.bytes[start..<scanner.offset])
            JSONText.withCharacters(of: name, in: scanner.bytes) { name in
                formUnion(Self.sign(name, value))
            }
            more = try scanner.nextMember()
        }
    }

    private static func sign(_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) -> PayloadSigns {
        if name.isEqual(to: "alert") || name.isEqual(to: "badge") || name.isEqual(to: "sound") { return .visible }
        if name.isEqual(to: "content-available") { return value.isEqual(to: "1") ? .contentAvailable : [] }
        if name.isEqual(to: "content-changed") {
            return value.isEqual(to: "1") || value.isEqual(to: "true") ? .contentChanged : []
        }
        if name.isEqual(to: "event") {
            let isKnown =
                value.isEqual(to: "\"update\"") || value.isEqual(to: "\"end\"") || value.isEqual(to: "\"start\"")
            return isKnown ? .event : []
        }
        if name.isEqual(to: "content-state") { return value[0] == UInt8(ascii: "{") ? .liveActivity : [] }
        if name.isEqual(to: "timestamp") { return value[0] &- UInt8(ascii: "0") < 10 ? .liveActivity : [] }
        return []
    }
}

extension UnsafeRawBufferPointer {
    /// False only for a payload that begins with `aps` and has no name from which a push type can be inferred.
    ///
    /// It looks for hyphens, `v` and backslashes (names can be escaped): they are rare in payloads, and the C library
    /// finds them many bytes at a time.
    fileprivate var mayHaveSigns: Bool {
        let start: StaticString = "{\"aps\""
        guard has(start, at: 0), firstOffset(of: UInt8(ascii: "\\"), from: 0) == nil else { return true }
        var position = 0
        while let hyphen = firstOffset(of: UInt8(ascii: "-"), from: position) {
            if has("content-available", at: hyphen - 7) || has("content-changed", at: hyphen - 7) { return true }
            position = hyphen + 1
        }
        position = 0
        while let letter = firstOffset(of: UInt8(ascii: "v"), from: position) {
            if has("\"event\"", at: letter - 2) { return true }
            position = letter + 1
        }
        return false
    }

    private func has(_ text: StaticString, at start: Int) -> Bool {
        let end = start + text.utf8CodeUnitCount
        return start >= 0 && end <= count && UnsafeRawBufferPointer(rebasing: self[start..<end]).isEqual(to: text)
    }
}
