/// What is noted of a job's short forms while it is read: enough to know its push type and that a payload must be made.
/// The values stay in the body, and are looked for again by whoever composes the payload.
struct JobTraits: OptionSet, Sendable {
    let rawValue: UInt8

    /// The payload is composed of short forms.
    static let shortForms = JobTraits(rawValue: 1)
    static let truncate = JobTraits(rawValue: 2)
    static let collapseDuplicates = JobTraits(rawValue: 4)
    /// `alert`, `badge` or `sound` among the short forms.
    static let visible = JobTraits(rawValue: 8)
    /// `content_available` among the short forms, and not 0 or false.
    static let contentAvailable = JobTraits(rawValue: 16)
    /// `event` or `content_state` among the short forms.
    static let liveActivity = JobTraits(rawValue: 32)
    /// `mdm` among the short forms.
    static let mdm = JobTraits(rawValue: 64)
    /// `content_changed` among the short forms, and not 0 or false.
    static let contentChanged = JobTraits(rawValue: 128)
}
