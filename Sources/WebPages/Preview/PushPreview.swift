import PushJob

/// A notification as a device would show it, derived from the request to APNs.
///
/// Every payload has a preview. If it is not JSON, or if members have unexpected types, the preview reports that.
///
/// Source: Apple, "Generating a remote notification" and, for Live Activities, "Starting and updating Live Activities with ActivityKit push
/// notifications".
package struct PushPreview: Sendable {
    package let kind: PushType
    /// The app's name as derived from the topic, such as `Shop`.
    package let appName: String
    /// The number on the app's icon; `nil` if the notification does not change it.
    package let badge: Int64?
    /// The state of a Live Activity: `start`, `update` or `end`.
    package let event: String?
    /// `timestamp` of a Live Activity, in seconds since 1970; devices ignore states older than the one they show.
    package let timestamp: Int64?
    /// The texts; `nil` if there are none.
    let alert: PayloadReader.Alert?
    /// The reason why no banner is shown; `nil` if one is shown.
    let silence: String?
    let facts: [PayloadReader.Fact]
    /// The members of a Live Activity's state, and of its attributes.
    let state: [PayloadReader.Fact]
    let attributes: [PayloadReader.Fact]
    let pushType: String?

    /// - Parameter expiration: seconds since 1970; 0 for one attempt.
    package init(
        payload: [UInt8], pushType: String?, topic: String?, priority: Int? = nil, expiration: Int64? = nil,
        collapseID: String? = nil
    ) {
        let reader = PayloadReader(payload)
        kind = reader.kind(pushType: pushType, topic: topic)
        self.pushType = pushType
        appName = Self.appName(topic)
        badge = reader.badge
        event = kind == .liveactivity ? reader.aps?["event"]?.plain : nil
        timestamp = kind == .liveactivity ? reader.aps?["timestamp"]?.integer : nil
        alert = reader.alert
        (state, attributes) =
            kind == .liveactivity ? (reader.members("content-state"), reader.members("attributes")) : ([], [])
        silence = reader.silence(kind, pushType: pushType)
        facts = reader.facts(kind) + Self.delivery(priority, expiration, collapseID)
    }

    /// Returns the last part of the bundle identifier, as words.
    private static func appName(_ topic: String?) -> String {
        let name = PushType.parts(ofTopic: topic ?? "").bundle
        let words = (name.split(separator: ".").last ?? "").split { $0 == "-" || $0 == "_" }
        let text = words.map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined(separator: " ")
        return text.isEmpty ? "App" : String(text.prefix(60))
    }

    private static func delivery(_ priority: Int?, _ expiration: Int64?, _ collapseID: String?) -> [PayloadReader.Fact]
    {
        var facts: [PayloadReader.Fact] = []
        switch priority {
        case 1: facts.append(.init(name: "priority", value: "1, waits until the device is awake"))
        case 5: facts.append(.init(name: "priority", value: "5, may wait to save power"))
        case let priority? where priority != 10: facts.append(.init(name: "priority", value: "\(priority)"))
        default: break
        }
        if let expiration {
            let value = expiration == 0 ? "not kept: delivered now or never" : EpochTime.text(seconds: expiration)
            facts.append(.init(name: "kept until", value: value))
        }
        if let collapseID { facts.append(.init(name: "replaces earlier ones of", value: collapseID)) }
        return facts
    }

    // MARK: Text

    /// The notification on a line of a list: a title, and the rest of its texts.
    package var subject: (title: String, text: String) {
        let title = alert?.title.flatMap { $0.isEmpty ? nil : $0 } ?? appName
        let texts = [alert?.subtitle, alert?.body].compactMap(\.self)
        guard texts.isEmpty else { return (title, texts.joined(separator: " — ")) }
        let members = state.map { "\($0.name) \($0.value)" }
        return (title, members.isEmpty ? silence ?? "" : members.joined(separator: " · "))
    }

    /// Returns the notification on one line, such as `alert "Your order — On its way"`. Unprintable characters are not
    /// escaped.
    /// - Parameter limit: the maximum number of characters of the alert's texts.
    package func summary(atMost limit: Int = 60) -> String {
        var words = [kind == .other ? pushType ?? "unknown" : kind.name]
        if let event { words.append(String(event.prefix(20))) }
        if let alert {
            let text = [alert.title, alert.subtitle, alert.body].compactMap(\.self).filter { !$0.isEmpty }
                .joined(separator: " — ")
            words.append("\"\(text.prefix(limit))\(text.count > limit ? "…" : "")\"")
        } else if kind == .alert, let silence {
            words.append("(\(silence))")
        }
        if let badge { words.append("badge \(badge)") }
        return words.joined(separator: " ")
    }
}

