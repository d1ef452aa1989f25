/// The members of an alert that is an object.
///
/// Source: Apple, "Generating a remote notification", table of the `alert` dictionary; `action` is Safari's
/// ("Configuring Safari Push Notifications"); `sound` is in the alerts of Live Activities ("Starting and updating Live
/// Activities with ActivityKit push notifications"), whose title and body can also be objects with a key and arguments.
enum AlertMember: UInt8, CaseIterable {
    case title
    case subtitle
    case body
    case launchImage
    case titleLocKey
    case titleLocArgs
    case subtitleLocKey
    case subtitleLocArgs
    case locKey
    case locArgs
    case action
    case actionLocKey
    case sound

    /// Apple's name. A job can spell it with `_` or `-`.
    var name: StaticString {
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
        case .sound: "sound"
        }
    }

    /// True if its value is an array of strings; else it is a string.
    var isList: Bool { self == .titleLocArgs || self == .subtitleLocArgs || self == .locArgs }

    /// True if its value can also be an object of `loc-key` and `loc-args`.
    var isLocalizable: Bool { self == .title || self == .subtitle || self == .body }

    /// The member of this name.
    /// - Parameter name: without escapes.
    init?(_ name: UnsafeRawBufferPointer) {
        for member in Self.allCases where member.isSpelled(name) {
            self = member
            return
        }
        return nil
    }

    private func isSpelled(_ candidate: UnsafeRawBufferPointer) -> Bool {
        let name = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        guard candidate.count == name.count else { return false }
        for (byte, expected) in zip(candidate, name) where byte != expected {
            guard expected == UInt8(ascii: "-"), byte == UInt8(ascii: "_") else { return false }
        }
        return true
    }

    /// The description of a valid alert, as the end of the sentence "it must be …".
    static let expectation =
        "a string, or an object of `title`, `subtitle`, `body`, `launch_image`, `action` and `sound` (strings),"
        + " `loc_key`, `title_loc_key`, `subtitle_loc_key` and `action_loc_key` (strings), and"
        + " `loc_args`, `title_loc_args` and `subtitle_loc_args` (arrays of strings), each once"
}
