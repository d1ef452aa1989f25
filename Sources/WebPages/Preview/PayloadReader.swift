import PushJob

/// Finds the texts and facts that a device shows for a payload, however malformed it is.
struct PayloadReader {
    /// A fact that the banner does not show, such as the badge.
    struct Fact: Sendable, Equatable {
        let name: String
        let value: String
    }

    /// The texts of a banner.
    struct Alert: Sendable, Equatable {
        var title: String?
        var subtitle: String?
        var body: String?

        var isEmpty: Bool { [title, subtitle, body].allSatisfy { $0?.isEmpty ?? true } }
    }

    private let root: JSONTree?
    /// The problem with the payload as a whole; `nil` if it is an object.
    private let problem: String?
    let aps: JSONTree?
    private let payloadFacts: PayloadFacts?

    init(_ payload: [UInt8]) {
        payloadFacts = PayloadFacts(payload)
        guard !payload.isEmpty else {
            (root, problem, aps) = (nil, "The payload is empty.", nil)
            return
        }
        do {
            let tree = try JSONTree(payload)
            root = tree
            problem = tree.members == nil ? "The payload is \(tree.kind), not an object." : nil
            aps = tree["aps"]
        } catch {
            (root, problem, aps) = (nil, "The payload is not valid JSON: \(error).", nil)
        }
    }

    private func has(_ name: String) -> Bool {
        guard let value = aps?[name] else { return false }
        if case .null = value { return false }
        return true
    }

    /// Returns true for 1, and for `true` as some libraries write it.
    private func isOn(_ name: String) -> Bool {
        switch aps?[name] {
        case .bool(let value)?: value
        case let value?: value.integer == 1
        case nil: false
        }
    }

    func kind(pushType: String?, topic: String?) -> PushType {
        if let pushType { return PushType(pushType) ?? .other }
        if let type = PushType.parts(ofTopic: topic ?? "").type { return type }
        return payloadFacts.map { PushType(of: $0, topic: nil) ?? .widgets } ?? .alert
    }

    var badge: Int64? { aps?["badge"]?.integer }

    // MARK: Texts

    var alert: Alert? {
        let alert: Alert
        switch aps?["alert"] {
        case .text(let text)?: alert = Alert(body: text)
        case .object?:
            alert = Alert(
                title: text("title", key: "title-loc-key", arguments: "title-loc-args"),
                subtitle: text("subtitle", key: "subtitle-loc-key", arguments: "subtitle-loc-args"),
                body: text("body", key: "loc-key", arguments: "loc-args"))
        default: return nil
        }
        return alert.isEmpty ? nil : alert
    }

    /// Returns a text, or the key of a localized string with its arguments. The key takes precedence, as on a device.
    private func text(_ name: String, key: String, arguments: String) -> String? {
        let alert = aps?["alert"]
        if let key = alert?[key]?.string, !key.isEmpty { return Self.localized(key, alert?[arguments]) }
        // Alerts of Live Activities have the key and the arguments inside the title or body.
        if let key = alert?[name]?["loc-key"]?.string { return Self.localized(key, alert?[name]?["loc-args"]) }
        return alert?[name]?.plain
    }

    private var isLocalized: Bool {
        let alert = aps?["alert"]
        return ["loc-key", "title-loc-key", "subtitle-loc-key"].contains { alert?[$0] != nil }
            || ["title", "subtitle", "body"].contains { alert?[$0]?["loc-key"] != nil }
    }

    private static func localized(_ key: String, _ arguments: JSONTree?) -> String {
        let arguments = arguments?.elements?.map(\.plain) ?? []
        return arguments.isEmpty ? key : "\(key) (\(arguments.joined(separator: ", ")))"
    }

    // MARK: Silence

    /// Returns the reason why a device shows no banner; `nil` if it shows one.
    func silence(_ kind: PushType, pushType: String?) -> String? {
        if let problem { return problem }
        if let silence = kind.row.silence { return "No banner: \(silence)." }
        return kind != .liveactivity && alert == nil ? noAlert : nil
    }

    private var noAlert: String {
        guard let aps else { return "No banner: aps is missing." }
        guard aps.members != nil else { return "No banner: aps is \(aps.kind), not an object." }
        switch aps["alert"] {
        case nil, .null?:
            let changes = [
                badge.map { $0 == 0 ? "removes the badge" : "sets the badge" }, has("sound") ? "plays a sound" : nil,
            ]
            .compactMap(\.self).joined(separator: " and ")
            return changes.isEmpty ? "No banner: aps has no alert." : "No banner: \(changes)."
        case .text?, .object?: return "No banner: the alert has no text."
        case let other?: return "No banner: alert is \(other.kind), not a string or an object."
        }
    }

    // MARK: Facts

    /// Returns the members of an object in `aps`, for a list.
    func members(_ name: String) -> [Fact] {
        switch aps?[name] {
        case nil: []
        case .object(let members)?: members.map { Fact(name: $0.name, value: $0.value.plain) }
        case let other?: [Fact(name: name, value: "\(other.plain) (\(other.kind), not an object)")]
        }
    }

    func facts(_ kind: PushType) -> [Fact] {
        var facts: [Fact] = []
        func add(_ name: String, _ value: String?) {
            if let value { facts.append(Fact(name: name, value: value)) }
        }
        func addPlain(_ name: String, _ member: String) { add(name, aps?[member]?.plain) }
        if let badge {
            add("badge", badge == 0 ? "0, removed" : "\(badge)")
        } else if let badge = aps?["badge"] {
            add("badge", "\(badge.plain) (\(badge.kind), not a whole number)")
        }
        add("sound", sound)
        if isLocalized { add("localized", "the app's own text for each key, with the arguments") }
        addPlain("thread", "thread-id")
        addPlain("category", "category")
        addPlain("interruption level", "interruption-level")
        addPlain("relevance", "relevance-score")
        addPlain("filter criteria", "filter-criteria")
        addPlain("opens", "target-content-id")
        add("launch image", aps?["alert"]?["launch-image"]?.plain)
        if isOn("mutable-content") {
            add("service extension", "may change it before it is shown, and add \(attachment)")
        }
        if isOn("content-available"), kind != .background { add("in the background", "also runs the app") }
        if kind == .liveactivity {
            addPlain("attributes type", "attributes-type")
            for (name, member) in [
                ("sent at", "timestamp"), ("stale from", "stale-date"), ("removed at", "dismissal-date"),
            ] {
                add(name, aps?[member].map { $0.integer.map(EpochTime.text(seconds:)) ?? $0.plain })
            }
            for member in ["input-push-channel", "input-push-token"] { addPlain(member, member) }
        }
        let others = (root?.members ?? []).map(\.name).filter { $0 != "aps" }
        if !others.isEmpty { add("data for the app", others.joined(separator: ", ")) }
        return facts
    }

    /// The URL of a picture, under names that service extensions commonly read.
    private var attachment: String {
        let names = [
            "media-url", "media_url", "image", "image-url", "image_url", "attachment-url", "mediaUrl", "imageUrl",
        ]
        let address = names.lazy.compactMap { root?[$0]?.string }.first
        return address ?? "an attachment"
    }

    private var sound: String? {
        guard let sound = aps?["sound"] else { return nil }
        guard sound.members != nil else { return sound.plain }
        let isCritical = sound["critical"]?.integer == 1
        return [
            sound["name"]?.plain ?? "default", isCritical ? "critical" : nil,
            sound["volume"].map { "volume \($0.plain)" },
        ].compactMap(\.self).joined(separator: ", ")
    }
}