// The markup.
extension PushPreview {
    /// Returns the lock screen of a device with the notification, and the facts that a device does not show.
    /// - Parameters:
    ///   - clock: the time on the lock screen, such as `09:41`.
    ///   - refusal: the reason why the notification never reached the device.
    package func html(clock: String? = nil, refusal: String? = nil) -> HTML {
        """
        <div class="device\(if: refusal != nil, " refused")" role="group" aria-label="Preview">\
        \(clock.map { "<p class=\"clock\" aria-hidden=\"true\">\($0)</p>" as HTML })\
        \(banner(refusal: refusal))\(extra)</div>
        """
    }

    /// Returns the banner, or the reason why there is none.
    /// - Parameters:
    ///   - when: its age; `now` if nil.
    ///   - refusal: the answer that refused the notification. The banner is then drawn as not shown.
    package func banner(when: HTML? = nil, refusal: String? = nil) -> HTML {
        if let refusal {
            let content = alert.map { texts($0, when: when ?? "\(title)") } ?? nameLine
            return """
                <div class="banner silent refused">\(icon(badge: nil))<div>\(content)\
                \(if: alert == nil && silence != nil, "<p>\(silence)</p>")\
                <p class="reason">not shown: \(refusal)</p></div></div>
                """
        }
        if kind == .liveactivity { return activity }
        guard silence == nil, let alert else {
            return """
                <div class="banner silent">\(icon(badge: badge))<div>\(nameLine)\
                <p>\(silence ?? "No banner.")</p></div></div>
                """
        }
        return """
            <div class="banner">\(icon(badge: badge))<div>\(texts(alert, when: when))</div></div>
            """
    }

    private var nameLine: HTML {
        "<div class=\"head\"><span>\(appName)</span><span class=\"when\">\(title)</span></div>"
    }

    private func texts(_ alert: PayloadReader.Alert, when: HTML? = nil) -> HTML {
        let title = alert.title.flatMap { $0.isEmpty ? nil : $0 } ?? appName
        return """
            <div class="head"><span>\(title)</span><span class="when">\(when ?? "now")</span></div>\
            \(alert.subtitle.map { "<p class=\"sub\">\($0)</p>" as HTML })\
            \(alert.body.map { "<p>\($0)</p>" as HTML })
            """
    }

    private func icon(badge: Int64?) -> HTML {
        """
        <span class="app" aria-hidden="true">\(String(appName.prefix(1)))\
        \(badge.map { $0 > 0 ? "<span class=\"badge\">\($0)</span>" : "" as HTML })</span>
        """
    }

    private var activity: HTML {
        let tone: Elements.Tone = ["start": .good, "update": .plain, "end": .quiet][event ?? ""] ?? .warning
        let words = ["start": "starts", "update": "updates", "end": "ends"][event ?? ""] ?? "has no known event"
        return """
            <div class="banner activity">\(icon(badge: badge))<div>\
            <div class="head"><span>\(appName)</span>\(Elements.label("Live Activity \(words)", tone))</div>\
            \(alert.map { texts($0) })\(Self.list(state))\
            \(if: !attributes.isEmpty, "<p class=\"sub\">attributes</p>\(Self.list(attributes))")\
            </div></div>
            """
    }

    private static func list(_ facts: [PayloadReader.Fact]) -> HTML {
        guard !facts.isEmpty else { return "" }
        let rows = facts.map { "<div><dt>\($0.name)</dt><dd>\($0.value)</dd></div>" as HTML }
        return "<dl class=\"state\">\(rows)</dl>"
    }

    private var extra: HTML {
        guard !facts.isEmpty else { return "" }
        return "<ul class=\"extra\">\(facts.map { "<li><b>\($0.name)</b> \($0.value)</li>" as HTML })</ul>"
    }

    /// The display name of the kind; for an unknown kind, its push type.
    package var title: String {
        kind == .other ? pushType.map { String($0.prefix(40)) } ?? "unknown" : "\(kind.row.title)"
    }
}
