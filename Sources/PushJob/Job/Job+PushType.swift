extension Job {
    /// What kind of notification a job without ``pushType`` is.
    public enum Kind: Equatable, Sendable {
        /// Anything that the others are not.
        case alert
        /// `content-available` 1 and nothing to show, that is no `alert`, `badge` or `sound` (Apple: "Pushing background
        /// updates to your App").
        case background
        /// For a channel, for broadcasts are for Live Activities alone; or with the short form `event` or `content_state`.
        case liveActivity
        /// With the short form `mdm`.
        case mdm
    }

    /// What kind of notification it is. A payload is only searched for `content-available`, anew each time; of short forms
    /// all is known. Ask only for jobs without ``pushType``.
    public var kind: Kind {
        if channel != nil { return .liveActivity }
        guard traits.contains(.shortForms) else { return payloadIsBackground ? .background : .alert }
        if traits.contains(.mdm) { return .mdm }
        if traits.contains(.liveActivity) { return .liveActivity }
        return traits.contains(.contentAvailable) && !traits.contains(.visible) ? .background : .alert
    }

    /// Whether the payload, as it was written or as it will be made, is a background notification's: see
    /// ``Kind/background``.
    public var payloadIsBackground: Bool {
        guard !traits.contains(.shortForms) else { return kind == .background }
        return body.withUnsafeReadableBytes { bytes in
            // Nearly all payloads end here.
            let payload = UnsafeRawBufferPointer(rebasing: bytes[payload.range])
            guard payload.mayNameContentAvailable else { return false }
            var scanner = JSONScanner(payload)
            // It was scanned before, so there is nothing to throw.
            return (try? scanner.isBackgroundPayload()) ?? false
        }
    }
}

extension JSONScanner {
    fileprivate mutating func isBackgroundPayload() throws(JSONError) -> Bool {
        var isBackground = false
        var more = try enterObject()
        while more {
            let name = try name()
            if JSONText.withCharacters(of: name, in: bytes, { $0.isEqual(to: "aps") }), next == UInt8(ascii: "{") {
                isBackground = try isBackgroundDictionary()
            } else {
                try skipValue()
            }
            more = try nextMember()
        }
        return isBackground
    }

    private mutating func isBackgroundDictionary() throws(JSONError) -> Bool {
        var isContentAvailable = false
        var isShown = false
        var more = try enterObject()
        while more {
            let name = try name()
            let start = offset
            try skipValue()
            JSONText.withCharacters(of: name, in: bytes) { name in
                if name.isEqual(to: "content-available") {
                    let value = UnsafeRawBufferPointer(rebasing: bytes[start..<offset])
                    isContentAvailable = value.isEqual(to: "1")
                } else if name.isEqual(to: "alert") || name.isEqual(to: "badge") || name.isEqual(to: "sound") {
                    isShown = true
                }
            }
            more = try nextMember()
        }
        return isContentAvailable && !isShown
    }
}

extension UnsafeRawBufferPointer {
    /// Whether `content-available` is somewhere in here, or a backslash, with which it could be spelled differently.
    ///
    /// Hyphens are rare in payloads, and the C library finds them many bytes at a time.
    fileprivate var mayNameContentAvailable: Bool {
        if firstOffset(of: UInt8(ascii: "\\"), from: 0) != nil { return true }
        let name: StaticString = "content-available"
        let hyphen = 7
        var position = 0
        while let found = firstOffset(of: UInt8(ascii: "-"), from: position) {
            let start = found - hyphen
            let end = start + name.utf8CodeUnitCount
            if start >= 0, end <= count, UnsafeRawBufferPointer(rebasing: self[start..<end]).isEqual(to: name) {
                return true
            }
            position = found + 1
        }
        return false
    }
}
