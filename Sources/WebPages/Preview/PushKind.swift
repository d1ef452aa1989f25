/// The kind of notification, by its push type or, if that is missing, by its topic and payload.
package enum PushKind: String, CaseIterable, Sendable {
    case accessory, alert, background, complication, controls, fileprovider, liveactivity, location, mdm, pushtotalk
    case voip, widgets
    /// A push type that is not in Apple's documentation.
    case unknown

    /// The suffixes of topics, which are not part of the app's bundle identifier.
    private static let topicEndings: [(ending: String, kind: PushKind)] = [
        (".push-type.accessory", .accessory), (".complication", .complication), (".push-type.controls", .controls),
        (".pushkit.fileprovider", .fileprovider), (".push-type.liveactivity", .liveactivity),
        (".location-query", .location), (".voip-ptt", .pushtotalk), (".voip", .voip), (".push-type.widgets", .widgets),
    ]

    /// Returns the kind that the ending of a topic names; `nil` if it names none.
    static func of(topic: String?) -> PushKind? {
        topic.flatMap { topic in topicEndings.first { topic.hasSuffix($0.ending) }?.kind }
    }

    /// Returns the app's bundle identifier, which a topic begins with.
    package static func bundle(ofTopic topic: String) -> String {
        guard let ending = topicEndings.first(where: { topic.hasSuffix($0.ending) })?.ending else { return topic }
        return String(topic.dropLast(ending.count))
    }

    /// The display name; `nil` for ``unknown``.
    var title: String? {
        switch self {
        case .accessory: "accessory"
        case .alert: "alert"
        case .background: "background"
        case .complication: "watch complication"
        case .controls: "controls"
        case .fileprovider: "file provider"
        case .liveactivity: "Live Activity"
        case .location: "location query"
        case .mdm: "MDM"
        case .pushtotalk: "push to talk"
        case .voip: "VoIP"
        case .widgets: "widgets"
        case .unknown: nil
        }
    }
}
